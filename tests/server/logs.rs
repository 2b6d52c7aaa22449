//! The log of the operator: one JSON object per line, whatever users send, and without secrets.

use crate::harness;
use crate::raw;
use crate::test_server::World;
use reqwest::Method;
use serde_json::{Value, json};
use std::slice::from_ref;

/// Would look like a line of the log, if it could begin one.
const FORGED: &str = "\n{\"level\":\"ERROR\",\"message\":\"forged\"}\r\n\u{1b}[2J\u{1b}]0;x\u{7}";
/// Is nowhere but in what users send.
const PRIVATE: &str = "marker-4cf1";

#[tokio::test(flavor = "multi_thread")]
async fn t50_every_line_of_the_log_is_one_json_object_and_none_is_a_users() {
    let world = World::with(&["--log", "debug"]).await;
    let evil = format!("{PRIVATE}{FORGED}");
    let code = format!("import sys\nprint({evil:?})\nprint({evil:?}, file=sys.stderr)\n1/0");
    world.owner.execute(&code).await;
    world.owner.execute(&format!("raise Exception({evil:?})")).await;
    world.owner.execute("import os\nos.write(2, b'\\n{}\\n'); os._exit(3)").await;
    for (path, body) in [
        ("/v1/sessions", json!({"name": evil})),
        ("/v1/principals", json!({"name": evil, "kind": "user"})),
        ("/v1/execute", json!({"code": "1", "environment": evil})),
        ("/v1/documents", json!({"urls": [evil]})),
        ("/v1/execute", json!({"code": "1", "files": [{"name": evil, "text": evil}]})),
    ] {
        world.owner.refused("POST", path, Some(body)).await;
    }
    let host = format!("Host: {}", raw::authority(world.address()));
    let key = format!("Authorization: Bearer {}", world.owner.key);
    let file = format!("/v1/assets/00000000-0000-7000-8000-000000000000/{PRIVATE}.txt");
    world.owner.refused("GET", &file, None).await;
    for target in ["/v1/%0a%7b%22x%22%3a1%7d", "/%1b%5b2J", "/v1/sessions?key=bj_%0asecret"] {
        raw::send(world.address(), &raw::request("GET", target, from_ref(&host), "")).await;
        raw::send(world.address(), &raw::request("BREW", target, from_ref(&host), "")).await;
    }
    for header in ["User-Agent: \u{1b}[2J\\n{}", "X-Request-Id: \u{e9}\"}", "Cookie: \"\\\"\t{"] {
        let headers = [host.clone(), key.clone(), header.to_owned()];
        raw::send(world.address(), &raw::request("GET", "/v1/sessions", &headers, "")).await;
    }
    let foreign = world.api("bj_00000000000000000000000000000000_c2VjcmV0LXNlY3JldC1zZWNyZXQ");
    foreign.refused("GET", "/v1/sessions", None).await;
    let answer = world.owner.request(Method::PUT, "/v1/preferences").body(vec![0xff, b'\n', 0x1b]);
    answer.header("content-type", "application/json").send().await.unwrap();

    let log = world.log();
    assert!(log.lines().count() > 15, "{log}");
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?}"));
        assert!(line.is_object() && line["level"].is_string(), "{line}");
        assert_ne!(line["message"], "forged");
    }
    assert!(!log.contains('\u{1b}'), "it does not write to anybody's terminal");
    // `bj_`, the id, and the secret part, which may have the same sign in it.
    let secret = world.owner.key.splitn(3, '_').nth(2).unwrap();
    for private in [secret, PRIVATE, "c2VjcmV0LXNlY3JldC1zZWNyZXQ"] {
        let line = log.lines().find(|line| line.contains(private));
        assert_eq!(line, None, "{private} is in the log");
    }
}

fn is_json(log: &str) {
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?}"));
        assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t125_the_log_is_json_from_the_first_line_to_the_last_also_of_a_start_that_fails() {
    // An environment that has to be built first, which is told step by step.
    let mut world = World::with_own_environments().await;
    let log = world.log();
    assert!(log.contains("building an environment"), "{log}");
    let (code, refused) = world.refused_start();
    assert_eq!(code, Some(125), "two servers never share records");
    assert!(refused.contains("in use by another server"), "{refused}");
    world.stop().await;
    is_json(&world.log());
    is_json(&refused);
    // What is wrong before there is a log is said in plain words, as by every other verb.
    let usage = harness::belljar(&["serve", "--retention-days", "73001"]).output().unwrap();
    assert_eq!(usage.status.code(), Some(2));
    assert!(harness::stderr(&usage).starts_with("belljar: --retention-days 73001 is too long"));
}
