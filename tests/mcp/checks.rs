//! T230: arguments of built-in tools can be as large as a message. They are checked on no thread that serves requests,
//! in the turn of their workspace.

use crate::harness::{self, wait};
use crate::test_server::{Api, build_bare};
use crate::wire::called;
use agent::{Agents, ModelSettings, Models};
use api::{AllowedHosts, AppState, RequestLimits};
use mcp::{McpOptions, McpServer};
use serde_json::{Value, json};
use service::{Config, Service, StartedService};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::oneshot;

/// As many checks of one workspace run at once.
const WORKSPACE_CHECKS: usize = 2;

/// A server in this process, whose checks a test can hold up.
struct Server {
    service: Arc<Service>,
    owner: Api,
    _records: TempDir,
}

impl Server {
    async fn start() -> Self {
        build_bare();
        let records = tempfile::tempdir().unwrap();
        let config = Config { environment: "bare".into(), ..Config::new(records.path().into()) };
        let StartedService { service, owner_key } =
            Service::start(config, harness::config()).await.unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let models = Models::new(ModelSettings::default()).unwrap();
        let agents = Agents::new(Arc::clone(&service), models);
        let limits = RequestLimits { rate_per_second: 1_000, concurrency: 100, mcp_sessions: 1 };
        let hosts = AllowedHosts::new(address, &[]);
        let app = AppState::new(Arc::clone(&service), Arc::clone(&agents), hosts, limits, None);
        let options = McpOptions { task_after: Duration::MAX, base_url: None };
        let router = api::router(app, McpServer::new(agents, None, options));
        tokio::spawn(api::serve(listener, router, std::future::pending(), Duration::ZERO, 1_000));
        let owner = Api::new(&format!("http://{address}"), owner_key.unwrap().reveal());
        Self { service, owner, _records: records }
    }

    /// Occupies all checks of the workspace of this key until the senders are dropped.
    async fn occupy_checks(&self, api: &Api) -> Vec<Sender<()>> {
        let caller = Arc::new(self.service.authenticate_key(&api.key).unwrap());
        let mut ends = Vec::new();
        for _ in 0..WORKSPACE_CHECKS {
            let (end, ended) = channel();
            let (begin, begun) = oneshot::channel();
            let (service, caller) = (Arc::clone(&self.service), Arc::clone(&caller));
            let check = move || {
                begin.send(()).unwrap();
                let _ = ended.recv();
            };
            tokio::spawn(async move { service.run_check(&caller, check).await.unwrap() });
            begun.await.unwrap();
            ends.push(end);
        }
        ends
    }
}

/// Whether this is the refusal of an argument that no tool has.
fn names_argument(result: &Value) -> bool {
    result["isError"] == true && result.to_string().contains("no_such_argument")
}

#[tokio::test(flavor = "multi_thread")]
async fn t230_arguments_of_built_in_tools_are_checked_in_the_turn_of_their_workspace() {
    let server = Server::start().await;
    let other = server.owner.post("/v1/workspaces", json!({"name": "other"})).await;
    let other = Api::new(&server.owner.address, other["key"]["secret"].as_str().unwrap());
    let ends = server.occupy_checks(&server.owner).await;
    let wrong = || json!({"no_such_argument": 1});
    for tool in
        ["execute_python", "create_session", "get_result", "list_files", "read_file", "write_file"]
    {
        let (api, arguments) = (server.owner.clone(), wrong());
        let waiting = tokio::spawn(async move { called(&api, tool, arguments).await });
        // The twin: a call of another workspace does not wait.
        assert!(names_argument(&called(&other, tool, wrong()).await), "{tool}");
        let waits = async || !waiting.is_finished();
        wait::stays(Duration::from_millis(200), "the call waits for its turn", waits).await;
        waiting.abort();
    }
    drop(ends);
    assert!(names_argument(&called(&server.owner, "execute_python", wrong()).await));
    let ran = called(&server.owner, "execute_python", json!({"code": "print(6 * 7)"})).await;
    assert!(ran.to_string().contains("42"), "{ran}");
    server.service.stop(Duration::ZERO).await;
}
