//! Expiry of keys, approvals, sessions, records and rate limits. The server runs in this process with a manual
//! clock.

use crate::approvals::{approval_of, asking_tool_of, settled};
use crate::harness::{self, wait};
use crate::test_server::{Api, build_bare};
use agent::{Agents, ModelSettings, Models};
use api::{AllowedHosts, AppState, RequestLimits};
use chrono::{DateTime, Utc};
use engine::Clock;
use mcp::{McpOptions, McpServer};
use serde_json::{Value, json};
use service::{Config, FileUrlConfig, Service, StartedService};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const ME: &str = "/v1/principals/me";
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) struct ClockedServer {
    pub(crate) clock: Clock,
    pub(crate) owner: Api,
    service: Arc<Service>,
    _records: TempDir,
}

impl ClockedServer {
    pub(crate) async fn start() -> Self {
        build_bare();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let base = format!("http://{address}").parse().unwrap();
        let (records, clock) = (tempfile::tempdir().unwrap(), Clock::manual());
        let config = Config::new(records.path().into()).in_environment("bare");
        let config = Config {
            clock: clock.clone(),
            file_urls: FileUrlConfig { base: Some(base), ..FileUrlConfig::default() },
            ..config
        };
        let StartedService { service, owner_key } =
            Service::start(config, harness::config()).await.unwrap();
        let models = ModelSettings { clock: clock.clone(), ..ModelSettings::default() };
        let models = Models::new(models).unwrap();
        let agents = Agents::new(Arc::clone(&service), models);
        let limits = RequestLimits { rate_per_second: 1_000, concurrency: 100, mcp_sessions: 1 };
        let hosts = AllowedHosts::new(address, &[]);
        let app = AppState::new(Arc::clone(&service), Arc::clone(&agents), hosts, limits, None);
        let options = McpOptions { task_after: Duration::MAX, base_url: None };
        let router = api::router(app, McpServer::new(agents, None, options));
        tokio::spawn(api::serve(listener, router, std::future::pending(), SECOND, 1_000));
        let owner = Api::new(&format!("http://{address}"), owner_key.unwrap().reveal());
        Self { clock, owner, service, _records: records }
    }

    fn api(&self, key: &Value) -> Api {
        Api::new(&self.owner.address, key["secret"].as_str().unwrap())
    }

    pub(crate) async fn stop(self) {
        self.service.stop(Duration::ZERO).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_ends_when_its_time_is_over() {
    let server = ClockedServer::start().await;
    let end = (server.clock.now() + HOUR).to_rfc3339();
    let key = server.owner.post("/v1/keys", json!({"name": "short", "expires_at": end})).await;
    let short = server.api(&key);
    server.clock.advance(HOUR - SECOND);
    short.get(ME).await;
    server.clock.advance(SECOND);
    assert_eq!(short.refused("GET", ME, None).await, (401, "auth.missing".into()));
    server.owner.get(ME).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_record_has_the_time_of_the_clock() {
    let server = ClockedServer::start().await;
    let owner = &server.owner;
    server.clock.advance(9 * DAY);
    let now = server.clock.now();
    let rule = json!({"name": "rule", "value_list": ["example.org"]});
    let secret = json!({"name": "TOKEN", "value": "swordfish-0123"});
    for (path, new) in [
        ("/v1/principals", json!({"name": "ann", "kind": "user"})),
        ("/v1/keys", json!({"name": "key"})),
        ("/v1/agents", json!({"name": "agent", "specification": "name: agent"})),
        ("/v1/network-rules", rule),
        ("/v1/integrations", json!({"name": "integration", "allowed_network_rules": ["rule"]})),
        ("/v1/secrets", secret),
        ("/v1/volumes", json!({"name": "volume"})),
        ("/v1/sessions", json!({})),
        ("/v1/execute", json!({"code": "1"})),
    ] {
        let made = owner.post(path, new).await;
        assert_eq!(time_of(&made["created_at"]), now, "{path}: {made}");
    }
    asking_tool_of(owner, "asks").await;
    let log = owner.get("/v1/audit").await;
    let times =
        log["items"].as_array().unwrap().iter().filter(|entry| entry["detail"] != "first start");
    assert!(times.clone().count() >= 10, "{log}");
    assert!(times.clone().all(|entry| time_of(&entry["at"]) == now), "{log}");
    server.stop().await;
}

fn time_of(text: &Value) -> DateTime<Utc> {
    text.as_str().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undecided_approval_expires_and_ends_its_call() {
    let server = ClockedServer::start().await;
    let tool = asking_tool_of(&server.owner, "asks").await;
    let agent = server.owner.principal("agent", &["USAGE"]).await;
    let tool_object = json!({"kind": "tool", "id": tool});
    let grant = json!({"principal": agent.get(ME).await["id"], "privilege": "USAGE", "object": tool_object});
    server.owner.post("/v1/grants", grant).await;
    let path = format!("/v1/tools/{tool}/call");
    let ask = async || agent.post(&path, json!({"arguments": {}})).await;
    let allow = || Some(json!({"decision": "allow"}));
    let (early, late) = (ask().await, ask().await);
    server.clock.advance(DAY - SECOND);
    assert_eq!(server.owner.call("POST", &approval_of(&early), allow()).await.0, 200);
    assert_eq!(settled(&agent, &early).await["status"], "succeeded");
    server.clock.advance(SECOND);
    let error = server.owner.refused("POST", &approval_of(&late), allow()).await;
    assert_eq!(error, (410, "approval.expired".into()));
    // The server looks for such questions every half minute.
    server.clock.advance(60 * SECOND);
    let ended = settled(&agent, &late).await;
    assert_eq!(
        (&ended["status"], &ended["error"]["code"]),
        (&json!("denied"), &json!("approval.expired"))
    );
    server.stop().await;
}

// proves U-054
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_session_is_closed_when_its_record_says() {
    let server = ClockedServer::start().await;
    let session = server.owner.post("/v1/sessions", json!({"idle_seconds": 1800})).await;
    assert!(session["expires_at"].is_string());
    let path = format!("/v1/sessions/{}", session["sandbox_id"].as_str().unwrap());
    let code = json!({"code": "open('kept.txt', 'w').write('kept')"});
    let run =
        async || server.owner.call("POST", &format!("{path}/execute"), Some(code.clone())).await;
    let file = format!("{path}/files/kept.txt");
    server.clock.advance(HOUR / 2 - SECOND);
    assert_eq!(run().await.0, 200);
    // It was used, and has its whole time again.
    server.clock.advance(HOUR / 2 - SECOND);
    assert_eq!(run().await.0, 200);
    assert_eq!(server.owner.call("GET", &file, None).await.0, 200);
    server.clock.advance(HOUR / 2 + SECOND);
    wait::until("it expires", async || server.owner.get(&path).await["status"] == "expired").await;
    let (status, refused) = run().await;
    assert_eq!((status, &refused["code"]), (410, &json!("session.expired")));
    assert_eq!(server.owner.refused("GET", &file, None).await, (410, "session.expired".into()));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_forgotten_when_their_retention_is_over_and_no_sooner() {
    let server = ClockedServer::start().await;
    let path = async |code: &str| {
        let record = server.owner.execute(code).await;
        format!("/v1/executions/{}", record["id"].as_str().unwrap())
    };
    let old = path("'old'").await;
    server.clock.advance(29 * DAY);
    let young = path("'young'").await;
    assert_eq!(server.owner.get(&old).await["value"], "old");
    server.clock.advance(2 * DAY);
    let is_gone = async || server.owner.call("GET", &old, None).await.0 == 404;
    wait::until("it is forgotten", is_gone).await;
    assert_eq!(server.owner.get(&young).await["value"], "young");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_asked_too_much_may_ask_again_when_it_was_told() {
    let server = ClockedServer::start().await;
    let bounded = json!({"name": "slow", "rate_per_second": 3});
    let slow = server.api(&server.owner.post("/v1/keys", bounded).await);
    let mut allowed = 0;
    while slow.call("GET", ME, None).await.0 == 200 {
        allowed += 1;
        assert!(allowed < 100, "it is not bounded");
    }
    assert_eq!(slow.refused("GET", ME, None).await, (429, "rate.exceeded".into()));
    server.owner.get(ME).await;
    server.clock.advance(SECOND);
    for _ in 0..3 {
        slow.get(ME).await;
    }
    assert_eq!(slow.refused("GET", ME, None).await, (429, "rate.exceeded".into()));
    server.stop().await;
}
