//! T127: a name by which serde_json hands raw JSON on, in what others write. An object that begins with it
//! was parsed past every bound, and a few levels of it ended the whole server.

use crate::world::World;
use serde_json::json;

const NAME: &str = "$serde_json::private::RawValue";

/// Python that makes a value of so many levels, each of which is text inside the one around it.
fn levels(count: usize) -> String {
    format!(
        r#"
name = "{NAME}"
def escaped(text):
    return text.replace("\\", "\\u005c").replace('"', "\\u0022")
value = "[1]"
for _ in range({count}):
    value = "[" * 120 + '{{"' + name + '":"' + escaped(value) + '"}}' + "]" * 120
"#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn t127_a_returned_value_with_the_reserved_name_ends_nothing() {
    let world = World::start().await;
    let hostile = world.owner.execute(&format!("{}{{name: value}}", levels(60))).await;
    assert_eq!(
        (&hostile["status"], hostile.get("value")),
        (&json!("succeeded"), None),
        "{hostile}"
    );
    // The record of it can be read, and the server goes on.
    let records = world.owner.get("/v1/executions?limit=5").await;
    assert_eq!(records["items"].as_array().unwrap().len(), 1, "{records}");
    // The twin: the same text where it is no name.
    let code = format!("{{'a': ['{NAME}', '[1]']}}");
    assert_eq!(world.owner.execute(&code).await["value"], json!({"a": [NAME, "[1]"]}));
}

#[tokio::test(flavor = "multi_thread")]
async fn t127_a_request_with_the_reserved_name_is_refused() {
    let world = World::start().await;
    // There is no such tool, which is found out after the body was read.
    let call = "/v1/tools/01990000-0000-7000-8000-000000000000/call";
    let hostile = json!({"arguments": {"a": {NAME: "[[1]]"}}});
    assert_eq!(world.owner.refused("POST", call, Some(hostile)).await.0, 400);
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "t", "arguments": {"a": {NAME: "[[1]]"}}}});
    assert_eq!(world.owner.refused("POST", "/mcp", Some(message)).await.0, 400);
    let agent = json!({"name": "x", "specification": format!("name: x\nother:\n  \"\\x24{}\": '[1]'\n", &NAME[1..])});
    assert_eq!(world.owner.refused("POST", "/v1/agents", Some(agent)).await.0, 400);
    let twin = json!({"arguments": {"a": {"b": NAME}}});
    assert_eq!(world.owner.refused("POST", call, Some(twin)).await.0, 404);
}
