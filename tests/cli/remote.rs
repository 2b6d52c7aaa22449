//! The command line as a client of a server.

use crate::harness::{self, stderr, stdout, wait};
use crate::test_server::{Api, World};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// `belljar` with a key of that server.
fn command(api: &Api, args: &[&str]) -> Command {
    let mut command = harness::belljar(args);
    command.env("BELLJAR_URL", &api.address).env("BELLJAR_API_KEY", &api.key);
    command.stdin(Stdio::null());
    command
}

/// Beside the test's own server, which is in another process.
pub(crate) async fn belljar(api: &Api, args: &[&str]) -> Output {
    let mut command = command(api, args);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// The JSON that is answered by what has to succeed.
pub(crate) async fn answer(api: &Api, args: &[&str]) -> Value {
    let output = belljar(api, args).await;
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap_or(Value::Null)
}

/// What is said by what has to fail with this exit code.
pub(crate) async fn failure(api: &Api, exit: i32, args: &[&str]) -> String {
    let output = belljar(api, args).await;
    assert_eq!(output.status.code(), Some(exit), "{args:?}: {}", stderr(&output));
    assert_eq!(stdout(&output), "", "{args:?}");
    stderr(&output)
}

fn seed() -> PathBuf {
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests");
    PathBuf::from(tests).join("conformance/seed-003/media_probe.json")
}

fn at(path: &std::path::Path) -> String {
    format!("@{}", path.display())
}

async fn make_tool(owner: &Api) -> String {
    let tool = answer(owner, &["api", "call", "createAiTool", "--body", &at(&seed())]).await;
    tool["id"].as_str().unwrap().to_owned()
}

async fn make_agent(owner: &Api) -> String {
    let body = r#"{"name": "helper", "specification": "instructions: help\n"}"#;
    let agent = answer(owner, &["api", "call", "createAiAgent", "--body", body]).await;
    agent["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn t93_ownership_is_offered_accepted_and_confirmed_on_the_command_line() {
    let world = World::start().await;
    let owner = &world.owner;
    let ann = world.principal("ann", &["USAGE", "MODIFY"]).await;
    make_agent(&ann).await;
    // Who does not own the workspace knows principals by their ids.
    let boss = owner.get("/v1/principals/me").await["id"].as_str().unwrap().to_owned();
    let refused = failure(&ann, 1, &["grant", "add", &boss, "OWNERSHIP", "agent:helper"]).await;
    assert!(refused.contains("belljar grant offer"), "{refused}");
    for end in ["withdraw", "decline"] {
        answer(&ann, &["grant", "offer", &boss, "agent:helper"]).await;
        let offers = answer(owner, &["grant", "offers", "--json"]).await;
        let offer = offers[0]["id"].as_str().unwrap();
        let who = if end == "withdraw" { &ann } else { owner };
        answer(who, &["grant", end, offer]).await;
        assert_eq!(answer(owner, &["grant", "offers", "--json"]).await, json!([]));
    }
    answer(&ann, &["grant", "offer", &boss, "agent:helper"]).await;
    let shown = stdout(&belljar(owner, &["grant", "offers"]).await);
    assert!(shown.contains("agent:helper") && shown.contains("ann"), "{shown}");
    let offers = answer(owner, &["grant", "offers", "--json"]).await;
    answer(owner, &["grant", "accept", offers[0]["id"].as_str().unwrap()]).await;
    let agents = answer(owner, &["agent", "ls", "--json"]).await;
    assert_ne!(agents[0]["author"], agents[0]["owner"], "{agents}");
    answer(owner, &["grant", "confirm", "agent:helper"]).await;
    let agents = answer(owner, &["agent", "ls", "--json"]).await;
    assert_eq!(agents[0]["author"], agents[0]["owner"], "{agents}");
    let other = failure(owner, 2, &["grant", "confirm", "workspace"]).await;
    assert!(other.contains("agent:NAME"), "{other}");
}

// proves W-048
#[tokio::test]
async fn a_tool_is_made_of_the_seeds_json() {
    let world = World::start().await;
    let id = make_tool(&world.owner).await;
    let kept = world.owner.get(&format!("/v1/tools/{id}")).await;
    let written: Value = serde_json::from_slice(&std::fs::read(seed()).unwrap()).unwrap();
    assert_eq!(kept["name"], "media_probe");
    assert_eq!(kept["configuration"]["code"], written["configuration"]["code"]);
}

// proves W-049
#[tokio::test]
async fn an_agent_has_a_tool_once_it_is_attached_and_not_before() {
    let world = World::start().await;
    let (tool, agent) = (make_tool(&world.owner).await, make_agent(&world.owner).await);
    let params = [format!("agent_id={agent}"), format!("tool_id={tool}")];
    let tools = || async { world.owner.get(&format!("/v1/agents/{agent}")).await["tools"].clone() };
    assert_eq!(tools().await, json!([]));
    let call = ["api", "call", "attachToolToAgent", "--param", &params[0], "--param", &params[1]];
    assert_eq!(answer(&world.owner, &call).await["tool_name"], "media_probe");
    assert_eq!(tools().await[0]["tool_id"], json!(tool));
}

// proves W-050
#[tokio::test]
async fn the_approval_action_of_an_attached_tool_is_set() {
    let world = World::start().await;
    let (tool, agent) = (make_tool(&world.owner).await, make_agent(&world.owner).await);
    let params = [format!("agent_id={agent}"), format!("tool_id={tool}")];
    let params = ["--param", &params[0], "--param", &params[1]];
    let attach = [&["api", "call", "attachToolToAgent"][..], &params].concat();
    assert_eq!(answer(&world.owner, &attach).await["approval_action"], "allow");
    let review = ["--body", r#"{"approval_action":"review"}"#];
    let set = [&["api", "call", "updateAgentToolApprovalAction"][..], &params, &review].concat();
    assert_eq!(answer(&world.owner, &set).await["approval_action"], "review");
    let wrong = ["--body", r#"{"approval_action":"ask"}"#];
    let set = [&["api", "call", "updateAgentToolApprovalAction"][..], &params, &wrong].concat();
    let said = failure(&world.owner, 2, &set).await;
    assert!(
        said.contains(r#"/approval_action: must be one of "allow", "confirm", "review", "deny""#),
        "{said}"
    );
}

/// Answered by the program itself: there is no server and no key.
fn without_server(args: &[&str]) -> Output {
    let mut command = harness::belljar(args);
    command.env_remove("BELLJAR_URL").env_remove("BELLJAR_API_KEY").output().unwrap()
}

// proves W-052
#[tokio::test]
async fn operations_are_found_described_and_checked_before_they_are_sent() {
    let found = stdout(&without_server(&["api", "ls", "--search", "attach tool"]));
    assert!(found.contains("attachToolToAgent"), "{found}");
    assert!(!found.contains("createKey"), "{found}");
    let described = stdout(&without_server(&["api", "describe", "executeInSession"]));
    for part in ["POST /v1/sessions/{sandbox_id}/execute", "sandbox_id", "ExecuteRequest", "code"] {
        assert!(described.contains(part), "{part}: {described}");
    }

    let world = World::start().await;
    let owner = &world.owner;
    let from_fields = ["api", "call", "execute", "--field", "code=20 + 22"];
    assert_eq!(answer(owner, &from_fields).await["value"], 42);
    let from_json = ["api", "call", "execute", "--body", r#"{"code": "20 + 22"}"#];
    assert_eq!(answer(owner, &from_json).await["value"], 42);
    let limited = ["api", "call", "listExecutions", "--param", "limit=1"];
    assert_eq!(answer(owner, &limited).await["items"].as_array().unwrap().len(), 1);

    let body = r#"{"code": "1", "limits": {"wall_ms": "soon"}}"#;
    let said = failure(owner, 2, &["api", "call", "execute", "--body", body]).await;
    assert!(said.contains("/limits/wall_ms: must be"), "{said}");
    let all_the_same = ["api", "call", "execute", "--no-validate", "--body", body];
    let said = failure(owner, 1, &all_the_same).await;
    assert!(said.starts_with("belljar: args.invalid: /limits/wall_ms"), "{said}");
}

#[tokio::test]
async fn what_cannot_be_right_is_said_before_anything_is_sent() {
    // No server answers there; what is refused here does not try.
    let nowhere = World::start().await.owner;
    for (args, about) in [
        (&["api", "call", "createAiTol"][..], "did you mean createAiTool?"),
        (&["api", "call", "getAiTool"], "--param tool_id=VALUE is required"),
        (&["api", "call", "getAiTool", "--param", "tool_id=x"], "--param tool_id: must be an id"),
        (
            &["api", "call", "listAiTools", "--param", "colour=red"],
            "--param colour: unknown parameter",
        ),
        (&["api", "call", "listAiTools", "--param", "limit"], "must be NAME=VALUE"),
        (&["api", "call", "execute"], "the request needs a body"),
        (&["api", "call", "execute", "--body", "{"], "the body is not JSON"),
        (&["api", "call", "execute", "--body", "@/no/such"], "@/no/such"),
        (&["api", "call", "execute", "--file", "x"], "does not accept --file"),
        (&["api", "describe", "nothing"], "unknown operation"),
        (&["grant", "add", "ann", "EVERYTHING"], "USAGE, MODIFY, OWNERSHIP"),
        (&["grant", "add", "ann", "USAGE", "house"], "must be `workspace`, `tool:NAME`"),
        (&["execution", "show", "x"], "expected a UUID such as 0198c0de-"),
        (&["key", "new", "x", "--expires-at", "tomorrow"], "such as 2027-01-31T00:00:00Z"),
        (&["tool", "call", "x", "--args", "text=3"], "must be a JSON object, such as {\"text\""),
        (
            &["tool", "call", "x.py", "--no-wait"],
            "--no-wait requires the name of a tool on a server",
        ),
        (&["toll", "ls"], "did you mean tool?"),
        (&["exec", "--timout", "3", "1"], "did you mean --timeout?"),
        (&["serve", "--sandboxes", "0"], "at least 1"),
        (&["serve", "--listen", "7118"], "such as 127.0.0.1:7117"),
    ] {
        let said = failure(&nowhere, 2, args).await;
        assert!(said.contains(about), "{args:?}: {said}");
    }
}

#[tokio::test]
async fn code_without_an_environment_runs_in_the_usual_one_of_the_server() {
    let world = World::start().await;
    let ran = answer(&world.owner, &["exec", "--json", "40 + 2"]).await;
    assert_eq!((&ran["value"], &ran["environment"]), (&json!(42), &json!("bare")), "{ran}");
    let named = failure(&world.owner, 1, &["exec", "--env", "nowhere", "1"]).await;
    assert!(named.contains("nowhere"), "{named}");
}

#[tokio::test]
async fn a_stream_is_printed_event_by_event() {
    let world = World::start().await;
    let body = r#"{"code": "print('a', flush=True); 2"}"#;
    let stream = ["--header", "Accept=text/event-stream", "--body", body];
    let output = belljar(&world.owner, &[&["api", "call", "execute"][..], &stream].concat()).await;
    let text = stdout(&output);
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(
        events.iter().any(|event| event["event"] == "output" && event["text"] == "a\n"),
        "{text}"
    );
    assert_eq!(events.last().unwrap()["status"], "succeeded", "{text}");
}

#[tokio::test]
async fn documents_are_uploaded_and_come_back_byte_for_byte() {
    let world = World::start().await;
    let folder = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..=255).collect();
    let paths = ["a.bin", "b.bin"].map(|name| folder.path().join(name));
    paths.iter().for_each(|path| std::fs::write(path, &bytes).unwrap());
    let [one, two] = [0, 1].map(|index: usize| paths[index].to_str().unwrap());
    let upload = ["api", "call", "createDocuments", "--file", one, "--file", two];
    let documents = answer(&world.owner, &upload).await;
    assert_eq!(documents["items"].as_array().unwrap().len(), 2);
    let id = format!("id={}", documents["items"][0]["id"].as_str().unwrap());
    let read = ["api", "call", "readDocument", "--param", &id];
    assert_eq!(belljar(&world.owner, &read).await.stdout, bytes);
    let out = folder.path().join("out");
    answer(&world.owner, &[&read[..], &["--out", out.to_str().unwrap()]].concat()).await;
    assert_eq!(std::fs::read(out).unwrap(), bytes);
}

#[tokio::test]
async fn no_server_no_key_and_a_wrong_key_are_one_clear_line_each() {
    let mut world = World::start().await;
    let ls: &[&str] = &["key", "ls"];
    answer(&world.owner, ls).await;

    let output = harness::belljar(ls)
        .env("BELLJAR_URL", world.address())
        .env_remove("BELLJAR_API_KEY")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).starts_with("belljar: no API key: set BELLJAR_API_KEY"));

    let stranger = world
        .api("bj_00000000000000000000000000000000_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    let said = failure(&stranger, 1, ls).await;
    assert!(said.starts_with("belljar: auth.missing: "), "{said}");
    assert!(!said.contains("bj_00"), "the key is not told: {said}");

    world.kill();
    let said = failure(&world.owner, 125, ls).await;
    assert!(said.starts_with("belljar: cannot connect to http://127.0.0.1:"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let elsewhere = failure(&world.owner, 2, &["key", "ls", "--server", "ftp://x"]).await;
    assert!(elsewhere.contains("invalid server URL"), "{elsewhere}");
}

#[tokio::test]
async fn a_key_can_be_in_a_file_and_is_never_an_argument() {
    let world = World::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, format!("{}\n", world.owner.key)).unwrap();
    let args = ["principal", "show", "me", "--key-file", file.to_str().unwrap()];
    let output = command(&world.owner, &args).env_remove("BELLJAR_API_KEY").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let header = ["api", "call", "getMe", "--header", "Authorization=Bearer bj_x"];
    let said = failure(&world.owner, 2, &header).await;
    assert!(said.contains("API keys are not accepted as arguments"), "{said}");
}

#[tokio::test]
async fn people_are_let_in_by_their_names() {
    let world = World::start().await;
    let owner = &world.owner;
    answer(owner, &["principal", "new", "ann", "--json"]).await;
    let output = belljar(owner, &["key", "new", "laptop", "--principal", "ann"]).await;
    let ann = world.api(stdout(&output).trim());
    let keys = stdout(&belljar(owner, &["key", "ls"]).await);
    assert!(keys.lines().any(|line| line.contains("laptop  ann ")), "{keys}");
    failure(&ann, 1, &["api", "call", "execute", "--field", "code=1"]).await;
    answer(owner, &["grant", "add", "ann", "USAGE"]).await;
    assert_eq!(answer(&ann, &["api", "call", "execute", "--field", "code=1"]).await["value"], 1);

    let grants = stdout(&belljar(owner, &["grant", "ls", "--principal", "ann"]).await);
    assert!(grants.lines().any(|line| line.contains("ann") && line.contains("USAGE")), "{grants}");
    let grants = answer(owner, &["grant", "ls", "--principal", "ann", "--json"]).await;
    answer(owner, &["grant", "rm", grants[0]["id"].as_str().unwrap()]).await;
    failure(&ann, 1, &["api", "call", "execute", "--field", "code=1"]).await;

    answer(&ann, &["principal", "show", "me"]).await;
    answer(owner, &["principal", "rm", "ann"]).await;
    failure(&ann, 1, &["principal", "show", "me"]).await;
    let said = failure(owner, 1, &["principal", "rm", "ann"]).await;
    assert!(said.contains("no principal with the name \"ann\""), "{said}");
}

#[tokio::test]
async fn a_key_that_is_revoked_is_refused() {
    let world = World::start().await;
    let key = answer(&world.owner, &["key", "new", "spare", "--json"]).await;
    let spare = world.api(key["secret"].as_str().unwrap());
    answer(&spare, &["key", "ls"]).await;
    answer(&world.owner, &["key", "revoke", key["id"].as_str().unwrap()]).await;
    failure(&spare, 1, &["key", "ls"]).await;
    let listed = stdout(&belljar(&world.owner, &["key", "ls"]).await);
    assert!(listed.contains("spare") && !listed.contains(&spare.key), "{listed}");
}

#[tokio::test]
async fn a_key_is_revoked_by_its_name_if_no_other_has_it() {
    let world = World::start().await;
    let owner = &world.owner;
    for name in ["spare", "twin", "twin"] {
        answer(owner, &["key", "new", name]).await;
    }
    answer(owner, &["key", "revoke", "spare"]).await;
    let said = failure(owner, 1, &["key", "revoke", "spare"]).await;
    assert!(said.contains("no key with the name \"spare\""), "{said}");
    let said = failure(owner, 1, &["key", "revoke", "twin"]).await;
    assert!(said.contains("more than one key has the name \"twin\""), "{said}");
}

#[tokio::test]
async fn a_workspace_is_made_with_a_key_of_its_own() {
    let world = World::start().await;
    let output = belljar(&world.owner, &["workspace", "new", "elsewhere"]).await;
    let other = world.api(stdout(&output).trim());
    make_tool(&world.owner).await;
    assert_eq!(answer(&other, &["tool", "ls", "--json"]).await, json!([]));
    let names = answer(&world.owner, &["workspace", "ls", "--json"]).await;
    assert_eq!(names.as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn tools_and_agents_are_looked_after_by_their_names() {
    let world = World::start().await;
    let owner = &world.owner;
    let folder = tempfile::tempdir().unwrap();
    let tool = folder.path().join("greet.py");
    std::fs::write(&tool, "def handle(name: str) -> str:\n    return 'hello ' + name\n").unwrap();
    let agent = folder.path().join("host.yaml");
    std::fs::write(&agent, "instructions: greet\n").unwrap();
    let (tool, agent) = (tool.to_str().unwrap(), agent.to_str().unwrap());

    let made = answer(owner, &["tool", "add", tool, "--approval", "review", "--json"]).await;
    assert_eq!((&made["name"], &made["approval_action"]), (&json!("greet"), &json!("review")));
    answer(owner, &["agent", "add", agent]).await;
    let said = failure(owner, 1, &["agent", "approval", "host", "greet", "deny"]).await;
    assert!(said.contains("attach it with `belljar agent attach`"), "{said}");
    answer(owner, &["agent", "attach", "host", "greet"]).await;
    answer(owner, &["agent", "approval", "host", "greet", "deny"]).await;
    let shown = answer(owner, &["agent", "show", "host", "--json"]).await;
    assert_eq!(shown["tools"][0]["approval_action"], "deny");
    let said = failure(owner, 1, &["tool", "rm", "greet"]).await;
    assert!(said.contains("The following agents depend on it: host"), "{said}");
    answer(owner, &["agent", "detach", "host", "greet"]).await;
    let code = stdout(&belljar(owner, &["tool", "show", "greet"]).await);
    assert!(code.contains("\n        def handle(name: str) -> str:\n"), "{code}");
    answer(owner, &["tool", "rm", "greet"]).await;
    answer(owner, &["agent", "rm", "host"]).await;
    assert_eq!(answer(owner, &["tool", "ls", "--json"]).await, json!([]));
}

#[tokio::test]
async fn an_agent_is_called_as_its_specification_says() {
    let world = World::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("host.yaml");
    std::fs::write(&file, "name: clerk\ninstructions: greet\n").unwrap();
    let file = file.to_str().unwrap();
    let made = stdout(&belljar(&world.owner, &["agent", "add", file]).await);
    assert!(made.contains("\nname: clerk\n") && !made.contains("greet"), "{made}");
    let other = answer(&world.owner, &["agent", "add", file, "--name", "other", "--json"]).await;
    assert_eq!(other["name"], "other");
}

#[tokio::test]
async fn a_tool_that_is_wrong_is_refused_with_every_place_named() {
    let world = World::start().await;
    let folder = tempfile::tempdir().unwrap();
    let tool = folder.path().join("wrong.py");
    std::fs::write(&tool, "def handle(a, b: set):\n    return 1\n").unwrap();
    let said = failure(&world.owner, 1, &["tool", "add", tool.to_str().unwrap()]).await;
    assert!(said.starts_with("belljar: tool.invalid: "), "{said}");
    assert!(said.contains("\n  1:12: ") && said.contains("\n  1:18: "), "{said}");
}

/// A principal who may use a tool whose calls need an approval, and how it is called.
async fn asker(world: &World) -> (Api, [String; 2]) {
    let tool = make_tool(&world.owner).await;
    let id = format!("tool_id={tool}");
    let review = ["--param", &id, "--field", "approval_action=review"];
    answer(&world.owner, &[&["api", "call", "updateAiTool"][..], &review].concat()).await;
    let asker = world.principal("asker", &["USAGE"]).await;
    answer(&world.owner, &["grant", "add", "asker", "USAGE", "tool:media_probe"]).await;
    (asker, [id, r#"arguments={"media_path": "a.mp4"}"#.to_owned()])
}

#[tokio::test]
async fn a_question_is_seen_and_answered_at_the_command_line() {
    let world = World::start().await;
    let owner = &world.owner;
    let (asker, [id, arguments]) = asker(&world).await;
    let call = ["api", "call", "callAiTool", "--param", &id, "--field", &arguments];
    let (first, second) = (answer(&asker, &call).await, answer(&asker, &call).await);
    assert_eq!(first["status"], "waiting_approval");

    let listed = stdout(&belljar(owner, &["approvals", "ls", "--state", "pending"]).await);
    let ids = [&first, &second].map(|execution| execution["approval_id"].as_str().unwrap());
    assert!(ids.iter().all(|id| listed.contains(*id)), "{listed}");
    assert!(listed.contains("media_probe  asker "), "{listed}");
    let shown = stdout(&belljar(owner, &["approvals", "show", ids[0]]).await);
    assert!(shown.contains("    def run(input):") && shown.contains("a.mp4"), "{shown}");
    assert!(shown.contains("\nrequester: asker\n"), "{shown}");

    failure(&asker, 1, &["approvals", "allow", ids[0]]).await;
    answer(owner, &["approvals", "allow", ids[0]]).await;
    answer(owner, &["approvals", "deny", ids[1], "--reason", "not now"]).await;
    let denied = second["id"].as_str().unwrap();
    let record = answer(&asker, &["execution", "show", denied, "--json"]).await;
    assert_eq!(record["status"], "denied");
}

#[tokio::test]
async fn a_call_that_waits_for_a_person_goes_on_when_one_has_seen_it() {
    let world = World::start().await;
    let (asker, _) = asker(&world).await;
    let mut watch = command(&world.owner, &["approvals", "watch", "--json"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let call = ["tool", "call", "media_probe", "--args", r#"{"media_path": "a.mp4"}"#];
    let mut call = command(&asker, &call);
    let called = tokio::task::spawn_blocking(move || call.output().unwrap());

    let mut line = String::new();
    BufReader::new(watch.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let question: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(question["arguments"], json!({"media_path": "a.mp4"}));
    let id = question["id"].as_str().unwrap();
    answer(&world.owner, &["approvals", "allow", id]).await;
    let output = called.await.unwrap();
    assert_eq!(stdout(&output), "{\"media_path\":\"a.mp4\"}\n", "{}", stderr(&output));
    assert!(stderr(&output).contains(&format!("belljar approvals show {id}")));
    watch.kill().unwrap();
    watch.wait().unwrap();
}

#[tokio::test]
async fn who_leaves_with_ctrl_c_is_asked_about_no_more() {
    let world = World::start().await;
    let (asker, _) = asker(&world).await;
    let call = ["tool", "call", "media_probe", "--args", r#"{"media_path": "a.mp4"}"#];
    let mut process = command(&asker, &call).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(process.stderr.take().unwrap()).lines();
    let asked = said.next().unwrap().unwrap();
    let question = answer(&world.owner, &["approvals", "ls", "--json"]).await[0].clone();
    let id = question["id"].as_str().unwrap();
    assert!(asked.contains(&format!("`belljar approvals allow {id}`")), "{asked}");
    let pid = rustix::process::Pid::from_child(&process);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let left = said.next().unwrap().unwrap();
    assert!(left.contains("the call was withdrawn"), "{left}");
    assert_eq!(process.wait().unwrap().code(), Some(1));
    failure(&world.owner, 1, &["approvals", "allow", id]).await;
    let record = format!("/v1/executions/{}", question["execution_id"].as_str().unwrap());
    assert_eq!(asker.get(&record).await["status"], "cancelled");
}

#[tokio::test]
async fn who_does_not_wait_has_the_record_of_what_waits() {
    let world = World::start().await;
    let (asker, _) = asker(&world).await;
    let call = ["tool", "call", "media_probe", "--no-wait", "--json", "--args"];
    let record = answer(&asker, &[&call[..], &[r#"{"media_path": "a.mp4"}"#]].concat()).await;
    assert_eq!(record["status"], "waiting_approval");
    answer(&world.owner, &["approvals", "allow", record["approval_id"].as_str().unwrap()]).await;
}

#[tokio::test]
async fn sessions_and_executions_are_listed_and_ended() {
    let world = World::start().await;
    let owner = &world.owner;
    let session = owner.session().await;
    owner.run(&session, "1").await;
    let executions = answer(owner, &["execution", "ls", "--session", &session, "--json"]).await;
    assert_eq!(executions.as_array().unwrap().len(), 1);
    let id = executions[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(answer(owner, &["execution", "cancel", &id, "--json"]).await["cancelled"], false);
    assert_eq!(answer(owner, &["session", "show", &session, "--json"]).await["status"], "ready");
    let anew = answer(owner, &["session", "reset", &session, "--json"]).await;
    assert_eq!((&anew["sandbox_id"], &anew["generation"]), (&json!(session), &json!(2)), "{anew}");
    answer(owner, &["session", "close", &session]).await;
    let closed = answer(owner, &["session", "ls", "--status", "closed", "--json"]).await;
    assert_eq!(closed[0]["sandbox_id"], json!(session));
}

#[tokio::test]
async fn a_session_is_known_by_the_key_of_its_conversation() {
    let world = World::start().await;
    let owner = &world.owner;
    let session = owner.post("/v1/sessions", json!({"key": "chat-1"})).await;
    owner.run(session["sandbox_id"].as_str().unwrap(), "1").await;
    let shown = answer(owner, &["session", "show", "chat-1", "--json"]).await;
    assert_eq!(shown["sandbox_id"], session["sandbox_id"]);
    let ran = answer(owner, &["execution", "ls", "--session", "chat-1", "--json"]).await;
    assert_eq!(ran.as_array().unwrap().len(), 1);
    answer(owner, &["session", "close", "chat-1"]).await;
    let said = failure(owner, 1, &["session", "show", "chat-1"]).await;
    assert!(said.contains("no session with the name \"chat-1\""), "{said}");
}

#[tokio::test]
async fn code_runs_on_a_server_as_if_it_ran_here() {
    let world = World::start().await;
    let owner = &world.owner;
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = (folder.path().join("in.txt"), folder.path().join("out"));
    std::fs::write(&input, "input").unwrap();
    let code = "text = open('in.txt').read()\nopen('made.txt', 'w').write(text)\nprint(text)\n7";
    let (input, out) = (input.to_str().unwrap(), out.to_str().unwrap());
    let args = ["exec", "--env", "bare", "--file", input, "--out", out, code];
    let output = belljar(owner, &args).await;
    assert_eq!(stdout(&output), "input\n7\n", "{}", stderr(&output));
    assert_eq!(std::fs::read_to_string(format!("{out}/made.txt")).unwrap(), "input");
    assert_eq!(answer(owner, &["execution", "ls", "--json"]).await.as_array().unwrap().len(), 1);

    let output = belljar(owner, &["exec", "--env", "bare", "raise SystemExit(3)"]).await;
    assert_eq!(output.status.code(), Some(3));
    let record = answer(owner, &["exec", "--env", "bare", "--json", "40 + 2"]).await;
    assert_eq!((&record["value"], &record["run_as"]), (&json!(42), &record["principal"]));
}

#[tokio::test]
async fn going_away_ends_what_runs_on_a_server() {
    let world = World::start().await;
    let code = "import time; print('on', flush=True); time.sleep(60)";
    let mut command = command(&world.owner, &["exec", "--env", "bare", code]);
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let heard = BufReader::new(process.stdout.take().unwrap()).read_line(&mut line);
    assert_eq!((heard.unwrap(), line.as_str()), (3, "on\n"));
    process.kill().unwrap();
    process.wait().unwrap();
    let ended = async || {
        let executions = world.owner.get("/v1/executions?status=cancelled").await;
        executions["items"].as_array().unwrap().len() == 1
    };
    wait::until("it is cancelled", ended).await;
}

#[tokio::test]
async fn a_tool_of_a_server_is_called_by_its_name() {
    let world = World::start().await;
    make_tool(&world.owner).await;
    let call = ["tool", "call", "media_probe", "--args"];
    let given = r#"{"media_path": "a.mp4"}"#;
    let value = answer(&world.owner, &[&call[..], &[given]].concat()).await;
    assert_eq!(value, json!({"media_path": "a.mp4"}));
    let said = failure(&world.owner, 1, &[&call[..], &["{}"]].concat()).await;
    assert!(said.contains("media_path"), "{said}");
    let said = failure(&world.owner, 1, &["tool", "call", "nothing"]).await;
    assert!(said.contains("no tool with the name \"nothing\""), "{said}");
}

// proves U-082
#[tokio::test(flavor = "multi_thread")]
async fn preferences_are_listed_printed_set_and_unset() {
    let world = World::start().await;
    let owner = &world.owner;
    assert_eq!(answer(owner, &["preference", "ls", "--json"]).await, json!({}));
    let unset = failure(owner, 1, &["preference", "get", "code_model"]).await;
    assert!(unset.contains("preference \"code_model\" is not set"), "{unset}");
    let set = belljar(owner, &["preference", "set", "code_model", "openai/gpt-4.1"]).await;
    assert_eq!((set.status.code(), stdout(&set)), (Some(0), String::new()), "{}", stderr(&set));
    assert!(stderr(&set).contains("code_model set to openai/gpt-4.1"), "{}", stderr(&set));
    let shown = stdout(&belljar(owner, &["preference", "get", "code_model"]).await);
    assert_eq!(shown, "openai/gpt-4.1\n");
    let shown = stdout(&belljar(owner, &["preference", "ls"]).await);
    assert_eq!(shown, "code_model: openai/gpt-4.1\n");
    let ann = world.principal("ann", &["USAGE"]).await;
    assert_eq!(
        answer(&ann, &["preference", "ls", "--json"]).await,
        json!({}),
        "they are one's own"
    );
    let unknown = failure(owner, 1, &["preference", "set", "code_modle", "x"]).await;
    assert!(unknown.contains("is not a preference; use code_model"), "{unknown}");
    answer(owner, &["preference", "unset", "code_model"]).await;
    assert_eq!(owner.get("/v1/preferences").await, json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_models_of_a_server_are_listed_with_what_is_missing() {
    let world = World::under(&["env", "-u", "GEMINI_API_KEY", "-u", "GOOGLE_API_KEY"], &[]).await;
    let shown = stdout(&belljar(&world.owner, &["model", "ls"]).await);
    let line = shown.lines().find(|line| line.starts_with("gemini/*")).unwrap();
    assert!(line.contains("false") && line.contains("GEMINI_API_KEY is not set"), "{shown}");
    let listed = answer(&world.owner, &["model", "ls", "--json"]).await;
    assert_eq!(listed, world.owner.get("/v1/models").await["items"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn capabilities_are_listed_added_and_removed_on_the_command_line() {
    let world = World::start().await;
    let owner = &world.owner;
    let agent = make_agent(owner).await;
    make_tool(owner).await;
    const ON: [&str; 2] = ["agent", "capability"];
    let on = |args: &[&'static str]| [&ON[..], args].concat();
    let catalog = stdout(&belljar(owner, &on(&["ls"])).await);
    assert!(catalog.contains("Code Interpreter (skill)") && catalog.contains("Data"), "{catalog}");
    answer(owner, &on(&["add", "helper", "Code Interpreter"])).await;
    answer(owner, &on(&["add", "helper", "--skill", "dataviz"])).await;
    answer(owner, &on(&["add", "helper", "--tool", "media_probe"])).await;
    let listed = answer(owner, &on(&["ls", "helper", "--json"])).await;
    assert_eq!(listed, owner.get(&format!("/v1/agents/{agent}/capabilities")).await["items"]);
    let names: Vec<&str> =
        listed.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["code_execution", "media_probe", "dataviz"]);
    let shown = stdout(&belljar(owner, &on(&["ls", "helper"])).await);
    assert!(shown.contains("Code Interpreter") && shown.contains("attached"), "{shown}");

    for (args, message) in [
        (&["add", "helper", "Calculator"][..], "the catalog has no entry \"Calculator\""),
        (&["add", "helper", "--skill", "juggling"], "skill \"juggling\" not found"),
        (&["rm", "helper", "juggling"], "helper has no capability \"juggling\""),
    ] {
        let said = failure(owner, 1, &on(args)).await;
        assert!(said.contains(message), "{said}");
    }
    failure(owner, 2, &on(&["add", "helper"])).await;
    failure(owner, 2, &on(&["add", "helper", "Code Interpreter", "--skill", "dataviz"])).await;
    for name in ["Code Interpreter", "media_probe", "dataviz"] {
        answer(owner, &on(&["rm", "helper", name])).await;
    }
    assert_eq!(answer(owner, &on(&["ls", "helper", "--json"])).await, json!([]));
    assert_eq!(owner.get("/v1/tools").await["items"][0]["name"], "media_probe", "it is kept");
}

// proves P-074
#[tokio::test(flavor = "multi_thread")]
async fn a_skill_is_added_listed_replaced_and_removed_on_the_command_line() {
    let world = World::start().await;
    let owner = &world.owner;
    let directory = tempfile::tempdir().unwrap();
    let skill = directory.path().join("tea");
    std::fs::create_dir(&skill).unwrap();
    let text = "---\nname: tea\ndescription: How tea is made here.\n---\n\nWarm the pot.\n";
    std::fs::write(skill.join("SKILL.md"), text).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", skill.join("link")).unwrap();
    let path = skill.to_str().unwrap();
    let added = answer(owner, &["skill", "add", "--json", path]).await;
    assert_eq!((&added["name"], &added["file_count"]), (&json!("tea"), &json!(1)), "{added}");
    let again = failure(owner, 1, &["skill", "add", path]).await;
    assert!(again.contains("name.taken"), "{again}");
    std::fs::write(skill.join("more.md"), "more").unwrap();
    let replaced = answer(owner, &["skill", "add", "--json", "--replace", path]).await;
    assert_eq!((&replaced["id"], &replaced["file_count"]), (&added["id"], &json!(2)));
    let listed = answer(owner, &["skill", "ls", "--json"]).await;
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed[0]["name"], "tea");
    answer(owner, &["skill", "rm", "tea"]).await;
    assert_eq!(answer(owner, &["skill", "ls", "--json"]).await, json!([]));
    // Errors are found before anything is sent.
    std::fs::write(skill.join("SKILL.md"), "no frontmatter").unwrap();
    let invalid = failure(owner, 1, &["skill", "add", path]).await;
    assert!(invalid.contains("must start with YAML frontmatter"), "{invalid}");
}
