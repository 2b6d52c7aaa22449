//! Environment variables of tools: in the environment of that tool, and nowhere else.

use crate::approvals::{approval_of, settled};
use crate::principals::{Person, grant, id, on, refused, workspace};
use crate::test_server::{Api, World};
use crate::vault::exchange;
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

fn files_with(directory: &Path, text: &str) -> Vec<PathBuf> {
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
    // In a session earlier code could have changed what reads it.
    let session = owner.session().await;
    let trap = "import os\nos.environ.get = lambda name, usual=None: globals().setdefault('seen', dict(os.environ))";
    owner.run(&session, trap).await;
    let call = json!({"arguments": {}, "sandbox_id": session});
    let error = owner.refused("POST", &format!("{}/call", path(&tool)), Some(call.clone())).await;
    assert_eq!(error, (400, "args.invalid".to_owned()));
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
