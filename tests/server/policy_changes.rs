//! The egress policy is decided for each request. One connection stays open from the first request to the
//! last, and the policy changes in between: the change applies to the next request, and a reverted change
//! too.

use crate::principals::{Person, change, grant, id, role, ungrant, workspace};
use crate::test_server::{Api, World};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

const RESOLVED: [&str; 4] =
    ["--resolve", "site.test=127.0.0.1", "--resolve", "model.internal=127.0.0.1"];
const OPEN: u16 = 200;
const CLOSED: u16 = 403;

/// A web server that keeps its connections, and remembers which credential each request had.
struct Site {
    port: u16,
    credentials: Arc<Mutex<Vec<String>>>,
}

impl Site {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let credentials = Arc::new(Mutex::default());
        let seen = Arc::clone(&credentials);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, seen) = (stream.unwrap(), Arc::clone(&seen));
                std::thread::spawn(move || answer(&stream, &seen));
            }
        });
        Self { port, credentials }
    }

    fn values(&self) -> Value {
        json!([format!("site.test:{}", self.port), format!("127.0.0.1:{}", self.port)])
    }

    /// Of the last request.
    fn credential(&self) -> String {
        self.credentials.lock().unwrap().last().unwrap().clone()
    }
}

fn answer(mut stream: &TcpStream, seen: &Mutex<Vec<String>>) {
    let mut credential = String::new();
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        if let Some(value) = line.to_lowercase().strip_prefix("authorization: ") {
            value.clone_into(&mut credential);
        }
        if line.is_empty() {
            seen.lock().unwrap().push(std::mem::take(&mut credential));
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhere");
        }
    }
}

/// A session with one connection to its proxy.
struct Kept<'w> {
    api: &'w Api,
    session: String,
    url: String,
}

impl<'w> Kept<'w> {
    async fn open(api: &'w Api, session: Value, url: String) -> Self {
        let opened = api.post("/v1/sessions", session).await;
        let session = opened["sandbox_id"].as_str().unwrap().to_owned();
        let begin = "import http.client\nline = http.client.HTTPConnection('127.0.0.1', 3128)";
        api.run(&session, begin).await;
        let kept = Self { api, session, url };
        kept.is(OPEN, "at first").await;
        kept
    }

    /// What the next request is answered with.
    async fn is(&self, status: u16, when: &str) {
        let ask = format!(
            "port = line.sock and line.sock.getsockname()\nline.request('GET', {:?})\n\
             same = port == line.sock.getsockname()\nanswer = line.getresponse()\n\
             body = answer.read()\n[answer.status, same]",
            self.url
        );
        let answered = self.api.run(&self.session, &ask).await;
        let was_open = answered["value"][1] == true || status == OPEN;
        assert!(answered["value"][0] == status && was_open, "{when}: {answered}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_an_integration_a_grant_and_a_role_hold_for_the_very_next_request() {
    let (world, site) = (World::with(&RESOLVED).await, Site::start());
    let (owner, coder) = (&world.owner, Person::new(&world, "coder").await);
    let rule = json!({"name": "site", "value_list": site.values()});
    let rule_path =
        format!("/v1/network-rules/{}", id(&owner.post("/v1/network-rules", rule.clone()).await));
    let new = json!({"name": "to_site", "allowed_network_rules": ["site"]});
    let integration = id(&owner.post("/v1/integrations", new).await);
    let object = json!({"kind": "integration", "id": integration});
    let path = format!("/v1/integrations/{integration}");
    grant(owner, &coder.id, "USAGE", &workspace(owner).await).await;
    let granted = grant(owner, &coder.id, "USAGE", &object).await;
    let url = format!("http://site.test:{}/", site.port);
    let kept = Kept::open(&coder, json!({"integrations": ["to_site"]}), url).await;
    kept.is(OPEN, "nothing has changed").await;

    let other = json!({"name": "site", "value_list": ["example.com"]});
    for (body, status) in [(other, CLOSED), (rule, OPEN)] {
        assert_eq!(owner.call("PUT", &rule_path, Some(body)).await.0, 200);
        kept.is(status, "the rule was replaced").await;
    }
    for (enabled, status) in [(false, CLOSED), (true, OPEN)] {
        change(owner, &path, json!({"enabled": enabled})).await;
        kept.is(status, "the integration was switched").await;
    }
    for (rules, status) in [(json!([]), CLOSED), (json!(["site"]), OPEN)] {
        change(owner, &path, json!({"allowed_network_rules": rules})).await;
        kept.is(status, "the integration has other rules").await;
    }
    ungrant(owner, &granted).await;
    kept.is(CLOSED, "the grant was taken away").await;
    let analysts = role(owner, "analysts").await;
    grant(owner, &id(&analysts), "USAGE", &object).await;
    for (roles, status) in [(json!(["analysts"]), OPEN), (json!([]), CLOSED)] {
        change(owner, &coder.path(), json!({"roles": roles})).await;
        kept.is(status, "the coder has other roles").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_holds_for_the_very_next_request() {
    let (world, site) = (World::with(&RESOLVED).await, Site::start());
    let owner = &world.owner;
    // This opens no name: it lets one have an address that is not public.
    let machine = json!({"name": "machine", "value_list": [format!("127.0.0.1:{}", site.port)]});
    owner.post("/v1/network-rules", machine).await;
    let machine = json!({"name": "machine", "allowed_network_rules": ["machine"]});
    owner.post("/v1/integrations", machine).await;
    let url = format!("http://model.internal:{}", site.port);
    let inject = json!({"client": "openai", "base_url": url});
    let new = json!({"name": "model", "value": "sk-the-first-value", "inject": inject});
    let secret = format!("/v1/secrets/{}", id(&owner.post("/v1/secrets", new.clone()).await));
    let kept = Kept::open(owner, json!({"integrations": ["machine"]}), format!("{url}/")).await;
    assert_eq!(site.credential(), "bearer sk-the-first-value");
    change(owner, &secret, json!({"value": "sk-the-second-value"})).await;
    kept.is(OPEN, "the value was replaced").await;
    assert_eq!(site.credential(), "bearer sk-the-second-value");
    owner.post("/v1/secrets/rotate", json!({})).await;
    kept.is(OPEN, "the key of all values was replaced").await;
    assert_eq!(site.credential(), "bearer sk-the-second-value");
    owner.delete(&secret).await;
    kept.is(CLOSED, "the secret was deleted").await;
    owner.post("/v1/secrets", new).await;
    kept.is(OPEN, "there is one again").await;
    assert_eq!(site.credential(), "bearer sk-the-first-value");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_holds_for_the_very_next_request() {
    let (world, site) = (World::with(&RESOLVED).await, Site::start());
    let owner = &world.owner;
    let rule = json!({"name": "site", "value_list": site.values()});
    owner.post("/v1/network-rules", rule).await;
    let new = json!({"name": "to_site", "allowed_network_rules": ["site"]});
    owner.post("/v1/integrations", new).await;
    let bot = |integrations: &str| {
        let specification = format!(
            "tools:\n  - tool_spec: {{type: code_execution, name: code_execution}}\n\
             tool_resources:\n  code_execution:\n    environment: bare\n    \
             external_access_integrations: {integrations}\n"
        );
        json!({"name": "bot", "specification": specification})
    };
    let agent = id(&owner.post("/v1/agents", bot("[to_site]")).await);
    let path = format!("/v1/agents/{agent}");
    let url = format!("http://site.test:{}/", site.port);
    let kept = Kept::open(owner, json!({"agent_id": agent}), url).await;
    for (integrations, status) in [("[]", CLOSED), ("[to_site]", OPEN)] {
        assert_eq!(owner.call("PUT", &path, Some(bot(integrations))).await.0, 200);
        kept.is(status, "the specification was replaced").await;
    }
}
