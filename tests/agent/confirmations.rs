//! A tool inside a specification needs a confirmation before it runs: the action, and the effect of a reply.

use crate::scripted_server::{Scene, call, calls, chat, offered, say, say_to, text};
use crate::test_server::Api;
use serde_json::{Value, json};

const BOOK: &str = "def handle(what: str) -> str:\n    \"\"\"Books something.\n\n    Args:\n        what: which\n    \"\"\"\n    return 'booked ' + what\n";

/// An agent whose tools are its own, and so are confirmed.
pub(crate) fn booking() -> Value {
    let tool = |name: &str| {
        json!({
            "type": "runPythonCode", "name": name, "description": "Books something for good.",
            "configuration": {"pythonCode": BOOK},
        })
    };
    json!({"tools": [tool("book"), tool("order")]})
}

pub(crate) fn booking_and_code() -> Value {
    let mut both = booking();
    let entry = json!({"tool_spec": {"type": "code_execution", "name": "code_execution"}});
    both["tools"].as_array_mut().unwrap().push(entry);
    both["tool_resources"] = json!({"code_execution": {}});
    both
}

pub(crate) fn book(what: &str) -> Value {
    call("book", json!({ "what": what }))
}

pub(crate) fn reply(asked: &Value, status: &str) -> Value {
    replies(asked, &[status])
}

/// One status for each action, in their order.
pub(crate) fn replies(asked: &Value, statuses: &[&str]) -> Value {
    let actions = asked["actions"].as_array().unwrap();
    assert_eq!(actions.len(), statuses.len(), "{asked}");
    let messages: Vec<Value> = actions.iter().zip(statuses).map(|(action, status)| json!({
        "role": "action", "type": "toolConfirmation", "actionId": action["actionId"], "status": status,
    })).collect();
    json!({"cursor": asked["cursor"], "messages": messages})
}

/// How many calls of tools have run.
pub(crate) async fn ran(api: &Api) -> usize {
    let done = api.get("/v1/executions?status=succeeded").await;
    done["items"].as_array().unwrap().iter().filter(|it| it["entry"] == "handle").count()
}

// proves C-139, C-140, C-142, C-143
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_asks_first_and_runs_once_when_it_is_allowed() {
    let scene = Scene::play(json!([
        {"say": "I will book it.", "calls": [{"name": "book", "arguments": {"what": "a table"}}]},
        say("The table is booked."),
    ]))
    .await;
    let agent = scene.agent(booking()).await;
    let asked =
        chat(scene.owner(), &agent, json!({"message": "Book a table.", "agentExternalId": "mine"}))
            .await;
    assert_eq!((&asked["status"], &asked["answer"]), (&json!("succeeded"), &json!("")), "{asked}");
    let action = &asked["response"]["messages"][0]["actions"][0];
    let id = text(&action["actionId"]);
    let confirmation = json!({
        "content": {"type": "text", "text": "The agent wants to run the tool book."},
        "toolName": "book",
        "toolArguments": {"what": "a table"},
        "toolDescription": "Books something for good.",
        "toolType": "runPythonCode",
        "details": action["toolConfirmation"]["details"],
    });
    assert_eq!(
        action,
        &json!({"type": "toolConfirmation", "actionId": id, "toolConfirmation": confirmation})
    );
    assert!(action["toolConfirmation"]["details"]["executionId"].is_string());
    assert_eq!(asked["actions"], asked["response"]["messages"][0]["actions"]);
    assert_eq!(
        (ran(scene.owner()).await, scene.asked().len()),
        (0, 1),
        "nothing has run, nobody is asked on"
    );

    let done = json!({"agentExternalId": "mine", "cursor": asked["response"]["cursor"], "messages": [
        {"role": "action", "type": "toolConfirmation", "actionId": id, "status": "ALLOW"},
    ]});
    let done = chat(scene.owner(), &agent, done).await;
    assert_eq!(done["answer"], "The table is booked.", "{done}");
    assert_eq!((&done["actions"], &done["agentExternalId"]), (&json!([]), &json!("mine")));
    let called = &done["response"]["messages"][0]["reasoning"][0]["data"][0]["toolCall"];
    assert_eq!(
        (&called["name"], &called["result"]),
        (&json!("book"), &json!("\"booked a table\"")),
        "{done}"
    );
    assert!(scene.messages(1).contains("booked a table"));
    assert_eq!(ran(scene.owner()).await, 1);
}

// proves C-141
#[tokio::test(flavor = "multi_thread")]
async fn what_is_denied_does_not_run_and_the_agent_goes_on_without_it() {
    let scene = Scene::play(json!([book("a table"), say("Then I do not book it.")])).await;
    let agent = scene.agent(booking()).await;
    let asked = say_to(scene.owner(), &agent, "Book a table.").await;
    let done = chat(scene.owner(), &agent, reply(&asked, "DENY")).await;
    assert_eq!(
        (&done["answer"], &done["status"]),
        (&json!("Then I do not book it."), &json!("succeeded")),
        "{done}"
    );
    let messages = scene.messages(1);
    assert!(messages.contains("approval.denied") || messages.contains("denied"), "{messages}");
    assert!(!messages.contains("booked a table"));
    assert_eq!(ran(scene.owner()).await, 0);
}

// proves C-144
#[tokio::test(flavor = "multi_thread")]
async fn several_are_answered_at_once_and_each_for_itself() {
    let scene = Scene::play(json!([
        calls(&[
            ("book", json!({"what": "a table"})),
            ("order", json!({"what": "wine"})),
            ("book", json!({"what": "a cab"}))
        ]),
        say("Some of it is done."),
    ]))
    .await;
    let agent = scene.agent(booking()).await;
    let asked = say_to(scene.owner(), &agent, "Book all of it.").await;
    let names: Vec<&Value> = asked["actions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|action| &action["toolConfirmation"]["toolName"])
        .collect();
    assert_eq!(names, ["book", "order", "book"]);
    let some = replies(&asked, &["ALLOW", "DENY", "ALLOW"]);
    let mut one = some.clone();
    one["messages"].as_array_mut().unwrap().truncate(1);
    let (status, problem) = scene.owner().call("POST", &format!("{agent}/run"), Some(one)).await;
    assert_eq!(
        (status, &problem["code"]),
        (409, &json!("approval.required")),
        "two are left open: {problem}"
    );
    assert_eq!(ran(scene.owner()).await, 0, "one that is wrong leaves all as they were");
    let done = chat(scene.owner(), &agent, some).await;
    assert_eq!(done["answer"], "Some of it is done.", "{done}");
    let messages = scene.messages(1);
    assert!(
        messages.contains("booked a table")
            && messages.contains("booked a cab")
            && !messages.contains("booked wine"),
        "{messages}"
    );
    assert_eq!(ran(scene.owner()).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_may_ask_again_after_it_was_allowed() {
    let scene = Scene::play(json!([book("a table"), book("a cab"), say("Both are booked.")])).await;
    let agent = scene.agent(booking()).await;
    let first = say_to(scene.owner(), &agent, "Book both.").await;
    let second = chat(scene.owner(), &agent, reply(&first, "ALLOW")).await;
    assert_eq!(
        second["actions"][0]["toolConfirmation"]["toolArguments"],
        json!({"what": "a cab"}),
        "{second}"
    );
    assert_ne!(second["actions"][0]["actionId"], first["actions"][0]["actionId"]);
    assert_eq!(ran(scene.owner()).await, 1);
    assert_eq!(
        chat(scene.owner(), &agent, reply(&second, "ALLOW")).await["answer"],
        "Both are booked."
    );
    assert_eq!(ran(scene.owner()).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_beside_a_question_is_kept_for_when_it_is_answered() {
    let scene = Scene::play(json!([
        calls(&[("code_execution", json!({"code": "kept = 42\nprint('counted')"})), ("book", json!({"what": "a table"}))]),
        {"calls": [{"name": "code_execution", "arguments": {"code": "print(kept)"}}]},
        say("It is 42, and booked."),
    ]))
    .await;
    let agent = scene.agent(booking_and_code()).await;
    let asked = say_to(scene.owner(), &agent, "Count and book.").await;
    assert_eq!(asked["rounds"][0]["stdout"], "counted\n", "{asked}");
    let done = chat(scene.owner(), &agent, reply(&asked, "ALLOW")).await;
    assert_eq!(
        (&done["answer"], &done["rounds"][0]["stdout"]),
        (&json!("It is 42, and booked."), &json!("42\n")),
        "{done}"
    );
    let messages = scene.messages(1);
    assert!(messages.contains("counted") && messages.contains("booked a table"), "{messages}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_and_its_answer_survive_a_restart_of_the_server() {
    let mut scene = Scene::play(json!([book("a table"), say("It is booked.")])).await;
    let agent = scene.agent(booking()).await;
    let asked = say_to(scene.owner(), &agent, "Book a table.").await;
    scene.world.stop().await;
    scene.world.again().await;
    assert_eq!(ran(scene.owner()).await, 0);
    let done = chat(scene.owner(), &agent, reply(&asked, "ALLOW")).await;
    assert_eq!(done["answer"], "It is booked.", "{done}");
    assert_eq!(ran(scene.owner()).await, 1);
    scene.world.kill();
    scene.world.again().await;
    let (status, _) =
        scene.owner().call("POST", &format!("{agent}/run"), Some(reply(&asked, "ALLOW"))).await;
    assert_eq!((status, ran(scene.owner()).await), (400, 1), "it is answered once, for good");
}

#[tokio::test(flavor = "multi_thread")]
async fn code_asks_as_well_where_the_workspace_says_so() {
    let scene = Scene::play(json!([
        crate::scripted_server::agent_code("kept = 42\nprint('ran')"),
        crate::scripted_server::agent_code("print(kept)"),
        say("It is 42."),
    ]))
    .await;
    let agent = scene.agent(crate::scripted_server::RUNS_CODE).await;
    let set = async |permission: &str| {
        let body = Some(json!({ "permission": permission }));
        assert_eq!(scene.owner().call("PUT", "/v1/permissions/execute_python", body).await.0, 200);
    };
    set("ask").await;
    let asked = say_to(scene.owner(), &agent, "Keep it.").await;
    let action = &asked["actions"][0]["toolConfirmation"];
    assert_eq!(
        (&action["toolName"], &action["toolType"]),
        (&json!("code_execution"), &json!("code_execution")),
        "{asked}"
    );
    assert_eq!(action["toolArguments"]["code"], "kept = 42\nprint('ran')");
    assert!(text(&action["toolDescription"]).starts_with("Run Python in the session"), "{action}");
    assert_eq!(asked["rounds"], json!([]));
    set("allow").await;
    let boss = scene.world.principal("boss", &["OWNERSHIP"]).await;
    let approval = format!("/v1/approvals/{}", text(&asked["actions"][0]["actionId"]));
    boss.post(&approval, json!({"decision": "allow"})).await;
    let done = chat(scene.owner(), &agent, json!({"cursor": asked["cursor"]})).await;
    assert_eq!(done["answer"], "It is 42.", "{done}");
    let printed: Vec<&Value> =
        done["rounds"].as_array().unwrap().iter().map(|round| &round["stdout"]).collect();
    assert_eq!(printed, ["ran\n", "42\n"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_whose_specification_says_so_runs_without_a_question_or_not_at_all() {
    let scene = Scene::play(json!([book("a table"), say("It is booked.")])).await;
    let mut said = booking();
    said["tools"][0]["approval_action"] = json!("allow");
    said["tools"][1]["approval_action"] = json!("deny");
    let agent = scene.agent(said).await;
    let done = say_to(scene.owner(), &agent, "Book a table.").await;
    assert_eq!((&done["answer"], &done["actions"]), (&json!("It is booked."), &json!([])));
    assert_eq!(offered(&scene.asked()[0]), ["book"], "one that is denied is not offered");
    assert_eq!(ran(scene.owner()).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_of_a_skill_asks_too_and_is_shown_as_it_ran() {
    let help = json!({"skill": "dataviz", "script": "scripts/chart.py", "arguments": ["--help"]});
    let scene = Scene::play(json!([call("run_skill_script", help), say("That is how.")])).await;
    let specification = format!("{}skills: [dataviz]\n", crate::scripted_server::RUNS_CODE);
    let agent = scene.agent(specification).await;
    let ask = Some(json!({"permission": "ask"}));
    scene.owner().call("PUT", "/v1/permissions/execute_python", ask).await;
    let asked = say_to(scene.owner(), &agent, "How?").await;
    let action = &asked["actions"][0]["toolConfirmation"];
    assert_eq!(action["toolName"], "run_skill_script", "{asked}");
    assert!(text(&action["toolDescription"]).starts_with("Run a script of a skill"), "{action}");
    let place = format!("/v1/executions/{}/events", text(&asked["execution_id"]));
    let heard = scene.owner().request(reqwest::Method::GET, &place).send().await.unwrap();
    let heard = crate::test_server::events(heard).await;
    assert!(heard.iter().any(|(_, name, data)| {
        name == "approval" && data["approval_id"] == asked["actions"][0]["actionId"]
    }));
    let boss = scene.world.principal("boss", &["OWNERSHIP"]).await;
    let approval = format!("/v1/approvals/{}", text(&asked["actions"][0]["actionId"]));
    boss.post(&approval, json!({"decision": "allow"})).await;
    let done = chat(scene.owner(), &agent, json!({"cursor": asked["cursor"]})).await;
    assert_eq!(done["answer"], "That is how.", "{done}");
    let round = &done["rounds"][0];
    assert!(text(&round["code"]).contains("runpy.run_path"), "{round}");
    assert!(text(&round["stdout"]).contains("usage"), "{round}");
}
