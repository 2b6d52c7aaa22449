//! Budgets of an agent: the limits of its specification, and the reported usage.

use crate::scripted_server::{
    RUNS_CODE, Scene, agent_code, call, calls, chat, code, plan, say, say_to, text,
};
use serde_json::{Value, json};

fn with_budget(budget: &str) -> String {
    format!("{RUNS_CODE}orchestration:\n  budget: {budget}\n")
}

fn exhausted(done: &Value, said: &str) {
    assert_eq!(done["error"]["code"], "budget.exhausted", "{done}");
    assert!(text(&done["error"]["message"]).contains(said), "{done}");
    assert!(text(&done["answer"]).contains(said), "{done}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rounds_are_counted_and_the_conversation_goes_on_afterwards() {
    let scene = Scene::play(json!([
        agent_code("kept = 1"),
        agent_code("kept += 1"),
        agent_code("kept += 1"),
        agent_code("print(kept)"),
        say("It is 2."),
    ]))
    .await;
    let agent = scene.agent(with_budget("{rounds: 2}")).await;
    let done = say_to(scene.owner(), &agent, "Count.").await;
    assert_eq!(done["status"], "failed");
    exhausted(&done, "the limit of 2 rounds was reached");
    assert_eq!(done["rounds"].as_array().unwrap().len(), 2);
    let on = chat(scene.owner(), &agent, json!({"message": "How many?", "cursor": done["cursor"]}))
        .await;
    assert_eq!(
        (&on["answer"], &on["rounds"][0]["stdout"]),
        (&json!("It is 2."), &json!("2\n")),
        "{on}"
    );
    assert!(
        scene.messages(3).contains("This was not run: the run has ended."),
        "{}",
        scene.messages(3)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_at_once_that_go_beyond_the_limit_are_not_begun() {
    const NOTE: &str = "def handle(n: int) -> int:\n    \"\"\"Notes it.\n\n    Args:\n        n: what\n    \"\"\"\n    return n\n";
    let scene = Scene::play(json!([
        calls(&[("note", json!({"n": 1})), ("code_execution", json!({"code": "print(1)"}))]),
        say("What happened?"),
    ]))
    .await;
    let agent = scene.agent(with_budget("{rounds: 1}")).await;
    let tool = json!({"type": "runPythonCode", "approval_action": "allow", "name": "note", "description": "Notes something.",
        "configuration": {"pythonCode": NOTE}});
    let tool = text(&scene.owner().post("/v1/tools", tool).await["id"]);
    scene.owner().post(&format!("{agent}/tools/{tool}"), json!({})).await;
    let done = say_to(scene.owner(), &agent, "Go.").await;
    exhausted(&done, "the limit of 1 rounds was reached");
    let ran = scene.owner().get("/v1/executions").await;
    assert_eq!(ran["items"].as_array().unwrap().len(), 1, "the run alone: {ran}");
    chat(scene.owner(), &agent, json!({"message": "And?", "cursor": done["cursor"]})).await;
    assert_eq!(scene.messages(1).matches("This was not run").count(), 2, "{}", scene.messages(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_counted() {
    let many = |code: &str| json!({"calls": [{"name": "code_execution", "arguments": {"code": code}}], "tokens": {"input": 400, "output": 200}});
    let scene = Scene::play(json!([many("print(1)"), many("print(2)"), say("never")])).await;
    let agent = scene.agent(with_budget("{tokens: 1000}")).await;
    let done = say_to(scene.owner(), &agent, "Count.").await;
    exhausted(&done, "the limit of 1000 tokens was reached");
    assert_eq!(done["rounds"].as_array().unwrap().len(), 2);
    let used = &done["model"];
    assert_eq!(
        (&used["requests"], &used["input_tokens"], &used["output_tokens"]),
        (&json!(2), &json!(800), &json!(400))
    );
    assert_eq!(scene.asked().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn time_is_measured_over_the_code_and_over_the_model() {
    for slow in [agent_code("import time\ntime.sleep(30)"), json!({"hang": true})] {
        let scene = Scene::play(json!([
            agent_code("kept = 5"),
            slow,
            agent_code("print(kept)"),
            say("It is 5.")
        ]))
        .await;
        let agent = scene.agent(with_budget("{seconds: 2}")).await;
        let done = say_to(scene.owner(), &agent, "Wait.").await;
        assert_eq!(done["status"], "timed_out", "{done}");
        exhausted(&done, "the limit of 2 seconds was reached");
        let on =
            chat(scene.owner(), &agent, json!({"message": "And?", "cursor": done["cursor"]})).await;
        assert_eq!(
            (&on["answer"], &on["rounds"][0]["stdout"]),
            (&json!("It is 5."), &json!("5\n")),
            "{on}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_in_words_has_no_budget_of_its_own() {
    let mut turns = vec![call("code_execution", json!({"request": "Count."})), plan(&["Count"])];
    turns.extend((0..9).map(|_| code("print(1)")));
    let scene = Scene::play(json!(turns)).await;
    let agent = scene.agent(with_budget("{rounds: 4}")).await;
    let done = say_to(scene.owner(), &agent, "Count.").await;
    exhausted(&done, "the limit of 4 rounds was reached");
    assert_eq!(done["rounds"].as_array().unwrap().len(), 3, "the request itself is one: {done}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_is_none_is_refused_when_it_is_written() {
    let scene = Scene::play(json!([])).await;
    for budget in ["{rounds: 0}", "{tokens: -1}", "{seconds: soon}", "7"] {
        let body = json!({"name": "x", "specification": with_budget(budget)});
        let (status, problem) = scene.owner().call("POST", "/v1/agents", Some(body)).await;
        assert_eq!(status, 400, "{budget}: {problem}");
        let path = text(&problem["errors"][0]["path"]);
        assert!(path.starts_with("/specification/orchestration/budget"), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_conversation_is_gone_on_from_its_last_request() {
    let shout = agent_code("print('a' * 15_000)\nimport sys\nprint('b' * 15_000, file=sys.stderr)");
    let mut turns = vec![shout; 12];
    turns.extend([say("That was long."), say("It was.")]);
    let scene = Scene::play(json!(turns)).await;
    let agent = scene.agent(RUNS_CODE).await;
    let first = say_to(scene.owner(), &agent, "Shout a dozen times.").await;
    assert_eq!(first["answer"], "That was long.", "{}", first["error"]);
    let second =
        chat(scene.owner(), &agent, json!({"message": "Was it?", "cursor": first["cursor"]})).await;
    assert_eq!(second["answer"], "It was.");
    let messages = scene.messages(13);
    assert!(
        messages.contains("Shout a dozen times.") && messages.contains("That was long."),
        "{}",
        messages.len()
    );
}
