//! T127: the name by which serde_json passes raw JSON, in JSON of clients. While its feature `raw_value` was on, an
//! object that begins with it was parsed without any bound, and a few levels of it crashed the whole server. It is
//! a name like any other.

#[path = "../harness/raw_json.rs"]
mod layers;

use crate::test_server::World;
use layers::{NAME, layers};
use reqwest::Method;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn t127_a_returned_value_with_the_name_of_raw_json_is_returned_as_it_is() {
    let world = World::start().await;
    for name in [NAME, "another name"] {
        let value = json!({"a": [{name: layers(60)}]});
        // What is written so is Python as well.
        let record = world.owner.execute(&value.to_string()).await;
        assert_eq!((&record["status"], &record["value"]), (&json!("succeeded"), &value));
        let path = format!("/v1/executions/{}", record["id"].as_str().unwrap());
        assert_eq!(world.owner.get(&path).await["value"], value, "as it was kept");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t127_arguments_with_the_name_of_raw_json_reach_the_tool_as_they_are() {
    let world = World::start().await;
    let tool = json!({
        "name": "echo", "description": "Returns what it is given.", "tool_type": "code_runner",
        "configuration": {"type": "CodeRunner", "runtime": "python",
            "code": "def run(input):\n    return {'same': input['given']}\n",
            "input_schema": [{"name": "given", "field_type": "OBJECT", "required": true}]},
    });
    let id = world.owner.post("/v1/tools", tool).await["id"].as_str().unwrap().to_owned();
    for name in [NAME, "another name"] {
        let given = json!({name: layers(60)});
        let call = json!({"arguments": {"given": given}});
        let record = world.owner.post(&format!("/v1/tools/{id}/call"), call).await;
        assert_eq!(record["value"], json!({"same": given}), "{}", record["status"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t127_a_message_of_mcp_with_the_name_of_raw_json_is_answered() {
    let world = World::start().await;
    for name in [NAME, "another name"] {
        let params = json!({"name": "execute_python", "arguments": {"code": "6 * 7"}, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "example.org/more": {name: layers(60)},
        }});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let request = world.owner.request(Method::POST, "/mcp");
        let request = request
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
            .header("mcp-name", "execute_python");
        let answer = request.body(message.to_string()).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let answer = answer.text().await.unwrap();
        assert!(answer.contains("42"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t127_a_specification_with_the_name_of_raw_json_is_kept_as_it_was_written() {
    let world = World::start().await;
    let yaml = |name: &str| json!(format!("other:\n  \"\\x24{}\": '[1]'\n", &name[1..]));
    let object = |name: &str| json!({"other": {name: layers(60)}});
    for (agent, specification) in [
        ("a", yaml(NAME)),
        ("b", yaml("$another name")),
        ("c", object(NAME)),
        ("d", object("another name")),
    ] {
        let request = json!({"name": agent, "specification": specification});
        let made = world.owner.post("/v1/agents", request).await;
        let text = match &specification {
            Value::String(text) => text.clone(),
            object => object.to_string(),
        };
        let path = format!("/v1/agents/{}", made["id"].as_str().unwrap());
        assert_eq!(world.owner.get(&path).await["specification"], text);
    }
}
