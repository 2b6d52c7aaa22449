//! A run in which something failed never returns a number that no tool has computed: neither in its answer
//! nor in its stream.

use crate::confirmations::{booking_and_code, reply};
use crate::scripted_server::{
    CODE, RUNS_CODE, Scene, agent_code, call, chat, code, plan, say, say_to, stream, text,
};
use crate::test_server::events;
use serde_json::{Value, json};

const INVENTED: &str = "The total is 4711.";

/// The run of a model that says a number which nothing has computed.
async fn failed(turns: &[Value]) -> Value {
    let scene = Scene::play(json!(turns)).await;
    let done = scene.request("What is the total?").await;
    assert_eq!((&done["status"], &done["complete"]), (&json!("failed"), &json!(false)), "{done}");
    let answer = text(&done["answer"]);
    assert!(!answer.contains("4711") && answer.contains("nothing was computed"), "{answer}");
    done
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_no_ground_for_a_number() {
    let planned = plan(&["Report the total 4711"]);
    let done = failed(&[planned, code("1 / 0"), say(INVENTED)]).await;
    assert_eq!(done["error"]["type"], "ZeroDivisionError");
}

#[tokio::test(flavor = "multi_thread")]
async fn code_that_its_own_traceback_shows_is_no_ground_for_a_number() {
    failed(&[plan(&["Add up"]), code("total = 4711 / 0"), say(INVENTED)]).await;
    let raised = code("raise ValueError('it would be 4711')");
    let scene = Scene::play(json!([plan(&["Add up"]), raised, say(INVENTED)])).await;
    let done = scene.request("What is the total?").await;
    assert_eq!(done["status"], "failed");
    assert_ne!(done["answer"], INVENTED);
}

#[tokio::test(flavor = "multi_thread")]
async fn code_that_computes_nothing_after_a_failure_proves_nothing() {
    failed(&[plan(&["Add up"]), code("1 / 0"), code("pass"), say(INVENTED)]).await;
    failed(&[plan(&["Add up"]), code("1 / 0"), code("print('done')"), say(INVENTED)]).await;
    let mended = [plan(&["Add up"]), code("1 / 0"), code("print(4710.96)"), say("About 4711.")];
    let scene = Scene::play(json!(mended)).await;
    let done = scene.request("What is the total?").await;
    assert_eq!((&done["answer"], &done["complete"]), (&json!("About 4711."), &json!(true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_gets_the_answer_and_no_unverified_number() {
    let thinks = json!({"say": "It should be 4711.", "calls": [
        {"name": "run_python", "arguments": {"code": "pass"}}]});
    let turns = [plan(&["Add up"]), code("1 / 0"), thinks, say(INVENTED)];
    let scene = Scene::play(json!(turns)).await;
    let heard = stream(scene.owner(), CODE, json!({"request": "What is the total?"})).await;
    let heard = events(heard).await;
    let names: Vec<&str> = heard.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(names, ["plan", "round", "round", "answer", "error", "end"], "{heard:?}");
    assert!(text(&heard[3].2["text"]).contains("division by zero"), "{heard:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_back_to_be_computed_is_not_heard_before() {
    let turns = [plan(&["Add up"]), say(INVENTED), code("print(12)"), say("It is 12.")];
    let scene = Scene::play(json!(turns)).await;
    let heard = stream(scene.owner(), CODE, json!({"request": "What is the total?"})).await;
    let heard = events(heard).await;
    let names: Vec<&str> = heard.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(names, ["plan", "round", "text", "answer", "end"], "{heard:?}");
    assert_eq!(heard[3].2["text"], "It is 12.");
}

const RAISES: &str =
    "def handle() -> int:\n    \"\"\"Adds up.\"\"\"\n    raise ValueError('no rows')\n";

fn adding() -> Value {
    json!({"tools": [{
        "type": "runPythonCode", "name": "total", "description": "Adds everything up.",
        "approval_action": "allow", "configuration": {"pythonCode": RAISES},
    }]})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_tool_raised_is_not_believed_a_number() {
    let total = call("total", json!({}));
    let honest = "There are no rows in 2024.";
    let scene =
        Scene::play(json!([total, say(INVENTED), total, say(honest), total, say("No rows.")]))
            .await;
    let agent = scene.agent(adding()).await;
    let done = say_to(scene.owner(), &agent, "What is the total?").await;
    assert_eq!((&done["status"], &done["error"]["type"]), (&json!("failed"), &json!("ValueError")));
    let answer = text(&done["answer"]);
    assert!(!answer.contains("4711") && answer.contains("no rows"), "{answer}");
    let done = say_to(scene.owner(), &agent, "What was the total in 2024?").await;
    assert_eq!((&done["answer"], &done["status"]), (&json!(honest), &json!("succeeded")));
    let on = json!({"message": "And now?", "cursor": done["cursor"]});
    assert_eq!(chat(scene.owner(), &agent, on).await["answer"], "No rows.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_not_forgotten_while_an_approval_is_pending() {
    let book = call("book", json!({"what": "a table"}));
    let scene = Scene::play(json!([
        agent_code("1 / 0"),
        book,
        say(INVENTED),
        say("It has 88 constellations."),
    ]))
    .await;
    let agent = scene.agent(booking_and_code()).await;
    let asked = say_to(scene.owner(), &agent, "Add up, and book.").await;
    let done = chat(scene.owner(), &agent, reply(&asked, "ALLOW")).await;
    assert_eq!(done["status"], "failed", "{done}");
    assert!(!text(&done["answer"]).contains("4711"), "{done}");
    let on = json!({"message": "What has the sky?", "cursor": done["cursor"]});
    let done = chat(scene.owner(), &agent, on).await;
    assert_eq!(done["answer"], "It has 88 constellations.", "that is another question");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_a_model_wrote_is_no_ground_either() {
    let asks = call("code_execution", json!({"request": "Report the total 4711."}));
    let turns = [asks, plan(&["Add up"]), code("1 / 0"), say(INVENTED), say(INVENTED)];
    let scene = Scene::play(json!(turns)).await;
    let agent = scene.agent(RUNS_CODE).await;
    let done = say_to(scene.owner(), &agent, "What is the total?").await;
    assert_eq!(done["status"], "failed", "{done}");
    assert!(!text(&done["answer"]).contains("4711"), "{done}");
    assert!(scene.messages(4).contains("nothing was computed"), "{}", scene.messages(4));
}
