//! After a revocation nothing continues that was started with a revoked or expired key, or by a deleted
//! principal. Work of other principals continues.

use crate::approvals::{approval_of, asking_tool, settled};
use crate::harness::{wait, wait_blocking};
use crate::principals::{Person, grant, id, items, workspace};
use crate::test_server::{Api, World};
use reqwest::Method;
use rusqlite::Connection;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const EXECUTE: &str = "/v1/execute";
const LONG: &str = r#"{"code": "import time\ntime.sleep(600)", "limits": {"wall_ms": 900000}}"#;

/// One of each kind of thing that lasts longer than a request.
struct Begun {
    session: String,
    in_session: Value,
    run: Value,
    question: Value,
}

async fn begin_run(who: &Api, path: &str) -> Value {
    let begun = who
        .request(Method::POST, path)
        .header("prefer", "respond-async")
        .header("content-type", "application/json")
        .body(LONG)
        .send()
        .await
        .unwrap();
    assert_eq!(begun.status(), 202);
    serde_json::from_slice(&begun.bytes().await.unwrap()).unwrap()
}

async fn permit(world: &World, permission: &str) {
    let set = Some(json!({"permission": permission}));
    let (status, now) = world.owner.call("PUT", "/v1/permissions/execute_python", set).await;
    assert_eq!(status, 200, "{now}");
}

async fn ask(who: &Api, path: &str) -> Value {
    ask_with(who, path, json!({"code": "6 * 7"})).await
}

async fn ask_with(who: &Api, path: &str, request: Value) -> Value {
    let (status, record) = who.call("POST", path, Some(request)).await;
    assert_eq!((status, &record["status"]), (202, &json!("waiting_approval")), "{record}");
    record
}

async fn allow(world: &World, record: &Value) -> u16 {
    let yes = Some(json!({"decision": "allow", "scope": "once"}));
    world.owner.call("POST", &approval_of(record), yes).await.0
}

impl Begun {
    async fn by(world: &World, who: &Api) -> Self {
        permit(world, "allow").await;
        let session = who.session().await;
        let in_session = begin_run(who, &format!("/v1/sessions/{session}/execute")).await;
        let run = begin_run(who, EXECUTE).await;
        permit(world, "ask").await;
        Self { session, in_session, run, question: ask(who, EXECUTE).await }
    }

    async fn session_status(&self, world: &World) -> Value {
        world.owner.get(&format!("/v1/sessions/{}", self.session)).await["status"].clone()
    }

    /// Waits until all of it has ended without having done anything more.
    async fn ends(&self, world: &World) {
        for record in [&self.run, &self.in_session] {
            let ended = settled(&world.owner, record).await;
            assert_ne!(ended["status"], "succeeded", "{ended}");
        }
        let is_closed = async || self.session_status(world).await == "closed";
        wait::within(Duration::from_secs(20), "the session is closed", is_closed).await;
        let asked = settled(&world.owner, &self.question).await;
        // Cancelled with the right, or failed by an answer that came before.
        let is_over = asked["status"] == "cancelled" || asked["status"] == "failed";
        assert!(is_over && asked["started_at"].is_null(), "{asked}");
        assert_eq!(world.owner.get(&approval_of(&self.question)).await["state"], "void");
        assert_eq!(allow(world, &self.question).await, 403);
        let closed = items(&world.owner, "/v1/audit?action=session.close").await;
        assert!(closed.iter().any(|entry| entry["object"] == self.session.as_str()), "{closed:?}");
    }

    /// All of it is as it was, and an answer lets its question run.
    async fn goes_on(&self, world: &World) {
        for record in [&self.run, &self.in_session] {
            let path = format!("/v1/executions/{}", id(record));
            assert_eq!(world.owner.get(&path).await["status"], "running");
        }
        assert_eq!(self.session_status(world).await, "busy");
        assert_eq!(allow(world, &self.question).await, 200);
        assert_eq!(settled(&world.owner, &self.question).await["value"], 42);
    }
}

/// A principal who may run code, and another key of theirs.
async fn with_two_keys(world: &World) -> (Person, Value) {
    let ann = Person::new(world, "ann").await;
    grant(&world.owner, &ann.id, "USAGE", &workspace(&world.owner).await).await;
    let new = json!({"name": "other", "principal": ann.id});
    let other = world.owner.post("/v1/keys", new).await;
    (ann, other)
}

/// The time of a key comes, which a test cannot wait for without guessing how long it takes itself.
fn expire(world: &World, key: &Value) {
    let records = Connection::open(world.database()).unwrap();
    let sql = "UPDATE keys SET body = json_set(body, '$.expires_at', '2026-01-01T00:00:00Z'), \
               ended_at = 1767225600000000000 WHERE json_extract(body, '$.id') = ?1";
    assert_eq!(records.execute(sql, [id(key)]).unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn t153_a_deleted_principal_leaves_no_run_no_session_and_no_approval() {
    let world = World::start().await;
    let (ann, _) = with_two_keys(&world).await;
    let bob = world.principal("bob", &["USAGE"]).await;
    let (of_ann, of_bob) = (Begun::by(&world, &ann).await, Begun::by(&world, &bob).await);
    world.owner.delete(&ann.path()).await;
    of_ann.ends(&world).await;
    of_bob.goes_on(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t154_a_session_that_was_opened_with_a_stolen_key_is_closed_when_it_is_revoked() {
    let world = World::start().await;
    let (ann, stolen) = with_two_keys(&world).await;
    let thief = world.api(stolen["secret"].as_str().unwrap());
    let (of_thief, of_ann) = (Begun::by(&world, &thief).await, Begun::by(&world, &ann).await);
    world.owner.delete(&format!("/v1/keys/{}", id(&stolen))).await;
    // It is over before the answer is there.
    assert_eq!(of_thief.session_status(&world).await, "closed");
    of_thief.ends(&world).await;
    of_ann.goes_on(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t154_a_session_that_was_lost_does_not_come_back_for_a_revoked_key() {
    let mut world = World::start().await;
    let (ann, stolen) = with_two_keys(&world).await;
    let thief = world.api(stolen["secret"].as_str().unwrap());
    let (session, own) = (thief.session().await, ann.session().await);
    world.kill();
    world.again().await;
    let ann = world.api(ann.key["secret"].as_str().unwrap());
    world.owner.delete(&format!("/v1/keys/{}", id(&stolen))).await;
    let reset = |session: &str| format!("/v1/sessions/{session}/reset");
    assert_eq!(ann.refused("POST", &reset(&session), None).await.0, 404);
    assert_eq!(ann.post(&reset(&own), Value::Null).await["status"], "ready");
}

#[tokio::test(flavor = "multi_thread")]
async fn t155_what_was_begun_with_a_key_ends_when_its_time_is_over() {
    let world = World::start().await;
    let (ann, key) = with_two_keys(&world).await;
    let with_key = world.api(key["secret"].as_str().unwrap());
    let (of_key, of_ann) = (Begun::by(&world, &with_key).await, Begun::by(&world, &ann).await);
    expire(&world, &key);
    assert_eq!(allow(&world, &of_key.question).await, 403, "the question counts no more");
    assert_eq!(with_key.refused("POST", "/v1/sessions", Some(json!({}))).await.0, 401);
    of_key.ends(&world).await;
    of_ann.goes_on(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t155_what_was_allowed_and_waits_for_room_does_not_begin_with_an_expired_key() {
    let world = World::start().await;
    let (ann, key) = with_two_keys(&world).await;
    let with_key = world.api(key["secret"].as_str().unwrap());
    let tool = asking_tool(&world, "asks").await;
    let call = format!("/v1/tools/{tool}/call");
    grant(&world.owner, &ann.id, "USAGE", &json!({"kind": "tool", "id": tool})).await;
    let session = ann.session().await;
    let busy = begin_run(&ann, &format!("/v1/sessions/{session}/execute")).await;
    let (there, fresh) = (json!({"sandbox_id": session}), json!({}));
    let with_room = ask_with(&with_key, &call, fresh).await;
    let late = ask_with(&with_key, &call, there.clone()).await;
    let twin = ask_with(&ann, &call, there).await;
    for record in [&with_room, &late, &twin] {
        assert_eq!(allow(&world, record).await, 200);
    }
    let ran = settled(&ann, &with_room).await;
    assert_eq!(ran["status"], "succeeded", "there was room, and the key was good: {ran}");
    expire(&world, &key);
    let ended = settled(&ann, &late).await;
    assert!(ended["status"] != "succeeded" && ended["started_at"].is_null(), "{ended}");
    ann.post(&format!("/v1/executions/{}/cancel", id(&busy)), Value::Null).await;
    let ran = settled(&ann, &twin).await;
    assert_eq!(ran["status"], "succeeded", "{ran}");
}

/// As many as end in ten transactions.
const QUESTIONS: usize = 80;
/// For which a slow disk keeps each of those transactions waiting. All of them take longer than two looks
/// at what runs.
const SLOW_DISK: Duration = Duration::from_millis(200);
/// More than SQLite sleeps between two tries to get a lock, so that the server always gets it.
const FREE: Duration = Duration::from_millis(150);

fn open_questions(records: &Connection) -> usize {
    let sql = "SELECT count(*) FROM approvals WHERE state = 'pending'";
    records.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Keeps the records locked between any two writes about questions, until it is told to stop.
fn slow_disk(database: &std::path::Path, stop: &AtomicBool) {
    let records = Connection::open(database).unwrap();
    while !stop.load(Ordering::Relaxed) {
        records.execute_batch("BEGIN IMMEDIATE").unwrap();
        wait_blocking::slow_peer(SLOW_DISK);
        let open = open_questions(&records);
        records.execute_batch("COMMIT").unwrap();
        let free = Instant::now();
        while free.elapsed() < FREE && open_questions(&records) == open {
            wait_blocking::slow_peer(Duration::from_millis(1));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t167_many_long_approvals_of_an_expired_key_delay_no_end_elsewhere() {
    let world = World::start().await;
    let (_, flood) = with_two_keys(&world).await;
    let bob = Person::new(&world, "bob").await;
    grant(&world.owner, &bob.id, "USAGE", &workspace(&world.owner).await).await;
    permit(&world, "allow").await;
    let run = begin_run(&bob, EXECUTE).await;
    permit(&world, "ask").await;
    let with_key = world.api(flood["secret"].as_str().unwrap());
    let long = format!("# {}\n6 * 7", "x".repeat(200_000));
    let mut asked = Vec::new();
    for _ in 0..QUESTIONS {
        asked.push(ask_with(&with_key, EXECUTE, json!({"code": long})).await);
    }
    let twin = ask(&bob, EXECUTE).await;
    let records = Connection::open(world.database()).unwrap();
    assert_eq!(open_questions(&records), QUESTIONS + 1);
    expire(&world, &flood);
    let stop = Arc::new(AtomicBool::new(false));
    let (database, stopped) = (world.database(), Arc::clone(&stop));
    wait::closely("one is ended", async || open_questions(&records) <= QUESTIONS).await;
    // While those are ended, another key expires.
    expire(&world, &bob.key);
    let disk = std::thread::spawn(move || slow_disk(&database, &stopped));
    let ended = settled(&world.owner, &run).await;
    let left = open_questions(&records);
    stop.store(true, Ordering::Relaxed);
    disk.join().unwrap();
    assert_ne!(ended["status"], "succeeded");
    assert!(left > 1, "it ends at the next look, and not after all of them");
    let are_over = async || open_questions(&records) == 0;
    wait::within(Duration::from_secs(120), "none is open", are_over).await;
    // They end all the same, with what was asked in them.
    for record in [&asked[0], &asked[QUESTIONS - 1]] {
        let ended = settled(&world.owner, record).await;
        assert_eq!((&ended["status"], &ended["code"]), (&json!("cancelled"), &json!(long)));
        assert_eq!(world.owner.get(&approval_of(record)).await["state"], "void");
    }
    assert_eq!(settled(&world.owner, &twin).await["status"], "cancelled");
}

/// Questions of a key about this much code each, and one of another key of the same person.
async fn with_many_questions(world: &World, bytes: usize) -> (Value, Vec<Value>, Value) {
    let (ann, flood) = with_two_keys(world).await;
    permit(world, "ask").await;
    let with_key = world.api(flood["secret"].as_str().unwrap());
    let long = json!({"code": format!("# {}\n6 * 7", "x".repeat(bytes))});
    let mut asked = Vec::new();
    for _ in 0..QUESTIONS {
        asked.push(ask_with(&with_key, EXECUTE, long.clone()).await);
    }
    let twin = ask(&ann, EXECUTE).await;
    (flood, asked, twin)
}

async fn until_open(records: &Connection, most: usize) {
    wait::closely("few enough are open", async || open_questions(records) <= most).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t185_many_approvals_of_a_revoked_key_delay_no_request_and_a_kill_loses_none() {
    let mut world = World::start().await;
    let (flood, asked, twin) = with_many_questions(&world, 200_000).await;
    let records = Connection::open(world.database()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (database, stopped) = (world.database(), Arc::clone(&stop));
    let disk = std::thread::spawn(move || slow_disk(&database, &stopped));
    world.owner.delete(&format!("/v1/keys/{}", id(&flood))).await;
    let left = open_questions(&records);
    assert!(left > QUESTIONS / 2, "{left}: whoever revokes a key does not wait for all of them");
    assert_eq!(allow(&world, &asked[QUESTIONS - 1]).await, 403, "open or not, it is void");
    until_open(&records, left - 1).await;
    // While those are ended, another principal writes.
    let before = open_questions(&records);
    world.owner.post("/v1/keys", json!({"name": "neighbour"})).await;
    let meanwhile = before - open_questions(&records);
    assert!(meanwhile <= 24, "{meanwhile} questions of somebody else were ended first");
    let left = open_questions(&records);
    world.kill();
    stop.store(true, Ordering::Relaxed);
    disk.join().unwrap();
    assert!(left > 1, "it was killed before the last");
    world.again().await;
    until_open(&records, 1).await;
    for record in &asked {
        let ended = settled(&world.owner, record).await;
        // The last one was ended by the answer that did not count.
        let is_over = ended["status"] == "cancelled" || ended["status"] == "failed";
        assert!(is_over && ended["started_at"].is_null(), "{}", ended["status"]);
        assert!(ended["code"].as_str().unwrap().len() > 200_000, "its code is still shown");
        assert_eq!(world.owner.get(&approval_of(record)).await["state"], "void");
    }
    assert_eq!(allow(&world, &twin).await, 200);
    assert_eq!(settled(&world.owner, &twin).await["value"], 42);
}

/// Bytes that the server has written to files.
fn written(world: &World) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{}/io", world.pid())).unwrap();
    io.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn t186_the_end_of_a_question_does_not_rewrite_its_code() {
    const CODE: usize = 1 << 20;
    let world = World::start().await;
    let (flood, asked, _) = with_many_questions(&world, CODE).await;
    let records = Connection::open(world.database()).unwrap();
    let before = written(&world);
    world.owner.delete(&format!("/v1/keys/{}", id(&flood))).await;
    until_open(&records, 1).await;
    let bytes = written(&world) - before;
    println!("t186: {bytes} bytes written");
    // With what was in the log before, and is moved into the database meanwhile.
    assert!(bytes < (QUESTIONS * CODE / 6) as u64, "{bytes} bytes for {QUESTIONS} ends");
    let ended = settled(&world.owner, &asked[0]).await;
    assert!(ended["code"].as_str().unwrap().len() > CODE);
}
