//! The capabilities of an agent: what it can use, as one list, and what adds and removes one.

use crate::principals::{FORBIDDEN, NOT_THERE, Person, grant, id, invalid, items, on, refused};
use crate::test_server::{Api, World};
use serde_json::{Value, json};

/// With comments, in the styles that people use.
const SPECIFICATION: &str = "# An agent for sales.\nname: sales\ninstructions: |\n  Compute, do not guess.\n\nskills: [dataviz] # charts\ntools:\n  # Celsius only.\n  - type: runPythonCode\n    name: convert\n    description: Convert temperatures\n    approval_action: allow\n    configuration:\n      pythonCode: |\n        def handle(celsius: float) -> float:\n            return celsius * 9 / 5 + 32\n  - {type: generic, name: search}\n";

async fn agent(who: &Api, specification: impl Into<Value>) -> String {
    let agent = json!({"name": "helper", "specification": specification.into()});
    format!("/v1/agents/{}", id(&who.post("/v1/agents", agent).await))
}

async fn tool(who: &Api, name: &str) -> Value {
    let code = "def handle(a: int) -> int:\n    return a\n";
    let tool = json!({"type": "runPythonCode", "name": name, "description": "Gives it back.",
        "configuration": {"pythonCode": code}});
    who.post("/v1/tools", tool).await
}

async fn capabilities(who: &Api, agent: &str) -> Vec<Value> {
    items(who, &format!("{agent}/capabilities")).await
}

async fn add(who: &Api, agent: &str, body: Value) -> Value {
    who.post(&format!("{agent}/capabilities"), body).await
}

fn names(listed: &[Value]) -> Vec<String> {
    let name = |item: &Value| {
        format!("{} {}", item["kind"].as_str().unwrap(), item["name"].as_str().unwrap())
    };
    listed.iter().map(name).collect()
}

fn of<'a>(listed: &'a [Value], name: &str) -> &'a Value {
    let found = listed.iter().find(|item| item["name"] == name || item["title"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {listed:?}"))
}

async fn specification(who: &Api, agent: &str) -> String {
    who.get(agent).await["specification"].as_str().unwrap().to_owned()
}

// proves P-002, P-091
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_of_the_catalog_is_added_with_one_call_and_nothing_to_type() {
    let world = World::start().await;
    let owner = &world.owner;
    let agent = agent(owner, "instructions: help\n").await;
    assert_eq!(capabilities(owner, &agent).await, Vec::<Value>::new());
    let catalog = items(owner, "/v1/catalog").await;
    for entry in ["Code Interpreter", "Code Interpreter (skill)", "Dataviz (skill)"] {
        let entry = of_catalog(&catalog, entry);
        let added = add(owner, &agent, entry["capability"].clone()).await;
        assert_eq!(
            (&added["title"], &added["state"]),
            (&entry["name"], &json!("ready")),
            "{added}"
        );
        assert_eq!(
            (&added["category"], &added["source"]),
            (&json!("Data"), &json!("specification"))
        );
        assert!(!added["description"].as_str().unwrap().is_empty());
        assert_eq!(of(&capabilities(owner, &agent).await, entry["name"].as_str().unwrap()), &added);
    }
    let listed = capabilities(owner, &agent).await;
    let expected = ["code_execution code_execution", "skill code-interpreter", "skill dataviz"];
    assert_eq!(names(&listed), expected);
    assert_eq!(of_catalog(&catalog, "Code Interpreter")["category"], "Data");
    assert_eq!(owner.get(&agent).await["code_execution"], json!({"enabled": true, "missing": []}));
    // Adding it again changes nothing.
    let before = owner.get(&agent).await;
    add(owner, &agent, json!({"kind": "code_execution"})).await;
    add(owner, &agent, json!({"kind": "skill", "name": "dataviz"})).await;
    assert_eq!(owner.get(&agent).await, before);
    // Each is removed without the others.
    owner.delete(&format!("{agent}/capabilities/skill/code-interpreter")).await;
    owner.delete(&format!("{agent}/capabilities/code_execution/code_execution")).await;
    assert_eq!(names(&capabilities(owner, &agent).await), ["skill dataviz"]);
    owner.delete(&format!("{agent}/capabilities/skill/dataviz")).await;
    assert_eq!(specification(owner, &agent).await, "instructions: help\n");
}

/// What the model gets of a server is shown in tests/agent/mcp_servers.rs.
// proves P-096
#[tokio::test(flavor = "multi_thread")]
async fn mcp_servers_are_listed_added_and_removed_like_everything_else() {
    let world = World::under(&[], &["--mcp-command", "docs=/bin/false"]).await;
    let owner = &world.owner;
    let agent = agent(owner, "instructions: help\n").await;
    for (name, state) in [("docs", "ready"), ("missing", "unavailable")] {
        let server = json!({"name": name, "command": name, "approval_action": "allow"});
        let added = add(owner, &agent, json!({"kind": "mcp_server", "server": server})).await;
        let found = (&added["kind"], &added["name"], &added["state"], &added["approval_action"]);
        assert_eq!(found, (&json!("mcp_server"), &json!(name), &json!(state), &json!("allow")));
    }
    let listed = capabilities(owner, &agent).await;
    assert_eq!(names(&listed), ["mcp_server docs", "mcp_server missing"]);
    let reason = of(&listed, "missing")["reason"].as_str().unwrap();
    assert!(reason.contains("missing"), "{reason}");
    // Adding it again changes nothing; what is no entry of `mcp_servers` is refused.
    let before = owner.get(&agent).await;
    let server = json!({"name": "docs", "command": "docs"});
    add(owner, &agent, json!({"kind": "mcp_server", "server": server})).await;
    let path = format!("{agent}/capabilities");
    for server in [json!({"command": "docs"}), json!({"name": "other", "args": ["-c"]})] {
        let body = json!({"kind": "mcp_server", "server": server});
        let (status, problem) = owner.call("POST", &path, Some(body)).await;
        assert_eq!((status, &problem["code"]), (400, &json!("args.invalid")), "{problem}");
    }
    assert_eq!(owner.get(&agent).await, before);
    owner.delete(&format!("{path}/mcp_server/docs")).await;
    assert_eq!(names(&capabilities(owner, &agent).await), ["mcp_server missing"]);
}

fn of_catalog<'a>(catalog: &'a [Value], name: &str) -> &'a Value {
    catalog.iter().find(|entry| entry["name"] == name).unwrap()
}

// proves P-090, P-094
#[tokio::test(flavor = "multi_thread")]
async fn code_tools_functions_and_skills_are_one_list_which_says_what_cannot_be_used_and_why() {
    let world = World::start().await;
    let owner = &world.owner;
    let agent = agent(owner, SPECIFICATION).await;
    let files = json!([{"name": "handler.py", "text": "def handle(data): return data"}]);
    owner.post("/v1/functions", json!({"name": "forecast", "files": files})).await;
    let calls = json!({"type": "callFunction", "name": "ask_forecast",
        "description": "Calls the forecast.", "configuration": {"externalId": "forecast",
        "schema": {"type": "object", "properties": {}}}});
    let function = owner.post("/v1/tools", calls).await;
    let probe = tool(owner, "probe").await;
    for tool in [&function, &probe] {
        add(owner, &agent, json!({"kind": "tool", "tool_id": tool["id"]})).await;
    }
    let listed = capabilities(owner, &agent).await;
    let expected =
        ["tool convert", "tool search", "function ask_forecast", "tool probe", "skill dataviz"];
    let mut found = names(&listed);
    found.sort();
    let mut expected = expected.map(str::to_owned);
    expected.sort();
    assert_eq!(found, expected);

    let convert = json!({"kind": "tool", "name": "convert", "title": "convert",
        "description": "Convert temperatures", "category": "Custom", "state": "ready",
        "approval_action": "allow", "source": "specification"});
    assert_eq!(of(&listed, "convert"), &convert);
    let attached = json!({"kind": "tool", "name": "probe", "title": "probe",
        "description": "Gives it back.", "category": "Custom", "state": "ready",
        "approval_action": "confirm", "source": "attached", "tool_id": probe["id"]});
    assert_eq!(of(&listed, "probe"), &attached);
    let reason = |name: &str| {
        let item = of(&listed, name);
        assert_eq!(item["state"], "unavailable", "{item}");
        item["reason"].as_str().unwrap().to_owned()
    };
    assert!(reason("search").contains("has the type generic, which this server does not run"));
    assert!(reason("dataviz").contains("you must enable the code execution tool"));
    // What a person is asked about first, and what is refused, as the binding says.
    for (action, state) in [("review", "ready"), ("deny", "unavailable")] {
        let binding = format!("{agent}/tools/{}", id(&probe));
        owner.call("PATCH", &binding, Some(json!({"approval_action": action}))).await;
        let listed = capabilities(owner, &agent).await;
        let item = of(&listed, "probe");
        assert_eq!((&item["approval_action"], &item["state"]), (&json!(action), &json!(state)));
    }
    // One of the two parts is not enough, and the other one is named.
    add(owner, &agent, json!({"kind": "code_execution"})).await;
    assert_eq!(of(&capabilities(owner, &agent).await, "dataviz")["state"], "ready");
    let half = "tool_resources: {code_execution: {environment: default}}\n";
    owner.call("PUT", &agent, Some(json!({"specification": half}))).await;
    let code = of(&capabilities(owner, &agent).await, "Code Interpreter").clone();
    assert_eq!(code["state"], "unavailable");
    assert!(code["reason"].as_str().unwrap().starts_with("tools requires an entry"), "{code}");
    add(owner, &agent, json!({"kind": "code_execution"})).await;
    assert_eq!(of(&capabilities(owner, &agent).await, "Code Interpreter")["state"], "ready");
    assert!(specification(owner, &agent).await.starts_with(&half[..half.len() - 1]));
}

// proves P-092, P-095
#[tokio::test(flavor = "multi_thread")]
async fn what_is_added_and_removed_leaves_the_rest_of_the_specification_as_it_was_written() {
    let world = World::start().await;
    let owner = &world.owner;
    let agent = agent(owner, SPECIFICATION).await;
    add(owner, &agent, json!({"kind": "code_execution"})).await;
    add(owner, &agent, json!({"kind": "skill", "name": "code-interpreter"})).await;
    let expected = SPECIFICATION.replace("[dataviz]", "[dataviz, code-interpreter]")
        + "  - {tool_spec: {type: code_execution, name: code_execution}}\n\
           tool_resources:\n  code_execution: {}\n";
    assert_eq!(specification(owner, &agent).await, expected);
    owner.delete(&format!("{agent}/capabilities/code_execution/code_execution")).await;
    owner.delete(&format!("{agent}/capabilities/skill/code-interpreter")).await;
    assert_eq!(specification(owner, &agent).await, SPECIFICATION);
    owner.delete(&format!("{agent}/capabilities/tool/convert")).await;
    let (before, after) = SPECIFICATION.split_once("  - type").unwrap();
    let rest = &after[after.find("  - {type").unwrap()..];
    assert_eq!(specification(owner, &agent).await, format!("{before}{rest}"));

    // An attached tool is detached, and is still there.
    let probe = tool(owner, "probe").await;
    add(owner, &agent, json!({"kind": "tool", "tool_id": probe["id"]})).await;
    owner.delete(&format!("{agent}/capabilities/tool/probe")).await;
    assert_eq!(owner.get(&agent).await["tools"], json!([]));
    assert_eq!(owner.get(&format!("/v1/tools/{}", id(&probe))).await["name"], "probe");

    // JSON stays JSON.
    let body = json!({"specification": {"name": "x", "skills": ["dataviz"]}});
    owner.call("PUT", &agent, Some(body)).await;
    add(owner, &agent, json!({"kind": "code_execution"})).await;
    let text = specification(owner, &agent).await;
    let read: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(read["tools"][0]["tool_spec"]["type"], "code_execution", "{text}");
    assert_eq!(owner.get(&agent).await["format"], "json");
    // What cannot be changed alone is refused, with what to do instead.
    let aliased = "a: &x [dataviz]\nskills: *x\n";
    owner.call("PUT", &agent, Some(json!({"specification": aliased}))).await;
    let skill = json!({"kind": "skill", "name": "code-interpreter"});
    invalid(owner, "POST", &format!("{agent}/capabilities"), skill, "/specification").await;
    assert_eq!(specification(owner, &agent).await, aliased);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_neither_added_nor_removed() {
    let world = World::start().await;
    let owner = &world.owner;
    let agent = agent(owner, "instructions: help\n").await;
    let at = format!("{agent}/capabilities");
    let unknown = json!({"kind": "tool", "tool_id": "0198c0de-0000-7000-8000-000000000000"});
    refused(owner, "POST", &at, Some(unknown), NOT_THERE).await;
    for name in ["juggling", "../../etc", "", "a\u{1b}[2J", "x".repeat(300).as_str()] {
        let skill = json!({"kind": "skill", "name": name});
        refused(owner, "POST", &at, Some(skill), NOT_THERE).await;
    }
    for capability in ["skill/dataviz", "tool/probe", "function/x", "code_execution/code_execution"]
    {
        refused(owner, "DELETE", &format!("{at}/{capability}"), None, NOT_THERE).await;
    }
    for body in [json!({}), json!({"kind": "volume"}), json!({"kind": "code_execution", "x": 1})] {
        let (status, problem) = owner.call("POST", &at, Some(body)).await;
        assert_eq!(status, 400, "{problem}");
    }
    assert_eq!(specification(owner, &agent).await, "instructions: help\n");
    assert_eq!(capabilities(owner, &agent).await, Vec::<Value>::new());
}

// proves P-093
#[tokio::test(flavor = "multi_thread")]
async fn t276_capabilities_that_are_added_at_once_are_all_there_and_audited() {
    let world = World::start().await;
    let owner = &world.owner;
    let agent = agent(owner, SPECIFICATION).await;
    let probe = tool(owner, "probe").await;
    let bodies = [
        json!({"kind": "code_execution"}),
        json!({"kind": "skill", "name": "code-interpreter"}),
        json!({"kind": "tool", "tool_id": probe["id"]}),
    ];
    let paths = ["code_execution/code_execution", "skill/code-interpreter", "tool/probe"];
    for _ in 0..10 {
        futures_util::future::join_all(bodies.iter().map(|body| add(owner, &agent, body.clone())))
            .await;
        let listed = names(&capabilities(owner, &agent).await);
        for name in ["code_execution code_execution", "skill code-interpreter", "tool probe"] {
            assert!(listed.iter().any(|listed| listed == name), "{listed:?}");
        }
        let paths: Vec<String> =
            paths.iter().map(|path| format!("{agent}/capabilities/{path}")).collect();
        futures_util::future::join_all(paths.iter().map(|path| owner.delete(path))).await;
        assert_eq!(specification(owner, &agent).await, SPECIFICATION);
    }
    let entries = items(owner, "/v1/audit?limit=200").await;
    let count = |action: &str| entries.iter().filter(|entry| entry["action"] == action).count();
    assert_eq!(
        (count("agent.replace"), count("agent.attach"), count("agent.detach")),
        (40, 10, 10)
    );
}

// proves P-093
#[tokio::test(flavor = "multi_thread")]
async fn t277_a_capability_is_added_with_the_rights_of_its_editor_and_no_others() {
    let world = World::start().await;
    let owner = &world.owner;
    let agent = agent(owner, "instructions: help\n").await;
    let record = owner.get(&agent).await;
    let (hidden, at) = (tool(owner, "hidden").await, format!("{agent}/capabilities"));
    add(owner, &agent, json!({"kind": "tool", "tool_id": hidden["id"]})).await;
    let other = tool(owner, "other").await;
    let ann = Person::new(&world, "ann").await;
    let (code, skill) = (json!({"kind": "code_execution"}), json!({"kind": "skill", "name": "x"}));

    refused(&ann, "GET", &at, None, NOT_THERE).await;
    refused(&ann, "POST", &at, Some(code.clone()), NOT_THERE).await;
    grant(owner, &ann.id, "USAGE", &on("agent", &record)).await;
    // A caller who may only use the agent sees what it can do, but not tools that are not theirs.
    let listed = capabilities(&ann, &agent).await;
    assert_eq!(of(&listed, "hidden")["description"], "");
    assert_eq!(of(&capabilities(owner, &agent).await, "hidden")["description"], "Gives it back.");
    refused(&ann, "POST", &at, Some(code.clone()), FORBIDDEN).await;
    refused(&ann, "DELETE", &format!("{at}/tool/hidden"), None, FORBIDDEN).await;
    assert_eq!(owner.get(&agent).await["updated_at"], record["updated_at"]);

    grant(owner, &ann.id, "MODIFY", &on("agent", &record)).await;
    let others = json!({"kind": "tool", "tool_id": other["id"]});
    refused(&ann, "POST", &at, Some(others), NOT_THERE).await;
    refused(&ann, "POST", &at, Some(skill), NOT_THERE).await;
    add(&ann, &agent, code).await;
    let changed = owner.get(&agent).await;
    assert_eq!(changed["author"], json!(ann.id), "who adds has written the specification");
    assert!(changed["warnings"].to_string().contains("confirm"), "{changed}");
    assert_eq!(of(&capabilities(&ann, &agent).await, "hidden")["state"], "unavailable");
    // The twin: once its owner has confirmed it, the agent has its rights again.
    owner.post(&format!("{agent}/confirm"), json!({"updated_at": changed["updated_at"]})).await;
    assert_eq!(of(&capabilities(owner, &agent).await, "hidden")["state"], "ready");
}

// proves U-081
#[tokio::test(flavor = "multi_thread")]
async fn t278_the_models_are_listed_without_a_request_to_a_provider_and_without_its_key() {
    let provider = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("OPENAI_BASE_URL=http://{}/v1", provider.local_addr().unwrap());
    let program = [
        "env",
        "-u",
        "GEMINI_API_KEY",
        "-u",
        "GOOGLE_API_KEY",
        "OPENAI_API_KEY=sk-listed",
        &url,
        "BELLJAR_MODEL=openai/gpt-test",
    ];
    let world = World::under(&program, &[]).await;
    // Also who was granted nothing may choose a model, for what others let them use.
    let ann = Person::new(&world, "ann").await;
    let answer = ann.get("/v1/models").await;
    let models = answer["items"].as_array().unwrap();
    let default = json!({"name": "openai/gpt-test", "provider": "openai", "api": "chat_completions",
        "default": true, "usable": true, "supports": ["streaming", "tools", "tool_choice"]});
    assert_eq!(models[0], default);
    assert_eq!(of(models, "openai/*")["usable"], true);
    let gemini = of(models, "gemini/*");
    assert_eq!((&gemini["usable"], &gemini["default"]), (&json!(false), &json!(false)));
    assert!(gemini["reason"].as_str().unwrap().starts_with("GEMINI_API_KEY is not set"));
    for secret in ["sk-listed", "127.0.0.1", "http"] {
        assert!(!answer.to_string().contains(secret), "{answer}");
    }
    // A connection that was made would be in the queue.
    let connected = futures_util::FutureExt::now_or_never(provider.accept());
    assert!(connected.is_none(), "the provider was asked");
}
