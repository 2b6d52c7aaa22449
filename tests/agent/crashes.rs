//! `kill -9` in the middle of a model run: it has ended, its record says so, and it is not started again.

use crate::confirmations::{book, booking, ran, reply};
use crate::harness::wait;
use crate::scripted_server::{CODE, RUNS_CODE, Scene, begin, code, plan, say, say_to, text};
use serde_json::{Value, json};
use std::time::Duration;

fn interrupted(record: &Value) {
    assert_eq!(
        (&record["status"], &record["error"]["code"]),
        (&json!("failed"), &json!("execution.interrupted")),
        "{record}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_dies_with_the_server_is_marked_and_not_run_again() {
    let mut scene = Scene::play(json!([
        plan(&["Write", "Wait"]),
        code("print('once')"),
        code("import time\ntime.sleep(60)"),
        plan(&["Greet"]),
        say("Hello."),
    ]))
    .await;
    let place = begin(scene.owner(), CODE, json!({"request": "Wait."})).await;
    scene.asked_times(3).await;
    scene.runs_code().await;
    scene.world.kill();
    scene.world.again().await;
    let record = scene.owner().get(&place).await;
    interrupted(&record);
    let done = scene.owner().get(&format!("{CODE}/{}", text(&record["id"]))).await;
    assert_eq!((&done["complete"], &done["status"]), (&json!(false), &json!("failed")));
    let is_unasked = async || scene.asked().len() == 3;
    wait::stays(Duration::from_millis(500), "nobody is asked again", is_unasked).await;
    let left = scene.owner().get("/v1/executions?status=running").await;
    assert_eq!(left["items"], json!([]));
    let go_on = Some(json!({"request": "Go on.", "sandbox_id": record["sandbox_id"]}));
    let (status, problem) = scene.owner().call("POST", CODE, go_on).await;
    assert!(status >= 400, "its session is gone, and it is said: {problem}");
    assert_eq!(scene.request("Say hello.").await["answer"], "Hello.");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_dies_with_the_server_is_marked_and_its_cursor_leads_nowhere() {
    let mut scene = Scene::play(json!([{"hang": true}, say("Hello.")])).await;
    let agent = scene.agent(RUNS_CODE).await;
    let place = begin(scene.owner(), &format!("{agent}/run"), json!({"message": "Hi"})).await;
    scene.asked_times(1).await;
    scene.world.kill();
    scene.world.again().await;
    let record = scene.owner().get(&place).await;
    interrupted(&record);
    let on = json!({"message": "Go on.", "cursor": record["id"]});
    let error = scene.owner().refused("POST", &format!("{agent}/run"), Some(on)).await;
    assert_eq!(error, (400, "args.invalid".into()));
    assert_eq!(say_to(scene.owner(), &agent, "Hi").await["answer"], "Hello.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_was_asked_about_when_the_server_died_has_not_run_and_still_can() {
    let mut scene = Scene::play(json!([book("a table"), say("It is booked.")])).await;
    let agent = scene.agent(booking()).await;
    let asked = say_to(scene.owner(), &agent, "Book a table.").await;
    scene.world.kill();
    scene.world.again().await;
    assert_eq!(ran(scene.owner()).await, 0);
    let done = crate::scripted_server::chat(scene.owner(), &agent, reply(&asked, "ALLOW")).await;
    assert_eq!(done["answer"], "It is booked.", "{done}");
    assert_eq!(ran(scene.owner()).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_stopped_in_the_middle_of_a_run_says_what_became_of_it() {
    let turns = json!([plan(&["Wait"]), code("import time\ntime.sleep(60)")]);
    let mut scene = Scene::with(turns, &["--drain-seconds", "0"]).await;
    let place = begin(scene.owner(), CODE, json!({"request": "Wait."})).await;
    scene.asked_times(2).await;
    scene.world.stop().await;
    scene.world.again().await;
    let record = scene.owner().get(&place).await;
    assert_eq!(
        (&record["status"], &record["error"]["code"]),
        (&json!("cancelled"), &json!("execution.cancelled")),
        "{record}"
    );
    assert_eq!(scene.asked().len(), 2, "no model is asked what to do about it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_survives_a_restart_but_its_variables_do_not_and_that_is_said() {
    let mut scene = Scene::play(json!([
        crate::scripted_server::agent_code("kept = 42"),
        say("Kept."),
        crate::scripted_server::agent_code("print(globals().get('kept'))"),
        say("It is gone."),
    ]))
    .await;
    let agent = scene.agent(RUNS_CODE).await;
    let first = say_to(scene.owner(), &agent, "Keep it.").await;
    scene.world.stop().await;
    scene.world.again().await;
    let on = json!({"message": "What was it?", "cursor": first["cursor"]});
    let second = crate::scripted_server::chat(scene.owner(), &agent, on).await;
    assert_eq!(
        (&second["answer"], &second["rounds"][0]["stdout"]),
        (&json!("It is gone."), &json!("None\n")),
        "{second}"
    );
    assert!(
        second["warnings"].to_string().contains("the session of this conversation has ended"),
        "{second}"
    );
    assert!(scene.messages(2).contains("Keep it."));
}
