//! The official inspector uses both transports in both revisions of MCP, from its command line.

use crate::harness;
use crate::npm::{Node, bounded};
use crate::test_server::World;
use serde_json::Value;
use std::time::Duration;

const TIME: Duration = Duration::from_secs(60);

/// What the inspector prints, which is what the server has answered.
async fn inspected(node: &Node, target: &[&str], method: &[&str]) -> Value {
    let home = tempfile::tempdir().unwrap();
    let mut inspector = node.program(".bin/mcp-inspector");
    inspector.arg("--cli").args(target).args(method).args(["--format", "json"]);
    inspector.env("HOME", home.path()).env("BELLJAR_DATA", harness::data());
    inspector.env_remove("BELLJAR_URL").env_remove("BELLJAR_API_KEY");
    let output = bounded(inspector, TIME).await.unwrap();
    let said = harness::stdout(&output);
    assert!(output.status.success(), "{said}{}", harness::stderr(&output));
    let answer: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
    answer["result"].clone()
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(test_npm), ignore = "BELLJAR_WITHOUT_NPM is set")]
async fn the_inspector_lists_and_calls_over_both_transports() {
    let node = Node::installed().await;
    let world = World::start().await;
    let url = format!("{}/mcp", world.address());
    let key = format!("Authorization: Bearer {}", world.owner.key);
    let program = harness::binary();
    let stdio = [program.to_str().unwrap(), "mcp", "--env", "bare"];
    let http = [url.as_str(), "--transport", "http", "--header", &key];
    let modern = [&http[..], &["--protocol-era", "modern"]].concat();
    for target in [&stdio[..], &http, &modern] {
        let list = inspected(&node, target, &["--method", "tools/list"]).await;
        let tools = list["tools"].as_array().unwrap();
        assert!(tools.iter().any(|tool| tool["name"] == "execute_python"), "{list}");
        let call = [
            "--method",
            "tools/call",
            "--tool-name",
            "execute_python",
            "--tool-arg",
            "code=print(6 * 7)",
        ];
        let run = inspected(&node, target, &call).await;
        assert_eq!(run["structuredContent"]["result"], "42", "{run}");
    }
}
