//! The catalog: the tool and the skills that can be added to an agent.

use crate::test_server::World;
use serde_json::{Value, json};

// proves P-001, P-003
#[tokio::test(flavor = "multi_thread")]
async fn the_catalog_has_the_tool_and_its_skill_as_two_entries_that_are_ready_to_be_added() {
    let world = World::start().await;
    let catalog = world.owner.get("/v1/catalog").await;
    let items = catalog["items"].as_array().unwrap();
    let of = |name: &str| items.iter().find(|item| item["name"] == name).unwrap();
    let tool = of("Code Interpreter");
    assert_eq!((&tool["type"], &tool["category"]), (&json!("mcp_tool"), &json!("Data")));
    assert_eq!(tool["tool"], "execute_python");
    assert_eq!(tool["url"], format!("{}/mcp", world.address()));
    let skill = of("Code Interpreter (skill)");
    assert_eq!((&skill["type"], &skill["skill"]), (&json!("skill"), &json!("code-interpreter")));
    assert!(skill["description"].as_str().unwrap().contains("execute_python"));
    assert_eq!(of("Dataviz (skill)")["skill"], "dataviz");
    assert_eq!(items.len(), 3);
    assert!(items.iter().all(|item| item.get("body").is_none()), "the body comes when it is used");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_address_in_the_catalog_is_the_one_that_was_called_by() {
    let world = World::with(&["--public-host", "jar.example.org"]).await;
    let url = async |host: &str, proto: &str| {
        let request = world.owner.request("GET".parse().unwrap(), "/v1/catalog");
        let answer = request.header("host", host).header("x-forwarded-proto", proto).send().await;
        let catalog: Value =
            serde_json::from_slice(&answer.unwrap().bytes().await.unwrap()).unwrap();
        catalog["items"][0]["url"].as_str().map(str::to_owned)
    };
    let behind_a_proxy = url("jar.example.org", "https").await;
    assert_eq!(behind_a_proxy.as_deref(), Some("https://jar.example.org/mcp"));
    assert_eq!(url("jar.example.org", "x").await.as_deref(), Some("http://jar.example.org/mcp"));
    assert_eq!(url("evil.example.org", "https").await, None);
}
