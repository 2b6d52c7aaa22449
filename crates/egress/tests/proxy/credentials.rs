//! A credential reaches its host, over its scheme, in its header, and is seen nowhere else.

use crate::host::{Host, Vouching};
use crate::world::{
    PLACEHOLDER, Rules, SECRET, Sandbox, World, all_names, credential, limits, policy, secret,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use belljar_egress::{Credential, EgressPolicy, HeaderName, Scheme};
use reqwest::{Method, StatusCode};
use std::sync::Arc;
use std::time::Duration;

const BEARER: &str = "Bearer sk-live-3+q/Zm9vYmFyYmF6cXV4";

/// Hosts that speak TLS and hosts that do not, with a credential for one of them.
struct Hosts {
    vouching: Vouching,
    api: Host,
    plain: Host,
    world: World,
    rules: Arc<Rules>,
}

impl Hosts {
    async fn new() -> Self {
        let vouching = Vouching::new();
        let names = ["api.test", "other.test"];
        let api = Host::tls(vouching.config(&names, &["h2", "http/1.1"], |_| {})).await;
        let plain = Host::plain().await;
        let world = World::new(&vouching.pem(), all_names(), limits());
        // Everything is open, so that it is the credential alone that makes the difference.
        let everything = ["api.test:0", "other.test:0", "127.0.0.2:0"];
        let credentials = vec![credential("api.test", api.port())];
        let rules = Rules::new(EgressPolicy { credentials, ..policy(&everything) });
        Self { vouching, api, plain, world, rules }
    }

    fn sandbox(&self) -> Sandbox {
        self.world.sandbox(&self.rules)
    }

    fn client(&self, sandbox: &Sandbox) -> reqwest::Client {
        sandbox.client(&self.vouching.pem())
    }

    /// What the last request to any of the hosts had as its authorization.
    fn arrived(&self) -> Option<String> {
        let mut seen = [self.api.requests(), self.plain.requests()].concat();
        self.api.seen.lock().unwrap().clear();
        self.plain.seen.lock().unwrap().clear();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen.remove(0).header("authorization").map(str::to_owned)
    }
}

/// Whether a text has the secret in it, in a readable spelling.
fn tells(text: &str) -> bool {
    let hex: String = SECRET.bytes().map(|byte| format!("{byte:02x}")).collect();
    let base64 = STANDARD.encode(SECRET);
    let spellings = [SECRET, hex.as_str(), base64.trim_end_matches('=')];
    spellings.iter().any(|it| text.to_lowercase().contains(&it.to_lowercase()))
}

async fn answer(request: reqwest::RequestBuilder) -> (StatusCode, String) {
    let response = request.send().await.unwrap();
    let status = response.status();
    let headers = format!("{:?}", response.headers());
    (status, headers + &response.text().await.unwrap())
}

#[tokio::test]
async fn t42_credential_injection_matrix() {
    let hosts = Hosts::new().await;
    let sandbox = hosts.sandbox();
    let (tls, plain) = (hosts.api.port(), hosts.plain.port());
    let placeholder = format!("Bearer {PLACEHOLDER}");
    for (url, expected) in [
        (format!("https://api.test:{tls}"), Some(BEARER)),
        (format!("https://API.TEST.:{tls}"), Some(BEARER)),
        (format!("https://other.test:{tls}"), None),
        (format!("http://api.test:{plain}"), None),
        (format!("http://other.test:{plain}"), None),
    ] {
        for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            let client = hosts.client(&sandbox);
            let request = client.request(method.clone(), format!("{url}/echo"));
            let request = request.header("authorization", &placeholder);
            let (status, response) = answer(request).await;
            assert_eq!(status, 200, "{url}");
            let arrived = hosts.arrived();
            assert_eq!(
                arrived.as_deref(),
                Some(expected.unwrap_or(&placeholder)),
                "{method} {url}"
            );
            assert!(!tells(&response), "{method} {url}: {response}");
        }
    }
}

#[tokio::test]
async fn t42_a_placeholder_anywhere_else_stays_one() {
    let hosts = Hosts::new().await;
    let sandbox = hosts.sandbox();
    let client = hosts.client(&sandbox);
    let url = format!("https://api.test:{}/echo?key={PLACEHOLDER}", hosts.api.port());
    let request = client.post(url).header("x-other", PLACEHOLDER).body(PLACEHOLDER);
    let request = request.header("accept-encoding", "gzip");
    let (_, response) = answer(request).await;
    assert!(!tells(&response), "{response}");
    let seen = hosts.api.requests().pop().unwrap();
    assert!(seen.line.ends_with(&format!("key={PLACEHOLDER}")));
    assert_eq!(seen.header("x-other"), Some(PLACEHOLDER));
    assert_eq!(seen.body, PLACEHOLDER.as_bytes());
    // What is compressed could not be looked into.
    assert_eq!(seen.header("accept-encoding"), Some("identity"));
    // A header that is missing is added.
    assert_eq!(seen.header("authorization"), Some(BEARER));
}

#[tokio::test]
async fn t42_an_answer_in_which_the_credential_cannot_be_looked_for_is_refused() {
    let hosts = Hosts::new().await;
    let sandbox = hosts.sandbox();
    let client = hosts.client(&sandbox);
    let url = format!("https://api.test:{}/encoded", hosts.api.port());
    for coding in ["gzip", "identity,%20br", "GZIP"] {
        let (status, context) = answer(client.get(format!("{url}?{coding}"))).await;
        assert_eq!(status, 502, "{coding}");
        assert!(context.contains("with an encoding that was not requested"), "{context}");
        assert!(hosts.rules.last().reason.unwrap().contains("encoding"));
    }
    // What has no body has nothing in it.
    assert_eq!(client.head(format!("{url}?gzip")).send().await.unwrap().status(), 200);
    let (status, context) = answer(client.get(format!("{url}?Identity"))).await;
    assert_eq!(status, 200);
    assert!(!tells(&context), "{context}");
    // A host that got no credential may do as it likes.
    let other = format!("https://other.test:{}/encoded?gzip", hosts.api.port());
    assert_eq!(answer(client.get(other)).await.0, 200);
}

#[tokio::test]
async fn t42_a_header_of_the_clients_own_is_left() {
    let hosts = Hosts::new().await;
    let sandbox = hosts.sandbox();
    let url = format!("https://api.test:{}/", hosts.api.port());
    let request = hosts.client(&sandbox).get(url).header("authorization", "Bearer mine");
    request.send().await.unwrap();
    assert_eq!(hosts.arrived().as_deref(), Some("Bearer mine"));
}

#[tokio::test]
async fn t42_a_redirect_takes_nothing_along() {
    let hosts = Hosts::new().await;
    let sandbox = hosts.sandbox();
    let (tls, plain) = (hosts.api.port(), hosts.plain.port());
    for elsewhere in [
        format!("https://other.test:{tls}/"),
        format!("http://api.test:{plain}/"),
        format!("http://other.test:{plain}/"),
    ] {
        let url = format!("https://api.test:{tls}/redirect?{elsewhere}");
        // It is the client that follows, with the header that it has.
        let request = hosts.client(&sandbox).get(url);
        request.header("authorization", format!("Bearer {PLACEHOLDER}")).send().await.unwrap();
        let seen = [hosts.api.requests(), hosts.plain.requests()].concat();
        assert_eq!(seen.len(), 2);
        let real = seen.iter().filter(|it| it.header("authorization") == Some(BEARER)).count();
        assert_eq!(real, 1, "{elsewhere}: {seen:?}");
        hosts.api.seen.lock().unwrap().clear();
        hosts.plain.seen.lock().unwrap().clear();
    }
}

#[tokio::test]
async fn t42_plain_http_to_the_port_of_a_credential_is_refused() {
    let hosts = Hosts::new().await;
    let credentials = vec![credential("api.test", hosts.api.port())];
    hosts.rules.become_these(EgressPolicy { credentials, ..policy(&["127.0.0.2:0"]) });
    let sandbox = hosts.sandbox();
    let url = format!("http://api.test:{}/", hosts.api.port());
    let (status, response) = answer(hosts.client(&sandbox).get(url)).await;
    assert_eq!(status, 403);
    assert!(response.contains("only over https"), "{response}");
    // And not inside of its tunnel either.
    let place = format!("api.test:{}", hosts.api.port());
    let mut stream = sandbox.tunnel(&place).await.unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n\r\n");
    tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes()).await.unwrap();
    let received = crate::world::hear_all(&mut stream).await;
    assert!(received.starts_with("HTTP/1.1 403"), "{received}");
    assert!(received.contains("only over https"), "{received}");
    assert_eq!(hosts.api.requests().len(), 0);
}

#[tokio::test]
async fn t42_inside_a_tunnel_another_host_cannot_be_asked_for() {
    let hosts = Hosts::new().await;
    let sandbox = hosts.sandbox();
    let port = hosts.api.port();
    let client = hosts.client(&sandbox);
    let url = format!("https://api.test:{port}/");
    for other in ["other.test", "api.test.evil.test", "api.test:1", "", "api.test, other.test"] {
        let (status, _) = answer(client.get(&url).header("host", other)).await;
        assert_eq!(status, 400, "{other}");
    }
    let same = format!("API.test.:{port}");
    assert_eq!(answer(client.get(&url).header("host", same)).await.0, 200);
    assert_eq!(hosts.arrived().as_deref(), Some(BEARER));
}

/// Greets the inside of a tunnel by another name, and does not care who answers.
const CARELESS: &str = r#"
import socket, ssl, sys
proxy, to, name = sys.argv[1:]
host, _, port = proxy.partition(":")
stream = socket.create_connection((host, int(port)), timeout=20)
stream.sendall(f"CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n".encode())
assert b" 200 " in stream.recv(4096)
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
try:
    inside = context.wrap_socket(stream, server_hostname=name or None)
    inside.sendall(f"GET / HTTP/1.1\r\nHost: {to}\r\n\r\n".encode())
    print(inside.recv(12).decode())
except OSError:
    print("cut")
"#;

#[tokio::test(flavor = "multi_thread")]
async fn t42_inside_a_tunnel_the_greeting_names_its_host() {
    let hosts = Hosts::new().await;
    let sandbox = hosts.sandbox();
    let to = format!("api.test:{}", hosts.api.port());
    for (name, served) in [("other.test", false), ("", false), ("api.test", true)] {
        let output = tokio::process::Command::new("python3")
            .args(["-c", CARELESS, &sandbox.address.to_string(), &to, name])
            .output()
            .await
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.trim() == "HTTP/1.1 200", served, "{name}: {text}");
        assert_eq!(hosts.rules.last().allowed, served, "{name}");
    }
    assert_eq!(hosts.arrived().as_deref(), Some(BEARER));
}

#[tokio::test]
async fn a_credential_opens_exactly_its_host_and_is_named_in_the_log() {
    let hosts = Hosts::new().await;
    let port = hosts.api.port();
    let only = || EgressPolicy {
        credentials: vec![credential("api.test", port)],
        // Where it is, since that is not public; not what it is called.
        ..policy(&[&format!("127.0.0.2:{port}")])
    };
    hosts.rules.become_these(only());
    let sandbox = hosts.sandbox();
    let client = hosts.client(&sandbox);
    assert_eq!(answer(client.get(format!("https://api.test:{port}/"))).await.0, 200);
    let last = hosts.rules.last();
    assert_eq!((last.integration.as_deref(), last.allowed), (Some("secret:openai"), true));
    assert!(client.get(format!("https://other.test:{port}/")).send().await.is_err());
    assert!(client.get("https://api.test/").send().await.is_err());
    // It is taken away, and the connection that is open already does not help.
    hosts.rules.become_these(policy(&[&format!("127.0.0.2:{port}")]));
    assert_eq!(answer(client.get(format!("https://api.test:{port}/"))).await.0, 403);
    assert_eq!(hosts.api.requests().len(), 1);
}

#[tokio::test]
async fn a_credential_that_does_not_open_goes_where_an_integration_leads_and_nowhere_else() {
    let hosts = Hosts::new().await;
    let port = hosts.api.port();
    let only_given = |openings: &[&str]| EgressPolicy {
        credentials: vec![Credential { grants_access: false, ..credential("api.test", port) }],
        ..policy(openings)
    };
    let (name, address) = (format!("api.test:{port}"), format!("127.0.0.2:{port}"));
    let sandbox = hosts.sandbox();
    let client = hosts.client(&sandbox);
    let url = format!("https://api.test:{port}/");
    // Not open at all; open by another name; open, and at an address that no rule names.
    for openings in [&[][..], &[address.as_str()], &[name.as_str()]] {
        hosts.rules.become_these(only_given(openings));
        // The tunnel is refused, or the request in it.
        let refused = match client.get(&url).send().await {
            Ok(response) => response.status() == 403,
            Err(error) => error.is_connect(),
        };
        assert!(refused, "{openings:?}");
        assert!(!hosts.rules.last().allowed);
    }
    assert_eq!(hosts.api.requests().len(), 0);
    hosts.rules.become_these(only_given(&[&name, &address]));
    assert_eq!(answer(client.get(&url)).await.0, 200);
    assert_eq!(hosts.arrived().as_deref(), Some(BEARER));
    assert_eq!(hosts.rules.last().integration.as_deref(), Some("some"));
    // It is closed again, and the connection that is open already does not help.
    hosts.rules.become_these(only_given(&[&address]));
    assert_eq!(answer(client.get(&url)).await.0, 403);
    assert_eq!(hosts.api.requests().len(), 0);
}

#[tokio::test]
async fn an_address_in_a_credential_that_does_not_open_is_not_named_by_it() {
    let hosts = Hosts::new().await;
    let port = hosts.plain.port();
    let given = || {
        let usual = credential("127.0.0.2", port);
        vec![Credential { grants_access: false, scheme: Scheme::Http, ..usual }]
    };
    hosts.rules.become_these(EgressPolicy { credentials: given(), ..EgressPolicy::default() });
    let sandbox = hosts.sandbox();
    let url = format!("http://127.0.0.2:{port}/");
    let client = hosts.client(&sandbox);
    assert_eq!(answer(client.get(&url)).await.0, 403);
    let named = policy(&[&format!("127.0.0.2:{port}")]);
    hosts.rules.become_these(EgressPolicy { credentials: given(), ..named });
    assert_eq!(answer(client.get(&url)).await.0, 200);
    assert_eq!(hosts.arrived().as_deref(), Some(BEARER));
}

#[tokio::test]
async fn a_credential_goes_over_plain_http_only_inside_of_the_own_network() {
    let hosts = Hosts::new().await;
    let port = hosts.plain.port();
    let local =
        || belljar_egress::Credential { scheme: Scheme::Http, ..credential("127.0.0.2", port) };
    hosts
        .rules
        .become_these(EgressPolicy { credentials: vec![local()], ..EgressPolicy::default() });
    let sandbox = hosts.sandbox();
    let url = format!("http://127.0.0.2:{port}/echo");
    let (status, response) = answer(hosts.client(&sandbox).get(&url)).await;
    assert_eq!(status, 200);
    assert!(!tells(&response), "{response}");
    assert_eq!(hosts.arrived().as_deref(), Some(BEARER));

    // Clients that know of no proxy come through a tunnel.
    let mut stream = sandbox.tunnel(&format!("127.0.0.2:{port}")).await.unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: 127.0.0.2:{port}\r\nConnection: close\r\n\r\n");
    tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes()).await.unwrap();
    assert!(crate::world::hear_all(&mut stream).await.ends_with("hello"));
    assert_eq!(hosts.arrived().as_deref(), Some(BEARER));

    let public = belljar_egress::Credential { scheme: Scheme::Http, ..credential("8.8.8.8", 80) };
    hosts.rules.become_these(EgressPolicy { credentials: vec![public], ..EgressPolicy::default() });
    let (status, response) = answer(hosts.client(&sandbox).get("http://8.8.8.8/")).await;
    assert_eq!(status, 403);
    assert!(response.contains("secrets are not sent to it over plain http"), "{response}");
}

#[tokio::test]
async fn t42_a_value_that_arrives_in_pieces_is_covered_and_all_else_is_as_it_was() {
    let hosts = Hosts::new().await;
    let sandbox = hosts.sandbox();
    let client = hosts.client(&sandbox);
    let url = format!("https://api.test:{}/body", hosts.api.port());
    let filler = "abc sk-live sk-live-3+q ".repeat(5_000);
    let percent = SECRET.replace('+', "%2B").replace('/', "%2F").replace('-', "%2D");
    let basic = STANDARD.encode(format!("user:{SECRET}:more"));
    let text = format!("{filler}{SECRET}{filler}{percent}{filler}{basic}{filler}{SECRET}");
    let response = client.post(&url).body(text.clone()).send().await.unwrap();
    assert_eq!(response.content_length(), Some(text.len() as u64));
    let reply = response.text().await.unwrap();
    assert_eq!(reply.len(), text.len());
    assert_eq!(reply.matches(&filler).count(), 4);
    assert!(!reply.contains(SECRET) && !reply.contains(&percent) && !reply.contains(&basic[8..40]));
    let unchanged = client.post(&url).body(filler.clone()).send().await.unwrap();
    assert_eq!(unchanged.text().await.unwrap(), filler);
}

#[tokio::test]
async fn t178_what_php_and_go_make_of_a_value_is_masked_wherever_it_is_cut() {
    let hosts = Hosts::new().await;
    let port = hosts.api.port();
    let odd = Credential { secret: secret("sk/<odd>&key-0815"), ..credential("api.test", port) };
    hosts.rules.become_these(EgressPolicy { credentials: vec![odd], ..policy(&["127.0.0.2:0"]) });
    let sandbox = hosts.sandbox();
    let client = hosts.client(&sandbox);
    let url = |at: usize| format!("https://api.test:{port}/halves?{at}");
    let php = "sk\\/<odd>&key-0815";
    let go = "sk/\\u003codd\\u003e\\u0026key-0815";
    for written in [php, go] {
        let text = format!("{{\"key\":\"{written}\"}}");
        for at in 0..=text.len() {
            let response =
                client.post(url(at)).body(text.clone()).send().await.unwrap().text().await;
            assert_eq!(response.unwrap(), format!("{{\"key\":\"{}\"}}", "*".repeat(written.len())));
        }
        // The harmless twin is another value, written in the same way.
        let other = written.replace("0815", "0816");
        let response = client.post(url(5)).body(other.clone()).send().await.unwrap().text().await;
        assert_eq!(response.unwrap(), other);
    }
}

#[tokio::test]
async fn a_secret_that_no_header_can_have_is_not_sent() {
    let hosts = Hosts::new().await;
    let bad = belljar_egress::Credential {
        secret: secret("a\r\nx: y"),
        ..credential("api.test", hosts.api.port())
    };
    hosts.rules.become_these(EgressPolicy { credentials: vec![bad], ..policy(&["127.0.0.2:0"]) });
    let sandbox = hosts.sandbox();
    let url = format!("https://api.test:{}/", hosts.api.port());
    let (status, response) = answer(hosts.client(&sandbox).get(url)).await;
    assert_eq!(status, 502);
    assert!(
        response.contains("the secret `openai` has characters that are invalid in a header"),
        "{response}"
    );
    assert_eq!(hosts.api.requests().len(), 0);
    assert!(!format!("{:?}", hosts.rules.policy.lock().unwrap()).contains("x: y"));
}

#[tokio::test]
async fn a_credential_goes_where_its_client_has_put_the_placeholder() {
    let hosts = Hosts::new().await;
    let place = |header: &'static str, prefix: &str| Credential {
        header: HeaderName::from_static(header),
        prefix: prefix.to_owned(),
        ..credential("api.test", hosts.api.port())
    };
    let credentials = vec![place("x-api-key", ""), place("authorization", "Bearer ")];
    hosts.rules.become_these(EgressPolicy { credentials, ..policy(&["127.0.0.2:0"]) });
    let sandbox = hosts.sandbox();
    let url = format!("https://api.test:{}/", hosts.api.port());
    let bearer = format!("Bearer {PLACEHOLDER}");
    for (header, sent, key, authorization) in [
        ("x-api-key", PLACEHOLDER, Some(SECRET), None),
        ("authorization", bearer.as_str(), None, Some(BEARER)),
        ("authorization", "Bearer of-my-own", None, Some("Bearer of-my-own")),
        ("x-other", PLACEHOLDER, Some(SECRET), None),
    ] {
        let request = hosts.client(&sandbox).get(&url).header(header, sent);
        assert_eq!(answer(request).await.0, StatusCode::OK);
        let seen = hosts.api.seen.lock().unwrap().pop().unwrap();
        assert_eq!((seen.header("x-api-key"), seen.header("authorization")), (key, authorization));
    }
}

#[tokio::test]
async fn two_secrets_of_one_name_are_two_secrets() {
    let hosts = Hosts::new().await;
    let port = hosts.api.port();
    let mine = Credential {
        header: HeaderName::from_static("x-api-key"),
        prefix: String::new(),
        placeholder: "belljar-placeholder-mine".to_owned(),
        secret: secret("mine-and-only-mine"),
        ..credential("api.test", port)
    };
    let credentials = vec![credential("api.test", port), mine];
    hosts.rules.become_these(EgressPolicy { credentials, ..policy(&["127.0.0.2:0"]) });
    let sandbox = hosts.sandbox();
    let request = hosts.client(&sandbox).get(format!("https://api.test:{port}/"));
    assert_eq!(answer(request).await.0, StatusCode::OK);
    let seen = hosts.api.requests().pop().unwrap();
    assert_eq!(seen.header("authorization"), Some(BEARER));
    assert_eq!(seen.header("x-api-key"), Some("mine-and-only-mine"));
}

/// So many secrets for one host, of so many bytes each.
fn secrets(port: u16, count: usize, bytes: usize) -> Vec<Credential> {
    let secret = |number: usize| Credential {
        secret: belljar_egress::SecretVersion {
            name: format!("secret{number}"),
            id: types::SecretId::new(uuid::Uuid::from_u128(number as u128 + 100)),
            ..secret(&format!("{number:04}{}", "+v".repeat(bytes / 2 - 2)))
        },
        header: HeaderName::try_from(format!("x-key-{number}")).unwrap(),
        prefix: String::new(),
        placeholder: format!("belljar-placeholder-{number}"),
        ..credential("api.test", port)
    };
    (0..count).map(secret).collect()
}

#[tokio::test]
async fn t107_more_secrets_for_one_host_than_can_be_looked_for_are_refused() {
    let hosts = Hosts::new().await;
    let url = format!("https://api.test:{}/", hosts.api.port());
    for (count, bytes, fits) in [(32, 64, true), (33, 64, false), (2, 8192, true), (3, 8192, false)]
    {
        let credentials = secrets(hosts.api.port(), count, bytes);
        hosts.rules.become_these(EgressPolicy { credentials, ..policy(&["127.0.0.2:0"]) });
        let sandbox = hosts.sandbox();
        let (status, response) = answer(hosts.client(&sandbox).get(&url)).await;
        if fits {
            assert_eq!(status, 200, "{count} of {bytes}: {response}");
        } else {
            assert_eq!(status, 403);
            assert!(response.contains(&format!("has {count} secrets with")), "{response}");
        }
    }
}

#[tokio::test]
async fn t107_secrets_are_prepared_beside_other_work() {
    let hosts = Hosts::new().await;
    let url = format!("https://api.test:{}/", hosts.api.port());
    let credentials = secrets(hosts.api.port(), 2, 8192);
    hosts.rules.become_these(EgressPolicy { credentials, ..policy(&["127.0.0.2:0"]) });
    let (sandbox, other) = (hosts.sandbox(), hosts.sandbox());
    // All tasks of this test, also those of the proxy, share this thread; the preparation has another one.
    let before = cpu_time_of_thread();
    assert_eq!(answer(hosts.client(&sandbox).get(&url)).await.0, 200);
    let first = cpu_time_of_thread() - before;
    let before = cpu_time_of_thread();
    assert_eq!(answer(hosts.client(&other).get(&url)).await.0, 200);
    let second = cpu_time_of_thread() - before;
    assert!(first < 5 * second, "with the preparation {first:?}, without {second:?}");
}

/// CPU time, which other work of the machine does not lengthen.
fn cpu_time_of_thread() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn t293_a_credential_without_a_value_sends_nothing_and_says_why() {
    let hosts = Hosts::new().await;
    let port = hosts.api.port();
    let with = |unavailable: Option<&str>| EgressPolicy {
        credentials: vec![Credential {
            unavailable: unavailable.map(str::to_owned),
            ..credential("api.test", port)
        }],
        ..policy(&[&format!("127.0.0.2:{port}")])
    };
    let sandbox = hosts.sandbox();
    let client = hosts.client(&sandbox);
    let url = format!("https://api.test:{port}/");
    hosts.rules.become_these(with(Some("the \"token\" has expired")));
    let (status, body) = answer(client.get(&url)).await;
    assert_eq!(status, 403);
    let said = format!(
        r#"network.denied: the request to api.test:{port} was not sent: the \"token\" has expired"#
    );
    assert!(body.contains("\"content-type\": \"application/json\""), "{body}");
    assert!(body.ends_with(&format!(r#"{{"error":{{"code":403,"message":"{said}"}}}}"#)), "{body}");
    assert!(!hosts.rules.last().allowed);
    assert_eq!(hosts.api.requests().len(), 0);
    // With a value the same connection is served.
    hosts.rules.become_these(with(None));
    assert_eq!(answer(client.get(&url)).await.0, 200);
    assert_eq!(hosts.arrived().as_deref(), Some(BEARER));
}
