//! Network access of code: rules, integrations, and the log of attempts. The hosts are real servers on loopback,
//! which rules have to name.

use crate::harness::wait;
use crate::principals::{Person, grant, id, on, ungrant, workspace};
use crate::test_server::{Api, World};
use crate::web_server::{RESOLVED, Site, read};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

async fn world() -> World {
    World::with(&RESOLVED).await
}

async fn rule(api: &Api, name: &str, values: Value) -> String {
    id(&api.post("/v1/network-rules", json!({"name": name, "value_list": values})).await)
}

async fn integration(api: &Api, name: &str, rules: Value) -> String {
    let integration = json!({"name": name, "allowed_network_rules": rules});
    id(&api.post("/v1/integrations", integration).await)
}

/// An integration `to_site` that opens the site.
async fn opened(api: &Api, site: &Site) -> (String, String) {
    let rule = rule(api, "site", site.values()).await;
    (rule, integration(api, "to_site", json!(["site"])).await)
}

async fn session(api: &Api, integrations: Value) -> String {
    let session = api.post("/v1/sessions", json!({"integrations": integrations})).await;
    session["sandbox_id"].as_str().unwrap().to_owned()
}

fn specification(integrations: &str) -> String {
    format!(
        "tools:\n  - tool_spec: {{type: code_execution, name: code_execution}}\n\
         tool_resources:\n  code_execution:\n    environment: bare\n    \
         external_access_integrations: {integrations}\n"
    )
}

/// That the code was refused the network, in words that name the host and what is missing.
fn denied(execution: &Value, host: &str) {
    let said = execution["error"].to_string();
    assert!(said.contains(host) && said.contains("integration"), "{host}: {execution}");
}

// proves S-053, P-037
#[tokio::test(flavor = "multi_thread")]
async fn code_reaches_no_host_without_an_integration_and_gets_the_error_at_once() {
    let (world, site) = (world().await, Site::start());
    let connect = |host: &str| format!("import socket\nsocket.create_connection(({host:?}, 443))");
    for (host, code) in [
        ("site.test", site.read("site.test")),
        ("10.1.2.3", site.read("10.1.2.3")),
        ("example.com", connect("example.com")),
        ("93.184.216.34", connect("93.184.216.34")),
        ("2606:2800:220:1::1", connect("2606:2800:220:1::1")),
        ("example.org", "import socket\nsocket.gethostbyname('example.org')".to_owned()),
    ] {
        let asked = Instant::now();
        let execution = world.owner.execute(&code).await;
        assert!(asked.elapsed() < Duration::from_secs(2), "{host}: {:?}", asked.elapsed());
        denied(&execution, host);
        let attempt = &execution["network"][0];
        assert_eq!((&attempt["host"], &attempt["allowed"]), (&json!(host), &json!(false)));
    }
    assert_eq!(site.asked(), 0);
    let own = "import socket\na = socket.create_server(('127.0.0.1', 0))\n\
               socket.create_connection(a.getsockname()) is not None";
    assert_eq!(world.owner.execute(own).await["value"], true, "its own loopback is its own");
}

/// The shortest of some tries, in seconds, until code is told that it may not.
const DENIALS: &str = r#"
import http.client, socket, time, urllib.request

def shortest(attempt):
    times = []
    for _ in range(5):
        began = time.monotonic()
        try:
            attempt()
        except OSError:
            times.append(time.monotonic() - began)
    return min(times)

ways = {
    "socket": lambda: socket.create_connection(("closed.test", 443)),
    "address": lambda: socket.create_connection(("93.184.216.34", 443)),
    "http.client": lambda: http.client.HTTPSConnection("closed.test").request("GET", "/"),
    "urllib": lambda: urllib.request.urlopen("https://closed.test/"),
    "plain": lambda: urllib.request.urlopen("http://closed.test/"),
}
"#;

// A machine that is busy makes one try longer, and not all of them.
#[tokio::test(flavor = "multi_thread")]
async fn code_is_told_within_100_ms_that_it_may_not() {
    let (world, site) = (world().await, Site::start());
    opened(&world.owner, &site).await;
    let names = "ways['dns'] = lambda: socket.getaddrinfo('closed.test', 443)";
    let measure = "{name: shortest(way) for name, way in ways.items()}";
    // With the proxy socket closed, where names are refused as well, and with the proxy there.
    for (integrations, more, ways) in [(json!([]), names, 6), (json!(["to_site"]), "", 5)] {
        let session = session(&world.owner, integrations).await;
        let code = json!({"code": format!("{DENIALS}{more}\n{measure}")});
        let execution = world.owner.post(&format!("/v1/sessions/{session}/execute"), code).await;
        let times = execution["value"].as_object().unwrap_or_else(|| panic!("{execution}"));
        assert_eq!(times.len(), ways, "{execution}");
        for (way, seconds) in times {
            assert!(seconds.as_f64().unwrap() < 0.1, "{way}: {seconds} s");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_to_a_closed_host_is_an_exception_and_programs_have_the_variable() {
    let (world, site) = (world().await, Site::start());
    opened(&world.owner, &site).await;
    let session = session(&world.owner, json!(["to_site"])).await;
    assert_eq!(world.owner.run(&session, &site.read("site.test")).await["value"], "here");
    let execution = world.owner.run(&session, &site.read("other.test")).await;
    assert_eq!(execution["error"]["code"], "network.denied", "{execution}");
    let said = execution["error"]["message"].as_str().unwrap();
    assert!(said.contains("PermissionError") || said.contains("Errno 13"), "{said}");
    let child = format!(
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', {:?}], capture_output=True, text=True).stdout",
        format!(
            "import os, urllib.request\nprint(os.environ['HTTP_PROXY'])\n\
             print(urllib.request.urlopen('http://site.test:{}').read().decode())",
            site.port
        )
    );
    let execution = world.owner.run(&session, &child).await;
    assert_eq!(execution["value"], "http://127.0.0.1:3128\nhere\n", "{execution}");
}

// proves S-069
#[tokio::test(flavor = "multi_thread")]
async fn an_integration_opens_what_its_rules_list_and_every_attempt_is_written_down() {
    let (world, site, other) = (world().await, Site::start(), Site::start());
    opened(&world.owner, &site).await;
    let session = session(&world.owner, json!(["to_site"])).await;
    let execution = world.owner.run(&session, &site.read("site.test")).await;
    assert_eq!(execution["value"], "here", "{execution}");
    let attempt = &execution["network"][0];
    assert_eq!(attempt["host"], "site.test", "{execution}");
    assert_eq!(attempt["port"], site.port);
    assert_eq!((&attempt["allowed"], &attempt["integration"]), (&json!(true), &json!("to_site")));

    denied(&world.owner.run(&session, &site.read("other.test")).await, "other.test");
    let execution = world.owner.run(&session, &other.read("site.test")).await;
    denied(&execution, "site.test");
    assert_eq!(execution["network"][0]["allowed"], false, "{execution}");
    assert_eq!((site.asked(), other.asked()), (1, 0));

    denied(&world.owner.execute(&site.read("site.test")).await, "site.test");
    let run = json!({"code": site.read("site.test"), "integrations": ["to_site"]});
    assert_eq!(world.owner.post("/v1/execute", run).await["value"], "here");

    let listed = |log: Value| log["items"].as_array().unwrap().len();
    let log = format!("/v1/network/log?execution_id={}", execution["id"].as_str().unwrap());
    let entry = world.owner.get(&log).await["items"][0].clone();
    assert_eq!((&entry["host"], &entry["allowed"]), (&json!("site.test"), &json!(false)));
    assert_eq!(entry["sandbox_id"], session);
    assert!(entry["at"].is_string() && entry["principal"].is_string(), "{entry}");
    let denied = world.owner.get("/v1/network/log?allowed=false&host=other.test").await;
    assert_eq!(listed(denied), 1);
    let stranger = world.principal("stranger", &["USAGE"]).await;
    assert_eq!(listed(stranger.get("/v1/network/log").await), 0);
}

// proves S-062, S-066, S-067
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_rule_applies_to_the_next_connection_of_an_open_session() {
    let (world, site) = (world().await, Site::start());
    let api = &world.owner;
    let (rule, to_site) = opened(api, &site).await;
    let (rule, to_site) =
        (format!("/v1/network-rules/{rule}"), format!("/v1/integrations/{to_site}"));
    let session = session(api, json!(["to_site"])).await;
    let reads = async || api.run(&session, &site.read("site.test")).await;
    assert_eq!(reads().await["value"], "here");
    // A reset that is refused leaves everything as it was.
    let busy = {
        let (api, id) = (api.clone(), session.clone());
        tokio::spawn(async move { api.run(&id, "import time; time.sleep(60)").await })
    };
    let path = format!("/v1/sessions/{session}");
    wait::until("it runs", async || api.get(&path).await["status"] == "busy").await;
    let reset = format!("{path}/reset");
    assert_eq!(api.refused("POST", &reset, Some(json!({}))).await.1, "session.busy");
    api.post(&format!("{path}/interrupt"), json!({})).await;
    busy.await.unwrap();
    assert_eq!(reads().await["network"][0]["host"], "site.test");

    let change = |enabled: bool| json!({"enabled": enabled});
    api.call("PATCH", &to_site, Some(change(false))).await;
    denied(&reads().await, "site.test");
    api.call("PATCH", &to_site, Some(change(true))).await;
    assert_eq!(reads().await["value"], "here");

    let replaced = |values: Value| Some(json!({"name": "site", "value_list": values}));
    api.call("PUT", &rule, replaced(json!(["example.com"]))).await;
    denied(&reads().await, "site.test");
    api.call("PUT", &rule, replaced(site.values())).await;
    assert_eq!(reads().await["value"], "here");

    api.call("PATCH", &to_site, Some(json!({"allowed_network_rules": []}))).await;
    denied(&reads().await, "site.test");

    let agent = json!({"name": "bot", "specification": specification("[to_site]")});
    api.call("PATCH", &to_site, Some(json!({"allowed_network_rules": ["site"]}))).await;
    let agent = format!("/v1/agents/{}", id(&api.post("/v1/agents", agent).await));
    let of_agent = json!({"agent_id": agent.rsplit('/').next()});
    let of_agent = api.post("/v1/sessions", of_agent).await;
    let of_agent = of_agent["sandbox_id"].as_str().unwrap();
    assert_eq!(api.run(of_agent, &site.read("site.test")).await["value"], "here");
    let without = json!({"name": "bot", "specification": specification("[]")});
    let (status, _) = api.call("PUT", &agent, Some(without)).await;
    assert_eq!(status, 200);
    denied(&api.run(of_agent, &site.read("site.test")).await, "site.test");

    let half = |value: String| json!([value]);
    self::rule(api, "name", half(format!("site.test:{}", site.port))).await;
    self::rule(api, "address", half(format!("127.0.0.1:{}", site.port))).await;
    integration(api, "by_name", json!(["name"])).await;
    integration(api, "by_address", json!(["address"])).await;
    let one = self::session(api, json!(["by_name"])).await;
    assert!(api.run(&one, &site.read("site.test")).await["error"].is_object(), "a private address");
    let both = self::session(api, json!(["by_name", "by_address"])).await;
    assert_eq!(api.run(&both, &site.read("site.test")).await["value"], "here");
}

#[tokio::test(flavor = "multi_thread")]
async fn code_is_told_where_an_integration_would_be_listed() {
    let (world, site) = (world().await, Site::start());
    let api = &world.owner;
    opened(api, &site).await;
    let agent = json!({"name": "bot", "specification": specification("[to_site]")});
    let agent = id(&api.post("/v1/agents", agent).await);
    let of_agent = api.post("/v1/sessions", json!({"agent_id": agent})).await;
    let of_agent = of_agent["sandbox_id"].as_str().unwrap().to_owned();
    let of_request = session(api, json!(["to_site"])).await;
    for (session, place) in [
        (of_agent, "list one that allows this host in `external_access_integrations` of the agent"),
        (of_request, "list one that allows this host in `integrations`"),
    ] {
        assert_eq!(api.run(&session, &site.read("site.test")).await["value"], "here");
        let connect = "import socket\nsocket.create_connection(('other.test', 443))";
        let execution = api.run(&session, connect).await;
        let reason = execution["network"][0]["reason"].as_str().unwrap();
        assert!(reason.ends_with(place), "{execution}");
        assert!(execution["error"]["message"].as_str().unwrap().ends_with(reason), "{execution}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_integration_that_is_switched_off_is_named_as_such_to_code_and_in_an_explanation() {
    let (world, site) = (world().await, Site::start());
    let api = &world.owner;
    let to_site = format!("/v1/integrations/{}", opened(api, &site).await.1);
    let session = session(api, json!(["to_site"])).await;
    let agent = json!({"name": "bot", "specification": specification("[to_site]")});
    let agent = format!("/v1/explain?agent={}", id(&api.post("/v1/agents", agent).await));
    let off = "integration to_site is disabled";
    let said = async |host: &str| api.run(&session, &site.read(host)).await["error"].to_string();
    let agent_record = async || api.get(&agent).await;
    assert_eq!(agent_record().await["notes"], json!([]));
    assert_eq!(agent_record().await["network"], site.values());

    api.call("PATCH", &to_site, Some(json!({"enabled": false}))).await;
    let execution = api.run(&session, &site.read("site.test")).await;
    assert!(execution["error"].to_string().contains(off), "{execution}");
    assert!(execution["network"][0]["reason"].as_str().unwrap().ends_with(off), "{execution}");
    assert!(!said("other.test").await.contains(off), "that one was never open by it");
    assert_eq!(agent_record().await["notes"], json!([off]));
    assert_eq!(agent_record().await["network"], json!([]));

    api.call("PATCH", &to_site, Some(json!({"enabled": true}))).await;
    assert_eq!(said("site.test").await, "null");
}

// proves S-060, S-055
#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_cannot_be_is_refused_with_the_value_that_is_wrong() {
    let world = World::start().await;
    for bad in [
        "https://github.com",
        "github.com/path",
        "*.*.github.com",
        "github.com:70000",
        "github.com:",
        "me@github.com",
        "github.com:90-80",
        "",
        " ",
        "a b",
    ] {
        let rule = json!({"name": "r", "value_list": ["github.com", bad]});
        let (status, problem) = world.owner.call("POST", "/v1/network-rules", Some(rule)).await;
        assert_eq!((status, &problem["code"]), (400, &json!("args.invalid")), "{bad}: {problem}");
        assert_eq!(problem["errors"][0]["path"], "/value_list/1", "{problem}");
    }
    for rule in [
        json!({"name": "r", "value_list": []}),
        json!({"name": "r", "value_list": ["a.com"], "mode": "INGRESS"}),
        json!({"name": "r", "value_list": ["a.com"], "type": "IPV4"}),
        json!({"name": "", "value_list": ["a.com"]}),
    ] {
        let (status, _) =
            world.owner.refused("POST", "/v1/network-rules", Some(rule.clone())).await;
        assert_eq!(status, 400, "{rule}");
    }
    let good = json!({"name": "r", "mode": "EGRESS", "type": "HOST_PORT", "comment": "c",
                      "value_list": ["github.com", "*.github.com:80", "a.example:0", "0.0.0.0"]});
    let rule = world.owner.post("/v1/network-rules", good).await;
    assert_eq!((&rule["mode"], &rule["type"]), (&json!("EGRESS"), &json!("HOST_PORT")));
    let unknown = json!({"name": "i", "allowed_network_rules": ["r", "nobody"]});
    let (status, problem) = world.owner.call("POST", "/v1/integrations", Some(unknown)).await;
    assert_eq!(status, 400);
    assert!(problem.to_string().contains("nobody"), "{problem}");
}

// proves S-054, S-064, S-065, S-070
#[tokio::test(flavor = "multi_thread")]
async fn a_specification_names_integrations_and_its_owner_needs_the_right() {
    let (world, site) = (world().await, Site::start());
    let ann = Person::new(&world, "ann").await;
    let everything = workspace(&world.owner).await;
    for privilege in ["USAGE", "MODIFY"] {
        grant(&world.owner, &ann.id, privilege, &everything).await;
    }
    let unknown = json!({"name": "bot", "specification": specification("[nobody]")});
    let (status, problem) = ann.api.call("POST", "/v1/agents", Some(unknown)).await;
    assert_eq!(status, 400);
    assert!(problem.to_string().contains("nobody"), "{problem}");

    let (_, to_site) = opened(&world.owner, &site).await;
    let agent = json!({"name": "bot", "specification": specification("[to_site]")});
    let (status, problem) = ann.api.call("POST", "/v1/agents", Some(agent.clone())).await;
    assert_eq!(status, 400, "what ann may not use is not there for them: {problem}");
    let object = json!({"kind": "integration", "id": to_site});
    let granted = grant(&world.owner, &ann.id, "USAGE", &object).await;
    let agent = id(&ann.api.post("/v1/agents", agent).await);
    ungrant(&world.owner, &granted).await;
    let open = json!({"agent_id": agent});
    let (status, problem) = ann.api.call("POST", "/v1/sessions", Some(open.clone())).await;
    assert_eq!((status, &problem["code"]), (403, &json!("grant.missing")), "{problem}");
    assert!(problem.to_string().contains("to_site"), "{problem}");

    let granted = grant(&world.owner, &ann.id, "USAGE", &object).await;
    let session = ann.api.post("/v1/sessions", open).await;
    let session = session["sandbox_id"].as_str().unwrap();
    let execution = ann.api.run(session, &site.read("site.test")).await;
    assert_eq!(execution["value"], "here", "{execution}");

    let none = json!({"name": "none", "specification": specification("[]")});
    let none = id(&ann.api.post("/v1/agents", none).await);
    let without = ann.api.post("/v1/sessions", json!({"agent_id": none})).await;
    let without = without["sandbox_id"].as_str().unwrap();
    denied(&ann.api.run(without, &site.read("site.test")).await, "site.test");

    ungrant(&world.owner, &granted).await;
    denied(&ann.api.run(session, &site.read("site.test")).await, "site.test");
}

// proves S-059
#[tokio::test(flavor = "multi_thread")]
async fn the_internet_is_public_hosts_and_never_this_network() {
    let (world, site) = (world().await, Site::start());
    let session = world.owner.post("/v1/sessions", json!({"allow_network": true})).await;
    assert_eq!(session["integrations"], json!(["internet"]));
    let session = session["sandbox_id"].as_str().unwrap();
    for host in ["site.test", "10.0.0.1", "169.254.169.254", "[::ffff:127.0.0.1]", "0x7f000001"] {
        let execution = world.owner.run(session, &read(host, 80)).await;
        assert!(execution["error"].is_object(), "{host}: {execution}");
        if !host.contains("127.0.0.1") && !host.starts_with("0x7f") {
            assert_eq!(execution["network"][0]["allowed"], false, "{host}: {execution}");
        }
    }
    let execution = world.owner.run(session, &site.read("example.com")).await;
    denied(&execution, "example.com");
    let udp = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
               s.sendto(b'x', ('8.8.8.8', 53))";
    assert!(world.owner.run(session, udp).await["error"].is_object());
    assert_eq!(site.asked(), 0);

    let all = world.owner.get("/v1/integrations").await;
    let internet = all["items"].as_array().unwrap().iter().find(|it| it["name"] == "internet");
    let internet = format!("/v1/integrations/{}", internet.unwrap()["id"].as_str().unwrap());
    assert_eq!(world.owner.refused("DELETE", &internet, None).await.0, 409);
    let bob = world.principal("bob", &["USAGE"]).await;
    let open = Some(json!({"allow_network": true}));
    assert_eq!(bob.refused("POST", "/v1/sessions", open).await.1, "grant.missing");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_something_else_is_made_of_stays() {
    let world = World::start().await;
    let rule = rule(&world.owner, "r", json!(["github.com"])).await;
    let integration = integration(&world.owner, "i", json!(["r"])).await;
    let rule = format!("/v1/network-rules/{rule}");
    let error = world.owner.refused("DELETE", &rule, None).await;
    assert_eq!(error, (409, "object.in_use".to_owned()));
    let agent = json!({"name": "bot", "specification": specification("[i]")});
    let agent = id(&world.owner.post("/v1/agents", agent).await);
    let integration = format!("/v1/integrations/{integration}");
    let (status, problem) = world.owner.call("DELETE", &integration, None).await;
    assert_eq!(status, 409);
    assert!(problem["detail"].as_str().unwrap().contains("agent \"bot\""), "{problem}");
    world.owner.delete(&format!("/v1/agents/{agent}")).await;
    world.owner.delete(&integration).await;
    world.owner.delete(&rule).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_may_use_the_network_has_the_internet_and_another_has_nothing() {
    // An address of the public internet: that it may be reached is seen whether or not it can be.
    let world = World::with(&["--resolve", "public.test=192.0.66.2"]).await;
    let code = "import urllib.request\n\ndef run(input):\n    \
                url = f\"http://{input['host']}/\"\n    \
                return {'page': urllib.request.urlopen(url, timeout=1).read().decode()}\n";
    let tool = |name: &str, allow: bool| {
        json!({"name": name, "description": "Reads a page.", "tool_type": "code_runner",
            "configuration": {"type": "CodeRunner", "runtime": "python", "code": code,
                "allow_network": allow, "input_schema": [{"name": "host", "field_type": "STRING",
                    "required": true, "description": "Its name."}]}})
    };
    let call = json!({"arguments": {"host": "public.test"}});
    for (name, allow) in [("closed", false), ("open", true)] {
        let tool = id(&world.owner.post("/v1/tools", tool(name, allow)).await);
        let called = world.owner.post(&format!("/v1/tools/{tool}/call"), call.clone()).await;
        let attempt = &called["network"][0];
        assert_eq!((&attempt["host"], &attempt["allowed"]), (&json!("public.test"), &json!(allow)));
    }
}

// proves W-062
#[tokio::test(flavor = "multi_thread")]
async fn t291_a_tool_with_network_access_works_on_the_files_of_a_session_that_has_none() {
    let (world, site) = (world().await, Site::start());
    let api = &world.owner;
    opened(api, &site).await;
    let read = format!("urllib.request.urlopen('http://site.test:{}/').read().decode()", site.port);
    let code = format!(
        "import urllib.request\n\ndef run(input):\n    page = {read}\n    \
         open('page.txt', 'w').write(page)\n    return [page, open('note.txt').read()]\n"
    );
    let tool = json!({"name": "fetch", "tool_type": "code_runner", "environment": "bare",
        "configuration": {"code": code, "integrations": ["to_site"]}});
    let tool = api.post("/v1/tools", tool).await;
    let at = format!("/v1/tools/{}/call", id(&tool));
    let closed = session(api, json!([])).await;
    api.run(&closed, "open('note.txt', 'w').write('a note')").await;
    let call = json!({"arguments": {}, "sandbox_id": closed});
    let called = api.post(&at, call.clone()).await;
    assert_eq!(called["value"], json!(["here", "a note"]), "{called}");
    assert_eq!(called["network"][0]["integration"], "to_site", "{called}");
    assert_eq!(api.run(&closed, "open('page.txt').read()").await["value"], "here");
    // The code of the session has not got what the tool may.
    let own = api.run(&closed, &format!("import urllib.request\n{read}")).await;
    assert_eq!(own["error"]["code"], "network.denied", "{own}");
    // In a session with the same integration it shares the interpreter, as any tool.
    let open = session(api, json!(["to_site"])).await;
    api.run(&open, "open('note.txt', 'w').write('another')").await;
    let called = api.post(&at, json!({"arguments": {}, "sandbox_id": open})).await;
    assert_eq!(
        (&called["value"][1], &called["warnings"][0]["code"]),
        (&json!("another"), &json!("tool.unisolated"))
    );

    // `allow_network` is the integration `internet`, which the caller and the author must be able to use.
    let free = json!({"name": "free", "tool_type": "code_runner", "environment": "bare",
        "configuration": {"code": "def run(input):\n    return open('note.txt').read()\n",
            "allow_network": true}});
    let free = api.post("/v1/tools", free).await;
    let at = format!("/v1/tools/{}/call", id(&free));
    assert_eq!(api.post(&at, call).await["value"], "a note");
    let ann = Person::new(&world, "ann").await;
    grant(api, &ann.id, "USAGE", &workspace(api).await).await;
    grant(api, &ann.id, "USAGE", &on("tool", &free)).await;
    let own = session(&ann, json!([])).await;
    ann.run(&own, "open('note.txt', 'w').write('of ann')").await;
    let call = json!({"arguments": {}, "sandbox_id": own});
    let error = ann.refused("POST", &at, Some(call.clone())).await;
    assert_eq!(error, (403, "grant.missing".to_owned()));
    let internet = api.get("/v1/integrations").await["items"].as_array().unwrap().clone();
    let internet = internet.iter().find(|it| it["name"] == "internet").unwrap().clone();
    grant(api, &ann.id, "USAGE", &on("integration", &internet)).await;
    assert_eq!(ann.post(&at, call).await["value"], "of ann");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_leaves_by_the_integrations_that_it_names_if_its_owner_may() {
    let (world, site) = (world().await, Site::start());
    let api = &world.owner;
    let ann = Person::new(&world, "ann").await;
    for privilege in ["USAGE", "MODIFY"] {
        grant(api, &ann.id, privilege, &workspace(api).await).await;
    }
    let to_site = opened(api, &site).await.1;
    let code = format!(
        "import urllib.request\n\ndef run(input):\n    \
         return urllib.request.urlopen('http://site.test:{}/').read().decode()\n",
        site.port
    );
    let tool = |name: &str, integrations: Value| {
        json!({"name": name, "tool_type": "code_runner", "environment": "bare",
               "configuration": {"code": code, "integrations": integrations}})
    };
    for (who, integrations, said) in [
        (api, json!(["nobody"]), "integration \"nobody\" not found"),
        (api, json!("to_site"), "must be a list of at most"),
        (&ann.api, json!(["to_site"]), "integration \"to_site\" not found"),
    ] {
        let (status, problem) = who.call("POST", "/v1/tools", Some(tool("t", integrations))).await;
        assert_eq!(status, 422, "{problem}");
        let error = &problem["errors"][0];
        assert!(error["message"].as_str().unwrap().contains(said), "{problem}");
        assert!(
            error["path"].as_str().unwrap().ends_with("configuration/integrations"),
            "{problem}"
        );
    }
    let object = json!({"kind": "integration", "id": to_site});
    let granted = grant(api, &ann.id, "USAGE", &object).await;
    let reader = id(&ann.api.post("/v1/tools", tool("reader", json!(["to_site"]))).await);
    let call = format!("/v1/tools/{reader}/call");
    let calls = async |who: &Api| who.post(&call, json!({"arguments": {}})).await;
    let called = calls(&ann.api).await;
    assert_eq!(called["value"], "here", "{called}");
    assert_eq!(called["network"][0]["integration"], "to_site", "{called}");
    assert_eq!(calls(api).await["value"], "here");
    let without = id(&api.post("/v1/tools", tool("without", json!([]))).await);
    let without = format!("/v1/tools/{without}/call");
    denied(&api.post(&without, json!({"arguments": {}})).await, "site.test");
    let (status, problem) = api.call("DELETE", &format!("/v1/integrations/{to_site}"), None).await;
    assert_eq!(status, 409);
    assert!(problem["detail"].as_str().unwrap().contains("tool \"reader\""), "{problem}");

    let explained = format!("/v1/explain?tool={reader}");
    assert_eq!(api.get(&explained).await["allowed"], true);
    assert_eq!(api.get(&explained).await["network"], site.values());
    ungrant(api, &granted).await;
    let (status, problem) = api.call("POST", &call, Some(json!({"arguments": {}}))).await;
    assert_eq!((status, &problem["code"]), (403, &json!("grant.missing")), "{problem}");
    let explanation = api.get(&explained).await;
    assert_eq!(
        (&explanation["allowed"], &explanation["missing"][0]),
        (&json!(false), &problem["detail"])
    );
}

/// Redirects every request.
fn redirecting(to: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let head = format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\n");
            let _ = stream.write_all(format!("{head}Content-Length: 0\r\n\r\n").as_bytes());
        }
    });
    port
}

// proves S-068
#[tokio::test(flavor = "multi_thread")]
async fn no_other_road_leads_to_a_host_that_is_not_open() {
    let (world, site) = (world().await, Site::start());
    let front = redirecting(format!("http://other.test:{}/", site.port));
    let values = json!([format!("site.test:{front}"), format!("127.0.0.1:{front}")]);
    rule(&world.owner, "front", values).await;
    integration(&world.owner, "to_front", json!(["front"])).await;
    let session = session(&world.owner, json!(["to_front"])).await;
    let without_proxy = "import os\nfor name in list(os.environ):\n    \
                         if 'proxy' in name.lower(): del os.environ[name]\n";
    let other_proxy =
        format!("import os\nos.environ['http_proxy'] = 'http://other.test:{}'\n", site.port);
    let raw = "import _socket\n_socket.socket().connect(('93.184.216.34', 443))";
    let dns = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
               s.settimeout(2)\ns.sendto(b'x', ('1.1.1.1', 53))";
    for (road, code) in [
        ("a redirect", read("site.test", front)),
        ("no proxy", format!("{without_proxy}{}", site.read("other.test"))),
        ("another proxy", format!("{other_proxy}{}", site.read("other.test"))),
        ("an address", site.read("10.0.0.1")),
        ("version 6", site.read("[2606:2800:220:1::1]")),
        ("Python's own socket", raw.to_owned()),
        ("a name server", dns.to_owned()),
    ] {
        let execution = world.owner.run(&session, &code).await;
        assert!(execution["error"].is_object(), "{road}: {execution}");
    }
    assert_eq!(site.asked(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_owner_of_the_workspace_opens_all_hosts_or_an_inner_address() {
    let world = World::start().await;
    let maker = world.principal("maker", &["USAGE", "MODIFY"]).await;
    let (wide, inner) = ("allows public hosts of more than one owner", "is not a public address");
    for (value, reason) in [
        ("0.0.0.0", wide),
        ("127.0.0.1:0", inner),
        ("10.0.0.5:8000", inner),
        ("[fd00::5]", inner),
        ("*.com", wide),
        ("*.test:0", wide),
    ] {
        let rule = json!({"name": "wide", "value_list": ["example.com", value]});
        let (status, problem) = maker.call("POST", "/v1/network-rules", Some(rule)).await;
        assert_eq!((status, &problem["code"]), (403, &json!("grant.missing")), "{value}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.starts_with(&format!("`{value}` {reason}: ")), "{detail}");
    }
    let narrow = rule(&maker, "narrow", json!(["*.example.com", "93.184.216.34:443"])).await;
    let wide = json!({"name": "narrow", "value_list": ["0.0.0.0"]});
    let path = format!("/v1/network-rules/{narrow}");
    assert_eq!(maker.refused("PUT", &path, Some(wide)).await.0, 403);
    rule(&world.owner, "wide", json!(["0.0.0.0", "10.0.0.5:8000"])).await;
}
