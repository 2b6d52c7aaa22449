//! Runs that are streamed, detached, or cancelled by their caller.

use crate::harness::wait;
use crate::scripted_server::{CODE, Scene, begin, code, plan, say, stream, text};
use crate::test_server::{events, parse_events};
use futures_util::StreamExt;
use reqwest::Method;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_heard_as_it_goes_on_and_the_same_is_told_later() {
    let scene = Scene::play(json!([
        plan(&["Write", "Print"]),
        code("open('made.csv', 'w').write('a')"),
        code("print('printed')"),
        say("It is done."),
    ]))
    .await;
    let answer = stream(scene.owner(), CODE, json!({"request": "Do it."})).await;
    let place = answer.headers()["location"].to_str().unwrap().to_owned();
    let heard = events(answer).await;
    let names: Vec<&str> = heard.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(names, ["plan", "round", "file", "round", "text", "answer", "end"], "{heard:?}");
    assert_eq!(heard[0].2["steps"], json!(["Write", "Print"]));
    assert_eq!((&heard[1].2["number"], &heard[3].2["stdout"]), (&json!(1), &json!("printed\n")));
    assert_eq!(heard[2].2["name"], "made.csv");
    assert_eq!(heard[4].2["text"], "It is done.");
    assert_eq!(heard[5].2["text"], "It is done.");
    assert_eq!(heard[6].2["status"], "succeeded");
    let again = scene.owner().request(Method::GET, &format!("{place}/events"));
    let again = again.header("accept", "text/event-stream").send().await.unwrap();
    assert_eq!(events(again).await, heard);
    let record = scene.owner().get(&place).await;
    assert_eq!(
        (&record["entry"], &record["status"]),
        (&json!("code_execution"), &json!("succeeded"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_run_says_so_to_its_listeners() {
    let scene =
        Scene::play(json!([plan(&["a"]), {"fail": {"status": 401, "message": "bad key"}}])).await;
    let heard = events(stream(scene.owner(), CODE, json!({"request": "Do it."})).await).await;
    let names: Vec<&str> = heard.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(names, ["plan", "answer", "error", "end"], "{heard:?}");
    assert_eq!(heard[2].2["code"], "model.unavailable");
    assert_eq!(heard[3].2["status"], "failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_asynchronous_run_is_carried_out() {
    let scene = Scene::play(json!([plan(&["a"]), code("print('alone')"), say("Done.")])).await;
    let place = begin(scene.owner(), CODE, json!({"request": "Do it."})).await;
    let record = scene.settled(&place).await;
    assert_eq!(record["status"], "succeeded", "{record}");
    let done = scene.owner().get(&format!("{CODE}/{}", text(&record["id"]))).await;
    assert_eq!(
        (&done["answer"], &done["rounds"][0]["stdout"]),
        (&json!("Done."), &json!("alone\n"))
    );
}

/// The first turn of these begins, and never ends by itself.
fn endless() -> Value {
    json!([
        plan(&["Keep", "Wait"]),
        code("kept = 42\nprint('kept')"),
        code("import time\ntime.sleep(60)"),
        plan(&["Look"]),
        code("print(kept)"),
        say("It is 42."),
    ])
}

/// The session is as it was, and takes the next request.
async fn goes_on(scene: &Scene, session: &Value) {
    let again = scene.code(json!({"request": "Look.", "sandbox_id": session})).await;
    assert_eq!(
        (&again["answer"], &again["rounds"][0]["stdout"]),
        (&json!("It is 42."), &json!("42\n")),
        "{again}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_cancelled_ends_and_leaves_its_session_usable() {
    let scene = Scene::play(endless()).await;
    let place = begin(scene.owner(), CODE, json!({"request": "Wait."})).await;
    scene.asked_times(3).await;
    scene.runs_code().await;
    scene.owner().post(&format!("{place}/cancel"), Value::Null).await;
    let record = scene.settled(&place).await;
    assert_eq!(
        (&record["status"], &record["error"]["code"]),
        (&json!("cancelled"), &json!("execution.cancelled")),
        "{record}"
    );
    let done = scene.owner().get(&format!("{CODE}/{}", text(&record["id"]))).await;
    assert_eq!((&done["complete"], &done["plan"]), (&json!(false), &json!(["Keep", "Wait"])));
    assert_eq!(done["rounds"][0]["stdout"], "kept\n", "what was done is not forgotten");
    goes_on(&scene, &record["sandbox_id"]).await;
    assert_eq!(running(&scene).await, 0);
}

async fn running(scene: &Scene) -> usize {
    let left = scene.owner().get("/v1/executions?status=running").await;
    left["items"].as_array().unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disconnect_ends_the_run_and_leaves_the_session_usable() {
    let scene = Scene::play(endless()).await;
    let answer = stream(scene.owner(), CODE, json!({"request": "Wait."})).await;
    let place = answer.headers()["location"].to_str().unwrap().to_owned();
    let mut body = answer.bytes_stream();
    let mut heard = String::new();
    while !parse_events(&heard).iter().any(|(_, name, _)| name == "round") {
        heard.push_str(std::str::from_utf8(&body.next().await.unwrap().unwrap()).unwrap());
    }
    scene.asked_times(3).await;
    drop(body);
    let record = scene.settled(&place).await;
    assert_eq!(record["status"], "cancelled", "{record}");
    goes_on(&scene, &record["sandbox_id"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_is_being_waited_for_is_left_when_the_run_is_cancelled() {
    let scene = Scene::play(json!([{"hang": true}, plan(&["a"]), say("Fine.")])).await;
    let place = begin(scene.owner(), CODE, json!({"request": "Wait."})).await;
    scene.asked_times(1).await;
    scene.owner().post(&format!("{place}/cancel"), Value::Null).await;
    let record = scene.settled(&place).await;
    assert_eq!(record["status"], "cancelled");
    wait::until("the connection is closed", async || scene.model.left() == 1).await;
    let again = json!({"request": "Once more.", "sandbox_id": record["sandbox_id"]});
    assert_eq!(scene.code(again).await["answer"], "Fine.");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_heard_as_it_goes_on_too() {
    let scene = Scene::play(json!([
        {"say": "Let me think.", "calls": [{"name": "code_execution", "arguments": {"code": "print(6 * 7)"}}]},
        say("It is 42."),
        say("Hello."),
    ]))
    .await;
    let agent = scene.agent(crate::scripted_server::RUNS_CODE).await;
    let run = format!("{agent}/run");
    let heard = events(stream(scene.owner(), &run, json!({"message": "6 * 7?"})).await).await;
    let names: Vec<&str> = heard.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(names, ["text", "round", "text", "answer", "end"], "{heard:?}");
    assert_eq!(heard[1].2["stdout"], "42\n");
    let record = begin(scene.owner(), &run, json!({"message": "Hi"})).await;
    let record = scene.settled(&record).await;
    let path = format!("{agent}/runs/{}", text(&record["id"]));
    assert_eq!(scene.owner().get(&path).await["answer"], "Hello.");
    let other = crate::scripted_server::agent(scene.owner(), "other", "instructions: x").await;
    let path = format!("{other}/runs/{}", text(&record["id"]));
    assert_eq!(scene.owner().refused("GET", &path, None).await, (404, "object.not_found".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_cancelled_within_a_request_keeps_what_it_has_done() {
    let scene = Scene::play(json!([
        crate::scripted_server::call("code_execution", json!({"request": "Keep, then wait."})),
        plan(&["Keep", "Wait"]),
        code("kept = 42\nprint('kept')"),
        code("import time\ntime.sleep(60)"),
        crate::scripted_server::agent_code("print(kept)"),
        say("It is 42."),
    ]))
    .await;
    let agent = scene.agent(crate::scripted_server::RUNS_CODE).await;
    let place = begin(scene.owner(), &format!("{agent}/run"), json!({"message": "Do it."})).await;
    scene.asked_times(4).await;
    scene.runs_code().await;
    scene.owner().post(&format!("{place}/cancel"), Value::Null).await;
    let record = scene.settled(&place).await;
    assert_eq!(record["status"], "cancelled", "{record}");
    assert_eq!(record["rounds"][0]["stdout"], "kept\n", "{record}");
    let cursor = record["id"].clone();
    let on = json!({"message": "What was kept?", "cursor": cursor});
    let done = crate::scripted_server::chat(scene.owner(), &agent, on).await;
    assert_eq!(
        (&done["answer"], &done["rounds"][0]["stdout"]),
        (&json!("It is 42."), &json!("42\n")),
        "{done}"
    );
}
