//! Executions over REST: finished, streamed, asynchronous, cancelled, and never twice.

use crate::harness::wait;
use crate::test_server::{World, events, printed};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread")]
async fn code_runs_and_its_record_stays() {
    let world = World::start().await;
    let record = world.owner.execute("print('hi')\n40 + 2").await;
    assert_eq!((&record["status"], &record["value"]), (&json!("succeeded"), &json!(42)));
    assert_eq!(printed(&record), "hi\n");
    let path = format!("/v1/executions/{}", record["id"].as_str().unwrap());
    assert_eq!(world.owner.get(&path).await, record);
    let listed = world.owner.get("/v1/executions").await;
    assert_eq!(listed["items"][0]["id"], record["id"]);
    assert_eq!(listed["items"][0]["output"], json!([]), "a list is short");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_tells_everything_in_order_and_can_be_taken_up_again() {
    let world = World::start().await;
    let request =
        world.owner.request(Method::POST, "/v1/execute").header("accept", "text/event-stream");
    let code = "print('a', flush=True)\nimport sys\nprint('b', file=sys.stderr)\nopen('f.csv', 'w').write('1')\n7";
    let response = request
        .header("content-type", "application/json")
        .body(json!({"code": code}).to_string())
        .send()
        .await
        .unwrap();
    let received = events(response).await;
    let names: Vec<&str> = received.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(names, ["status", "output", "output", "result", "file", "end"]);
    let numbers: Vec<u64> = received.iter().map(|(number, ..)| *number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    assert_eq!(received[5].2["status"], "succeeded");
    // A listener can load the file of an event.
    let file = world.owner.request(Method::GET, received[4].2["url"].as_str().unwrap());
    assert_eq!(file.send().await.unwrap().text().await.unwrap(), "1");

    let id = world.owner.get("/v1/executions").await["items"][0]["id"].clone();
    let path = format!("/v1/executions/{}/events", id.as_str().unwrap());
    let all = events(world.owner.request(Method::GET, &path).send().await.unwrap()).await;
    assert_eq!(without_urls(all), without_urls(received.clone()));
    let rest = world.owner.request(Method::GET, &path).header("last-event-id", "4");
    let rest = events(rest.send().await.unwrap()).await;
    assert_eq!(without_urls(rest), without_urls(received[4..].to_vec()));
}

/// Each answer has a new URL of the same file.
fn without_urls(mut events: Vec<(u64, String, Value)>) -> Vec<(u64, String, Value)> {
    for (.., data) in &mut events {
        data.as_object_mut().unwrap().remove("url");
    }
    events
}

#[tokio::test(flavor = "multi_thread")]
async fn an_asynchronous_run_is_answered_at_once_and_followed_later() {
    let world = World::start().await;
    let response = world
        .owner
        .request(Method::POST, "/v1/execute")
        .header("prefer", "respond-async")
        .header("content-type", "application/json")
        .body(json!({"code": "import time\ntime.sleep(5)\nprint('done')"}).to_string())
        .send()
        .await
        .unwrap();
    // The record below is of a run that has not ended.
    assert_eq!(response.status(), 202);
    let place = response.headers()["location"].to_str().unwrap().to_owned();
    let record: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    assert_eq!(record["status"], "running");
    let stream = world.owner.request(Method::GET, &format!("{place}/events")).send().await.unwrap();
    let received = events(stream).await;
    assert_eq!(received.last().unwrap().2["status"], "succeeded");
    assert_eq!(printed(&world.owner.get(&place).await), "done\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn t60_a_disconnect_or_a_cancel_frees_the_sandbox() {
    let world = World::with(&["--sandboxes", "1", "--queue", "0"]).await;
    let slow = json!({"code": "import time\ntime.sleep(60)"});
    let leaving = tokio::spawn({
        let (api, slow) = (world.owner.clone(), slow.clone());
        async move { api.call("POST", "/v1/execute", Some(slow)).await }
    });
    let running = async || {
        let listed = world.owner.get("/v1/executions?status=running").await;
        !listed["items"].as_array().unwrap().is_empty()
    };
    wait::until("it runs", running).await;
    leaving.abort();
    place_is_free(&world).await;
    let running = world
        .owner
        .request(Method::POST, "/v1/execute")
        .header("prefer", "respond-async")
        .header("content-type", "application/json")
        .body(slow.to_string())
        .send()
        .await
        .unwrap();
    let place = running.headers()["location"].to_str().unwrap().to_owned();
    let full = world.owner.call("POST", "/v1/execute", Some(json!({"code": "1"}))).await;
    assert_eq!(full.0, 429, "{}", full.1);
    let cancelled = world.owner.post(&format!("{place}/cancel"), Value::Null).await;
    assert_eq!(cancelled["cancelled"], true);
    place_is_free(&world).await;
    let listed = world.owner.get("/v1/executions?status=cancelled").await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
}

async fn place_is_free(world: &World) {
    let is_free = async || {
        let (status, _) = world.owner.call("POST", "/v1/execute", Some(json!({"code": "1"}))).await;
        assert!(status == 200 || status == 429, "{status}");
        status == 200
    };
    wait::within(Duration::from_secs(5), "the place is free", is_free).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_runs_once_and_another_request_under_it_is_refused() {
    let world = World::start().await;
    let session = world.owner.session().await;
    let path = format!("/v1/sessions/{session}/execute");
    world.owner.run(&session, "n = 0").await;
    let send = |code: &str| {
        world
            .owner
            .request(Method::POST, &path)
            .header("idempotency-key", "one")
            .header("content-type", "application/json")
            .body(json!({"code": code}).to_string())
            .send()
    };
    let first = send("n += 1\nn").await.unwrap();
    assert!(!first.headers().contains_key("idempotency-replayed"));
    let first = first.text().await.unwrap();
    let second = send("n += 1\nn").await.unwrap();
    assert_eq!(second.headers()["idempotency-replayed"], "true");
    assert_eq!(second.text().await.unwrap(), first);
    let other = send("n += 2\nn").await.unwrap();
    assert_eq!(other.status(), 409);
    assert_eq!(world.owner.run(&session, "n").await["value"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn charts_and_files_can_be_had_after_the_sandbox_is_gone() {
    let world = World::start().await;
    let code = "import os\nimport matplotlib.pyplot as plt\n\
        os.mkdir('d')\nopen('d/ü x.txt', 'w').write('deep')\nopen('plot_1.png', 'w').write('mine')\n\
        for x in range(2):\n    plt.plot([x, 2])\n    plt.show()";
    let request = json!({"code": code, "environment": "default", "limits": {"wall_ms": 60_000}});
    let record = world.owner.post("/v1/execute", request).await;
    let mut contents = BTreeMap::new();
    let files = record["files_out"].as_array().unwrap();
    for file in files {
        let url = file["url"].as_str().unwrap();
        let answer = world.owner.request(Method::GET, url).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{url}");
        let bytes = answer.bytes().await.unwrap();
        assert_eq!(file["size"], bytes.len());
        contents.insert(file["name"].as_str().unwrap(), bytes);
    }
    let names: Vec<&str> = contents.keys().copied().collect();
    assert_eq!(names, ["d/ü x.txt", "plot_0.png", "plot_1.png", "plot_2.png"], "{record}");
    assert_eq!(
        (&contents["d/ü x.txt"][..], &contents["plot_1.png"][..]),
        (&b"deep"[..], &b"mine"[..])
    );
    for chart in ["plot_0.png", "plot_2.png"] {
        assert!(contents[chart].starts_with(b"\x89PNG\r\n"), "{chart}");
    }
    assert_ne!(contents["plot_0.png"], contents["plot_2.png"]);
    let stranger = world.api("");
    let plain = files[0]["url"].as_str().unwrap().split('?').next().unwrap();
    let error = stranger.refused("GET", plain, None).await;
    assert_eq!(error, (401, "auth.missing".into()));
}

/// Of the files of a record, those that were kept.
fn kept(record: &Value) -> usize {
    let files = record["files_out"].as_array().map_or(&[][..], Vec::as_slice);
    files.iter().filter(|file| file["url"].is_string()).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_leave_files_at_once_keep_no_more_than_the_workspace_may() {
    let world = World::with(&["--workspace-mib", "4"]).await;
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64() + 3.0;
    let code = format!(
        "import time\nopen('large', 'wb').write(bytes(3 << 20))\ntime.sleep(max(0, {at} - time.time()))"
    );
    let mut runs = JoinSet::new();
    for _ in 0..8 {
        let (api, code) = (world.owner.clone(), code.clone());
        runs.spawn(async move { api.execute(&code).await });
    }
    let records = runs.join_all().await;
    assert_eq!(records.iter().map(kept).sum::<usize>(), 1);
    assert_eq!(world.blobs(), 1, "no bytes without a row");
    for record in records.iter().filter(|record| kept(record) == 0) {
        assert_eq!(record["status"], "succeeded", "{record}");
        assert_eq!(record["warnings"][0]["code"], "quota.exceeded", "{record}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_files_that_cannot_all_be_kept_no_bytes_are_left() {
    let world = World::start().await;
    // Some of the directories in which bytes are kept cannot be made.
    for number in 0..16 {
        let path = world.data.path().join(format!("db/files/{:02x}", number * 16));
        std::fs::write(path, "").unwrap();
    }
    let code = "for n in range(60): open(f'{n}.txt', 'w').write('x')";
    let (mut refused, mut files) = (0, 0);
    for _ in 0..5 {
        let (status, response) =
            world.owner.call("POST", "/v1/execute", Some(json!({"code": code}))).await;
        match status {
            200 => files += kept(&response),
            _ => {
                assert_eq!(
                    (status, &response["code"]),
                    (500, &json!("execution.interrupted")),
                    "{response}"
                );
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "all were kept");
    assert_eq!(world.blobs(), files, "no bytes without a row");
    let staging = std::fs::read_dir(world.data.path().join("db/staging")).unwrap();
    assert_eq!(staging.count(), 0);
}
