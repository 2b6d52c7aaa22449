//! `belljar mcp` as a proxy to a server: the client sees no difference, and can leave if the server hangs.

use crate::harness::wait;
use crate::test_server::World;
use crate::wire::{Stdio, hello};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::{Duration, Instant};

fn code(code: &str) -> Value {
    json!({"name": "execute_python", "arguments": {"code": code}})
}

/// Of runs that are begun at once, in whichever order they are answered.
fn results(client: &mut Stdio, codes: &[&str]) -> BTreeMap<u64, Value> {
    for one in codes {
        client.begin("tools/call", code(one));
    }
    let mut answers = BTreeMap::new();
    while answers.len() < codes.len() {
        let answer = client.receive();
        if let Some(id) = answer["id"].as_u64() {
            answers.insert(id, answer["result"]["structuredContent"]["result"].clone());
        }
    }
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_client_goes_on_after_a_restart_of_the_server() {
    let mut world = World::start().await;
    let mut client = Stdio::before(&world.owner);
    assert_eq!(client.request("tools/call", code("6 * 7"))["result"]["isError"], false);
    world.kill();
    let away = client.request("tools/call", code("6 * 7"));
    assert_eq!(away["result"]["isError"], true, "{away}");
    let gone = client.request("tools/call", code("6 * 7"));
    let error = &gone["result"]["structuredContent"]["error"];
    assert_eq!(error["code"], "CodeSandboxUnreachable", "{gone}");
    world.again_there().await;
    assert!(results(&mut client, &["1"]).into_values().eq([1]));
    // Also when several requests notice it at once.
    world.kill();
    world.again_there().await;
    let answers = results(&mut client, &["1", "2", "3", "4", "5"]);
    assert!(answers.values().eq(&[1, 2, 3, 4, 5]), "{answers:?}");
    // What the server says by itself is heard again.
    let tool = json!({"type": "runPythonCode", "approval_action": "allow", "name": "fresh", "description": "For tests.",
        "configuration": {"pythonCode": "def handle() -> int:\n    return 1\n"}});
    let response = tokio::task::spawn_blocking(move || (client.receive(), client));
    // The stream on which it says so is opened beside the first requests.
    wait::until("a change is told", async || {
        let made = world.owner.post("/v1/tools", tool.clone()).await;
        world.owner.delete(&format!("/v1/tools/{}", made["id"].as_str().unwrap())).await;
        response.is_finished()
    })
    .await;
    let (response, client) = response.await.unwrap();
    assert_eq!(response["method"], "notifications/tools/list_changed", "{response}");
    assert_eq!(client.leave(), Some(0));
}

#[test]
fn a_server_that_accepts_and_says_nothing_is_told_of_and_left() {
    let hole = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", hole.local_addr().unwrap());
    let mut client =
        Stdio::silent(&[], &[("BELLJAR_URL", url.as_str()), ("BELLJAR_API_KEY", "bj_x")]);
    let began = Instant::now();
    let late = client.request("initialize", hello(&json!({})));
    let said = late["error"]["message"].as_str().unwrap();
    assert!(said.contains("did not respond in time"), "{late}");
    let id = client.begin("tools/list", json!({}));
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    client.send(&cancelled);
    assert_eq!(client.leave(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_can_leave_a_server_that_hangs() {
    let world = World::start().await;
    let clients = [0, 1].map(|_| Stdio::before(&world.owner));
    let server = Pid::from_raw(i32::try_from(world.pid()).unwrap()).unwrap();
    kill_process(server, Signal::STOP).unwrap();
    let [polite, mut hasty] = clients;
    let began = Instant::now();
    assert_eq!(polite.leave(), Some(0));
    hasty.begin("tools/list", json!({}));
    assert_eq!(hasty.vanish(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    kill_process(server, Signal::CONT).unwrap();
    world.owner.get("/v1/principals/me").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_vanishes_ends_what_runs_for_it() {
    let world = World::start().await;
    let mut client = Stdio::before(&world.owner);
    client.begin("tools/call", code("import time\ntime.sleep(60)"));
    let running = async || world.owner.get("/v1/executions?status=running").await["items"].clone();
    wait::until("it runs", async || running().await != json!([])).await;
    assert_eq!(client.vanish(), Some(0));
    let is_over = async || running().await == json!([]);
    wait::within(Duration::from_secs(5), "it has ended", is_over).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_text_are_passed_over() {
    let world = World::start().await;
    let mut client = Stdio::before(&world.owner);
    client.bytes(b"\xff\xfe\n{\"jsonrpc\": \"2.0\", \"id\": 98, \"method\": \"\xff\"}\n\n");
    assert_eq!(client.call("execute_python", json!({"code": "6 * 7"}))["isError"], false);
    assert_eq!(client.leave(), Some(0));
}
