//! Approvals in adverse conditions: clients disconnect, the disk of the database is full, the session is busy, the
//! server is killed. A waiting call always ends, and runs once or not at all.

use crate::approvals::{Scene, approval_of, asking_tool};
use crate::harness::wait;
use crate::principals::{Person, grant};
use crate::test_server::{Api, World, events};
use reqwest::{Method, Response};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, Instant};

const ALLOW: &str = r#"{"decision": "allow"}"#;
const DENY: &str = r#"{"decision": "deny"}"#;

fn records(world: &World) -> Connection {
    let records = Connection::open(world.database()).unwrap();
    records.busy_timeout(Duration::from_secs(5)).unwrap();
    records
}

/// Nothing that has this status can be kept, until `can_again`.
fn cannot_become(world: &World, status: &str) {
    let trigger = format!(
        "CREATE TRIGGER no_room BEFORE UPDATE ON executions WHEN NEW.status = '{status}' \
         BEGIN SELECT RAISE(ABORT, 'no room'); END"
    );
    records(world).execute_batch(&trigger).unwrap();
}

fn can_again(world: &World) {
    records(world).execute_batch("DROP TRIGGER no_room").unwrap();
}

/// Sends this while the volume is held up, and leaves before it is written.
async fn send_and_leave(world: &World, api: &Api, path: &str, body: &'static str) {
    let held = records(world);
    held.execute_batch("BEGIN IMMEDIATE").unwrap();
    let sent = api
        .request(Method::POST, path)
        .header("content-type", "application/json")
        .timeout(Duration::from_millis(500))
        .body(body)
        .send()
        .await;
    assert!(sent.is_err(), "it was answered before it was kept");
    wait::any_moment(Duration::from_millis(300)).await;
    held.execute_batch("ROLLBACK").unwrap();
}

fn cancel_of(record: &Value) -> String {
    format!("/v1/executions/{}/cancel", record["id"].as_str().unwrap())
}

/// Reads a stream until it has told this.
async fn hears(stream: &mut Response, text: &str) {
    let mut received = String::new();
    let hearing = async {
        while !received.contains(text) {
            let piece = stream.chunk().await.unwrap().unwrap();
            received.push_str(&String::from_utf8_lossy(&piece));
        }
    };
    let heard = tokio::time::timeout(Duration::from_secs(10), hearing).await;
    assert!(heard.is_ok(), "{text} is not told");
}

async fn watch(api: &Api) -> Response {
    api.request(Method::GET, "/v1/approvals/events").send().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_is_carried_out_after_its_client_disconnects() {
    let scene = Scene::start(&[]).await;
    let (world, owner) = (&scene.world, &scene.world.owner);
    let allowed = scene.ask(json!({"n": 1})).await;
    send_and_leave(world, owner, &approval_of(&allowed), ALLOW).await;
    assert_eq!(scene.settled(&allowed).await["value"], json!({"got": {"n": 1}}));
    let denied = scene.ask(json!({})).await;
    send_and_leave(world, owner, &approval_of(&denied), DENY).await;
    assert_eq!(scene.settled(&denied).await["status"], "denied");
    let withdrawn = scene.ask(json!({})).await;
    send_and_leave(world, &scene.agent, &cancel_of(&withdrawn), "").await;
    assert_eq!(scene.settled(&withdrawn).await["status"], "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_announced_after_its_requester_disconnects() {
    let scene = Scene::start(&[]).await;
    let mut watched = watch(&scene.world.owner).await;
    let path = format!("/v1/tools/{}/call", scene.tool);
    let call = r#"{"arguments": {"n": "asked and gone"}}"#;
    send_and_leave(&scene.world, &scene.agent, &path, call).await;
    hears(&mut watched, "asked and gone").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_question_is_kept_whole_or_not_at_all() {
    let scene = Scene::start(&[]).await;
    let owner = &scene.world.owner;
    for (status, api, path_of, body) in [
        ("denied", owner, approval_of as fn(&Value) -> String, Some(json!({"decision": "deny"}))),
        ("cancelled", &scene.agent, cancel_of, None),
    ] {
        let record = scene.ask(json!({})).await;
        cannot_become(&scene.world, status);
        let error = api.refused("POST", &path_of(&record), body.clone()).await;
        assert_eq!(error, (503, "database.unavailable".to_owned()));
        assert_eq!(owner.get(&approval_of(&record)).await["state"], "pending");
        can_again(&scene.world);
        assert!(api.call("POST", &path_of(&record), body).await.0 < 300);
        assert_eq!(scene.settled(&record).await["status"], status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_question_is_over_has_an_end_after_the_next_start() {
    let mut scene = Scene::start(&[]).await;
    let (over, open) = (scene.ask(json!({})).await, scene.ask(json!({"n": 2})).await);
    scene.world.kill();
    let id = uuid::Uuid::parse_str(over["approval_id"].as_str().unwrap()).unwrap();
    let denied = records(&scene.world).execute(
        "UPDATE approvals SET state = 'denied', body = json_set(body, '$.state', 'denied') \
         WHERE id = ?1",
        [id.as_bytes()],
    );
    assert_eq!(denied.unwrap(), 1);
    scene.world.again().await;
    scene.agent = scene.world.api(&scene.agent.key);
    let ended = scene.settled(&over).await;
    assert_eq!(
        (&ended["status"], &ended["error"]["code"]),
        (&json!("denied"), &json!("approval.denied"))
    );
    scene.answer(&open, json!({"decision": "allow"})).await;
    assert_eq!(scene.settled(&open).await["value"], json!({"got": {"n": 2}}));
}

/// A call that was agreed to, in a session that is busy.
async fn allowed_but_busy(scene: &Scene, files: Value) -> (String, Value) {
    let session = scene.agent.session().await;
    let request = json!({"sandbox_id": session, "files": files});
    let record = scene.ask_with(request).await;
    let busy = scene
        .agent
        .request(Method::POST, &format!("/v1/sessions/{session}/execute"))
        .header("prefer", "respond-async")
        .header("content-type", "application/json")
        .body(r#"{"code": "import time\ntime.sleep(60)"}"#)
        .send()
        .await
        .unwrap();
    let busy: Value = serde_json::from_slice(&busy.bytes().await.unwrap()).unwrap();
    scene.answer(&record, json!({"decision": "allow"})).await;
    (cancel_of(&busy), record)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_allowed_and_has_no_room_yet_can_be_cancelled_and_never_runs() {
    let scene = Scene::start(&[]).await;
    let (free, record) = allowed_but_busy(&scene, json!([])).await;
    let cancelled = scene.agent.post(&cancel_of(&record), Value::Null).await;
    assert_eq!(cancelled["cancelled"], true);
    scene.agent.post(&free, Value::Null).await;
    let path = format!("/v1/executions/{}", record["id"].as_str().unwrap());
    let is_unstarted = async || scene.agent.get(&path).await["started_at"].is_null();
    wait::stays(Duration::from_millis(1500), "it is not started", is_unstarted).await;
    let ended = scene.settled(&record).await;
    assert_eq!((&ended["status"], &ended["started_at"]), (&json!("cancelled"), &Value::Null));
    let session = record["sandbox_id"].as_str().unwrap();
    let looked = scene.agent.run(session, "import os\nos.path.exists('ran.txt')").await;
    assert_eq!(looked["value"], false);
}

/// Bytes that the server has read so far, from wherever.
fn bytes_read(world: &World) -> u64 {
    let io = fs::read_to_string(format!("/proc/{}/io", world.pid())).unwrap();
    let read = io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
    read.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_its_session_is_not_read_over_and_over() {
    const SIZE: usize = 4 * 1024 * 1024;
    let scene = Scene::start(&[]).await;
    let files = json!([{"name": "large.txt", "text": "x".repeat(SIZE)}]);
    let (free, record) = allowed_but_busy(&scene, files).await;
    let before = bytes_read(&scene.world);
    let is_unread = async || bytes_read(&scene.world) - before < SIZE as u64;
    wait::stays(Duration::from_secs(2), "its file is not read", is_unread).await;
    scene.agent.post(&free, Value::Null).await;
    assert_eq!(scene.settled(&record).await["status"], "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_allowed_outlasts_a_database_without_room() {
    let scene = Scene::start(&[]).await;
    let record = scene.ask(json!({"n": 1})).await;
    cannot_become(&scene.world, "running");
    scene.answer(&record, json!({"decision": "allow"})).await;
    let path = format!("/v1/executions/{}", record["id"].as_str().unwrap());
    let waits = async || scene.agent.get(&path).await["status"] == "waiting_approval";
    wait::stays(Duration::from_millis(700), "it waits", waits).await;
    can_again(&scene.world);
    assert_eq!(scene.settled(&record).await["value"], json!({"got": {"n": 1}}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_who_may_decide_only_the_oldest_of_many_approvals_sees_it() {
    let scene = Scene::start(&[]).await;
    let oldest = scene.ask(json!({})).await;
    let other = asking_tool(&scene.world, "other").await;
    let path = format!("/v1/tools/{other}/call");
    for _ in 0..60 {
        assert_eq!(scene.world.owner.call("POST", &path, Some(json!({}))).await.0, 202);
    }
    let ann = Person::new(&scene.world, "ann").await;
    let tool = json!({"kind": "tool", "id": scene.tool});
    grant(&scene.world.owner, &ann.id, "MODIFY", &tool).await;
    hears(&mut watch(&ann).await, oldest["approval_id"].as_str().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_listeners_get_the_end_of_an_approval() {
    let scene = Scene::start(&[]).await;
    for _ in 0..20 {
        let record = scene.ask(json!({})).await;
        let path = format!("/v1/executions/{}/events", record["id"].as_str().unwrap());
        let listeners: Vec<_> = (0..40)
            .map(|number| {
                let listen = scene.agent.request(Method::GET, &path);
                tokio::spawn(async move {
                    wait::any_moment(Duration::from_micros(number * 500)).await;
                    let received = events(listen.send().await.unwrap()).await;
                    received.last().unwrap().2["status"].clone()
                })
            })
            .collect();
        scene.answer(&record, json!({"decision": "deny"})).await;
        let began = Instant::now();
        for listener in listeners {
            let left = Duration::from_secs(10).saturating_sub(began.elapsed());
            let heard = tokio::time::timeout(left, listener).await;
            assert_eq!(heard.expect("a stream has no end").unwrap(), "denied");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_a_direct_call_refuses_is_not_asked_about_either() {
    let scene = Scene::start(&[]).await;
    let plain = json!({
        "name": "plain", "description": "Does not ask.", "tool_type": "code_runner",
        "configuration": {
            "type": "CodeRunner", "runtime": "python",
            "code": "def run(input):\n    return 1\n",
        },
    });
    let plain = scene.world.owner.post("/v1/tools", plain).await["id"].clone();
    let owner = &scene.world.owner;
    scene.ask_with(json!({"files": [{"name": "a.txt", "text": "one"}]})).await;
    let kept = scene.agent.get("/v1/documents").await["items"][0]["id"].clone();
    for file in [
        json!({"document_id": kept, "text": "two"}),
        json!({"name": "a.txt", "text": "one", "base64": "b25l"}),
        json!({"name": "a.txt"}),
        json!({"text": "one"}),
        json!({"name": "../a.txt", "text": "one"}),
        json!({"name": "", "text": "one"}),
        json!({"name": "a\nb", "document_id": kept}),
    ] {
        let request = Some(json!({"files": [file]}));
        let direct = format!("/v1/tools/{}/call", plain.as_str().unwrap());
        let direct = owner.call("POST", &direct, request.clone()).await;
        let asked = format!("/v1/tools/{}/call", scene.tool);
        let asked = scene.agent.call("POST", &asked, request).await;
        assert_eq!(asked.0, 400, "{file}: {}", asked.1);
        assert_eq!(asked, direct, "{file}");
    }
    // The harmless twin: the call has its directory, the document is plain.
    let deep = json!({"name": "d/in.txt", "text": "one"});
    let asked = scene.ask_with(json!({"files": [deep]})).await;
    let approval = scene.agent.get(&approval_of(&asked)).await;
    assert_eq!(approval["files"][0][0], "d/in.txt");
    assert_eq!(scene.agent.get("/v1/documents").await["items"][0]["name"], "in.txt");
}
