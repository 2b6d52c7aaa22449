//! An ambiguous request is rejected, and each request is checked separately.

use crate::host::{Host, Vouching};
use crate::wait;
use crate::world::{Rules, World, head, policy, status, tls_connector};
use belljar_egress::{EgressPolicy, IntegrationsField};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::rustls::pki_types::ServerName;

/// A host that may be reached, one at 127.0.0.3 that may not, and who counts there.
struct Pair {
    good: Host,
    evil: Host,
    rules: Arc<Rules>,
    world: World,
}

impl Pair {
    async fn new() -> Self {
        let good = Host::plain().await;
        let evil = Host::start(None, &format!("127.0.0.3:{}", good.port())).await;
        let rules = Rules::new(policy(&[&format!("good.test:{}", good.port()), "127.0.0.2:0"]));
        Self { good, evil, rules, world: World::usual() }
    }

    fn untouched(&self) {
        assert_eq!(self.evil.connections.load(std::sync::atomic::Ordering::Relaxed), 0);
        for seen in self.good.requests() {
            assert_eq!(
                seen.header("host"),
                Some(format!("good.test:{}", self.good.port()).as_str())
            );
            assert!(!seen.line.contains("evil"), "{seen:?}");
        }
    }
}

/// Each is sent as it is, with `GOOD` and `EVIL` as the hosts; the answer begins with the status.
const CORPUS: &[(&str, &str, &str)] = &[
    (
        "the harmless twin",
        "GET http://GOOD/ HTTP/1.1\r\nHost: GOOD\r\nConnection: close\r\n\r\n",
        "200",
    ),
    ("without a Host", "GET http://GOOD/ HTTP/1.1\r\nConnection: close\r\n\r\n", "200"),
    ("as HTTP/1.0", "GET http://GOOD/ HTTP/1.0\r\n\r\n", "200"),
    ("closed", "GET http://EVIL/ HTTP/1.1\r\nHost: EVIL\r\nConnection: close\r\n\r\n", "403"),
    ("the URL is evil, Host good", "GET http://EVIL/ HTTP/1.1\r\nHost: GOOD\r\n\r\n", "400"),
    ("the URL is good, Host evil", "GET http://GOOD/ HTTP/1.1\r\nHost: EVIL\r\n\r\n", "400"),
    ("two Hosts", "GET http://GOOD/ HTTP/1.1\r\nHost: GOOD\r\nHost: EVIL\r\n\r\n", "400"),
    ("two equal Hosts", "GET http://GOOD/ HTTP/1.1\r\nHost: GOOD\r\nHost: GOOD\r\n\r\n", "400"),
    ("another port in Host", "GET http://GOOD/ HTTP/1.1\r\nHost: good.test:1\r\n\r\n", "400"),
    ("no port in Host", "GET http://GOOD/ HTTP/1.1\r\nHost: good.test\r\n\r\n", "400"),
    ("an unreadable port in Host", "GET http://GOOD/ HTTP/1.1\r\nHost: good.test:\r\n\r\n", "400"),
    ("an empty Host", "GET http://GOOD/ HTTP/1.1\r\nHost: \r\n\r\n", "400"),
    ("a list as Host", "GET http://GOOD/ HTTP/1.1\r\nHost: GOOD, EVIL\r\n\r\n", "400"),
    ("origin form", "GET / HTTP/1.1\r\nHost: GOOD\r\n\r\n", "400"),
    ("asterisk form", "OPTIONS * HTTP/1.1\r\nHost: GOOD\r\n\r\n", "400"),
    ("authority form", "GET GOOD HTTP/1.1\r\nHost: GOOD\r\n\r\n", "400"),
    ("https by URL", "GET https://GOOD/ HTTP/1.1\r\nHost: GOOD\r\n\r\n", "400"),
    ("another scheme", "GET ftp://GOOD/ HTTP/1.1\r\nHost: GOOD\r\n\r\n", "400"),
    ("a user name", "GET http://GOOD@EVIL/ HTTP/1.1\r\n\r\n", "400"),
    ("a user name, the other way", "GET http://x@GOOD/ HTTP/1.1\r\n\r\n", "400"),
    ("no host", "GET http:///path HTTP/1.1\r\nHost: GOOD\r\n\r\n", "400"),
    ("a fold", "GET http://GOOD/ HTTP/1.1\r\nHost: GOOD\r\nX: a\r\n b\r\n\r\n", "400"),
    ("a space before the colon", "GET http://GOOD/ HTTP/1.1\r\nHost : EVIL\r\n\r\n", "400"),
    ("a NUL in a header", "GET http://GOOD/ HTTP/1.1\r\nHost: GOOD\r\nX: a\0b\r\n\r\n", "400"),
    ("a bare CR", "GET http://GOOD/ HTTP/1.1\r\nX: a\rHost: EVIL\r\n\r\n", "400"),
    ("HTTP/2 said aloud", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""),
    ("another version", "GET http://GOOD/ HTTP/3.0\r\n\r\n", ""),
    ("not HTTP", "\x16\x03\x01\x02\x00\x01", ""),
    (
        "two lengths",
        "POST http://GOOD/body HTTP/1.1\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
        "400",
    ),
    ("a signed length", "POST http://GOOD/body HTTP/1.1\r\nContent-Length: +4\r\n\r\nabcd", "400"),
    (
        "an encoding that is not chunked",
        "POST http://GOOD/body HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        "400",
    ),
    (
        "chunked and more",
        "POST http://GOOD/body HTTP/1.1\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
        "400",
    ),
    ("CONNECT without a port", "CONNECT good.test HTTP/1.1\r\nHost: good.test\r\n\r\n", "400"),
    ("CONNECT with a path", "CONNECT GOOD/x HTTP/1.1\r\n\r\n", "400"),
    ("CONNECT with another Host", "CONNECT GOOD HTTP/1.1\r\nHost: EVIL\r\n\r\n", "400"),
    ("CONNECT with two Hosts", "CONNECT GOOD HTTP/1.1\r\nHost: GOOD\r\nHost: GOOD\r\n\r\n", "400"),
    ("CONNECT to port 0", "CONNECT good.test:0 HTTP/1.1\r\n\r\n", "400"),
    ("CONNECT to port 70000", "CONNECT good.test:70000 HTTP/1.1\r\n\r\n", "400"),
    ("CONNECT with a user name", "CONNECT GOOD@EVIL HTTP/1.1\r\n\r\n", "400"),
    ("CONNECT to what is closed", "CONNECT EVIL HTTP/1.1\r\nHost: EVIL\r\n\r\n", "403"),
    ("CONNECT to an address that is closed", "CONNECT 127.0.0.3:PORT HTTP/1.1\r\n\r\n", "403"),
    ("CONNECT to a number", "CONNECT 2130706435:PORT HTTP/1.1\r\n\r\n", "403"),
    ("CONNECT to the metadata", "CONNECT 169.254.169.254:80 HTTP/1.1\r\n\r\n", "403"),
    ("CONNECT to IPv6", "CONNECT [::1]:PORT HTTP/1.1\r\nHost: [::1]:PORT\r\n\r\n", "403"),
    ("CONNECT to an escape", "CONNECT good%2etest:PORT HTTP/1.1\r\n\r\n", "400"),
];

#[tokio::test]
async fn t39_proxy_strict_http() {
    let pair = Pair::new().await;
    let sandbox = pair.world.sandbox(&pair.rules);
    let port = pair.good.port().to_string();
    for (name, request, expected) in CORPUS {
        let request = request.replace("GOOD", &format!("good.test:{port}"));
        let request = request.replace("EVIL", &format!("evil.test:{port}")).replace("PORT", &port);
        let mut stream = sandbox.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = head(&mut stream).await;
        match *expected {
            "" => assert!(!status(&answer).contains("200"), "{name}: {answer}"),
            code => {
                assert!(
                    answer.starts_with(&format!(
                        "HTTP/1.{} {code}",
                        u8::from(*name != "as HTTP/1.0")
                    )),
                    "{name}: {answer}"
                );
            }
        }
    }
    pair.untouched();
}

/// Both ways of saying how long a body is: one of them counts, the other does not go on, and
/// nothing that comes after is believed to be a request.
#[tokio::test]
async fn t39_a_body_of_two_lengths_smuggles_nothing() {
    let pair = Pair::new().await;
    let sandbox = pair.world.sandbox(&pair.rules);
    let port = pair.good.port();
    let good = format!("good.test:{port}");
    let hidden = format!("GET http://evil.test:{port}/ HTTP/1.1\r\nHost: evil.test:{port}\r\n\r\n");
    for lengths in [
        format!("Content-Length: {}\r\nTransfer-Encoding: chunked", hidden.len() + 5),
        format!("Transfer-Encoding: chunked\r\nContent-Length: {}", hidden.len() + 5),
        "Transfer-Encoding: chunked\r\nContent-Length: 3".to_owned(),
    ] {
        let request = format!(
            "POST http://{good}/body HTTP/1.1\r\nHost: {good}\r\n{lengths}\r\n\r\n0\r\n\r\n{hidden}"
        );
        let answer = sandbox.say(request).await;
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    }
    for seen in pair.good.requests() {
        assert_eq!(seen.body, b"");
        let framing = (seen.header("transfer-encoding"), seen.header("content-length"));
        assert!(framing.0.is_none() || framing.1.is_none(), "{seen:?}");
    }
    pair.untouched();
}

#[tokio::test]
async fn t39_each_request_of_a_kept_connection_is_decided_by_itself() {
    let pair = Pair::new().await;
    let sandbox = pair.world.sandbox(&pair.rules);
    let port = pair.good.port();
    let get = |host: &str, more: &str| {
        format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n{more}\r\n")
    };
    let pipelined =
        [get("good.test", ""), get("evil.test", ""), get("good.test", "Connection: close\r\n")];
    let answer = sandbox.say(pipelined.concat()).await;
    let codes: Vec<&str> = answer.split("HTTP/1.1 ").skip(1).filter_map(|it| it.get(..3)).collect();
    assert_eq!(codes, ["200", "403", "200"]);
    let allowed: Vec<bool> = pair.rules.log().iter().map(|it| it.3).collect();
    assert_eq!(allowed, [true, false, true]);
    pair.untouched();
}

#[tokio::test]
async fn a_rule_that_changes_holds_from_the_next_request_on() {
    let pair = Pair::new().await;
    let sandbox = pair.world.sandbox(&pair.rules);
    let client = sandbox.client("");
    let url = format!("http://good.test:{}/", pair.good.port());
    assert_eq!(client.get(&url).send().await.unwrap().status(), 200);
    pair.rules.become_these(policy(&[]));
    assert_eq!(client.get(&url).send().await.unwrap().status(), 403);
    assert!(sandbox.tunnel(&format!("good.test:{}", pair.good.port())).await.is_err());
    *pair.rules.policy.lock().unwrap() = None;
    assert_eq!(client.get(&url).send().await.unwrap().status(), 503);
    assert!(pair.rules.last().reason.unwrap().ends_with("the store is closed"));
    assert_eq!(pair.good.requests().len(), 1);
}

#[tokio::test]
async fn a_denial_names_the_host_the_port_and_what_is_missing() {
    let pair = Pair::new().await;
    let sandbox = pair.world.sandbox(&pair.rules);
    let denied = "network.denied: example.com:443 is not allowed by any integration of this \
                  session; list one that allows this host in `integrations`";
    let Err(answer) = sandbox.tunnel("example.com:443").await else { panic!("it is open") };
    assert_eq!(status(&answer), format!("HTTP/1.1 403 {denied}"));
    let log = pair.rules.last();
    assert_eq!(format!("network.denied: {}", log.reason.unwrap()), denied);
    assert_eq!((log.host.as_str(), log.port, log.allowed), ("example.com", 443, false));
    let client = sandbox.client("");
    let body = client.get("http://example.com/").send().await.unwrap().text().await.unwrap();
    assert_eq!(body, format!("{}\n", denied.replace(":443", ":80")));
    pair.rules.become_these(EgressPolicy {
        integrations_field: IntegrationsField::Specification,
        ..EgressPolicy::default()
    });
    let Err(answer) = sandbox.tunnel("example.com:443").await else { panic!("it is open") };
    assert!(
        status(&answer).ends_with("in `external_access_integrations` of the agent"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_denial_names_the_integration_that_is_switched_off() {
    let pair = Pair::new().await;
    let sandbox = pair.world.sandbox(&pair.rules);
    let good = format!("good.test:{}", pair.good.port());
    let EgressPolicy { openings, .. } = policy(&[&good, "127.0.0.2:0"]);
    let off = openings.clone();
    pair.rules.become_these(EgressPolicy { disabled: off.clone(), ..EgressPolicy::default() });
    let Err(answer) = sandbox.tunnel(&good).await else { panic!("it is open") };
    let expected = format!("{good} is not allowed: integration some is disabled");
    assert_eq!(status(&answer), format!("HTTP/1.1 403 network.denied: {expected}"));
    let Err(answer) = sandbox.tunnel("example.com:443").await else { panic!("it is open") };
    assert!(!answer.contains("switched off"), "{answer}");
    pair.untouched();
    pair.rules.become_these(EgressPolicy { openings, disabled: off, ..EgressPolicy::default() });
    assert!(sandbox.tunnel(&good).await.is_ok(), "another one opens it");
}

#[tokio::test]
async fn what_is_for_the_proxy_goes_no_further() {
    let pair = Pair::new().await;
    let sandbox = pair.world.sandbox(&pair.rules);
    let good = format!("good.test:{}", pair.good.port());
    sandbox
        .say(format!(
            "GET http://{good}/x?y HTTP/1.1\r\nHost: {good}\r\nConnection: close, X-Mine, Host\r\n\
             X-Mine: 1\r\nX-Theirs: 2\r\nProxy-Authorization: Basic eA==\r\nProxy-Other: 3\r\n\
             Keep-Alive: 1\r\nTE: trailers\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
        ))
        .await;
    let seen = pair.good.requests().pop().unwrap();
    assert_eq!(seen.line, "GET /x?y");
    let mut sent: Vec<&str> = seen.headers.iter().map(|(name, _)| name.as_str()).collect();
    sent.sort_unstable();
    assert_eq!(sent, ["host", "x-theirs"]);
}

#[tokio::test]
async fn t39_the_name_in_a_tls_greeting_is_the_one_of_the_tunnel() {
    let vouching = Vouching::new();
    let names = ["good.test", "evil.test"];
    let host = Host::tls(vouching.config(&names, &[], |_| {})).await;
    let to = format!("good.test:{}", host.port());
    let rules = Rules::new(policy(&[&to, "127.0.0.2:0"]));
    let world = World::usual();
    let sandbox = world.sandbox(&rules);
    for (expected, fits) in [("good.test", true), ("evil.test", false), ("127.0.0.2", false)] {
        let stream = sandbox.tunnel(&to).await.unwrap();
        let name = ServerName::try_from(expected).unwrap();
        let mut greeted = tls_connector(&vouching.pem()).connect(name, stream).await;
        if let Ok(stream) = &mut greeted {
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
            let mut answer = String::new();
            let _ = stream.read_to_string(&mut answer).await;
            assert!(answer.contains("hello"), "{answer}");
        }
        assert_eq!(greeted.is_ok(), fits, "{expected}");
    }
    let refused = rules.attempts.lock().unwrap().iter().filter(|it| !it.allowed).count();
    assert_eq!(refused, 2);
    assert_eq!(host.requests().len(), 1);
}

#[tokio::test]
async fn t39_a_greeting_in_pieces_is_read_whole_before_any_of_it_passes() {
    let listener = tokio::net::TcpListener::bind("127.0.0.2:0").await.unwrap();
    let to = format!("good.test:{}", listener.local_addr().unwrap().port());
    let rules = Rules::new(policy(&[&to, "127.0.0.2:0"]));
    let world = World::usual();
    let sandbox = world.sandbox(&rules);
    let mut stream = sandbox.tunnel(&to).await.unwrap();
    let (mut host, _) = listener.accept().await.unwrap();
    // A record of a handshake that never ends.
    for byte in [0x16, 0x03, 0x01, 0x02, 0x00, 0x01] {
        stream.write_all(&[byte]).await.unwrap();
        wait::slow_peer(std::time::Duration::from_millis(20)).await;
    }
    stream.shutdown().await.unwrap();
    let mut received = Vec::new();
    let _ = host.read_to_end(&mut received).await;
    assert_eq!(received, b"");
}

#[tokio::test]
async fn a_host_that_speaks_first_is_heard() {
    let listener = tokio::net::TcpListener::bind("127.0.0.2:0").await.unwrap();
    let to = format!("good.test:{}", listener.local_addr().unwrap().port());
    let world = World::usual();
    let sandbox = world.sandbox(&Rules::new(policy(&[&to, "127.0.0.2:0"])));
    let mut stream = sandbox.connect().await;
    let request = format!("CONNECT {to} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let answer = head(&mut stream).await.to_lowercase();
    // What a length could be of is no part of the tunnel.
    assert!(answer.contains(" 200 ") && !answer.contains("content-length"), "{answer}");
    let (mut host, _) = listener.accept().await.unwrap();
    host.write_all(b"220 ready\r\n\r\n").await.unwrap();
    assert_eq!(head(&mut stream).await, "220 ready\r\n\r\n");
    stream.write_all(b"QUIT").await.unwrap();
    let mut received = [0; 4];
    host.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"QUIT");
}
