//! What a decision about an approval covers and what makes it void: other code, more access, other files, another
//! specification, the test of a tool, a revoked key. And the cost of pending approvals for the server.

use crate::approvals::{Scene, approval_of, settled};
use crate::principals::{Person, grant, id};
use crate::test_server::{Api, World};
use reqwest::{Method, Response};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, Instant};

const PERMISSION: &str = "/v1/permissions/execute_python";
const EXECUTE: &str = "/v1/execute";

async fn permit(world: &World, permission: &str) {
    let set = Some(json!({"permission": permission}));
    let (status, now) = world.owner.call("PUT", PERMISSION, set).await;
    assert_eq!(status, 200, "{now}");
}

async fn asked(who: &Api, path: &str, request: Value) -> Value {
    let (status, record) = who.call("POST", path, Some(request)).await;
    assert_eq!((status, &record["status"]), (202, &json!("waiting_approval")), "{record}");
    record
}

async fn allow(world: &World, record: &Value, scope: &str) -> (u16, Value) {
    let decision = json!({"decision": "allow", "scope": scope});
    world.owner.call("POST", &approval_of(record), Some(decision)).await
}

/// The answer is refused, and neither the question nor its call is open any more.
async fn is_void(world: &World, who: &Api, record: &Value) {
    let (status, problem) = allow(world, record, "once").await;
    assert_eq!((status, &problem["code"]), (403, &json!("approval.invalid")), "{problem}");
    was_void(world, who, record).await;
}

async fn was_void(world: &World, who: &Api, record: &Value) {
    let done = settled(who, record).await;
    assert_eq!(
        (&done["status"], &done["error"]["code"], &done["started_at"]),
        (&json!("failed"), &json!("approval.invalid"), &Value::Null),
        "{done}"
    );
    let question = world.owner.get(&approval_of(record)).await;
    assert_eq!(question["state"], "void", "{question}");
}

async fn put(who: &Api, session: &str, name: &str, content: &'static str) {
    let put = who.request(Method::PUT, &format!("/v1/sessions/{session}/files/{name}"));
    assert_eq!(put.body(content).send().await.unwrap().status(), 201);
}

async fn ask_in(who: &Api, session: &str, code: &str) -> Value {
    asked(who, &format!("/v1/sessions/{session}/execute"), json!({"code": code})).await
}

async fn replace(who: &Api, path: &str, by: Value) {
    let (status, answer) = who.call("PUT", path, Some(by)).await;
    assert_eq!(status, 200, "{path}: {answer}");
}

/// Reads a stream until it has told this.
async fn hears(mut stream: Response, text: &str) {
    let mut received = String::new();
    while !received.contains(text) {
        let piece = stream.chunk().await.unwrap().unwrap();
        received.push_str(&String::from_utf8_lossy(&piece));
    }
}

async fn give_usage(world: &World, who: &Api, kind: &str, object: &Value) {
    let me = who.get("/v1/principals/me").await;
    let object = json!({"kind": kind, "id": object["id"]});
    grant(&world.owner, me["id"].as_str().unwrap(), "USAGE", &object).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t100_always_for_code_covers_that_code_with_that_reach_and_nothing_else() {
    let world = World::start().await;
    let agent = world.principal("agent", &["USAGE"]).await;
    permit(&world, "ask").await;
    let code = json!({"code": "print(6 * 7)", "entry": "script", "argv": ["a"]});
    let record = asked(&agent, EXECUTE, code.clone()).await;
    assert_eq!(allow(&world, &record, "always").await.0, 200);
    assert_eq!(settled(&agent, &record).await["status"], "succeeded");
    // The harmless twin: the same once more, without an approval.
    assert_eq!(agent.post(EXECUTE, code.clone()).await["status"], "succeeded");
    for (key, value) in [
        ("code", json!("print(6 * 8)")),
        ("argv", json!(["b"])),
        ("allow_network", json!(true)),
        ("integrations", json!(["internet"])),
        ("environment", json!("bare")),
        ("limits", json!({"wall_ms": 1000})),
        ("files", json!([{"name": "json.py", "text": "raise SystemExit"}])),
    ] {
        let mut other = code.clone();
        other[key] = value;
        asked(&agent, EXECUTE, other).await;
    }
    let session = agent.session().await;
    let record = asked(&agent, &format!("/v1/sessions/{session}/execute"), code.clone()).await;
    let (status, refused) = allow(&world, &record, "always").await;
    assert_eq!((status, &refused["code"]), (400, &json!("args.invalid")), "{refused}");
    let mut with_file = code;
    with_file["files"] = json!([{"name": "a.txt", "text": "a"}]);
    let record = asked(&agent, EXECUTE, with_file).await;
    assert_eq!(allow(&world, &record, "always").await.0, 400, "files are no part of it");
    assert_eq!(allow(&world, &record, "once").await.0, 200, "and it can still be answered");
}

#[tokio::test(flavor = "multi_thread")]
async fn t101_a_question_about_code_shows_what_its_session_can_reach_and_use() {
    let world = World::start().await;
    let owner = &world.owner;
    let agent = world.principal("agent", &["USAGE"]).await;
    let token = json!({"name": "TOKEN", "value": "a-value-that-is-long", "scope": "workspace"});
    let token = owner.post("/v1/secrets", token).await;
    let rule = owner.post("/v1/network-rules", json!({"name": "r", "value_list": ["a.example"]}));
    let rule = format!("/v1/network-rules/{}", id(&rule.await));
    let integration =
        json!({"name": "i", "allowed_network_rules": ["r"], "allowed_secrets": ["TOKEN"]});
    let integration = owner.post("/v1/integrations", integration).await;
    give_usage(&world, &agent, "integration", &integration).await;
    give_usage(&world, &agent, "secret", &token).await;
    permit(&world, "ask_once").await;
    let session = agent.post("/v1/sessions", json!({"integrations": ["i"]})).await;
    let session = session["sandbox_id"].as_str().unwrap().to_owned();
    let record = ask_in(&agent, &session, "6 * 7").await;
    let question = owner.get(&approval_of(&record)).await;
    assert_eq!(
        (&question["network"], &question["secrets"]),
        (&json!(["i"]), &json!(["TOKEN"])),
        "{question}"
    );
    assert!(question["working_directory"].is_string(), "{question}");
    // Another host under the same name.
    replace(owner, &rule, json!({"name": "r", "value_list": ["b.example"]})).await;
    is_void(&world, &agent, &record).await;
    let record = ask_in(&agent, &session, "6 * 7").await;
    assert_eq!(allow(&world, &record, "session").await.0, 200);
    assert_eq!(settled(&agent, &record).await["value"], 42);
    // What was agreed to for the session is for what it could reach then.
    let path = format!("/v1/sessions/{session}/execute");
    assert_eq!(agent.post(&path, json!({"code": "6 * 8"})).await["value"], 48);
    replace(owner, &rule, json!({"name": "r", "value_list": ["c.example"]})).await;
    ask_in(&agent, &session, "6 * 9").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t101_files_that_change_after_the_question_make_it_void() {
    let world = World::start().await;
    let agent = world.principal("agent", &["USAGE"]).await;
    permit(&world, "ask").await;
    let session = agent.session().await;
    put(&agent, &session, "job.py", "def run():\n    return 'harmless'\n").await;
    let code = "import sys; sys.path.insert(0, '.'); import job; job.run()";
    // As long as before, and only that.
    let record = ask_in(&agent, &session, code).await;
    put(&agent, &session, "job.py", "def run():\n    return 'harmful!'\n").await;
    is_void(&world, &agent, &record).await;
    let record = ask_in(&agent, &session, code).await;
    put(&agent, &session, "more.py", "1").await;
    is_void(&world, &agent, &record).await;
    let record = ask_in(&agent, &session, code).await;
    agent.delete(&format!("/v1/sessions/{session}/files/more.py")).await;
    is_void(&world, &agent, &record).await;
    // The harmless twin: written again as it was, and what came along with the question itself.
    put(&agent, &session, "job.py", "def run():\n    return 'harmless'\n").await;
    let path = format!("/v1/sessions/{session}/execute");
    let files = json!([{"name": "in.txt", "text": "x"}]);
    let record = asked(&agent, &path, json!({"code": code, "files": files})).await;
    put(&agent, &session, "job.py", "def run():\n    return 'harmless'\n").await;
    assert_eq!(allow(&world, &record, "once").await.0, 200);
    assert_eq!(settled(&agent, &record).await["value"], "harmless");
}

#[tokio::test(flavor = "multi_thread")]
async fn t101_files_that_change_after_the_answer_and_before_the_run_make_it_void() {
    let world = World::start().await;
    let agent = world.principal("agent", &["USAGE"]).await;
    for runs in [false, true] {
        let session = agent.session().await;
        let path = format!("/v1/sessions/{session}/execute");
        // A machine that is busy may end the interpreter that is told to stop, and its files with it: what
        // is to be void is void then as well, and what is to run has none.
        let mut wait = "import time\nprint('begun', flush=True)\ntime.sleep(600)".to_owned();
        if !runs {
            put(&agent, &session, "old.txt", "x").await;
            wait.insert_str(0, "open('new.txt', 'w').write('x')\n");
        }
        permit(&world, "ask").await;
        let record = ask_in(&agent, &session, "6 * 7").await;
        permit(&world, "allow").await;
        let busy = agent
            .request(Method::POST, &path)
            .header("prefer", "respond-async")
            .header("content-type", "application/json")
            .body(json!({"code": wait, "limits": {"wall_ms": 900_000}}).to_string())
            .send()
            .await
            .unwrap();
        let busy: Value = serde_json::from_slice(&busy.bytes().await.unwrap()).unwrap();
        let events = format!("/v1/executions/{}/events", id(&busy));
        hears(agent.request(Method::GET, &events).send().await.unwrap(), "begun").await;
        permit(&world, "ask").await;
        let (status, answer) = allow(&world, &record, "once").await;
        assert_eq!((status, &answer["state"]), (200, &json!("allowed")), "{answer}");
        agent.post(&format!("/v1/executions/{}/cancel", id(&busy)), Value::Null).await;
        if runs {
            assert_eq!(settled(&agent, &record).await["value"], 42);
        } else {
            was_void(&world, &agent, &record).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t102_a_specification_that_changes_after_the_question_makes_it_void() {
    let world = World::start().await;
    let ann = world.principal("ann", &["USAGE"]).await;
    let text = |more: &str| {
        format!(
            "description: {more}\n\
             tools: [{{tool_spec: {{type: code_execution, name: code_execution}}}}]\n\
             tool_resources: {{code_execution: {{environment: bare}}}}\n"
        )
    };
    let made = json!({"name": "a", "specification": text("one")});
    let made = world.owner.post("/v1/agents", made).await;
    give_usage(&world, &ann, "agent", &made).await;
    permit(&world, "ask").await;
    let session = ann.post("/v1/sessions", json!({"agent_id": made["id"]})).await;
    let session = session["sandbox_id"].as_str().unwrap().to_owned();
    let record = ask_in(&ann, &session, "6 * 7").await;
    let agent = format!("/v1/agents/{}", id(&made));
    replace(&world.owner, &agent, json!({"name": "a", "specification": text("another")})).await;
    is_void(&world, &ann, &record).await;
    let record = ask_in(&ann, &session, "6 * 7").await;
    assert_eq!(allow(&world, &record, "once").await.0, 200);
    assert_eq!(settled(&ann, &record).await["value"], 42);
}

const TESTED: &str = "def handle(a: int) -> int:\n    \"\"\"Doubles.\n\n    Args:\n        a: a number\n    \"\"\"\n    return 2 * a\n\ndef test():\n    open('ran.txt', 'w').write('x')\n    return 'tested'\n";

#[tokio::test(flavor = "multi_thread")]
async fn t104_the_test_of_a_tool_is_run_on_the_terms_of_a_call() {
    let world = World::start().await;
    let ann = world.principal("ann", &["USAGE"]).await;
    let mut paths = Vec::new();
    for action in ["allow", "review", "deny"] {
        let tool = json!({
            "type": "runPythonCode", "name": format!("tool_{action}"), "description": "Doubles a number.",
            "configuration": {"pythonCode": TESTED}, "approval_action": action,
        });
        let tool = world.owner.post("/v1/tools", tool).await;
        give_usage(&world, &ann, "tool", &tool).await;
        paths.push(format!("/v1/tools/{}", id(&tool)));
    }
    let test = |index: usize| format!("{}/test", paths[index]);
    let error = ann.refused("POST", &test(2), Some(json!({}))).await;
    assert_eq!(error, (403, "approval.denied".to_owned()));
    let record = asked(&ann, &test(1), json!({})).await;
    assert_eq!(allow(&world, &record, "once").await.0, 200);
    let done = settled(&ann, &record).await;
    assert_eq!(
        (&done["status"], &done["value"], &done["entry"]),
        (&json!("succeeded"), &json!("tested"), &json!("test"))
    );
    // An answer about calls is none about the test.
    let call = json!({"arguments": {"a": 21}});
    let record = asked(&ann, &format!("{}/call", paths[1]), call.clone()).await;
    assert_eq!(allow(&world, &record, "always").await.0, 200);
    assert_eq!(settled(&ann, &record).await["value"], 42);
    assert_eq!(ann.post(&format!("{}/call", paths[1]), call).await["value"], 42);
    asked(&ann, &test(1), json!({})).await;
    // The harmless twin.
    let tested = ann.post(&test(0), json!({})).await;
    assert_eq!((&tested["status"], &tested["value"]), (&json!("succeeded"), &json!("tested")));
}

#[tokio::test(flavor = "multi_thread")]
async fn t106_what_was_asked_with_a_key_ends_with_it() {
    let world = World::start().await;
    let ann = Person::new(&world, "ann").await;
    let workspace = world.owner.get("/v1/principals/me").await["workspace"].clone();
    let workspace = json!({"kind": "workspace", "id": workspace});
    grant(&world.owner, &ann.id, "USAGE", &workspace).await;
    let new = json!({"name": "stolen", "principal": ann.id});
    let stolen = world.owner.post("/v1/keys", new).await;
    let stolen_path = format!("/v1/keys/{}", id(&stolen));
    let stolen = world.api(stolen["secret"].as_str().unwrap());
    let made = stolen.post("/v1/keys", json!({"name": "made"})).await;
    let made = world.api(made["secret"].as_str().unwrap());
    let run = async |who: &Api| -> Value {
        let begun = who
            .request(Method::POST, EXECUTE)
            .header("prefer", "respond-async")
            .header("content-type", "application/json")
            .body(r#"{"code": "import time\ntime.sleep(600)", "limits": {"wall_ms": 900000}}"#)
            .send()
            .await
            .unwrap();
        serde_json::from_slice(&begun.bytes().await.unwrap()).unwrap()
    };
    let runs = [run(&stolen).await, run(&made).await];
    let other_run = run(&ann).await;
    permit(&world, "ask").await;
    let code = json!({"code": "6 * 7"});
    let questions =
        [asked(&stolen, EXECUTE, code.clone()).await, asked(&made, EXECUTE, code.clone()).await];
    let other_question = asked(&ann, EXECUTE, code).await;
    world.owner.delete(&stolen_path).await;
    for record in &runs {
        assert_eq!(settled(&ann, record).await["status"], "cancelled");
    }
    for record in &questions {
        let ended = settled(&ann, record).await;
        assert_eq!((&ended["status"], &ended["started_at"]), (&json!("cancelled"), &Value::Null));
        assert_eq!(world.owner.get(&approval_of(record)).await["state"], "void");
        assert_eq!(allow(&world, record, "once").await.0, 403);
    }
    // The harmless twin: another key of the same person.
    let path = format!("/v1/executions/{}", id(&other_run));
    assert_eq!(ann.get(&path).await["status"], "running");
    assert_eq!(allow(&world, &other_question, "once").await.0, 200);
    assert_eq!(settled(&ann, &other_question).await["value"], 42);
    ann.post(&format!("{path}/cancel"), Value::Null).await;
    assert_eq!(settled(&ann, &other_run).await["status"], "cancelled");
}

/// Resident memory of the server, and the most since `forget_peak`, in MiB.
fn resident(world: &World) -> (u64, u64) {
    let status = fs::read_to_string(format!("/proc/{}/status", world.pid())).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    };
    (field("VmRSS:"), field("VmHWM:"))
}

fn forget_peak(world: &World) {
    fs::write(format!("/proc/{}/clear_refs", world.pid()), "5").unwrap();
}

async fn listen(who: &Api) -> Response {
    let listen = who.request(Method::GET, "/v1/approvals/events");
    listen.timeout(Duration::from_secs(900)).send().await.unwrap()
}

/// The id of each question that a listener hears, and how long it is, for as many questions.
async fn heard(mut stream: Response, questions: usize) -> Vec<(String, usize)> {
    let (mut heard, mut line) = (Vec::new(), Vec::new());
    while heard.len() < questions {
        let piece = stream.chunk().await.unwrap().unwrap();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(part);
            if !part.ends_with(b"\n") {
                continue;
            }
            // Its id comes first. To read all of it would take longer than all the rest of the test.
            if let Some(data) = line.strip_prefix(br#"data: {"id":""#) {
                let id = data.split(|byte| *byte == b'"').next().unwrap_or_default();
                heard.push((String::from_utf8_lossy(id).into_owned(), data.len()));
            }
            line.clear();
        }
    }
    heard
}

#[tokio::test(flavor = "multi_thread")]
async fn t103_listeners_cost_the_server_one_question_at_a_time() {
    const QUESTIONS: usize = 40;
    const LISTENERS: usize = 4;
    const CODE: usize = 2 * 1024 * 1024;
    let world = World::start().await;
    let agent = world.principal("agent", &["USAGE"]).await;
    permit(&world, "ask").await;
    let code = format!("x = '{}'", "x".repeat(CODE - 6));
    let mut ids = Vec::new();
    for _ in 0..QUESTIONS {
        let record = asked(&agent, EXECUTE, json!({ "code": code })).await;
        ids.push(record["approval_id"].as_str().unwrap().to_owned());
    }
    forget_peak(&world);
    let (before, _) = resident(&world);
    let mut silent = Vec::new();
    for _ in 0..LISTENERS {
        silent.push(listen(&world.owner).await);
    }
    let mut reading = Vec::new();
    for _ in 0..LISTENERS {
        let stream = listen(&world.owner).await;
        reading.push(tokio::spawn(heard(stream, QUESTIONS)));
    }
    for listener in reading {
        let heard = listener.await.unwrap();
        let (order, lengths): (Vec<String>, Vec<usize>) = heard.into_iter().unzip();
        assert_eq!(order, ids, "oldest first");
        assert!(lengths.iter().all(|length| *length > code.len()), "{lengths:?}");
    }
    let (_, peak) = resident(&world);
    println!("t103: {before} MiB before, {peak} MiB at most");
    // Each of the silent ones may have another question in its hands.
    assert!(peak < before + 200, "{before} MiB before, {peak} MiB at most");
    drop(silent);
    let records = Connection::open(world.database()).unwrap();
    let kept: i64 = records
        .query_row(
            "SELECT (SELECT sum(length(summary) + length(plan)) FROM executions) \
             + (SELECT sum(length(body)) FROM approvals) \
             + (SELECT sum(length(body)) FROM execution_inputs) \
             + (SELECT sum(length(body)) FROM approval_arguments)",
            [],
            |row| row.get(0),
        )
        .unwrap();
    let once = (QUESTIONS * CODE) as i64;
    assert!(kept < once + once / 4, "{kept} bytes are kept of {once}");
}

#[tokio::test(flavor = "multi_thread")]
async fn t103_open_questions_are_in_the_quota_of_their_workspace() {
    const MIB: usize = 1024 * 1024;
    let world = World::with(&["--workspace-mib", "8"]).await;
    let agent = world.principal("agent", &["USAGE"]).await;
    permit(&world, "ask").await;
    let long = json!({"code": format!("# {}\n6 * 7", "x".repeat(3 * MIB))});
    let first = asked(&agent, EXECUTE, long.clone()).await;
    asked(&agent, EXECUTE, long.clone()).await;
    let (_, refused) = agent.call("POST", EXECUTE, Some(long.clone())).await;
    assert_eq!(refused["code"], "quota.exceeded");
    let pending = world.owner.get("/v1/approvals?state=pending").await;
    assert_eq!(pending["items"].as_array().unwrap().len(), 2, "nothing is left of the third");
    // The harmless twin: one that is over makes room.
    assert_eq!(allow(&world, &first, "once").await.0, 200);
    assert_eq!(settled(&agent, &first).await["value"], 42);
    asked(&agent, EXECUTE, long).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t103_a_listener_hears_a_question_as_it_is_asked_and_answered() {
    let scene = Scene::start(&[]).await;
    let mut stream = listen(&scene.world.owner).await;
    let record = scene.ask(json!({"n": 1})).await;
    scene.answer(&record, json!({"decision": "allow"})).await;
    let (mut received, began) = (String::new(), Instant::now());
    while !received.contains("\"state\":\"allowed\"") {
        assert!(began.elapsed() < Duration::from_secs(20), "{received}");
        received.push_str(&String::from_utf8_lossy(&stream.chunk().await.unwrap().unwrap()));
    }
    assert!(received.starts_with("id: 1\nevent: approval\ndata: {"), "{received}");
    assert!(received.contains("id: 2\nevent: approval\n"), "{received}");
}
