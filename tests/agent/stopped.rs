//! Cancelled model runs: the model gets the actual outcome of its calls, and nothing continues after the end.

use crate::confirmations::{booking_and_code, reply};
use crate::harness::wait;
use crate::scripted_server::{Scene, begin, call, calls, chat, code, plan, say, say_to, text};
use reqwest::Method;
use serde_json::{Value, json};

const SLOW: &str = "import time\ndef handle() -> str:\n    \"\"\"Takes its time.\"\"\"\n    time.sleep(60)\n    return 'done'\n";

/// An agent with `note`, which runs, `book`, which asks, and code.
fn helper() -> Value {
    let mut agent = booking_and_code();
    let tools = agent["tools"].as_array_mut().unwrap();
    let mut note = tools[1].clone();
    note["name"] = json!("note");
    note["approval_action"] = json!("allow");
    tools.push(note);
    let slow = json!({"type": "runPythonCode", "name": "slow", "description": "Takes a whole minute.",
        "configuration": {"pythonCode": SLOW}});
    tools.push(slow);
    agent
}

async fn running(scene: &Scene, entry: &str) -> Value {
    let found = async || {
        let listed = scene.owner().get("/v1/executions?status=running").await;
        let items = listed["items"].as_array().unwrap().clone();
        items.into_iter().find(|it| it["entry"] == entry)
    };
    wait::until_some(&format!("something of {entry} runs"), found).await
}

async fn cancel(scene: &Scene, run: &str) -> Value {
    scene.owner().call("POST", &format!("{run}/cancel"), None).await;
    scene.settled(run).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_run_withdraws_its_question_and_tells_what_ran() {
    let slow = json!({"code": "import time; time.sleep(60)"});
    let what = |what: &str| json!({ "what": what });
    let scene = Scene::play(json!([
        calls(&[("note", what("A")), ("book", what("B")), ("code_execution", slow)]),
        say("I see."),
    ]))
    .await;
    let agent = scene.agent(helper()).await;
    let run = begin(scene.owner(), &format!("{agent}/run"), json!({"message": "Go."})).await;
    running(&scene, "cell").await;
    let open = scene.owner().get("/v1/approvals?state=pending").await;
    assert_eq!(open["items"].as_array().unwrap().len(), 1, "the twin: it was asked");
    let ended = cancel(&scene, &run).await;
    assert_eq!(ended["status"], "cancelled");
    assert_eq!(ended["rounds"][0]["status"], "cancelled", "{ended}");
    let open = scene.owner().get("/v1/approvals?state=pending").await;
    assert_eq!(open["items"], json!([]), "nobody could allow it later");
    chat(scene.owner(), &agent, json!({"message": "And?", "cursor": ended["id"]})).await;
    let messages = scene.messages(1);
    assert!(messages.contains("booked A"), "{messages}");
    assert_eq!(messages.matches("This was not run").count(), 1, "{messages}");
    assert_eq!(messages.matches("This was started and then stopped").count(), 1, "{messages}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_allowed_is_stopped_with_the_run_that_waits_for_it() {
    let scene = Scene::play(json!([call("slow", json!({})), say("It was stopped.")])).await;
    let agent = scene.agent(helper()).await;
    let asked = say_to(scene.owner(), &agent, "Go.").await;
    let run = begin(scene.owner(), &format!("{agent}/run"), reply(&asked, "ALLOW")).await;
    let slow = running(&scene, "handle").await;
    let ended = cancel(&scene, &run).await;
    let tool = scene.settled(&format!("/v1/executions/{}", text(&slow["id"]))).await;
    assert_eq!((&ended["status"], &tool["status"]), (&json!("cancelled"), &json!("cancelled")));
    let done = chat(scene.owner(), &agent, json!({"cursor": ended["id"]})).await;
    assert_eq!(done["answer"], "It was stopped.", "{done}");
    assert!(scene.messages(1).contains("KeyboardInterrupt"), "{}", scene.messages(1));
    let all = scene.owner().get("/v1/executions").await;
    let calls = all["items"].as_array().unwrap().iter().filter(|it| it["entry"] == "handle");
    assert_eq!(calls.count(), 1, "nothing runs twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_required_tool_counts_as_called_when_its_call_was_approved() {
    let book = call("book", json!({"what": "it"}));
    let scene = Scene::play(json!([book, say("Done.")])).await;
    let mut specification = helper();
    specification["tool_choice"] = json!("required");
    let agent = scene.agent(specification).await;
    let asked = say_to(scene.owner(), &agent, "Book it.").await;
    assert_eq!(scene.asked()[0]["tool_choice"], "required");
    let done = chat(scene.owner(), &agent, reply(&asked, "ALLOW")).await;
    assert_eq!(done["answer"], "Done.");
    assert_ne!(scene.asked()[1]["tool_choice"], "required");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_cut_off_is_none() {
    let scene = Scene::play(json!([
        plan(&["Say it."]),
        {"say": "It is called Bel", "stop": "length"},
        say("It is called Belljar."),
    ]))
    .await;
    let done = scene.request("What is it called?").await;
    assert_eq!(
        (&done["answer"], &done["status"]),
        (&json!("It is called Belljar."), &json!("succeeded"))
    );
    assert!(scene.messages(2).contains("was cut off"), "{}", scene.messages(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_that_no_code_has_computed_is_given_back() {
    let scene = Scene::play(json!([
        plan(&["Add them up."]),
        say("The total is 4711."),
        code("print(40 + 2)"),
        say("The total is 42."),
        plan(&["Add them up."]),
        say("It is 4711."),
        say("It is 4712."),
        say("It is 4713."),
    ]))
    .await;
    let done = scene.request("What is the total?").await;
    assert_eq!((&done["answer"], &done["complete"]), (&json!("The total is 42."), &json!(true)));
    assert!(scene.messages(2).contains("no code has computed"), "{}", scene.messages(2));
    let never = scene.request("And now?").await;
    assert_eq!(
        (&never["complete"], &never["error"]["code"]),
        (&json!(false), &json!("budget.exhausted"))
    );
    assert!(!text(&never["answer"]).contains("471"), "{never}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_ends_with_the_key_that_started_it() {
    let turns = json!([call("note", json!({"what": "A"})), say("Never asked for.")]);
    let scene =
        Scene::play(json!([{"calls": turns[0]["calls"], "pieces_ms": 500}, turns[1]])).await;
    let agent = scene.agent(helper()).await;
    let key = scene.owner().post("/v1/keys", json!({"name": "short"})).await;
    let short = scene.world.api(key["secret"].as_str().unwrap());
    let run = begin(&short, &format!("{agent}/run"), json!({"message": "Go."})).await;
    scene.asked_times(1).await;
    let path = format!("/v1/keys/{}", text(&key["id"]));
    let revoked = scene.owner().request(Method::DELETE, &path).send().await.unwrap();
    assert!(revoked.status().is_success());
    let ended = scene.settled(&run).await;
    assert_eq!(ended["error"]["code"], "auth.missing", "{ended}");
    assert_eq!(scene.asked().len(), 1, "the model is not asked again");
}
