//! Streams: each returns the events of its own run to principals who may see it, as long as they may.

use crate::harness::wait;
use crate::principals::Person;
use crate::test_server::{Api, World, events};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const STREAMS: usize = 100;

fn execute(api: &Api, code: &str) -> RequestBuilder {
    api.request(Method::POST, "/v1/execute")
        .header("content-type", "application/json")
        .body(json!({"code": code}).to_string())
}

fn streamed(api: &Api, code: &str) -> RequestBuilder {
    execute(api, code).header("accept", "text/event-stream")
}

async fn begun(api: &Api, code: &str) -> String {
    let answer = execute(api, code).header("prefer", "respond-async").send().await.unwrap();
    let record: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
    record["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn t60_a_hundred_streams_at_once_tell_each_its_own_run() {
    let world = World::start().await;
    let other = world.principal("other", &["USAGE"]).await;
    let follow = |api: Api, number: usize| async move {
        let code = format!(
            "import time\nfor i in range(5): print('run-{number}-', i, flush=True); time.sleep(0.05)\n{number}"
        );
        let received = events(streamed(&api, &code).send().await.unwrap()).await;
        let output: String =
            received.iter().filter_map(|(_, _, data)| data["text"].as_str()).collect();
        assert_eq!(output.matches("run-").count(), 5, "{output}");
        assert_eq!(output.matches(&format!("run-{number}-")).count(), 5, "{output}");
        assert_eq!(received.last().unwrap().2["status"], "succeeded");
        let numbers: Vec<u64> = received.iter().map(|(number, ..)| *number).collect();
        assert_eq!(numbers, (1..=received.len() as u64).collect::<Vec<_>>());
    };
    let whose = |number: usize| if number.is_multiple_of(2) { &world.owner } else { &other };
    let all: Vec<_> =
        (0..STREAMS).map(|number| tokio::spawn(follow(whose(number).clone(), number))).collect();
    for one in all {
        one.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t60_a_client_that_leaves_a_stream_frees_its_place() {
    let world = World::with(&["--sandboxes", "1", "--queue", "0"]).await;
    let mut stream = streamed(&world.owner, "import time\ntime.sleep(60)").send().await.unwrap();
    assert!(stream.chunk().await.unwrap().is_some(), "it runs");
    let run = || execute(&world.owner, "1").send();
    assert_eq!(run().await.unwrap().status(), 429);
    drop(stream);
    let is_free = async || run().await.unwrap().status() == 200;
    wait::within(Duration::from_secs(5), "its place is free", is_free).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t60_the_run_of_another_principal_cannot_be_followed() {
    let world = World::start().await;
    let stranger = world.principal("stranger", &["USAGE"]).await;
    let made = world.owner.post("/v1/workspaces", json!({"name": "elsewhere"})).await;
    let elsewhere = world.api(made["key"]["secret"].as_str().unwrap());
    let id = begun(&world.owner, "import time\ntime.sleep(2)").await;
    let path = format!("/v1/executions/{id}/events");
    for api in [&stranger, &elsewhere] {
        assert_eq!(api.refused("GET", &path, None).await, (404, "object.not_found".to_owned()));
        let cancel = format!("/v1/executions/{id}/cancel");
        assert_eq!(api.refused("POST", &cancel, None).await.0, 404);
    }
    let received = events(world.owner.request(Method::GET, &path).send().await.unwrap()).await;
    assert_eq!(received.last().unwrap().2["status"], "succeeded", "nobody has stopped it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_and_its_run_end_with_their_key_and_those_of_another_key_go_on() {
    let world = World::start().await;
    let ann = Person::new(&world, "ann").await;
    let here = crate::principals::workspace(&world.owner).await;
    crate::principals::grant(&world.owner, &ann.id, "USAGE", &here).await;
    let code = "import time\nfor i in range(60): print(i, flush=True); time.sleep(0.1)";
    let id = begun(&ann.api, code).await;
    let other = begun(&world.owner, "import time\ntime.sleep(2)").await;
    let path = format!("/v1/executions/{id}/events");
    let mut stream = ann.request(Method::GET, &path).send().await.unwrap();
    assert!(stream.chunk().await.unwrap().is_some());
    world.owner.delete(&ann.key_path()).await;
    let revoked = Instant::now();
    while let Ok(Some(_)) = stream.chunk().await {
        assert!(revoked.elapsed() < Duration::from_secs(4), "it is told on");
    }
    for (id, status) in [(id, "cancelled"), (other, "succeeded")] {
        let path = format!("/v1/executions/{id}/events");
        let received = events(world.owner.request(Method::GET, &path).send().await.unwrap()).await;
        assert_eq!(received.last().unwrap().2["status"], status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_an_idempotency_key_may_disconnect() {
    let world = World::start().await;
    let request = || {
        execute(&world.owner, "import time\ntime.sleep(1.5)\n42").header("idempotency-key", "mine")
    };
    let runs = async || {
        let listed = world.owner.get("/v1/executions?status=running").await;
        !listed["items"].as_array().unwrap().is_empty()
    };
    let leaving = tokio::spawn(request().send());
    wait::until("it runs", runs).await;
    leaving.abort();
    let again = request().send().await.unwrap();
    assert_eq!(again.headers()["idempotency-replayed"], "true");
    let record: Value = serde_json::from_slice(&again.bytes().await.unwrap()).unwrap();
    assert_eq!((&record["status"], &record["value"]), (&json!("succeeded"), &json!(42)));
    let kept = world.owner.get("/v1/executions").await;
    assert_eq!(kept["items"].as_array().unwrap().len(), 1);
    // The twin: without one, going away ends it.
    let leaving = tokio::spawn(execute(&world.owner, "import time\ntime.sleep(60)").send());
    wait::until("the twin runs", runs).await;
    leaving.abort();
    let last = async || world.owner.get("/v1/executions").await["items"][0]["status"].clone();
    let is_over = async || last().await == "cancelled";
    wait::within(Duration::from_secs(5), "it is cancelled", is_over).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_asynchronous_run_counts_for_its_key() {
    let world = World::with(&["--key-concurrency", "2"]).await;
    let other = world.principal("other", &["OWNERSHIP"]).await;
    let later = |code| execute(&world.owner, code).header("prefer", "respond-async").send();
    let run = later("import time; time.sleep(30)").await.unwrap();
    assert_eq!(run.status(), 202);
    let place = run.headers()["location"].to_str().unwrap().to_owned();
    assert_eq!(later("import time; time.sleep(30)").await.unwrap().status(), 202);
    let third = later("1").await.unwrap();
    assert_eq!(third.status(), 429, "{:?}", third.text().await);
    // Another key has its own, and the end of a run is the end of its place.
    other.post(&format!("{place}/cancel"), json!({})).await;
    let is_free = async || later("1").await.unwrap().status() == 202;
    wait::until("its place is given back", is_free).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_client_disconnected_holds_no_sandbox() {
    let world = World::with(&["--sandboxes", "2", "--queue", "0"]).await;
    for wait in 1..40 {
        let request = world.owner.request(Method::POST, "/v1/sessions");
        let request = request.header("content-type", "application/json").body("{}");
        let _ = request.timeout(Duration::from_millis(wait)).send().await;
    }
    // Those that were written down in time are there, and can be closed.
    let open = async || world.owner.get("/v1/sessions?status=ready").await;
    let open = wait::at_rest(Duration::from_millis(500), "the open sessions", open).await;
    for session in open["items"].as_array().unwrap() {
        let id = session["sandbox_id"].as_str().unwrap();
        world.owner.delete(&format!("/v1/sessions/{id}")).await;
    }
    let began = Instant::now();
    loop {
        let two = [world.owner.clone(), world.owner.clone()].map(|api| {
            tokio::spawn(async move { api.call("POST", "/v1/sessions", Some(json!({}))).await })
        });
        let mut open = Vec::new();
        for one in two {
            open.push(one.await.unwrap());
        }
        for (_, session) in open.iter().filter(|(status, _)| *status == 201) {
            let id = session["sandbox_id"].as_str().unwrap();
            world.owner.delete(&format!("/v1/sessions/{id}")).await;
        }
        if open.iter().all(|(status, _)| *status == 201) {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(5), "{open:?}");
    }
}
