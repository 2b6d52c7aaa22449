//! Overload: with more requests than capacity every request gets a response, none is lost, none runs twice.

use crate::harness::{self, wait};
use crate::test_server::{Api, World};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

/// Ten times what eight sandboxes and eight that wait have room for.
const BURST: usize = 160;
const ROOM: [&str; 4] = ["--sandboxes", "8", "--queue", "8"];
const RECOVERY: Duration = Duration::from_secs(5);

/// What one of many was answered: its status, whether it was told when to come again, and the rest.
type Answered = (u16, bool, Value);

async fn one(api: Api, number: usize) -> Answered {
    let code = format!("import time\ntime.sleep(0.3)\n{number}");
    let request = api
        .request(Method::POST, "/v1/execute")
        .header("content-type", "application/json")
        .body(json!({"code": code}).to_string());
    let answer = request.send().await.unwrap();
    let (status, again) = (answer.status().as_u16(), answer.headers().contains_key("retry-after"));
    (status, again, serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap())
}

async fn burst(api: &Api, meanwhile: impl Future<Output = ()>) -> Vec<Answered> {
    let all: Vec<_> = (0..BURST).map(|number| tokio::spawn(one(api.clone(), number))).collect();
    meanwhile.await;
    let mut answered = Vec::with_capacity(BURST);
    for one in all {
        answered.push(one.await.unwrap());
    }
    answered
}

/// Every execution that the server knows of.
async fn records(api: &Api) -> Vec<Value> {
    let page = api.get("/v1/executions?limit=200").await;
    assert_eq!(page.get("next_cursor"), None);
    page["items"].as_array().unwrap().clone()
}

async fn recovers(api: &Api) {
    let serves = async || {
        let (status, _, answer) = one(api.clone(), 0).await;
        status == 200 && answer["status"] == "succeeded"
    };
    wait::within(RECOVERY, "it serves again", serves).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t64_ten_times_too_much_is_answered_and_nothing_is_lost_or_run_twice() {
    let world = World::with(&ROOM).await;
    let answered = burst(&world.owner, async {}).await;
    let mut ran = BTreeSet::new();
    for (status, again, answer) in &answered {
        match status {
            200 => {
                assert_eq!(answer["status"], "succeeded", "{answer}");
                assert!(ran.insert(answer["id"].as_str().unwrap().to_owned()));
            }
            429 => {
                assert_eq!(answer["code"], "capacity.exhausted", "{answer}");
                assert!(*again, "nobody was told when to come again");
            }
            _ => panic!("{status} {answer}"),
        }
    }
    assert!((16..BURST).contains(&ran.len()), "{} ran", ran.len());
    let kept = records(&world.owner).await;
    let kept: BTreeSet<String> =
        kept.iter().map(|record| record["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kept, ran, "what was answered is what ran");
    recovers(&world.owner).await;
}

/// Processes below this one that run the zygote.
pub(crate) fn zygotes(server: u32) -> Vec<u32> {
    let found = harness::descendants_of(server).into_iter().filter(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("zygote.py")
    });
    // What was forked from it has the same line; it has the lowest number of them.
    found.min().into_iter().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn t64_a_zygote_that_dies_in_a_burst_is_replaced() {
    let world = World::with(&ROOM).await;
    let [zygote] = zygotes(world.pid())[..] else { panic!("there is no zygote") };
    let kill = async {
        let ended = async || !records(&world.owner).await.is_empty();
        wait::until("the burst has begun", ended).await;
        let zygote = rustix::process::Pid::from_raw(zygote.cast_signed()).unwrap();
        rustix::process::kill_process(zygote, rustix::process::Signal::KILL).unwrap();
    };
    let answered = burst(&world.owner, kill).await;
    let mut ended = 0;
    for (status, again, answer) in &answered {
        match status {
            200 => ended += 1,
            429 | 503 => assert!(*again, "{answer}"),
            _ => panic!("{status} {answer}"),
        }
    }
    assert!(ended > 0);
    recovers(&world.owner).await;
    let [replaced] = zygotes(world.pid())[..] else { panic!("there is no zygote") };
    assert_ne!(replaced, zygote);
    let left = world.owner.get("/v1/executions?status=running").await;
    assert_eq!(left["items"], json!([]), "every record has an end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_asks_too_much_is_told_when_to_come_again_and_others_do_not_notice() {
    let world = World::start().await;
    let bounded = json!({"name": "slow", "rate_per_second": 3, "concurrency": 2});
    let made = world.owner.post("/v1/keys", bounded).await;
    let slow = world.api(made["secret"].as_str().unwrap());
    let mut statuses = Vec::new();
    for _ in 0..20 {
        let answer = slow.request(Method::GET, "/v1/principals/me").send().await.unwrap();
        let (status, again) = (answer.status(), answer.headers().contains_key("retry-after"));
        if status == 429 {
            let problem: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
            assert_eq!((&problem["code"], again), (&json!("rate.exceeded"), true));
            assert_eq!(problem["retryable"], true);
        }
        statuses.push(status.as_u16());
        world.owner.get("/v1/principals/me").await;
    }
    assert!(statuses.iter().filter(|status| **status == 200).count() >= 6, "{statuses:?}");
    assert!(statuses.contains(&429), "{statuses:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_asks_for_too_much_at_once_is_told_so_and_others_do_not_notice() {
    let world = World::start().await;
    let made = world.owner.post("/v1/keys", json!({"name": "narrow", "concurrency": 2})).await;
    let narrow = world.api(made["secret"].as_str().unwrap());
    let busy = [1, 2].map(|_| {
        let api = narrow.clone();
        tokio::spawn(async move { api.execute("import time\ntime.sleep(60)").await })
    });
    let running = async || {
        let page = world.owner.get("/v1/executions?status=running").await;
        page["items"].as_array().unwrap().clone()
    };
    wait::until("both run", async || running().await.len() == 2).await;
    let error = narrow.refused("GET", "/v1/principals/me", None).await;
    assert_eq!(error, (429, "rate.exceeded".to_owned()));
    for run in running().await {
        let path = format!("/v1/executions/{}/cancel", run["id"].as_str().unwrap());
        world.owner.post(&path, json!({})).await;
    }
    for one in busy {
        assert_eq!(one.await.unwrap()["status"], "cancelled");
    }
    narrow.get("/v1/principals/me").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_at_once_under_one_key_run_once() {
    let world = World::start().await;
    let send = |api: Api| async move {
        let request = api
            .request(Method::POST, "/v1/execute")
            .header("content-type", "application/json")
            .header("idempotency-key", "once")
            .body(json!({"code": "import time\ntime.sleep(0.5)\n1"}).to_string());
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        let body: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        (status, body)
    };
    let all: Vec<_> = (0..50).map(|_| tokio::spawn(send(world.owner.clone()))).collect();
    let mut ids = BTreeSet::new();
    for one in all {
        let (status, answer) = one.await.unwrap();
        match status {
            200 => drop(ids.insert(answer["id"].as_str().unwrap().to_owned())),
            409 => assert_eq!(answer["code"], "idempotency.conflict"),
            _ => panic!("{status} {answer}"),
        }
    }
    assert_eq!(ids.len(), 1);
    assert_eq!(records(&world.owner).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_at_once_of_one_conversation_have_one_session() {
    let world = World::with(&["--sandboxes", "20"]).await;
    let open = |api: Api| async move { api.post("/v1/sessions", json!({"key": "chat"})).await };
    let all: Vec<_> = (0..20).map(|_| tokio::spawn(open(world.owner.clone()))).collect();
    let mut ids = BTreeSet::new();
    for one in all {
        ids.insert(one.await.unwrap()["sandbox_id"].as_str().unwrap().to_owned());
    }
    assert_eq!(ids.len(), 1);
    let open = world.owner.get("/v1/sessions?status=ready").await;
    assert_eq!(open["items"].as_array().unwrap().len(), 1);
}
