//! Environment variables of tools: in the environment of that tool, and nowhere else.

use crate::approvals::{approval_of, settled};
use crate::principals::{Person, grant, id, on, refused, workspace};
use crate::test_server::{Api, World};
use crate::vault::exchange;
use reqwest::Method;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const CANARY: &str = "hunter2-in-clear-0815";
/// Returns it backwards, so that redaction does not find it.
const BACKWARDS: &str =
    "import os\ndef run(input):\n    return os.environ.get('TOKEN', 'none')[::-1]\n";

fn with_token(name: &str, value: &str) -> Value {
    let variables = json!([{"name": "TOKEN", "value": value}]);
    json!({"name": name, "tool_type": "code_runner", "environment": "bare",
        "configuration": {"code": BACKWARDS, "env_variables": variables}})
}

fn path(tool: &Value) -> String {
    format!("/v1/tools/{}", id(tool))
}

async fn seen(who: &Api, tool: &Value) -> String {
    let record = who.post(&format!("{}/call", path(tool)), json!({"arguments": {}})).await;
    let value = record["value"].as_str().unwrap_or_else(|| panic!("{record}"));
    value.chars().rev().collect()
}

async fn change(who: &Api, tool: &Value, configuration: Value) -> Value {
    let change = Some(json!({"configuration": configuration}));
    let (status, tool) = who.call("PATCH", &path(tool), change).await;
    assert_eq!(status, 200, "{tool}");
    tool
}

pub(crate) fn files_with(directory: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(&path, text));
        } else if std::fs::read(&path)
            .unwrap_or_default()
            .windows(text.len())
            .any(|part| part == text.as_bytes())
        {
            found.push(path);
        }
    }
    found
}

// proves W-034
#[tokio::test(flavor = "multi_thread")]
async fn w_034_variables_are_in_the_environment_of_their_tool_alone() {
    let world = World::start().await;
    let owner = &world.owner;
    let tool = owner.post("/v1/tools", with_token("one", CANARY)).await;
    let other = owner.post("/v1/tools", with_token("other", "of-the-other")).await;
    let none = json!({"name": "none", "tool_type": "code_runner", "environment": "bare",
        "configuration": {"code": BACKWARDS}});
    let none = owner.post("/v1/tools", none).await;
    assert_eq!(seen(owner, &tool).await, CANARY);
    assert_eq!(seen(owner, &other).await, "of-the-other");
    assert_eq!(seen(owner, &none).await, "none");
    // In a session earlier code could have changed what reads it, so the tool runs beside it.
    let session = owner.session().await;
    let trap = "import os\nos.environ.get = lambda name, usual=None: globals().setdefault('seen', dict(os.environ))";
    owner.run(&session, trap).await;
    let call = json!({"arguments": {}, "sandbox_id": session});
    let record = owner.post(&format!("{}/call", path(&tool)), call).await;
    let reversed: String = CANARY.chars().rev().collect();
    assert_eq!(record["value"], reversed, "{record}");
    assert_eq!(owner.run(&session, "'seen' in globals()").await["value"], false);
    let session = owner.session().await;
    let call = json!({"arguments": {}, "sandbox_id": session});
    let value = owner.post(&format!("{}/call", path(&none)), call).await["value"].clone();
    assert_eq!(value, "enon");
    assert_eq!(owner.execute("import os; os.environ.get('TOKEN', 'gone')").await["value"], "gone");
}

// proves W-035
#[tokio::test(flavor = "multi_thread")]
async fn w_035_a_value_is_in_no_record_no_answer_and_no_log() {
    let world = World::start().await;
    let owner = &world.owner;
    let tool = owner.post("/v1/tools", with_token("one", CANARY)).await;
    assert_eq!(tool["configuration"]["env_variables"][0]["name"], "TOKEN");
    assert_eq!(tool["configuration"]["env_variables"][0]["value"], Value::Null);
    let mut responses =
        vec![tool.clone(), owner.get(&path(&tool)).await, owner.get("/v1/tools").await];
    let validated = owner.post("/v1/tools/validate", with_token("two", CANARY)).await;
    assert_eq!(validated["valid"], true);
    responses.push(validated);
    let mut wrong = with_token("two", CANARY);
    wrong["configuration"]["code"] = json!("def run(");
    responses.push(owner.call("POST", "/v1/tools", Some(wrong)).await.1);
    let twice = json!([{"name": "A", "value": CANARY}, {"name": "A", "value": CANARY}]);
    let mut wrong = with_token("two", CANARY);
    wrong["configuration"]["env_variables"] = twice;
    responses.push(owner.call("POST", "/v1/tools", Some(wrong)).await.1);
    seen(owner, &tool).await;
    responses.push(owner.get("/v1/audit").await);
    for answer in responses {
        assert!(!answer.to_string().contains(CANARY), "{answer}");
    }
    assert_eq!(files_with(world.data.path(), CANARY), Vec::<PathBuf>::new());
    assert!(!files_with(world.data.path(), &id(&tool)).is_empty(), "what is no secret is found");
    // Deleted with the tool.
    owner.delete(&path(&tool)).await;
    let database = rusqlite::Connection::open(world.database()).unwrap();
    let left: u64 =
        database.query_row("SELECT count(*) FROM sealed", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}

// proves W-036
#[tokio::test(flavor = "multi_thread")]
async fn w_036_what_cannot_be_a_variable_is_refused_in_the_words_of_the_seed() {
    let world = World::start().await;
    let cases = [
        (
            json!([{"name": " ", "value": "x"}]),
            "Code runner environment variable name is required".to_owned(),
        ),
        (
            json!([{"name": "1A", "value": "x"}]),
            "Invalid code runner environment variable name '1A'".to_owned(),
        ),
        (
            json!([{"name": "A-B", "value": "x"}]),
            "Invalid code runner environment variable name 'A-B'".to_owned(),
        ),
        (
            json!([{"name": "A", "value": "x"}, {"name": "A", "value": "y"}]),
            "Duplicate code runner environment variable 'A'".to_owned(),
        ),
        (json!([{"name": "A"}]), "the value of 'A' must be a string without NUL".to_owned()),
    ];
    let reserved = [
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "GEMINI_API_KEY",
        "PATH",
        "LANG",
        "LC_ALL",
        "HOME",
        "TMPDIR",
    ];
    let reserved = reserved.map(|name| {
        let text = format!("Environment variable '{name}' is reserved and cannot be overridden");
        (json!([{"name": name, "value": "x"}]), text)
    });
    for (variables, text) in cases.into_iter().chain(reserved) {
        let mut tool = with_token("wrong", "x");
        tool["configuration"]["env_variables"] = variables;
        let (status, problem) = world.owner.call("POST", "/v1/tools", Some(tool)).await;
        assert_eq!((status, &problem["detail"]), (422, &json!(text)), "{problem}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_was_read_can_be_sent_again_and_values_are_kept_replaced_and_dropped() {
    let world = World::start().await;
    let owner = &world.owner;
    let tool = owner.post("/v1/tools", with_token("one", CANARY)).await;
    let mut read = owner.get(&path(&tool)).await["configuration"].clone();
    let again = change(owner, &tool, read.clone()).await;
    assert_eq!(again["configuration"]["env_variables"], tool["configuration"]["env_variables"]);
    assert_eq!(seen(owner, &tool).await, CANARY);
    let renamed = owner.call("PATCH", &path(&tool), Some(json!({"description": "Other."}))).await;
    assert_eq!(renamed.0, 200);
    assert_eq!(seen(owner, &tool).await, CANARY);
    read["env_variables"] = json!([{"name": "TOKEN", "value": "another-value"}]);
    let replaced = change(owner, &tool, read.clone()).await;
    assert_ne!(replaced["configuration"]["env_variables"], tool["configuration"]["env_variables"]);
    assert_eq!(seen(owner, &tool).await, "another-value");
    owner.post("/v1/secrets/rotate", json!({})).await;
    assert_eq!(seen(owner, &tool).await, "another-value", "a new key changes nothing");
    read["env_variables"] = json!([]);
    change(owner, &tool, read.clone()).await;
    assert_eq!(seen(owner, &tool).await, "none");
    read["env_variables"] = json!([{"name": "TOKEN"}]);
    let gone = owner.call("PATCH", &path(&tool), Some(json!({"configuration": read}))).await;
    assert_eq!(gone.0, 422, "there is no value any more: {}", gone.1);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_value_asks_again() {
    let world = World::start().await;
    let (owner, ann) = (&world.owner, Person::new(&world, "ann").await);
    let mut asking = with_token("asking", CANARY);
    asking["approval_action"] = json!("review");
    let tool = owner.post("/v1/tools", asking).await;
    grant(owner, &ann.id, "USAGE", &workspace(owner).await).await;
    grant(owner, &ann.id, "USAGE", &on("tool", &tool)).await;
    let call = format!("{}/call", path(&tool));
    let answer = |record: &Value, scope: &str| {
        let at = approval_of(record);
        let decision = json!({"decision": "allow", "scope": scope});
        async move { owner.call("POST", &at, Some(decision)).await }
    };
    let asked = ann.post(&call, json!({"arguments": {}})).await;
    assert_eq!(asked["status"], "waiting_approval", "{asked}");
    let (status, response) = answer(&asked, "always").await;
    assert_eq!(status, 200, "{response}");
    assert_eq!(settled(&ann, &asked).await["status"], "succeeded");
    let remembered = ann.post(&call, json!({"arguments": {}})).await;
    assert_eq!(remembered["status"], "succeeded", "{remembered}");
    // A question that is open when the value changes is about something else.
    let variables = json!([{"name": "TOKEN", "value": "another-value"}]);
    let configuration = json!({"code": BACKWARDS, "env_variables": variables});
    change(owner, &tool, configuration.clone()).await;
    let asked = ann.post(&call, json!({"arguments": {}})).await;
    assert_eq!(asked["status"], "waiting_approval", "{asked}");
    change(owner, &tool, configuration).await;
    let (status, response) = answer(&asked, "once").await;
    assert_eq!((status, &response["code"]), (403, &json!("approval.invalid")), "{response}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variable_that_was_tampered_with_is_not_run_with() {
    let mut world = World::start().await;
    let one = world.owner.post("/v1/tools", with_token("one", CANARY)).await;
    let other = world.owner.post("/v1/tools", with_token("other", "of-the-other")).await;
    world.kill();
    let database = rusqlite::Connection::open(world.database()).unwrap();
    exchange(&database);
    world.again().await;
    for tool in [one, other] {
        let call = format!("{}/call", path(&tool));
        let body = Some(json!({"arguments": {}}));
        refused(&world.owner, "POST", &call, body, (422, "secret.missing")).await;
    }
}

/// A tool that works on files of its session and has a variable.
const WORKER: &str = r#"
import hashlib, json, os, subprocess, sys

def run(input):
    secret = os.environ["TOKEN"]
    text = open("note.txt").read()
    open("note.txt", "a").write("and more")
    os.makedirs("made/by", exist_ok=True)
    open("made/by/tool.txt", "w").write(f"signed with {secret}")
    os.remove("old.txt")
    return {"read": text, "digest": hashlib.sha256(secret.encode()).hexdigest(), "pid": os.getpid()}
"#;

/// Code of the session that waits for the tool: in the interpreter, in a thread, in files that Python
/// reads at its start, and in other processes.
const WATCHER: &str = r#"
import builtins, glob, hashlib, os, subprocess, sys, threading, time

for name in ["json.py", "hashlib.py", "sitecustomize.py", "usercustomize.py", "subprocess.py"]:
    open(name, "w").write("import os\nopen('/workspace/caught.txt', 'a').write(repr(dict(os.environ)))\n")
open("note.txt", "w").write("a note, ")
open("old.txt", "w").write("old")
caught = []
opened = builtins.open
def open_and_look(*args, **options):
    caught.append(dict(os.environ))
    return opened(*args, **options)
builtins.open = open_and_look
hashlib.sha256 = lambda data=b"": caught.append(data)

def look():
    while not os.path.exists("/workspace/stop"):
        for path in glob.glob("/proc/[0-9]*/environ"):
            try:
                caught.append(opened(path, "rb").read())
            except OSError:
                pass
        caught.append(dict(os.environ))
        time.sleep(0.01)

threading.Thread(target=look, daemon=True).start()
"#;

// proves W-061
#[tokio::test(flavor = "multi_thread")]
async fn t290_a_tool_with_variables_works_on_the_files_of_a_session_that_cannot_read_them() {
    let world = World::start().await;
    let owner = &world.owner;
    let mut tool = with_token("worker", CANARY);
    tool["configuration"]["code"] = json!(WORKER);
    let tool = owner.post("/v1/tools", tool).await;
    let session = owner.session().await;
    let watching = owner.run(&session, WATCHER).await;
    assert_eq!(watching["status"], "succeeded", "{watching}");
    let call = json!({"arguments": {}, "sandbox_id": session});
    let record = owner.post(&format!("{}/call", path(&tool)), call).await;
    assert_eq!(record["status"], "succeeded", "{record}");
    assert_eq!(record["value"]["read"], "a note, ");
    let expected = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, CANARY.as_bytes());
    let hex: String = expected.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(record["value"]["digest"], hex, "its own hashlib has hashed the real value");
    assert_eq!((&record["sandbox_id"], &record["warnings"]), (&json!(session), &json!([])));
    let mut files: Vec<&str> = record["files_out"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it["name"].as_str())
        .collect();
    files.sort_unstable();
    assert_eq!(files, ["made/by/tool.txt", "note.txt"]);

    // What it has done to the files is there, without the value; what it had in memory is not.
    let after = owner
        .run(
            &session,
            "opened('/workspace/stop', 'w').close()\n\
             [opened('note.txt').read(), opened('made/by/tool.txt').read(), os.path.exists('old.txt'),\n \
             os.path.exists('caught.txt'), len(caught) > 0, any('hunter2' in repr(it) for it in caught)]",
        )
        .await;
    let expected =
        json!(["a note, and more", "signed with [redacted:TOKEN]", false, false, true, false]);
    assert_eq!(after["value"], expected, "{after}");
    let names: Vec<&Value> =
        after["files_out"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["stop"], "files of the tool are not files of the code that runs next");

    // A tool without variables still shares the interpreter of the session, and is said to.
    let none = json!({"name": "none", "tool_type": "code_runner", "environment": "bare",
        "configuration": {"code": "def run(input):\n    return open('note.txt').read()\n"}});
    let none = owner.post("/v1/tools", none).await;
    let call = json!({"arguments": {}, "sandbox_id": session});
    let record = owner.post(&format!("{}/call", path(&none)), call).await;
    assert_eq!(record["value"], "a note, and more");
    assert_eq!(record["warnings"][0]["code"], "tool.unisolated");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_works_on_the_files_of_a_session_is_bound_by_the_rights_and_the_space_of_the_session()
 {
    let world = World::start().await;
    let owner = &world.owner;
    let mut tool = with_token("worker", CANARY);
    tool["configuration"]["code"] = json!(
        "import os\ndef run(input):\n    os.environ['TOKEN']\n    \
         open('big', 'wb').write(bytes(input['size']))\n    return sorted(os.listdir())\n"
    );
    let tool = owner.post("/v1/tools", tool).await;
    let limits = json!({"disk_bytes": 4 << 20});
    let session = json!({"environment": "bare", "limits": limits});
    let session = id_of(&owner.post("/v1/sessions", session).await);
    owner.run(&session, "open('first', 'wb').write(bytes(1 << 20))").await;
    let call = |size: u64| json!({"arguments": {"size": size}, "sandbox_id": session});
    let at = format!("{}/call", path(&tool));
    let fits = owner.post(&at, call(2 << 20)).await;
    assert_eq!(fits["value"], json!(["big", "first"]), "{fits}");
    assert_eq!(owner.run(&session, "import os; os.path.getsize('big')").await["value"], 2 << 20);
    // The copy has as much space as the original, and no more.
    let large = owner.post(&at, call(8 << 20)).await;
    assert_eq!(large["status"], "failed", "{large}");
    assert_eq!(owner.run(&session, "os.path.getsize('first')").await["value"], 1 << 20);

    // Another principal has no more of the session through the tool than without it.
    let bob = world.principal("bob", &["USAGE"]).await;
    let me = bob.get("/v1/principals/me").await["id"].clone();
    grant(owner, me.as_str().unwrap(), "USAGE", &on("tool", &tool)).await;
    let error = bob.refused("POST", &at, Some(call(1))).await;
    assert_eq!(error, (404, "session.not_found".to_owned()));
    let alone = bob.post(&at, json!({"arguments": {"size": 1}})).await;
    assert_eq!(alone["value"], json!(["big"]));

    // While it works, nothing else runs in the session.
    let slow = json!("import os, time\ndef run(input):\n    time.sleep(600)\n");
    change(
        owner,
        &tool,
        json!({"type": "CodeRunner", "code": slow, "timeout_seconds": 600,
        "env_variables": [{"name": "TOKEN"}]}),
    )
    .await;
    let begun = begin(owner, &at, &json!({"arguments": {}, "sandbox_id": session})).await;
    let execute = format!("/v1/sessions/{session}/execute");
    let error = owner.refused("POST", &execute, Some(json!({"code": "1"}))).await;
    assert_eq!(error, (409, "session.busy".to_owned()));
    owner.delete(&format!("/v1/sessions/{session}")).await;
    let ended = settled(owner, &begun).await;
    assert_eq!(ended["status"], "cancelled", "{ended}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_asks_first_works_on_the_files_of_its_session_once_it_is_allowed() {
    let world = World::start().await;
    let (owner, ann) = (&world.owner, Person::new(&world, "ann").await);
    let mut asking = with_token("asking", CANARY);
    asking["approval_action"] = json!("review");
    asking["configuration"]["code"] = json!(
        "import os\n\ndef run(input):\n    open('made.txt', 'w').write(open('note.txt').read())\n    \
         return len(os.environ['TOKEN'])\n"
    );
    let tool = owner.post("/v1/tools", asking).await;
    grant(owner, &ann.id, "USAGE", &workspace(owner).await).await;
    grant(owner, &ann.id, "USAGE", &on("tool", &tool)).await;
    let session = ann.session().await;
    ann.run(&session, "open('note.txt', 'w').write('a note')").await;
    let call = json!({"arguments": {}, "sandbox_id": session});
    let asked = ann.post(&format!("{}/call", path(&tool)), call).await;
    assert_eq!(asked["status"], "waiting_approval", "{asked}");
    let made = "import os; os.path.exists('made.txt')";
    assert_eq!(ann.run(&session, made).await["value"], false, "nothing runs before");
    let decision = Some(json!({"decision": "allow"}));
    assert_eq!(owner.call("POST", &approval_of(&asked), decision).await.0, 200);
    let done = settled(&ann, &asked).await;
    assert_eq!(done["value"], CANARY.len(), "{done}");
    assert_eq!(ann.run(&session, "open('made.txt').read()").await["value"], "a note");
}

/// Starts a call, and gives its record before it has ended.
async fn begin(who: &Api, path: &str, call: &Value) -> Value {
    let request = who.request(Method::POST, path).header("prefer", "respond-async");
    let request = request.header("content-type", "application/json").body(call.to_string());
    let begun = request.send().await.unwrap();
    assert_eq!(begun.status(), 202);
    serde_json::from_slice(&begun.bytes().await.unwrap()).unwrap()
}

fn id_of(session: &Value) -> String {
    session["sandbox_id"].as_str().unwrap().to_owned()
}
