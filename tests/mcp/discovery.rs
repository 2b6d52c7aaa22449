//! What MCP clients can list: built-in tools, tools of the workspace that the caller may use, resources and
//! prompts.

use crate::harness::wait;
use crate::test_server::{Api, World};
use crate::wire::{Stdio, asked, called};
use serde_json::{Value, json};

const ADD: &str = "def handle(a: int, b: int = 2) -> int:\n    \"\"\"Adds two numbers.\n\n    Args:\n        a: the first\n        b: the second\n    \"\"\"\n    return a + b\n";

async fn listed(api: &Api) -> Vec<Value> {
    asked(api, "tools/list", json!({})).await["result"]["tools"].as_array().unwrap().clone()
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

async fn add(world: &World, name: &str, more: Value) -> Value {
    let mut tool = json!({"type": "runPythonCode", "approval_action": "allow", "name": name, "configuration": {"pythonCode": ADD}, "description": "Adds two numbers, for tests."});
    tool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    world.owner.post("/v1/tools", tool).await
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_the_workspace_are_shown_with_their_schemas_and_called_by_name() {
    let world = World::start().await;
    add(&world, "zulu", json!({})).await;
    add(&world, "alpha", json!({})).await;
    let tools = listed(&world.owner).await;
    let own =
        ["create_session", "execute_python", "get_result", "list_files", "read_file", "write_file"];
    let mut expected = [&["alpha"], &own[..], &["zulu"]].concat();
    expected.sort_unstable();
    assert_eq!(names(&tools), expected, "in order, and the same each time");
    assert_eq!(tools, listed(&world.owner).await);
    let zulu = tools.iter().find(|tool| tool["name"] == "zulu").unwrap();
    assert_eq!(zulu["inputSchema"]["required"], json!(["a"]), "{zulu}");
    assert_eq!(zulu["inputSchema"]["properties"]["a"]["description"], "the first");

    let sum = called(&world.owner, "zulu", json!({"a": 40})).await;
    assert_eq!(sum["structuredContent"], json!({"result": 42}), "{sum}");
    assert_eq!(sum["content"][0]["text"], "42");
    let wrong = called(&world.owner, "zulu", json!({"a": "forty"})).await;
    assert_eq!(wrong["isError"], true, "{wrong}");
    assert!(wrong["content"][0]["text"].as_str().unwrap().contains("'a'"), "{wrong}");
}

/// Adds copies of the tool `original` that are called `copy1` and so on, with a parameter that has
/// 20,000 choices: 110 KB as text, and more than a megabyte of memory.
fn copy_with_large_schema(world: &World, count: usize) {
    let sql = "WITH RECURSIVE number(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM number \
               WHERE n < ?1) INSERT INTO tools (workspace, id, name, owner, body, source) \
               SELECT workspace, randomblob(16), 'copy' || n, owner, json_set(body, \
               '$.name', 'copy' || n, '$.input_schema.properties.a.enum', json(?2)), source \
               FROM tools, number WHERE name = 'original'";
    let choices = json!((0..20_000).collect::<Vec<_>>()).to_string();
    let records = rusqlite::Connection::open(world.database()).unwrap();
    assert_eq!(records.execute(sql, rusqlite::params![count, choices]).unwrap(), count);
}

#[tokio::test(flavor = "multi_thread")]
async fn t216_many_tools_with_large_schemas_are_listed_in_pages() {
    const COPIES: usize = 40;
    let world = World::start().await;
    add(&world, "original", json!({})).await;
    let few = asked(&world.owner, "tools/list", json!({})).await["result"].clone();
    assert_eq!(few["nextCursor"], Value::Null, "one page is enough");
    copy_with_large_schema(&world, COPIES);
    let (mut all, mut pages, mut cursor) = (Vec::new(), 0, json!({}));
    loop {
        let page = asked(&world.owner, "tools/list", cursor).await["result"].clone();
        let tools = page["tools"].as_array().unwrap();
        assert!((1..20).contains(&tools.len()), "{}", tools.len());
        all.extend(tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()));
        pages += 1;
        if page["nextCursor"].is_null() {
            break;
        }
        cursor = json!({"cursor": page["nextCursor"]});
    }
    assert!((3..=8).contains(&pages), "{pages} pages");
    let mut expected: Vec<_> = (1..=COPIES).map(|number| format!("copy{number}")).collect();
    expected.extend(
        few["tools"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().into()),
    );
    all.sort_unstable();
    expected.sort_unstable();
    assert_eq!(all, expected, "each once, and none is left out");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_sees_and_calls_only_what_it_may_use() {
    let world = World::start().await;
    let tool = add(&world, "zulu", json!({})).await;
    add(&world, "never", json!({"approval_action": "deny"})).await;
    let ann = world.principal("ann", &[]).await;
    assert!(!names(&listed(&ann).await).contains(&"zulu"));
    let hidden = asked(&ann, "tools/call", json!({"name": "zulu", "arguments": {"a": 1}})).await;
    assert_eq!(hidden["error"]["code"], -32602, "{hidden}");
    let me = ann.get("/v1/principals/me").await;
    let grant = json!({"principal": me["id"], "privilege": "USAGE", "object": {"kind": "tool", "id": tool["id"]}});
    world.owner.post("/v1/grants", grant).await;
    assert!(names(&listed(&ann).await).contains(&"zulu"));
    let sum = called(&ann, "zulu", json!({"a": 40})).await;
    assert_eq!(sum["structuredContent"]["result"], 42, "{sum}");
    // Without the privilege to run code the tool returns an error, and nothing runs.
    let code = called(&ann, "execute_python", json!({"code": "1"})).await;
    assert_eq!(
        (&code["isError"], &code["structuredContent"]["error"]["code"]),
        (&json!(true), &json!("grant.missing"))
    );
    assert!(!names(&listed(&world.owner).await).contains(&"never"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_a_run_is_a_resource_for_principals_who_may_see_the_run() {
    let world = World::start().await;
    let run =
        called(&world.owner, "execute_python", json!({"code": "open('a b.txt', 'w').write('x')"}))
            .await;
    let link = &run["content"][1];
    assert_eq!(
        (&link["type"], &link["name"]),
        (&json!("resource_link"), &json!("a b.txt")),
        "{run}"
    );
    let read = asked(&world.owner, "resources/read", json!({"uri": link["uri"]})).await;
    assert_eq!(read["result"]["contents"][0]["text"], "x", "{read}");
    let ann = world.principal("ann", &["USAGE"]).await;
    let hidden = asked(&ann, "resources/read", json!({"uri": link["uri"]})).await;
    assert_eq!(hidden["error"]["code"], -32602, "{hidden}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_skills_that_ship_are_prompts_and_resources() {
    let world = World::start().await;
    let prompts = asked(&world.owner, "prompts/list", json!({})).await["result"]["prompts"].clone();
    let names: Vec<_> = prompts.as_array().unwrap().iter().map(|prompt| &prompt["name"]).collect();
    assert_eq!(names, ["code-interpreter", "dataviz"]);
    let prompt = asked(&world.owner, "prompts/get", json!({"name": "code-interpreter"})).await;
    let text = prompt["result"]["messages"][0]["content"]["text"].as_str().unwrap();
    assert!(text.contains("CodeSandboxUnreachable") && !text.starts_with("---"), "{text}");
    let listed =
        asked(&world.owner, "resources/list", json!({})).await["result"]["resources"].clone();
    let uris: Vec<_> =
        listed.as_array().unwrap().iter().map(|one| one["uri"].as_str().unwrap()).collect();
    assert!(uris.contains(&"skill://dataviz/scripts/chart.py"), "{uris:?}");
    for uri in uris {
        let read = asked(&world.owner, "resources/read", json!({"uri": uri})).await;
        assert!(!read["result"]["contents"][0]["text"].as_str().unwrap().is_empty(), "{read}");
    }
    for uri in [
        "skill://dataviz/../code-interpreter/SKILL.md",
        "skill://none/SKILL.md",
        "skill://dataviz/",
    ] {
        let missing = asked(&world.owner, "resources/read", json!({"uri": uri})).await;
        assert_eq!(missing["error"]["code"], -32602, "{missing}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_list_is_announced_to_a_client_of_the_legacy_revision() {
    let world = World::start().await;
    let (url, key) = (world.address().to_owned(), world.owner.key.clone());
    let (ready, listening) = std::sync::mpsc::channel();
    let client = tokio::task::spawn_blocking(move || {
        let variables = [("BELLJAR_URL", url.as_str()), ("BELLJAR_API_KEY", key.as_str())];
        let mut client = Stdio::with(&[], &variables);
        client.request("tools/list", json!({}));
        ready.send(()).unwrap();
        client.receive()
    });
    listening.recv().unwrap();
    // The stream on which the server speaks by itself is opened beside the first requests.
    let mut number = 0;
    wait::until("a change is announced", async || {
        number += 1;
        add(&world, &format!("fresh{number}"), json!({})).await;
        client.is_finished()
    })
    .await;
    let announced = client.await.unwrap();
    assert_eq!(announced["method"], "notifications/tools/list_changed", "{announced}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_is_a_tool_like_any_other_and_a_model_waits_for_it_so_long() {
    let world = World::start().await;
    let code = "import time\ndef handle(data):\n    time.sleep(data['seconds'])\n    return data\n";
    let folder = json!({"name": "nap", "files": [{"name": "handler.py", "text": code}]});
    world.owner.post("/v1/functions", folder).await;
    let schema = json!({"properties": {"seconds": {"type": "number"}}, "required": ["seconds"]});
    let configuration = json!({"externalId": "nap", "maxPollingTime": 1, "schema": schema});
    let tool = json!({
        "type": "callFunction", "name": "rest", "description": "Rests for some seconds.",
        "configuration": configuration,
    });
    world.owner.post("/v1/tools", tool).await;
    let tools = listed(&world.owner).await;
    let rest = tools.iter().find(|tool| tool["name"] == "rest").unwrap();
    assert_eq!(rest["inputSchema"]["required"], json!(["seconds"]), "{rest}");
    let rested = called(&world.owner, "rest", json!({"seconds": 0})).await;
    assert_eq!(rested["structuredContent"], json!({"result": {"seconds": 0}}), "{rested}");
    let wrong = called(&world.owner, "rest", json!({"seconds": "long"})).await;
    assert_eq!(wrong["isError"], true, "{wrong}");
    let late = called(&world.owner, "rest", json!({"seconds": 30})).await;
    assert_eq!(late["isError"], true, "{late}");
    assert!(late["content"][0]["text"].as_str().unwrap().contains("time.exceeded"), "{late}");
}
