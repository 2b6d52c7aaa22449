//! `kill -9` at any moment: nothing that was acknowledged is lost, nothing runs twice, no process or file remains.

use crate::harness::{self, wait, wait_blocking};
use crate::test_server::World;
use reqwest::Method;
use serde_json::{Value, json};
use std::process::Command;
use std::time::{Duration, Instant};

/// Kills in one test: each costs a start of the server.
const KILLS: usize = 12;

/// One piece of work under a key of its own; nothing if the server is gone.
async fn send(world: &World, round: usize, number: usize) -> Option<(u16, Value)> {
    let request = world
        .owner
        .request(Method::POST, "/v1/execute")
        .header("content-type", "application/json")
        .header("idempotency-key", format!("{round}-{number}"))
        .body(json!({"code": format!("print({round}, {number})")}).to_string());
    let answer = request.send().await.ok()?;
    let status = answer.status().as_u16();
    let bytes = answer.bytes().await.ok()?;
    Some((status, serde_json::from_slice(&bytes).unwrap()))
}

/// Sends work until the server is gone; tells what was acknowledged.
async fn work(world: &World, round: usize) -> Vec<Value> {
    let mut acknowledged = Vec::new();
    while let Some((status, record)) = send(world, round, acknowledged.len()).await {
        assert_eq!(status, 200, "{record}");
        acknowledged.push(record);
    }
    acknowledged
}

/// A client that was not answered sends its request again, and gets what became of the first.
async fn send_again(world: &World, round: usize, answered: usize) {
    for number in answered.saturating_sub(1)..=answered {
        let (status, response) = send(world, round, number).await.unwrap();
        assert!(status == 200 || response["code"] == "idempotency.conflict", "{status} {response}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t61_a_kill_at_any_moment_loses_nothing_that_was_acknowledged() {
    let mut world = World::start().await;
    let mut acknowledged = Vec::new();
    let mut seed = 0x9e37_79b9_u64;
    for round in 0..KILLS {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let delay = Duration::from_micros(20_000 + (seed >> 40) % 400_000);
        let pid = rustix::process::Pid::from_raw(world.pid().cast_signed()).unwrap();
        let killer = tokio::task::spawn_blocking(move || {
            wait_blocking::any_moment(delay);
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        });
        let answered = work(&world, round).await;
        killer.await.unwrap();
        world.kill();
        world.again().await;
        send_again(&world, round, answered.len()).await;
        acknowledged.extend(answered);
    }
    assert!(!acknowledged.is_empty());
    for record in &acknowledged {
        let path = format!("/v1/executions/{}", record["id"].as_str().unwrap());
        assert_eq!(&world.owner.get(&path).await, record);
    }
    // What was not acknowledged is over as well, and ran at most once.
    let mut seen = std::collections::BTreeMap::<String, usize>::new();
    let mut cursor = String::new();
    loop {
        let page = world.owner.get(&format!("/v1/executions?limit=200{cursor}")).await;
        for execution in page["items"].as_array().unwrap() {
            assert!(!["running", "queued"].contains(&execution["status"].as_str().unwrap()));
            if execution["status"] == "failed" {
                assert_eq!(execution["error"]["code"], "execution.interrupted");
            }
            *seen.entry(execution["code"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert!(seen.values().all(|count| *count == 1), "{seen:?}");
    let verified = harness::belljar(&["audit", "verify"])
        .env("BELLJAR_DATA", world.data.path())
        .output()
        .unwrap();
    assert!(verified.status.success(), "{}", harness::stderr(&verified));
}

/// Processes of this machine that have the word in their command line.
fn processes_with(word: &str) -> Vec<u32> {
    let found = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let entry = entry.ok()?;
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        String::from_utf8_lossy(&line).contains(word).then_some(pid)
    });
    found.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn t62_sandboxes_die_with_the_server_and_what_ran_is_marked() {
    let mut world = World::start().await;
    let word = format!("sleeper-{}", std::process::id());
    let code = format!(
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import time; time.sleep(600)', '{word}'])"
    );
    let mut ids = Vec::new();
    for _ in 0..20 {
        let answer = world
            .owner
            .request(Method::POST, "/v1/execute")
            .header("prefer", "respond-async")
            .header("content-type", "application/json")
            .body(json!({"code": code}).to_string())
            .send()
            .await
            .unwrap();
        let record: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        ids.push(record["id"].as_str().unwrap().to_owned());
    }
    wait::until("all of them run", async || processes_with(&word).len() >= 20).await;
    // A process with the same word that is not a sandbox's must be left alone.
    let mut decoy = Command::new("sleep").arg("600").env("WORD", &word).spawn().unwrap();
    world.kill();
    let are_gone = async || processes_with(&word).is_empty();
    wait::within(Duration::from_secs(5), "none of them is left", are_gone).await;
    world.again().await;
    for id in ids {
        let record = world.owner.get(&format!("/v1/executions/{id}")).await;
        assert_eq!(
            (&record["status"], &record["error"]["code"]),
            (&json!("failed"), &json!("execution.interrupted"))
        );
    }
    assert!(decoy.try_wait().unwrap().is_none());
    decoy.kill().unwrap();
    decoy.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_stop_lets_what_runs_end_and_loses_nothing() {
    let mut world = World::start().await;
    let slow = world.owner.clone();
    let running = tokio::spawn(async move { slow.execute("import time\ntime.sleep(1)\n42").await });
    let path = "/v1/executions?status=running";
    let runs = async || !world.owner.get(path).await["items"].as_array().unwrap().is_empty();
    wait::until("it runs", runs).await;
    assert_eq!(world.stop().await, Some(0));
    assert_eq!(running.await.unwrap()["value"], 42);
    world.again().await;
    assert_eq!(world.owner.get("/v1/executions").await["items"][0]["status"], "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_never_share_records() {
    let world = World::start().await;
    let second = harness::belljar(&["serve", "--listen", "127.0.0.1:0", "--environment", "bare"])
        .env("BELLJAR_RECORDS", world.data.path())
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(125));
    assert!(harness::stderr(&second).contains("in use by another server"));
    assert_eq!(world.owner.execute("1").await["value"], 1);
}

/// One file that a user has uploaded, and one in a volume: what must be there whatever happens.
async fn keep_two(world: &World) -> (String, String) {
    let part = reqwest::multipart::Part::bytes(b"of a user".to_vec()).file_name("a.txt");
    let form = reqwest::multipart::Form::new().part("file", part);
    let sent = world.owner.request(Method::POST, "/v1/documents").multipart(form).send().await;
    let sent: Value = serde_json::from_slice(&sent.unwrap().bytes().await.unwrap()).unwrap();
    let document = sent["items"][0]["id"].as_str().unwrap();
    let volume = json!({"name": "notes", "quota_bytes": 1_000_000});
    let volume = world.owner.post("/v1/volumes", volume).await["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/volumes/{volume}/files/b.txt");
    let put = world.owner.request(Method::PUT, &path).body("of a volume").send().await.unwrap();
    assert_eq!(put.status(), 201);
    (format!("/v1/documents/{document}/content"), path)
}

async fn are_there(world: &World, (document, volume): &(String, String)) {
    for (path, bytes) in [(document, "of a user"), (volume, "of a volume")] {
        let answer = world.owner.request(Method::GET, path).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        assert_eq!(answer.text().await.unwrap(), bytes);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t121_a_start_without_its_database_changes_nothing_and_says_what_to_do() {
    let mut world = World::start().await;
    let kept = keep_two(&world).await;
    assert_eq!(world.stop().await, Some(0));
    let elsewhere = world.data.path().join("elsewhere");
    std::fs::rename(world.database(), &elsewhere).unwrap();
    let (code, said) = world.refused_start();
    assert_eq!(code, Some(125), "{said}");
    for word in ["is missing, but its directory has", "1 files, 1 volumes", "--records"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(!world.database().exists(), "it made one");
    assert_eq!(world.blobs(), 1);
    std::fs::rename(elsewhere, world.database()).unwrap();
    world.again().await;
    are_there(&world, &kept).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t121_a_database_that_has_lost_its_log_is_noticed_and_one_that_has_it_is_whole() {
    let mut world = World::start().await;
    let kept = keep_two(&world).await;
    world.kill();
    let log = world.data.path().join("db/belljar.sqlite3-wal");
    let saved = world.data.path().join("saved");
    assert!(std::fs::metadata(&log).unwrap().len() > 0, "there was nothing to lose");
    std::fs::rename(&log, &saved).unwrap();
    let (code, said) = world.refused_start();
    assert_eq!(code, Some(125), "{said}");
    assert!(said.contains("the last commits of the database are missing"), "{said}");
    assert_eq!(world.blobs(), 1);
    for left in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{left}", world.database().display()));
    }
    std::fs::rename(saved, log).unwrap();
    world.again().await;
    are_there(&world, &kept).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t124_a_stop_waits_once_and_its_clients_are_answered_meanwhile() {
    const DRAIN: Duration = Duration::from_secs(12);
    let drain = DRAIN.as_secs().to_string();
    let mut world = World::with(&["--drain-seconds", &drain]).await;
    let (slow, endless) = (world.owner.clone(), world.owner.clone());
    let slow = tokio::spawn(async move { slow.execute("import time\ntime.sleep(4)\n42").await });
    let endless = tokio::spawn(async move {
        let code = json!({"code": "import time\nwhile True: time.sleep(1)"});
        endless.call("POST", "/v1/execute", Some(code)).await
    });
    let running = "/v1/executions?status=running";
    let run = async || world.owner.get(running).await["items"].as_array().unwrap().len() == 2;
    wait::until("both run", run).await;
    let ready = world.owner.call("GET", "/readyz", None).await;
    assert_eq!((ready.0, &ready.1["status"]), (200, &json!("ready")), "{ready:?}");
    // Connections of its own: an idle one of before may be closed at any time.
    let (client, began) = (world.api(&world.owner.key), Instant::now());
    let stopping = tokio::spawn(async move { (world.stop().await, world) });
    let is_draining = async || {
        let (status, response) = client.call("GET", "/readyz", None).await;
        let is_draining = response["status"] == "draining";
        assert!(!is_draining || status == 503, "{status}");
        is_draining
    };
    wait::within(DRAIN, "it says that it stops", is_draining).await;
    let (status, refused) = client.call("POST", "/v1/execute", Some(json!({"code": "1"}))).await;
    assert_eq!((status, &refused["status"]), (503, &json!(503)), "{refused}");
    assert_eq!(client.get("/healthz").await["status"], "stopping");
    assert_eq!(client.get(running).await["items"].as_array().unwrap().len(), 2);
    assert_eq!(slow.await.unwrap()["value"], 42);
    let (status, cancelled) = endless.await.unwrap();
    assert_eq!((status, &cancelled["status"]), (200, &json!("cancelled")), "{cancelled}");
    let (code, mut world) = stopping.await.unwrap();
    assert_eq!(code, Some(0));
    let waited = began.elapsed();
    assert!(waited >= DRAIN && waited < DRAIN * 2 - Duration::from_secs(2), "{waited:?}");
    world.again().await;
    assert_eq!(world.owner.get(running).await["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn t172_what_ran_when_the_server_was_killed_is_in_the_audit_log() {
    let mut world = World::start().await;
    let done = world.owner.post("/v1/execute", json!({"code": "1"})).await;
    let long = json!({"code": "import time\ntime.sleep(600)", "limits": {"wall_ms": 900_000}});
    let begun = world
        .owner
        .request(Method::POST, "/v1/execute")
        .header("prefer", "respond-async")
        .header("content-type", "application/json")
        .body(long.to_string());
    let begun = begun.send().await.unwrap();
    assert_eq!(begun.status(), 202);
    let begun: Value = serde_json::from_slice(&begun.bytes().await.unwrap()).unwrap();
    world.kill();
    world.again().await;
    let entries = world.owner.get("/v1/audit?action=execution.run").await;
    for (record, detail) in [(&begun, "failed"), (&done, "succeeded")] {
        let mut of_it = entries["items"].as_array().unwrap().iter();
        let found: Vec<&Value> =
            of_it.by_ref().filter(|entry| entry["object"] == record["id"]).collect();
        assert_eq!(found.len(), 1, "{entries}");
        assert_eq!(
            (&found[0]["detail"], &found[0]["principal"]),
            (&json!(detail), &done["principal"])
        );
    }
}
