//! The rules of the built-in skills for failed code, and how the agent loop applies them.

use crate::scripted_server::{RUNS_CODE, Scene, agent_code, code, plan, say, say_to, text};
use serde_json::{Value, json};

const SKILL: &str = include_str!("../../skills/code-interpreter/SKILL.md");

// proves P-056, P-057, P-058, P-059
#[tokio::test(flavor = "multi_thread")]
async fn the_skill_has_its_four_rules_and_the_loop_keeps_to_three_tries() {
    let skill = SKILL.split_whitespace().collect::<Vec<_>>().join(" ");
    for rule in [
        "Read the traceback, fix the code, and run it again.",
        "There are at most two retries",
        "PYTHON_PACKAGES_WHITELIST_IMPORT",
        "Do the same with the standard library. If that cannot be done, tell the user that the library is unavailable.",
        "On `CodeSandboxUnreachable`",
        "Do not retry. Tell the user that running code is temporarily unavailable.",
        "Never invent a result when the code failed.",
    ] {
        assert!(skill.contains(rule), "{rule}");
    }
    let mut turns = vec![plan(&["Divide"])];
    turns.extend((0..10).map(|_| code("1 / 0")));
    let scene = Scene::play(json!(turns)).await;
    let done = scene.request("Divide.").await;
    stopped_after_three(&done);
    assert_eq!(done["complete"], false);
    assert!(text(&done["answer"]).contains("The session is open"), "{done}");
    assert_eq!(scene.asked().len(), 4, "it is not asked for a fourth");
}

fn stopped_after_three(done: &Value) {
    assert_eq!(
        (&done["status"], &done["error"]["code"]),
        (&json!("failed"), &json!("budget.exhausted")),
        "{done}"
    );
    assert_eq!(done["rounds"].as_array().unwrap().len(), 3);
    let said =
        "3 consecutive attempts failed; the last error: ZeroDivisionError: division by zero.";
    assert!(text(&done["answer"]).contains(said), "{done}");
}

// proves P-060
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_tries_three_times_and_what_works_is_a_new_beginning() {
    let scene = Scene::play(json!([
        agent_code("1 / 0"),
        agent_code("1 / 0"),
        agent_code("print(1)"),
        agent_code("1 / 0"),
        agent_code("1 / 0"),
        say("Nothing can be divided by zero."),
        agent_code("1 / 0"),
        agent_code("1 / 0"),
        agent_code("1 / 0"),
        say("never"),
    ]))
    .await;
    let agent = scene.agent(RUNS_CODE).await;
    let done = say_to(scene.owner(), &agent, "Divide.").await;
    assert_eq!(done["rounds"].as_array().unwrap().len(), 5, "{done}");
    assert_eq!(done["status"], "succeeded");
    stopped_after_three(&say_to(scene.owner(), &agent, "Divide.").await);
    assert_eq!(scene.asked().len(), 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_code_failed_is_not_believed_a_number() {
    let turns = |last: &str| [agent_code("1 / 0"), say(last)];
    let both = [turns("It is 4711."), turns("That cannot be done.")];
    let scene = Scene::play(both.concat().into()).await;
    let agent = scene.agent(RUNS_CODE).await;
    let done = say_to(scene.owner(), &agent, "Divide one by zero.").await;
    assert!(!text(&done["answer"]).contains("4711"), "{done}");
    assert!(text(&done["answer"]).contains("division by zero"), "{done}");
    let done = say_to(scene.owner(), &agent, "Divide one by zero.").await;
    assert_eq!(done["answer"], "That cannot be done.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_library_that_is_not_allowed_is_told_by_the_name_of_the_rule() {
    let turns = json!([
        plan(&["Import"]),
        code("import pip"),
        code("import math\nprint(math.floor(2.5))"),
        say("It is 2.")
    ]);
    let scene = Scene::with(turns, &["--imports", "numpy"]).await;
    let done = scene.request("Round 2.5 down.").await;
    assert!(
        scene.messages(2).contains("PYTHON_PACKAGES_WHITELIST_IMPORT"),
        "{}",
        scene.messages(2)
    );
    assert_eq!((&done["answer"], &done["complete"]), (&json!("It is 2."), &json!(true)));
}
