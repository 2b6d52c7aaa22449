//! Standard input and output: the protocol and nothing else, for as long as the client is there.

use crate::harness::{self, soon, wait_blocking};
use crate::test_server::World;
use crate::wire::{Stdio, hello, modern};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[test]
fn what_is_no_message_is_a_protocol_error_and_the_server_lives_on() {
    let mut client = Stdio::start(&[]);
    client.line("{\"jsonrpc\": \"2.0\", \"id\": 99, \"method\": \"tools/call\", \"params\": 7}");
    assert!(client.receive().get("error").is_some());
    // What is not even JSON has no number that could be answered, and is passed over.
    client.line("{not json");
    client.bytes(b"{\"jsonrpc\": \"2.0\", \"id\": 98, \"method\": \"\xff\"}\n\xff\xfe\n");
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
    let code = "import time\nprint('one', flush=True)\ntime.sleep(3)\nprint('two')";
    let id = client.begin("tools/call", with_progress(code));
    let first = client.receive();
    let heard = Instant::now();
    assert_eq!(
        (&first["params"]["message"], &first["params"]["progressToken"]),
        (&json!("one"), &json!(7))
    );
    client.answer(id);
    assert!(heard.elapsed() > Duration::from_millis(500), "it came with the end");
    let messages: Vec<_> =
        client.notes.iter().map(|note| note["params"]["message"].clone()).collect();
    assert_eq!(messages, ["two"]);
}

fn with_progress(code: &str) -> Value {
    let arguments = json!({"code": code});
    json!({"name": "execute_python", "arguments": arguments, "_meta": {"progressToken": 7}})
}

/// The messages of progress before the answer, whose numbers grow.
fn progress_messages(client: &mut Stdio, code: &str) -> Vec<String> {
    let id = client.begin("tools/call", with_progress(code));
    progress_of(client, id)
}

fn progress_of(client: &mut Stdio, id: u64) -> Vec<String> {
    let answer = client.answer(id);
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    let notes: Vec<_> = client.notes.drain(..).map(|note| note["params"].clone()).collect();
    let numbers: Vec<_> = notes.iter().map(|note| note["progress"].as_f64().unwrap()).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    notes.iter().map(|note| note["message"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn much_output_is_told_in_fewer_messages_to_its_last_line() {
    let mut client = Stdio::start(&[]);
    let code = "for _ in range(200_000): print()\nprint('last')";
    let began = Instant::now();
    let id = client.begin("tools/call", with_progress(code));
    // It is slow, and what it does not take meanwhile is told at once.
    wait_blocking::slow_peer(Duration::from_secs(2));
    let response = progress_of(&mut client, id);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let lines = response.iter().map(|message| message.split('\n').count()).sum::<usize>();
    assert_eq!((lines, response.last().unwrap().ends_with("last")), (200_001, true));
    assert!(response.len() < 50_000, "{}", response.len());
}

#[test]
fn lines_that_come_slowly_are_told_one_by_one() {
    let mut client = Stdio::start(&[]);
    let code = "import time\nfor i in range(3):\n    print(i, flush=True)\n    time.sleep(0.3)";
    assert_eq!(progress_messages(&mut client, code), ["0", "1", "2"]);
}

#[test]
fn a_cancelled_call_is_stopped_and_a_client_that_goes_leaves_nothing_behind() {
    let mut client = Stdio::start(&[]);
    let session = client.call("create_session", json!({}))["structuredContent"]["session"].clone();
    let mut slow = with_progress("import time\nprint('on', flush=True)\ntime.sleep(60)");
    slow["arguments"]["session"] = session.clone();
    let id = client.begin("tools/call", slow.clone());
    assert_eq!(client.receive()["params"]["message"], "on");
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    client.send(&cancelled);
    // The session is busy until what ran in it has ended.
    let next = json!({"code": "6 * 7", "session": session});
    assert!(soon(Duration::from_secs(10), || {
        client.call("execute_python", next.clone())["structuredContent"]["result"] == 42
    }));
    let (pid, home) = (client.process.id(), harness::data().join("mcp"));
    assert!(records(&home) > 0);
    client.begin("tools/call", slow);
    assert_eq!(client.receive()["params"]["message"], "on");
    let gone = Instant::now();
    assert_eq!(client.vanish(), Some(0));
    assert!(gone.elapsed() < Duration::from_secs(5), "{:?}", gone.elapsed());
    assert!(!fs::exists(format!("/proc/{pid}")).unwrap());
}

/// A client that says everything at once, and does not end its last line.
fn all_at_once(client: &mut Stdio, code: &str) -> Vec<Value> {
    let hello = json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": hello(&json!({}))});
    let call = json!({"jsonrpc": "2.0", "id": "call", "method": "tools/call", "params": with_progress(code)});
    client.bytes(format!("{hello}\n{call}").as_bytes());
    client.hear_out()
}

#[test]
fn what_was_asked_before_the_input_ended_is_answered() {
    let world = tokio::runtime::Runtime::new().unwrap();
    let world = world.block_on(World::start());
    let server = [("BELLJAR_URL", world.address()), ("BELLJAR_API_KEY", &world.owner.key)];
    for variables in [&[][..], &server] {
        let mut client = Stdio::silent(&[], variables);
        let code = "import time\nprint('now', flush=True)\ntime.sleep(1)\nresult = 42";
        let heard = all_at_once(&mut client, code);
        let ids: Vec<_> = heard.iter().map(|message| message["id"].clone()).collect();
        assert_eq!(ids, [json!("hello"), Value::Null, json!("call")], "{heard:?}");
        assert_eq!(heard[2]["result"]["structuredContent"]["result"], 42, "{heard:?}");
        assert_eq!(client.process.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn a_client_that_asked_for_nothing_is_left_at_once() {
    let subscribed = |client: &mut Stdio| {
        let params = modern(json!({"notifications": {"toolsListChanged": true}}), &json!({}));
        client.begin("subscriptions/listen", params);
        client.receive();
    };
    let cancelled = |client: &mut Stdio| {
        client.request("initialize", hello(&json!({})));
        let id = client.begin("tools/call", with_progress("import time\nprint(1)\ntime.sleep(60)"));
        client.receive();
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    };
    for begin in [&subscribed as &dyn Fn(&mut Stdio), &cancelled] {
        let mut client = Stdio::silent(&[], &[]);
        begin(&mut client);
        let began = Instant::now();
        assert_eq!(client.leave(), Some(0));
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    }
}

#[test]
fn a_client_that_does_not_wait_can_say_so_and_nothing_is_left() {
    let mut client = Stdio::start(&[]);
    let left = own_records(client.process.id());
    client.begin("tools/call", with_progress("import time\nprint(1)\ntime.sleep(60)"));
    client.receive();
    let pid = rustix::process::Pid::from_child(&client.process);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let began = Instant::now();
    assert_eq!(client.process.wait().unwrap().code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(!left.exists());
}

fn records(home: &Path) -> usize {
    fs::read_dir(home).map_or(0, Iterator::count)
}

/// Those that this one holds.
fn own_records(pid: u32) -> PathBuf {
    let home = harness::data().join("mcp");
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let mut open = open.filter_map(|entry| fs::read_link(entry.path()).ok());
    let lock = open.find(|path| path.starts_with(&home) && path.ends_with("lock")).unwrap();
    lock.parent().unwrap().parent().unwrap().to_owned()
}

#[test]
fn records_of_one_that_was_killed_are_gone_after_the_next_start() {
    let client = Stdio::start(&[]);
    let left = own_records(client.process.id());
    drop(client);
    assert!(left.exists(), "it was killed");
    // Younger ones may belong to a process that is just starting.
    let changed = std::time::SystemTime::now().checked_sub(Duration::from_secs(3)).unwrap();
    fs::File::open(&left).unwrap().set_modified(changed).unwrap();
    let next = Stdio::start(&[]);
    // Another test that starts one may be about to remove them.
    assert!(soon(Duration::from_secs(5), || !left.exists()), "they are still there");
    let kept = own_records(next.process.id());
    assert!(kept.exists());
    assert_eq!(next.leave(), Some(0));
    assert!(!kept.exists());
}

#[test]
fn records_of_one_that_was_killed_while_it_removed_them_are_gone_a_minute_later() {
    let home = harness::data().join("mcp");
    let left = |age: Duration| {
        // The lock was removed first, and then it was killed.
        let records = tempfile::Builder::new().prefix("client-").tempdir_in(&home).unwrap();
        fs::create_dir_all(records.path().join("db/files/ab")).unwrap();
        fs::write(records.path().join("db/belljar.sqlite3"), "half").unwrap();
        let changed = std::time::SystemTime::now().checked_sub(age).unwrap();
        fs::File::open(records.path()).unwrap().set_modified(changed).unwrap();
        records
    };
    fs::create_dir_all(&home).unwrap();
    let (old, fresh) = (left(Duration::from_secs(70)), left(Duration::ZERO));
    let next = Stdio::start(&[]);
    assert!(!old.path().exists());
    // It could be one that begins.
    assert!(fresh.path().exists());
    assert_eq!(next.leave(), Some(0));
}
