//! Standard input and output: the protocol and nothing else, for as long as the client is there.

use crate::harness;
use crate::wire::Stdio;
use serde_json::json;
use std::fs;
use std::time::{Duration, Instant};

#[test]
fn what_is_no_message_is_a_protocol_error_and_the_server_lives_on() {
    let mut client = Stdio::start(&[]);
    client.line("{\"jsonrpc\": \"2.0\", \"id\": 99, \"method\": \"tools/call\", \"params\": 7}");
    assert!(client.receive().get("error").is_some());
    // What is not even JSON has no number that could be answered, and is passed over.
    client.line("{not json");
    let unknown = client.request("no/such/method", json!({}));
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
    let unknown = client.request("tools/call", json!({"name": "no_such_tool", "arguments": {}}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    let result = client.call("execute_python", json!({"code": "6 * 7"}));
    assert_eq!(result["structuredContent"]["result"], 42);
    assert_eq!(client.leave(), Some(0));
}

#[test]
fn output_is_told_line_by_line_while_the_code_runs() {
    let mut client = Stdio::start(&[]);
    let code = "import time\nprint('one', flush=True)\ntime.sleep(1)\nprint('two')";
    let params = json!({"name": "execute_python", "arguments": {"code": code}, "_meta": {"progressToken": 7}});
    let id = client.begin("tools/call", params);
    let first = client.receive();
    let heard = Instant::now();
    assert_eq!(
        (&first["params"]["message"], &first["params"]["progressToken"]),
        (&json!("one"), &json!(7))
    );
    client.answer(id);
    assert!(heard.elapsed() > Duration::from_millis(500), "it came with the end");
    let told: Vec<_> = client.notes.iter().map(|note| note["params"]["message"].clone()).collect();
    assert_eq!(told, ["two"]);
}

#[test]
fn a_cancelled_call_is_stopped_and_a_client_that_goes_leaves_nothing_behind() {
    let mut client = Stdio::start(&[]);
    let marker = format!("/tmp/belljar-mcp-{}", std::process::id());
    let session = client.call("create_session", json!({}))["structuredContent"]["session"].clone();
    let slow = json!({"code": "import time\ntime.sleep(60)", "session": session});
    let id = client.begin("tools/call", json!({"name": "execute_python", "arguments": slow}));
    std::thread::sleep(Duration::from_millis(500));
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    client.send(&cancelled);
    let began = Instant::now();
    loop {
        // The session is busy until what ran in it has ended.
        let next = client.call("execute_python", json!({"code": "6 * 7", "session": session}));
        if next["structuredContent"]["result"] == 42 {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{next}");
        std::thread::sleep(Duration::from_millis(100));
    }
    let (pid, home) = (client.process.id(), harness::data().join("mcp"));
    assert!(records(&home) > 0);
    client.begin(
        "tools/call",
        json!({"name": "execute_python", "arguments": {"code": "import time\ntime.sleep(60)"}}),
    );
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(client.leave(), Some(0));
    assert!(!fs::exists(format!("/proc/{pid}")).unwrap() && !fs::exists(marker).unwrap());
}

fn records(home: &std::path::Path) -> usize {
    fs::read_dir(home).map_or(0, Iterator::count)
}

#[test]
fn records_of_one_that_was_killed_are_gone_after_the_next_start() {
    let client = Stdio::start(&[]);
    let home = harness::data().join("mcp");
    let own = |pid: u32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        let mut open = open.filter_map(|entry| fs::read_link(entry.path()).ok());
        let lock = open.find(|path| path.starts_with(&home) && path.ends_with("lock")).unwrap();
        lock.parent().unwrap().parent().unwrap().to_owned()
    };
    let left = own(client.process.id());
    drop(client);
    assert!(left.exists(), "it was killed");
    let next = Stdio::start(&[]);
    assert!(!left.exists());
    let kept = own(next.process.id());
    assert!(kept.exists());
    assert_eq!(next.leave(), Some(0));
    assert!(!kept.exists());
}
