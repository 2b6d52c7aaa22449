//! Functions: deployed separately from agents, with their own packages, memory and time, and called by principals
//! and by tools.

use crate::harness::wait;
use crate::principals::{FORBIDDEN, NOT_THERE, Person, id, items};
use crate::test_server::{Api, World};
use crate::web_server::{RESOLVED, Site};
use serde_json::{Value, json};

const ECHO: &str = "def handle(data): return data";
const SIX: &str = "import six\ndef handle(data):\n    return {'six': six.__version__, **data}\n";

fn folder(name: &str, files: &[(&str, &str)]) -> Value {
    let file = |(name, text): &(&str, &str)| json!({"name": name, "text": text});
    json!({"name": name, "files": files.iter().map(file).collect::<Vec<_>>()})
}

async fn deploy(who: &Api, name: &str, files: &[(&str, &str)]) -> String {
    let function = who.post("/v1/functions", folder(name, files)).await;
    assert_eq!(function["status"], "ready", "{function}");
    id(&function)
}

/// The call when it is over.
async fn ended(who: &Api, function: &str, call: &Value) -> Value {
    let path = format!("/v1/functions/{function}/calls/{}", id(call));
    let over = async || Some(who.get(&path).await).filter(|call| call["status"] != "Running");
    wait::until_some("the call has ended", over).await
}

async fn call(who: &Api, function: &str, data: Value) -> (Value, Value) {
    let call = who.post(&format!("/v1/functions/{function}/call"), json!({"data": data})).await;
    assert_eq!(call["status"], "Running");
    let call = ended(who, function, &call).await;
    let path = format!("/v1/functions/{function}/calls/{}/response", id(&call));
    (who.call("GET", &path, None).await.1["response"].clone(), call)
}

fn call_function(name: &str, configuration: Value) -> Value {
    json!({
        "type": "callFunction", "name": name, "description": "Calls what is deployed.",
        "configuration": configuration,
    })
}

// proves C-156
#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_answered_at_once_and_its_response_and_logs_are_had_apart() {
    let world = World::start().await;
    let code = "import sys, time, helper\nfrom parts import inner\n\
                def handle(data, function_call_info):\n    print('begun')\n    print('odd', file=sys.stderr)\n\
                \x20   time.sleep(data['seconds'])\n    open('made.txt', 'w').write('x')\n\
                \x20   return [helper.double(data['n']), inner.NAME, open('data.txt').read(), function_call_info]\n";
    let files = [
        ("handler.py", code),
        ("helper.py", "def double(n): return 2 * n\n"),
        ("parts/inner.py", "NAME = 'inner'\n"),
        ("data.txt", "kept"),
    ];
    let function = deploy(&world.owner, "double", &files).await;
    let path = format!("/v1/functions/{function}");
    let data = json!({"data": {"n": 21, "seconds": 1}});
    let began = world.owner.post(&format!("{path}/call"), data).await;
    assert_eq!((&began["status"], &began["function_id"]), (&json!("Running"), &json!(function)));
    let place = format!("{path}/calls/{}", id(&began));
    let early = world.owner.refused("GET", &format!("{place}/response"), None).await;
    assert_eq!(early, (404, "response.pending".into()));

    let over = ended(&world.owner, &function, &began).await;
    assert_eq!(over["status"], "Completed", "{over}");
    assert!(over["started_at"].as_str().unwrap() < over["ended_at"].as_str().unwrap());
    let info = json!({"function_id": function, "call_id": id(&began)});
    let response = world.owner.get(&format!("{place}/response")).await;
    assert_eq!(response["response"], json!([42, "inner", "kept", info]));
    let logs = items(&world.owner, &format!("{place}/logs")).await;
    let said = |line: &Value| (line["stream"].clone(), line["message"].clone());
    let said: Vec<_> = logs.iter().map(said).collect();
    assert!(said.contains(&(json!("stdout"), json!("begun"))), "{logs:?}");
    assert!(said.contains(&(json!("stderr"), json!("odd"))), "{logs:?}");
    assert!(
        logs.iter()
            .all(|line| line["time"].as_str().unwrap() >= over["started_at"].as_str().unwrap())
    );

    let record = world.owner.get(&format!("/v1/executions/{}", id(&began))).await;
    assert_eq!((&record["function_id"], &record["tool"]), (&json!(function), &json!("double")));
    let made = record["files_out"].as_array().unwrap();
    assert_eq!(
        (made.len(), &made[0]["name"]),
        (1, &json!("made.txt")),
        "its own files are not made"
    );
    assert_eq!(items(&world.owner, &format!("{path}/calls")).await, [over]);
}

// proves C-150
#[tokio::test(flavor = "multi_thread")]
async fn packages_come_with_the_function_and_go_with_the_last_that_needs_them() {
    let world = World::with_own_environments().await;
    let owner = &world.owner;
    let six = ("requirements.txt", "six==1.16.0\n");
    let one = deploy(owner, "one", &[("handler.py", SIX), six]).await;
    let (response, _) = call(owner, &one, json!({"a": 1})).await;
    assert_eq!(response, json!({"six": "1.16.0", "a": 1}));
    let environment =
        owner.get(&format!("/v1/functions/{one}")).await["deployed"]["environment"].clone();
    let environment = format!("/v1/environments/{}", environment.as_str().unwrap());
    let other = deploy(owner, "other", &[("handler.py", ECHO), six]).await;
    owner.delete(&format!("/v1/functions/{one}")).await;
    assert_eq!(owner.get(&environment).await["status"], "ready", "the other one needs it");

    let before = "/v1/functions";
    let newer = folder("other", &[("handler.py", SIX), ("requirements.txt", "six==1.17.0\n")]);
    let (status, replaced) = owner.call("POST", before, Some(newer)).await;
    assert_eq!((status, id(&replaced)), (200, other.clone()), "{replaced}");
    assert_eq!(call(owner, &other, json!({})).await.0["six"], "1.17.0");
    assert_eq!(owner.call("GET", &environment, None).await.0, 404, "nobody needs it any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_that_fails_says_why_and_leaves_what_serves() {
    let world = World::with_own_environments().await;
    let owner = &world.owner;
    let function = deploy(owner, "f", &[("handler.py", ECHO)]).await;
    let wanting = [("handler.py", SIX), ("requirements.txt", "six\nno-such-package-of-belljar\n")];
    let (status, problem) = owner.call("POST", "/v1/functions", Some(folder("f", &wanting))).await;
    assert_eq!(status, 400, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("line 2"), "{problem}");
    let shown = owner.get(&format!("/v1/functions/{function}")).await;
    assert_eq!(shown["status"], "failed");
    assert!(shown["error"]["message"].as_str().unwrap().contains("line 2"), "{shown}");
    assert_eq!(call(owner, &function, json!({"a": 1})).await.0, json!({"a": 1}));
    let left = items(owner, "/v1/environments").await;
    assert!(!left.iter().any(|it| it["name"].as_str().unwrap().starts_with("fn-")), "{left:?}");

    // One that never served is there to be asked about, and cannot be called.
    let (_, problem) = owner.call("POST", "/v1/functions", Some(folder("g", &wanting))).await;
    assert!(problem["detail"].as_str().unwrap().contains("line 2"), "{problem}");
    let never = items(owner, "/v1/functions?search=g").await.remove(0);
    let called = owner.refused("POST", &format!("/v1/functions/{}/call", id(&never)), None).await;
    assert_eq!(called, (403, "tool.unavailable".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_kept_of_a_folder_that_is_not_right() {
    let world = World::start().await;
    let other = "def handle(other): ...";
    for (files, code, expected) in [
        (vec![("handler.py", "def handle(:")], "tool.invalid", "Failed to parse"),
        (vec![("handler.py", "x = 1")], "tool.invalid", "'handle' not found"),
        (vec![("handler.py", other)], "tool.invalid", "other"),
        (vec![("main.py", ECHO)], "args.invalid", "handler.py"),
        (vec![("handler.py", ECHO), ("../x", "")], "file.unsupported", "../x"),
        (vec![("handler.py", ECHO), ("function.toml", "memory_mb = 16")], "args.invalid", "64"),
        (
            vec![("handler.py", ECHO), ("function.toml", "timeout_seconds = 541")],
            "args.invalid",
            "540",
        ),
        (
            vec![("handler.py", ECHO), ("function.toml", "memory_mb = 99999999")],
            "args.invalid",
            "operator",
        ),
        (vec![("handler.py", ECHO), ("function.toml", "\ncolour = 1")], "args.invalid", "line 2"),
        (vec![("handler.py", ECHO), ("requirements.txt", "-e .")], "args.invalid", "option"),
    ] {
        let (status, problem) =
            world.owner.call("POST", "/v1/functions", Some(folder("f", &files))).await;
        assert!(status == 400 || status == 422, "{files:?}: {problem}");
        assert_eq!(problem["code"], code, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(expected), "{problem}");
    }
    let wrong = folder("f", &[("handler.py", "\n\ndef handle(other): ...")]);
    let (_, problem) = world.owner.call("POST", "/v1/functions", Some(wrong)).await;
    let place = &problem["errors"][0];
    assert_eq!((&place["line"], &place["column"]), (&json!(3), &json!(12)), "{problem}");
    assert!(items(&world.owner, "/v1/functions").await.is_empty());
}

// proves C-153
#[tokio::test(flavor = "multi_thread")]
async fn a_function_has_more_memory_than_a_tool_and_the_time_that_its_author_gave_it() {
    let world = World::start().await;
    let owner = &world.owner;
    let code = "def handle(data):\n    return len(bytearray(data['mib'] * 1024 * 1024))\n";
    let roomy = deploy(owner, "roomy", &[("handler.py", code)]).await;
    let shown = owner.get(&format!("/v1/functions/{roomy}")).await;
    assert_eq!(shown["deployed"]["memory_bytes"], 2_147_483_648u64);
    assert_eq!(shown["deployed"]["timeout_seconds"], 540);
    let (response, over) = call(owner, &roomy, json!({"mib": 700})).await;
    assert_eq!(response, json!(700 * 1024 * 1024), "{over}");
    let tool = json!({
        "type": "runPythonCode", "name": "small", "description": "The same as a tool.",
        "configuration": {"pythonCode": code.replace("data)", "mib: int)").replace("data['mib']", "mib")},
    });
    let tool = id(&owner.post("/v1/tools", tool).await);
    let record =
        owner.post(&format!("/v1/tools/{tool}/call"), json!({"arguments": {"mib": 700}})).await;
    assert_eq!(record["error"]["code"], "memory.exceeded", "{record}");
    assert!(record["error"]["hint"].as_str().unwrap().contains("belljar tool deploy"), "{record}");

    let sleepy = "import time\ndef handle():\n    time.sleep(60)\n";
    let files = [("handler.py", sleepy), ("function.toml", "timeout_seconds = 1\nmemory_mb = 64")];
    let sleepy = deploy(owner, "sleepy", &files).await;
    let (response, over) = call(owner, &sleepy, json!({})).await;
    assert_eq!((&over["status"], &response), (&json!("Timeout"), &Value::Null));
    assert_eq!(over["error"]["code"], "time.exceeded");
    assert!(over["error"]["hint"].as_str().unwrap().contains("timeout_seconds"), "{over}");
}

// proves C-149, C-152, C-154, C-156
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_calls_a_function_with_arguments_that_fit_its_schema_and_waits_so_long() {
    let world = World::start().await;
    let owner = &world.owner;
    let schema = json!({
        "properties": {"seconds": {"type": "number", "maximum": 60}}, "required": ["seconds"],
        "additionalProperties": false,
    });
    let tool = call_function(
        "wait",
        json!({"externalId": "sleep", "maxPollingTime": 1, "schema": schema}),
    );
    let (status, problem) = owner.call("POST", "/v1/tools", Some(tool.clone())).await;
    assert_eq!((status, &problem["code"]), (422, &json!("tool.invalid")), "{problem}");
    assert_eq!(problem["errors"][0]["path"], "/configuration/externalId");
    assert!(problem["detail"].as_str().unwrap().contains("function \"sleep\" is not deployed"));

    let code =
        "import time\ndef handle(data):\n    time.sleep(data['seconds'])\n    return 'slept'\n";
    let function = deploy(owner, "sleep", &[("handler.py", code)]).await;
    let made = owner.post("/v1/tools", tool).await;
    assert_eq!(
        (&made["entry"], &made["input_schema"]["type"]),
        (&json!("function"), &json!("object"))
    );
    let call = format!("/v1/tools/{}/call", id(&made));
    let seconds = |seconds: Value| json!({"arguments": {"seconds": seconds}});
    let record = owner.post(&call, seconds(json!(0))).await;
    assert_eq!((&record["value"], &record["tool"]), (&json!("slept"), &json!("wait")), "{record}");
    assert_eq!(record["function_id"], json!(function));
    for wrong in [json!("0"), json!(61), Value::Null] {
        let error = owner.refused("POST", &call, Some(seconds(wrong))).await;
        assert_eq!(error, (400, "args.invalid".into()));
    }
    let missing = owner.refused("POST", &call, Some(json!({}))).await;
    assert_eq!(missing, (400, "args.missing".into()));
    let late = owner.post(&call, seconds(json!(30))).await;
    assert_eq!(
        (&late["status"], &late["error"]["code"]),
        (&json!("timed_out"), &json!("time.exceeded"))
    );
    let calls = items(owner, &format!("/v1/functions/{function}/calls")).await;
    let statuses: Vec<_> = calls.iter().map(|it| it["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["Timeout", "Completed"], "what was refused was not called");

    let session = owner.session().await;
    let inside = json!({"arguments": {"seconds": 0}, "sandbox_id": session});
    assert_eq!(owner.refused("POST", &call, Some(inside)).await.1, "args.invalid");
    let used = owner.refused("DELETE", &format!("/v1/functions/{function}"), None).await;
    assert_eq!(used, (409, "object.in_use".into()), "the tool would call whatever had its name");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_run_as_principal_of_a_tool_needs_the_function_as_well() {
    let world = World::start().await;
    let owner = &world.owner;
    let function = deploy(owner, "f", &[("handler.py", ECHO)]).await;
    let tool = id(&owner.post("/v1/tools", call_function("t", json!({"externalId": "f"}))).await);
    let ann = Person::new(&world, "ann").await;
    let grant = |kind: &str, object: &str, privilege: &str| json!({"principal": ann.id, "privilege": privilege, "object": {"kind": kind, "id": object}});
    let path = format!("/v1/functions/{function}");
    let call = format!("/v1/tools/{tool}/call");
    let refused = |(status, code): (u16, String), expected: (u16, &str)| {
        assert_eq!((status, code.as_str()), expected);
    };
    refused(ann.refused("GET", &path, None).await, NOT_THERE);
    refused(ann.refused("POST", &format!("{path}/call"), None).await, NOT_THERE);
    owner.post("/v1/grants", grant("tool", &tool, "USAGE")).await;
    refused(ann.refused("POST", &call, None).await, FORBIDDEN);
    owner.post("/v1/grants", grant("function", &function, "USAGE")).await;
    assert_eq!(ann.post(&call, json!({"arguments": {"a": 1}})).await["value"], json!({"a": 1}));
    let mine = ann.post(&format!("{path}/call"), json!({})).await;
    assert_eq!(ended(&ann, &function, &mine).await["status"], "Completed");
    let (own, all) = (format!("{path}/calls"), format!("{path}/calls"));
    assert_eq!(items(&ann, &own).await.len(), 2);
    let theirs = owner.post(&format!("{path}/call"), json!({})).await;
    ended(owner, &function, &theirs).await;
    assert_eq!((items(&ann, &own).await.len(), items(owner, &all).await.len()), (2, 3));
    let theirs = format!("{path}/calls/{}", id(&theirs));
    refused(ann.refused("GET", &theirs, None).await, NOT_THERE);
    refused(ann.refused("GET", &format!("{theirs}/logs"), None).await, NOT_THERE);

    let replaced = folder("f", &[("handler.py", ECHO)]);
    refused(ann.refused("POST", "/v1/functions", Some(replaced.clone())).await, FORBIDDEN);
    refused(ann.refused("DELETE", &path, None).await, FORBIDDEN);
    owner.post("/v1/grants", grant("function", &function, "MODIFY")).await;
    assert_eq!(ann.call("POST", "/v1/functions", Some(replaced)).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_agreed_to_is_not_what_was_deployed_since() {
    let world = World::start().await;
    let owner = &world.owner;
    let function = deploy(owner, "f", &[("handler.py", ECHO)]).await;
    let mut tool = call_function("t", json!({"externalId": "f"}));
    tool["approval_action"] = json!("review");
    let tool = id(&owner.post("/v1/tools", tool).await);
    // A requester cannot decide their own approval.
    let ann = Person::new(&world, "ann").await;
    for (kind, object) in [("tool", &tool), ("function", &function)] {
        let object = json!({"kind": kind, "id": object});
        let grant = json!({"principal": ann.id, "privilege": "USAGE", "object": object});
        owner.post("/v1/grants", grant).await;
    }
    let place = format!("/v1/tools/{tool}/call");
    let ask = || ann.post(&place, json!({"arguments": {"a": 1}}));
    let answer = async |asked: &Value| {
        let path = format!("/v1/approvals/{}", asked["approval_id"].as_str().unwrap());
        owner.call("POST", &path, Some(json!({"decision": "allow"}))).await
    };
    let first = ask().await;
    assert_eq!(first["status"], "waiting_approval", "{first}");
    assert_eq!(answer(&first).await.0, 200);
    let ran = ended(&ann, &function, &first).await;
    assert_eq!(ran["status"], "Completed", "{ran}");
    let record = owner.get(&format!("/v1/executions/{}", id(&first))).await;
    assert_eq!(
        (&record["value"], &record["function_id"].is_string()),
        (&json!({"a": 1}), &true),
        "{record}"
    );

    let second = ask().await;
    let question =
        owner.get(&format!("/v1/approvals/{}", second["approval_id"].as_str().unwrap())).await;
    assert_eq!(question["code"], ECHO, "a person is shown what would run");
    deploy(owner, "f", &[("handler.py", ECHO), ("beside.py", "x = 1")]).await;
    let (status, problem) = answer(&second).await;
    assert_eq!((status, &problem["code"]), (403, &json!("approval.invalid")), "{problem}");
    let record = owner.get(&format!("/v1/executions/{}", id(&second))).await;
    assert_eq!(
        (&record["status"], &record["error"]["code"], &record["started_at"]),
        (&json!("failed"), &json!("approval.invalid"), &Value::Null),
        "nothing was run: {record}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_can_be_cancelled_and_one_that_a_crash_has_cut_off_is_over() {
    let mut world = World::start().await;
    let code = "import time\ndef handle():\n    print('here', flush=True)\n    time.sleep(300)\n";
    let function = deploy(&world.owner, "long", &[("handler.py", code)]).await;
    let path = format!("/v1/functions/{function}");
    let first = world.owner.post(&format!("{path}/call"), json!({})).await;
    let place = format!("{path}/calls/{}", id(&first));
    let logs = format!("{place}/logs");
    wait::until("it prints", async || !items(&world.owner, &logs).await.is_empty()).await;
    let cancelled = world.owner.post(&format!("{place}/cancel"), json!({})).await;
    assert_eq!(cancelled["cancelled"], true);
    let over = ended(&world.owner, &function, &first).await;
    assert_eq!(
        (&over["status"], &over["error"]["code"]),
        (&json!("Failed"), &json!("execution.cancelled"))
    );

    let second = world.owner.post(&format!("{path}/call"), json!({})).await;
    world.kill();
    world.again().await;
    let over = ended(&world.owner, &function, &second).await;
    assert_eq!(over["error"]["code"], "execution.interrupted", "{over}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_that_a_crash_has_cut_off_says_so_and_is_made_again() {
    let mut world = World::with_own_environments().await;
    let files = [("handler.py", SIX), ("requirements.txt", "six==1.16.0\nidna==3.10\n")];
    let request = world.owner.request("POST".parse().unwrap(), "/v1/functions");
    let request =
        request.header("prefer", "respond-async").header("content-type", "application/json");
    let answer = request.body(folder("f", &files).to_string()).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 202);
    let place = answer.headers()["location"].to_str().unwrap().to_owned();
    assert!(world.owner.get(&place).await["progress"].is_string());
    world.kill();
    world.again().await;
    let shown = world.owner.get(&place).await;
    assert_eq!(
        (&shown["status"], &shown["error"]["code"]),
        (&json!("failed"), &json!("execution.interrupted"))
    );
    let function = deploy(&world.owner, "f", &files).await;
    assert_eq!(call(&world.owner, &function, json!({})).await.0["six"], "1.16.0");
}

// proves C-151
#[tokio::test(flavor = "multi_thread")]
async fn a_function_reaches_the_hosts_that_its_deployment_names_and_no_others() {
    let (world, site) = (World::with(&RESOLVED).await, Site::start());
    let owner = &world.owner;
    owner.post("/v1/network-rules", json!({"name": "site", "value_list": site.values()})).await;
    let integration = json!({"name": "to_site", "allowed_network_rules": ["site"]});
    owner.post("/v1/integrations", integration).await;
    let code = format!(
        "import urllib.request\ndef handle(data):\n    \
         address = 'http://%s:{}/' % data['host']\n    \
         return urllib.request.urlopen(address).read().decode()\n",
        site.port
    );
    let open = [("handler.py", code.as_str()), ("function.toml", "integrations = [\"to_site\"]\n")];
    let open = deploy(owner, "open", &open).await;
    let (response, done) = call(owner, &open, json!({"host": "site.test"})).await;
    assert_eq!((&response, &done["status"]), (&json!("here"), &json!("Completed")), "{done}");
    for (function, host) in [
        (open.as_str(), "other.test"),
        (&deploy(owner, "closed", &[("handler.py", code.as_str())]).await, "site.test"),
    ] {
        let (_, refused) = call(owner, function, json!({"host": host})).await;
        assert_eq!(refused["status"], "Failed", "{refused}");
        assert!(refused["error"].to_string().contains(host), "{refused}");
    }
    assert_eq!(site.asked(), 1);
}

const WITH_SIX: [(&str, &str); 2] = [
    ("handler.py", "import six\n\ndef handle(data):\n    return six.__version__\n"),
    ("requirements.txt", "six==1.16.0\n"),
];

#[tokio::test(flavor = "multi_thread")]
async fn what_a_workspace_says_of_packages_holds_for_functions_too() {
    let world = World::with_own_environments().await;
    let owner = &world.owner;
    let policy = async |policy: Value| {
        let (status, response) = owner.call("PUT", "/v1/packages/policy", Some(policy)).await;
        assert_eq!(status, 200, "{response}");
    };
    let refused =
        async || owner.refused("POST", "/v1/functions", Some(folder("f", &WITH_SIX))).await.1;
    policy(json!({"deny": ["six"]})).await;
    assert_eq!(refused().await, "package.denied");
    policy(json!({"allow": ["idna"]})).await;
    assert_eq!(refused().await, "package.denied");
    policy(json!({"pins": {"six": "1.17.0"}})).await;
    assert_eq!(refused().await, "package.denied");
    let made = owner.get("/v1/environments").await.to_string();
    assert!(!made.contains("\"fn-"), "nothing is left of them: {made}");

    policy(json!({"allow": ["six"], "pins": {"six": "1.16.0"}})).await;
    let function = deploy(owner, "f", &WITH_SIX).await;
    assert_eq!(call(owner, &function, json!({})).await.0, "1.16.0");
    policy(json!({"deny": ["six"]})).await;
    let again = [WITH_SIX[1], ("handler.py", "def handle(data):\n    return 2\n")];
    let (_, code) = owner.refused("POST", "/v1/functions", Some(folder("f", &again))).await;
    assert_eq!(code, "package.denied", "also where its environment is there already");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_with_packages_that_the_policy_denies_is_not_deployed() {
    let listed = |modules: &str| format!("PYTHON_PACKAGES_WHITELIST_IMPORT={modules}");
    let world = World::under(&["env", &listed("numpy, pandas")], &[]).await;
    let body = folder("f", &WITH_SIX);
    let (status, response) = world.owner.call("POST", "/v1/functions", Some(body)).await;
    assert_eq!((status, &response["code"]), (403, &json!("import.denied")), "{response}");
    let words = "importing six is not allowed by PYTHON_PACKAGES_WHITELIST_IMPORT";
    assert!(response["detail"].as_str().unwrap().contains(words), "{response}");

    let world = World::under(&["env", &listed("numpy, six")], &[]).await;
    let function = deploy(&world.owner, "f", &WITH_SIX).await;
    assert_eq!(call(&world.owner, &function, json!({})).await.0, "1.16.0");
}
