//! The official conformance suite, against the MCP server and the transport of `/mcp`.

use crate::conformance_server::ConformanceServer;
use crate::harness;
use crate::npm::{Node, bounded};
use agent::{Agents, ModelSettings, Models};
use api::AllowedHosts;
use axum::Router;
use mcp::{McpOptions, McpSessions, SessionLimits};
use serde_json::Value;
use service::{Config, RequestCaller, Service, StartedService};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Ten times what it takes.
const SUITE_TIME: Duration = Duration::from_secs(120);
const STOP_TIME: Duration = Duration::from_secs(20);
/// As `belljar serve` has it by default.
const TASK_AFTER: Duration = Duration::from_secs(60);
/// More than the suite opens.
const CONNECTIONS_MAX: usize = 256;

/// A listener without authentication, because the suite cannot send a key. It runs in this process:
/// the product has no such listener.
struct Server {
    address: String,
    service: Arc<Service>,
    stop: oneshot::Sender<()>,
    listening: JoinHandle<()>,
    _records: TempDir,
}

impl Server {
    async fn start() -> Self {
        let records = tempfile::tempdir().unwrap();
        let config = Config::new(records.path().to_owned()).in_environment("bare");
        let engine = engine::Config::for_server(harness::data(), harness::binary());
        let StartedService { service, owner_key } = Service::start(config, engine).await.unwrap();
        // Build first, since the suite measures the time of requests.
        service.prepare_environment(|_| {}).await.unwrap();
        let caller = service.authenticate_key(owner_key.unwrap().reveal()).unwrap();
        let caller = RequestCaller { caller: Arc::new(caller), permit: None };
        let models = Models::new(ModelSettings::default()).unwrap();
        let agents = Agents::new(Arc::clone(&service), models);
        let options = McpOptions { task_after: TASK_AFTER, base_url: None };
        let fixtures = ConformanceServer::new(agents, caller, options).await.unwrap();
        let sessions = McpSessions::new(SessionLimits::new(mcp::SESSIONS_PER_PRINCIPAL));
        let mcp = mcp::streamable_http_service(fixtures, &sessions);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route_service("/mcp", mcp);
        let router = api::with_host_guard(router, AllowedHosts::new(address, &[]));
        let (stop, stopped) = oneshot::channel();
        let stopped = async move { stopped.await.unwrap() };
        let listening =
            tokio::spawn(api::serve(listener, router, stopped, Duration::ZERO, CONNECTIONS_MAX));
        let address = format!("http://{address}/mcp");
        Self { address, service, stop, listening, _records: records }
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        timeout(STOP_TIME, self.listening).await.unwrap().unwrap();
        timeout(STOP_TIME, self.service.stop(Duration::ZERO)).await.unwrap();
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
async fn judged(revision: &str) -> Found {
    let node = Node::installed().await;
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
    Found::read(results.path())
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(test_npm), ignore = "BELLJAR_WITHOUT_NPM is set")]
async fn the_official_suite_of_the_newer_revision_passes_with_tasks() {
    let found = judged("2026-07-28").await;
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
#[cfg_attr(not(test_npm), ignore = "BELLJAR_WITHOUT_NPM is set")]
async fn the_official_suite_of_the_older_revision_passes() {
    let found = judged("2025-11-25").await;
    assert_eq!(found.others, BTreeSet::new());
    assert_eq!((found.scenarios, found.passed), (33, 83));
}

#[test]
fn no_command_has_a_listener_that_asks_for_no_key() {
    for command in ["mcp", "serve"] {
        let refused =
            harness::belljar(&[command, "--conformance", "127.0.0.1:0"]).output().unwrap();
        assert_eq!(refused.status.code(), Some(2));
        assert!(harness::stderr(&refused).contains("unexpected argument"));
    }
}
