//! Tools: created, read, validated, changed and deleted by principals who may.

use crate::test_server::{Api, World};
use serde_json::{Value, json};

const MEDIA_PROBE: &str = include_str!("../conformance/seed-003/media_probe.json");
/// Bytes that some other way of keeping text would change.
const ODD: &str = "\u{feff}def handle(text: str) -> str:\r\n\t'''Gives it back.\r\n\r\n\tArgs:\r\n\t\ttext: 'é'; DROP TABLE tools; --\r\n\t'''\r\n\treturn text  \n\n";

fn media_probe() -> Value {
    serde_json::from_str(MEDIA_PROBE).unwrap()
}

fn run_python_code(name: &str, code: &str) -> Value {
    json!({
        "type": "runPythonCode", "name": name, "description": "Does what it does.",
        "configuration": {"pythonCode": code},
    })
}

fn code_runner(name: &str, configuration: Value) -> Value {
    json!({"name": name, "tool_type": "code_runner", "configuration": configuration})
}

fn path(tool: &Value) -> String {
    format!("/v1/tools/{}", tool["id"].as_str().unwrap())
}

fn names(listed: &Value) -> Vec<&str> {
    listed["items"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect()
}

/// The paths of what is wrong, for a request that must be refused.
async fn wrong(api: &Api, method: &str, at: &str, body: &Value) -> (u16, Vec<String>, Value) {
    let (status, problem) = api.call(method, at, Some(body.clone())).await;
    assert!((400..500).contains(&status), "{body}: {status} {problem}");
    let paths = problem["errors"].as_array().into_iter().flatten();
    let paths = paths.map(|error| error["path"].as_str().unwrap_or_default().to_owned());
    (status, paths.collect(), problem)
}

async fn grant(world: &World, to: &Api, privilege: &str, tool: &Value) -> Value {
    let principal = to.get("/v1/principals/me").await["id"].clone();
    let object = json!({"kind": "tool", "id": tool["id"]});
    let grant = json!({"principal": principal, "privilege": privilege, "object": object});
    world.owner.post("/v1/grants", grant).await
}

// proves W-001, W-002, W-007, W-048
#[tokio::test(flavor = "multi_thread")]
async fn the_tool_of_the_seed_is_made_as_it_stands_there() {
    let world = World::start().await;
    let post = world.owner.request("POST".parse().unwrap(), "/v1/tools");
    let answer = post.header("content-type", "application/json").body(MEDIA_PROBE).send().await;
    let answer = answer.unwrap();
    assert_eq!(answer.status(), 201);
    let made: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
    for (key, value) in media_probe().as_object().unwrap() {
        assert_eq!(&made[key], value, "{key}");
    }
    for key in ["id", "created_at", "updated_at", "deployment_id"] {
        assert!(made[key].is_string(), "{key}: {made}");
    }
    assert_eq!((&made["approval_action"], &made["entry"]), (&json!("allow"), &json!("run")));
    assert_eq!(made["input_schema"]["required"], json!(["media_path"]));
    assert_eq!(world.owner.get(&path(&made)).await, made);
    let again = world.owner.call("POST", "/v1/tools", Some(media_probe())).await;
    assert_eq!((again.0, &again.1["code"]), (409, &json!("name.taken")));
}

// proves C-002
#[tokio::test(flavor = "multi_thread")]
async fn a_script_comes_back_byte_for_byte() {
    let mut world = World::start().await;
    let written = run_python_code("odd", ODD);
    let made = world.owner.post("/v1/tools", written.clone()).await;
    let file = world.owner.request("POST".parse().unwrap(), "/v1/tools?name=odd_file");
    let file = file.header("content-type", "text/x-python; charset=utf-8").body(ODD).send().await;
    let file: Value = serde_json::from_slice(&file.unwrap().bytes().await.unwrap()).unwrap();
    world.stop().await;
    world.again().await;
    let kept = world.owner.get(&path(&made)).await;
    for (key, value) in written.as_object().unwrap() {
        assert_eq!(&kept[key], value, "{key}");
    }
    let kept = world.owner.get(&path(&file)).await;
    assert_eq!(kept["configuration"]["pythonCode"], ODD);
    assert_eq!((&kept["type"], &kept["name"]), (&json!("runPythonCode"), &json!("odd_file")));
    let called = json!({"arguments": {"text": "it runs"}});
    let record = world.owner.post(&format!("{}/call", path(&kept)), called).await;
    assert_eq!(record["value"], "it runs");
}

// proves C-003
#[tokio::test(flavor = "multi_thread")]
async fn validating_tells_the_contract_or_the_errors_and_keeps_nothing() {
    let world = World::start().await;
    let validate = "/v1/tools/validate";
    let right = world.owner.post(validate, run_python_code("right", ODD)).await;
    assert_eq!((&right["valid"], &right["entry"]), (&json!(true), &json!("handle")));
    assert_eq!(right["input_schema"]["properties"]["text"]["type"], "string");
    assert!(right.get("errors").is_none(), "{right}");

    let code = "import os\n\ndef handle(text):\n    return text\n";
    let wrong = world.owner.post(validate, run_python_code("wrong", code)).await;
    assert_eq!(wrong["valid"], false);
    assert!(wrong.get("input_schema").is_none(), "{wrong}");
    let error = &wrong["errors"][0];
    assert_eq!(error["code"], "code.annotation");
    assert_eq!((&error["line"], &error["path"]), (&json!(3), &json!("/configuration/pythonCode")));
    assert!(error["column"].is_u64());
    assert_eq!(names(&world.owner.get("/v1/tools").await), [""; 0]);

    let (status, paths, problem) =
        self::wrong(&world.owner, "POST", "/v1/tools", &run_python_code("wrong", code)).await;
    assert_eq!((status, &problem["code"]), (422, &json!("tool.invalid")));
    assert_eq!(problem["errors"], wrong["errors"], "saving says the same");
    assert_eq!(paths, ["/configuration/pythonCode"]);
    assert_eq!(names(&world.owner.get("/v1/tools").await), [""; 0]);
}

// proves W-003, W-004, W-005, W-009, W-014, W-059
#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_is_not_right_is_refused_at_its_place() {
    let world = World::start().await;
    let code = "def run(input):\n    return {}\n";
    let with = |key: &str, value: Value| code_runner("n", json!({"code": code, key: value}));
    let field = |field: Value| with("input_schema", json!([field]));
    let twice =
        json!([{"name": "a", "field_type": "STRING"}, {"name": "a", "field_type": "STRING"}]);
    let first = "/configuration/input_schema/0";
    for (body, at, says) in [
        (with("type", json!("code_runner")), "/configuration/type", "CodeRunner"),
        (with("type", json!("coderunner")), "/configuration/type", "CodeRunner"),
        (with("type", json!("CODE_RUNNER")), "/configuration/type", "CodeRunner"),
        (with("runtime", json!("node")), "/configuration/runtime", "use 'python'"),
        (code_runner("", json!({"code": code})), "/name", "Tool name is required"),
        (
            code_runner("n", json!({"code": " "})),
            "/configuration/code",
            "Code runner source is required",
        ),
        (
            code_runner("n", json!({"code": "x = 1"})),
            "/configuration/code",
            "must define a callable run(input)",
        ),
        (field(json!({"name": "a", "field_type": "TEXT"})), &format!("{first}/field_type"), "TEXT"),
        (
            field(json!({"name": "a", "field_type": "string"})),
            &format!("{first}/field_type"),
            "STRING",
        ),
        (
            field(json!({"name": "a", "field_type": "ARRAY", "items_type": "string"})),
            &format!("{first}/items_type"),
            "STRING",
        ),
        (field(json!({"name": "", "field_type": "STRING"})), &format!("{first}/name"), "name"),
        (with("input_schema", twice), "/configuration/input_schema/1", "'a'"),
        (with("colour", json!("red")), "/configuration/colour", "colour"),
        (json!({"name": "n", "tool_type": "api", "configuration": {}}), "/tool_type", "'api'"),
        (
            json!({"name": "n", "tool_type": "composio", "configuration": {}}),
            "/tool_type",
            "'composio'",
        ),
        (
            json!({"name": "n", "tool_type": "virtual", "configuration": {}}),
            "/tool_type",
            "'virtual'",
        ),
        (json!({"name": "n", "tool_type": "mcp", "configuration": {}}), "/tool_type", "'mcp'"),
        (json!({"name": "n", "type": "Mcp", "configuration": {}}), "/type", "code_runner"),
    ] {
        let (status, paths, problem) = wrong(&world.owner, "POST", "/v1/tools", &body).await;
        assert_eq!(status, 422, "{body}: {problem}");
        assert!(paths.iter().any(|path| path.starts_with(at)), "{body}: {problem}");
        let errors = problem["errors"].as_array().unwrap();
        let says = errors.iter().any(|it| it["message"].as_str().unwrap().contains(says));
        assert!(says, "{body}: {problem}");
    }
    assert_eq!(names(&world.owner.get("/v1/tools").await), [""; 0]);
    world.owner.post("/v1/tools", with("runtime", json!("python"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_not_one_names_its_field_and_changes_nothing() {
    let world = World::start().await;
    let tool = world.owner.post("/v1/tools", media_probe()).await;
    let long = "x".repeat(300);
    let with = |key: &str, value: Value| {
        let mut body = media_probe();
        body["name"] = "other".into();
        body[key] = value;
        body
    };
    for (body, at) in [
        (with("colour", json!("red")), "/colour"),
        (with("id", json!("mine")), "/id"),
        (with("name", json!(7)), "/name"),
        (with("name", json!(long)), "/name"),
        (with("name", json!("a\u{0}b")), "/name"),
        (with("description", json!(["x"])), "/description"),
        (with("description", json!("x".repeat(10_001))), "/description"),
        (with("description", json!("a\u{0}b")), "/description"),
        (with("configuration", json!("x")), "/configuration"),
        (with("environment", json!("nowhere")), "/environment"),
        (with("environment", json!("../../etc")), "/environment"),
        (with("environment", json!("' OR 1=1 --")), "/environment"),
        (with("approval_action", json!("maybe")), "/approval_action"),
        (with("extended_annotations", json!("yes")), "/extended_annotations"),
        (json!([]), ""),
    ] {
        let (_, paths, problem) = wrong(&world.owner, "POST", "/v1/tools", &body).await;
        assert!(paths.iter().any(|path| path == at), "{body}: {problem}");
    }
    for (body, at) in [
        (json!({"colour": "red"}), "/colour"),
        (json!({"tool_type": "code_runner"}), "/tool_type"),
        (json!({"name": ""}), "/name"),
        (json!({"configuration": {"code": "x = 1"}}), "/configuration/code"),
        (json!({"environment": "nowhere"}), "/environment"),
        (json!({"approval_action": true}), "/approval_action"),
    ] {
        let (_, paths, problem) = wrong(&world.owner, "PATCH", &path(&tool), &body).await;
        assert!(paths.iter().any(|path| path == at), "{body}: {problem}");
    }
    for at in ["/v1/tools/nothing", "/v1/tools/'%20OR%201=1"] {
        assert_eq!(world.owner.call("GET", at, None).await.0, 400, "{at}");
    }
    let other = "/v1/tools/00000000-0000-7000-8000-000000000000";
    assert_eq!(world.owner.refused("GET", other, None).await, (404, "object.not_found".into()));
    assert_eq!(world.owner.get(&path(&tool)).await, tool);
    assert_eq!(names(&world.owner.get("/v1/tools").await), ["media_probe"]);
    let quoted = with("name", json!("Robert'); DROP TABLE tools;--"));
    let quoted = world.owner.post("/v1/tools", quoted).await;
    assert_eq!(quoted["name"], "Robert'); DROP TABLE tools;--");
    assert_eq!(names(&world.owner.get("/v1/tools?search='%29;").await).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_python_file_says_the_rest_in_the_query() {
    let world = World::start().await;
    let send = async |query: &str, kind: &str, body: Vec<u8>| {
        let post = world.owner.request("POST".parse().unwrap(), &format!("/v1/tools{query}"));
        let answer = post.header("content-type", kind).body(body).send().await.unwrap();
        let status = answer.status().as_u16();
        let body: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        (status, body)
    };
    let python = "text/x-python";
    let maybe = "def handle(a: int | None = None):\n    return a\n";
    let query = "?name=maybe&approval_action=review&extended_annotations=true&environment=bare";
    let (status, made) = send(query, python, maybe.into()).await;
    assert_eq!((status, &made["approval_action"]), (201, &json!("review")), "{made}");
    assert_eq!(
        (&made["environment"], &made["extended_annotations"]),
        (&json!("bare"), &json!(true))
    );
    for (query, kind, body, at) in [
        ("", python, maybe, "query/name"),
        ("?name=strict", python, maybe, "/configuration/pythonCode"),
        ("?name=a&colour=red", python, maybe, "query/colour"),
        ("?name=a", "application/json", "{}", "query"),
    ] {
        let (status, problem) = send(query, kind, body.into()).await;
        assert!((400..500).contains(&status), "{query}: {problem}");
        assert_eq!(problem["errors"][0]["path"], at, "{query}: {problem}");
    }
    let (status, problem) = send("?name=a", python, b"def handle():\n    '\xff'\n".to_vec()).await;
    assert_eq!(status, 422);
    assert!(problem["detail"].as_str().unwrap().contains("line 2"), "{problem}");
    let (status, problem) = send("?name=a", "text/plain", maybe.into()).await;
    assert_eq!((status, &problem["code"]), (400, &json!("args.invalid")));
    assert_eq!(names(&world.owner.get("/v1/tools").await), ["maybe"]);
}

// proves W-030
#[tokio::test(flavor = "multi_thread")]
async fn the_bytes_of_a_source_and_of_an_input_are_the_operators_to_bound() {
    let world = World::with(&["--tool-bytes", "98304"]).await;
    let code = |bytes: usize| format!("def run(input):\n    return 1\n#{}", "x".repeat(bytes - 30));
    let long = code_runner("long", json!({"code": code(98_305)}));
    let (status, _, problem) = wrong(&world.owner, "POST", "/v1/tools", &long).await;
    assert_eq!(status, 422);
    assert_eq!(problem["detail"], "Code runner 'long' source exceeds 98304 bytes");
    let fits =
        world.owner.post("/v1/tools", code_runner("fits", json!({"code": code(98_304)}))).await;
    let call = format!("{}/call", path(&fits));
    let text = json!({"arguments": {"text": "x".repeat(98_304)}});
    let (status, problem) = world.owner.call("POST", &call, Some(text)).await;
    assert_eq!(status, 400, "{problem}");
    assert_eq!(problem["detail"], "Code runner 'fits' input exceeds 98304 bytes");
    assert_eq!(world.owner.post(&call, json!({})).await["value"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_is_changed_and_called_as_it_is_now() {
    let world = World::start().await;
    let tool = world.owner.post("/v1/tools", media_probe()).await;
    let call = format!("{}/call", path(&tool));
    let arguments = json!({"arguments": {"media_path": "a.mp4"}});
    let value = world.owner.post(&call, arguments.clone()).await["value"].clone();
    assert_eq!(value, json!({"media_path": "a.mp4"}));

    let configuration = json!({"code": "def run(input):\n    return {'now': input}\n"});
    let change =
        json!({"name": "probe", "configuration": configuration, "approval_action": "deny"});
    let (status, changed) = world.owner.call("PATCH", &path(&tool), Some(change)).await;
    assert_eq!((status, &changed["name"]), (200, &json!("probe")), "{changed}");
    assert_eq!(changed["configuration"], configuration, "the whole of it");
    assert_eq!(changed["description"], tool["description"]);
    assert_eq!(changed["created_at"], tool["created_at"]);
    assert_ne!(changed["updated_at"], tool["updated_at"]);
    assert_ne!(changed["code_sha256"], tool["code_sha256"]);
    assert_eq!(world.owner.get(&path(&tool)).await, changed);
    let error = world.owner.refused("POST", &call, Some(arguments.clone())).await;
    assert_eq!(error, (403, "approval.denied".into()));
    let allow = Some(json!({"approval_action": "allow"}));
    assert_eq!(world.owner.call("PATCH", &path(&tool), allow).await.0, 200);
    let value = world.owner.post(&call, arguments).await["value"].clone();
    assert_eq!(value, json!({"now": {"media_path": "a.mp4"}}));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_who_change_a_tool_at_once_both_have_changed_it() {
    let world = World::start().await;
    let tool = world.owner.post("/v1/tools", media_probe()).await;
    let tasks: Vec<_> = (0..8)
        .map(|turn| {
            let (api, at) = (world.owner.clone(), path(&tool));
            let change = match turn % 4 {
                0 => json!({"name": "renamed"}),
                1 => json!({"description": "described"}),
                2 => json!({"approval_action": "review"}),
                _ => json!({"configuration": {"code": "def run(input): return 2"}}),
            };
            tokio::spawn(async move { api.call("PATCH", &at, Some(change)).await.0 })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), 200);
    }
    let now = world.owner.get(&path(&tool)).await;
    assert_eq!(now["name"], "renamed");
    assert_eq!(now["description"], "described");
    assert_eq!(now["approval_action"], "review");
    assert_eq!(now["configuration"], json!({"code": "def run(input): return 2"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_newest_first_in_parts_and_without_code() {
    let world = World::start().await;
    for number in 0..5 {
        world.owner.post("/v1/tools", run_python_code(&format!("tool_{number}"), ODD)).await;
    }
    let first = world.owner.get("/v1/tools?limit=2").await;
    assert_eq!(names(&first), ["tool_4", "tool_3"]);
    assert!(first["items"][0]["configuration"].get("pythonCode").is_none());
    let cursor = first["next_cursor"].as_str().unwrap();
    let rest = world.owner.get(&format!("/v1/tools?limit=3&cursor={cursor}")).await;
    assert_eq!(names(&rest), ["tool_2", "tool_1", "tool_0"]);
    assert!(rest.get("next_cursor").is_none());
    assert_eq!(names(&world.owner.get("/v1/tools?search=OL_1").await), ["tool_1"]);
    assert_eq!(names(&world.owner.get("/v1/tools?search=what%20it%20does").await).len(), 5);
    for query in ["?limit=0", "?limit=201", "?cursor=x", "?colour=red"] {
        assert_eq!(world.owner.call("GET", &format!("/v1/tools{query}"), None).await.0, 400);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_is_not_found_for_a_principal_without_privileges_on_it() {
    let world = World::start().await;
    let tool = world.owner.post("/v1/tools", media_probe()).await;
    let (at, rename) = (path(&tool), json!({"name": "mine"}));
    let not_there = (404, "object.not_found".to_owned());
    let missing = (403, "grant.missing".to_owned());

    let user = world.principal("user", &["USAGE"]).await;
    assert_eq!(user.refused("POST", "/v1/tools", Some(media_probe())).await, missing);
    assert_eq!(user.refused("POST", "/v1/tools/validate", Some(media_probe())).await, missing);
    let maker = world.principal("maker", &["MODIFY"]).await;
    for stranger in [&user, &maker] {
        assert_eq!(names(&stranger.get("/v1/tools").await), [""; 0]);
        assert_eq!(stranger.refused("GET", &at, None).await, not_there);
        assert_eq!(stranger.refused("PATCH", &at, Some(rename.clone())).await, not_there);
        assert_eq!(stranger.refused("DELETE", &at, None).await, not_there);
    }

    grant(&world, &user, "USAGE", &tool).await;
    assert_eq!(names(&user.get("/v1/tools").await), ["media_probe"]);
    assert_eq!(user.get(&at).await["id"], tool["id"]);
    assert_eq!(user.refused("PATCH", &at, Some(rename.clone())).await, missing);
    grant(&world, &user, "MODIFY", &tool).await;
    assert_eq!(user.call("PATCH", &at, Some(rename)).await.0, 200);
    assert_eq!(user.refused("DELETE", &at, None).await, missing);

    let own = maker.post("/v1/tools", run_python_code("own", ODD)).await;
    assert_eq!(names(&maker.get("/v1/tools").await), ["own"]);
    assert_eq!(names(&world.owner.get("/v1/tools").await), ["own", "mine"]);
    maker.delete(&path(&own)).await;
    assert_eq!(maker.refused("GET", &path(&own), None).await, not_there);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_a_large_tool_does_not_delay_other_calls() {
    let world = World::under(&["env", "TOKIO_WORKER_THREADS=1"], &[]).await;
    let body = "    x = [1, 2, 3, (4, 5), {'a': [6, 7]}]\n".repeat(25_000);
    let code = format!(
        "def handle(n: int) -> int:\n    \"\"\"Counts.\n\n    Args:\n        n: N.\n    \"\"\"\n{body}    return n\n"
    );
    let tool = world.owner.post("/v1/tools", run_python_code("large", &code)).await;
    let (caller, call) = (world.owner.clone(), format!("{}/call", path(&tool)));
    // Its contract is read for the first call, and refuses this one.
    let called = tokio::spawn(async move {
        caller.refused("POST", &call, Some(json!({"arguments": {"n": "x"}}))).await
    });
    let mut answered = 0;
    while !called.is_finished() {
        world.owner.get("/healthz").await;
        answered += 1;
    }
    assert_eq!(called.await.unwrap(), (400, "args.invalid".into()));
    assert!(answered >= 8, "others were answered {answered} times");
}

// proves W-045
#[tokio::test(flavor = "multi_thread")]
async fn what_a_tool_will_miss_is_told_before_it_runs() {
    let world = World::start().await;
    let code = "import json\nimport numpy as np, nothing_like_it\ndef run(input):\n    return {}\n";
    let tool = |programs: Value| {
        json!({
            "name": "probe", "tool_type": "code_runner",
            "configuration": {"code": code, "requires_binaries": programs},
        })
    };
    let validated =
        world.owner.post("/v1/tools/validate", tool(json!(["sh", "no-such-program"]))).await;
    assert_eq!(validated["valid"], true, "{validated}");
    let warnings: Vec<(&str, &Value, &Value)> = validated["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["message"].as_str().unwrap(), &it["line"], &it["column"]))
        .collect();
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    let expected =
        "import numpy: the environment bare has no numpy; default, atlas, cortex, coderunner have";
    assert_eq!(warnings[0], (expected, &json!(2), &json!(1)));
    assert_eq!(
        warnings[1].0,
        "import nothing_like_it: the environment bare has no nothing_like_it"
    );
    assert!(
        warnings[2].0.contains("no-such-program") && !warnings[2].0.contains(" sh"),
        "{warnings:?}"
    );

    let code = "def run(input):\n    import subprocess\n    return subprocess.check_output(['sh', '-c', 'echo 1'], text=True)\n";
    let tool = |programs: Value| {
        json!({
            "name": format!("with-{programs}"), "tool_type": "code_runner",
            "configuration": {"code": code, "requires_binaries": programs},
        })
    };
    let call = async |programs: Value| {
        let tool = world.owner.post("/v1/tools", tool(programs)).await;
        let path = format!("/v1/tools/{}/call", tool["id"].as_str().unwrap());
        world.owner.call("POST", &path, Some(json!({}))).await
    };
    let (status, record) = call(json!(["sh"])).await;
    assert_eq!((status, &record["value"]), (200, &json!("1\n")), "{record}");
    let (status, problem) = call(json!(["sh", "no-such-program"])).await;
    assert_eq!((status, &problem["code"]), (403, &json!("tool.unavailable")), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("no-such-program"), "{problem}");
    let listed = world.owner.get("/v1/executions").await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "the other one did not run");
}

/// Copies the only row of a table under other names and ids until it has `count`.
fn fill(world: &World, table: &str, count: usize) {
    let columns = if table == "tools" { "owner, body, source" } else { "owner, body" };
    let sql = format!(
        "WITH RECURSIVE number(n) AS (VALUES (2) UNION ALL SELECT n + 1 FROM number WHERE n < ?1) \
         INSERT INTO {table} (workspace, id, name, {columns}) \
         SELECT workspace, randomblob(16), 'copy' || n, {columns} FROM {table}, number"
    );
    let records = rusqlite::Connection::open(world.database()).unwrap();
    assert_eq!(records.execute(&sql, [count]).unwrap(), count - 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn t216_a_workspace_has_a_thousand_tools_and_agents_and_no_more() {
    let world = World::start().await;
    let code = "def handle(a: int) -> int:\n    \"\"\"Returns it.\n\n    Args:\n        a: a number\n    \"\"\"\n    return a\n";
    let tool = |name: &str| run_python_code(name, code);
    let agent =
        |name: &str| json!({"specification": format!("name: {name}\ninstructions: Help.\n")});
    for (table, of) in [("tools", &tool as &dyn Fn(&str) -> Value), ("agents", &agent)] {
        let path = format!("/v1/{table}");
        world.owner.post(&path, of("first")).await;
        fill(&world, table, 999);
        let last = world.owner.post(&path, of("last")).await;
        let full = world.owner.refused("POST", &path, Some(of("more"))).await;
        assert_eq!(full, (413, "quota.exceeded".into()), "{table}");
        world.owner.delete(&format!("{path}/{}", last["id"].as_str().unwrap())).await;
        world.owner.post(&path, of("more")).await;
    }
}
