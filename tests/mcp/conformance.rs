//! The official conformance suite, against the door and the transport that `/mcp` has.

use crate::harness;
use crate::npm::{Node, bounded};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Ten times what it takes.
const SUITE_TIME: Duration = Duration::from_secs(120);
const START_TIME: Duration = Duration::from_secs(120);
const STOP_TIME: Duration = Duration::from_secs(20);

struct Server {
    process: Child,
    address: String,
}

impl Server {
    async fn start() -> Self {
        let belljar = harness::belljar(&["mcp", "--conformance", "127.0.0.1:0", "--env", "bare"]);
        let mut command = Command::from(belljar);
        let mut process = command.kill_on_drop(true).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = timeout(START_TIME, lines.next_line()).await.unwrap().unwrap().unwrap();
        Self { process, address }
    }

    async fn stop(mut self) {
        let id = self.process.id().and_then(|id| Pid::from_raw(id.cast_signed())).unwrap();
        kill_process(id, Signal::TERM).unwrap();
        let ended = timeout(STOP_TIME, self.process.wait()).await.unwrap().unwrap();
        assert!(ended.success(), "{ended}");
    }
}

/// What the suite found, check by check.
struct Found {
    scenarios: usize,
    passed: usize,
    /// What was neither passed nor a mere remark, by its name.
    others: BTreeSet<String>,
}

impl Found {
    fn read(results: &Path) -> Self {
        let mut found = Self { scenarios: 0, passed: 0, others: BTreeSet::new() };
        for scenario in std::fs::read_dir(results).unwrap() {
            let checks = std::fs::read(scenario.unwrap().path().join("checks.json")).unwrap();
            let checks: Vec<Value> = serde_json::from_slice(&checks).unwrap();
            found.scenarios += 1;
            for check in checks {
                match check["status"].as_str().unwrap() {
                    "SUCCESS" => found.passed += 1,
                    "INFO" => {}
                    status => {
                        let (id, why) = (&check["id"], &check["errorMessage"]);
                        found.others.insert(format!("{status} {id} {why}"));
                    }
                }
            }
        }
        found
    }
}

/// Runs all that the suite has for a revision, also what is not scored, such as the tasks extension.
async fn judged(revision: &str) -> Option<Found> {
    let node = Node::installed(&format!("MCP conformance to {revision}")).await?;
    let server = Server::start().await;
    let results = tempfile::tempdir().unwrap();
    let mut conformance = node.program("@modelcontextprotocol/conformance/dist/index.js");
    conformance
        .args(["server", "--url", &server.address, "--requirements", revision, "-o"])
        .arg(results.path());
    let judged = bounded(conformance, SUITE_TIME).await.unwrap();
    let said = harness::stdout(&judged);
    assert!(judged.status.success(), "{said}{}", harness::stderr(&judged));
    server.stop().await;
    Some(Found::read(results.path()))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_official_suite_of_the_newer_revision_passes_with_tasks() {
    let Some(found) = judged("2026-07-28").await else { return };
    let skipped: Vec<_> = found.others.iter().map(String::as_str).collect();
    let [prompts, notifications] = skipped.as_slice() else { panic!("{skipped:#?}") };
    // The list of prompts never changes; and the suite cannot look at what tasks tell by themselves.
    assert!(
        prompts.starts_with("SKIPPED \"sep-2575-server-sends-prompts-list-changed"),
        "{prompts}"
    );
    assert!(notifications.starts_with("SKIPPED \"tasks-status-notifications"), "{notifications}");
    assert_eq!((found.scenarios, found.passed), (50, 196));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_official_suite_of_the_older_revision_passes() {
    let Some(found) = judged("2025-11-25").await else { return };
    assert_eq!(found.others, BTreeSet::new());
    assert_eq!((found.scenarios, found.passed), (33, 83));
}

#[test]
fn a_door_that_asks_for_no_key_is_for_this_machine_and_no_server_has_it() {
    let refused = harness::belljar(&["mcp", "--conformance", "0.0.0.0:0"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(harness::stderr(&refused).contains("name a loopback address"));
    let server = harness::belljar(&["serve", "--conformance", "127.0.0.1:0"]).output().unwrap();
    assert_eq!(server.status.code(), Some(2));
    assert!(harness::stderr(&server).contains("unexpected argument"));
}
