//! Every attempt is logged, whether it reaches a host or is denied.

use crate::host::{Host, Vouching};
use crate::wait;
use crate::world::{Rules, World, all_names, credential, head, limits, policy, tls_connector};
use belljar_egress::{EgressAttempt, EgressPolicy};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::rustls::pki_types::ServerName;

const SHORT: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until so many attempts are written down.
async fn written(rules: &Rules, count: usize) -> Vec<EgressAttempt> {
    let attempts = || rules.attempts.lock().unwrap().clone();
    let enough = async || Some(attempts()).filter(|attempts| attempts.len() >= count);
    wait::until_some(&format!("{count} attempts are written down"), enough).await
}

/// What is written down when nothing more comes.
async fn all_written(rules: &Rules) -> Vec<EgressAttempt> {
    let count = async || rules.attempts.lock().unwrap().len();
    let count = wait::at_rest(SHORT, "the log", count).await;
    written(rules, count).await
}

/// Waits until a host has heard a request.
async fn wait_for_request(host: &Host) {
    wait::until("the host has heard a request", async || !host.requests().is_empty()).await;
}

async fn plain() -> (Host, World, Arc<Rules>, String) {
    let host = Host::plain().await;
    let to = format!("good.test:{}", host.port());
    let rules = Rules::new(policy(&[&to, "127.0.0.2:0"]));
    (host, World::usual(), rules, to)
}

fn silence(to: &str) -> String {
    format!("GET http://{to}/silence?stolen HTTP/1.1\r\nHost: {to}\r\n\r\n")
}

fn is_unfinished(attempt: &EgressAttempt, host: &Host) {
    assert_eq!((attempt.host.as_str(), attempt.port), ("good.test", host.port()));
    assert_eq!(attempt.integration.as_deref(), Some("some"));
    assert!(attempt.allowed);
    let reason = attempt.reason.as_deref().unwrap();
    assert!(
        reason.starts_with("the client disconnected or its sandbox ended before good.test:"),
        "{reason}"
    );
}

#[tokio::test]
async fn a_request_is_written_down_although_its_client_does_not_wait_for_the_answer() {
    let (host, world, rules, to) = plain().await;
    let sandbox = world.sandbox(&rules);
    let mut stream = sandbox.connect().await;
    stream.write_all(silence(&to).as_bytes()).await.unwrap();
    wait_for_request(&host).await;
    drop(stream);
    is_unfinished(&written(&rules, 1).await[0], &host);
}

#[tokio::test]
async fn a_request_is_written_down_although_its_sandbox_ends() {
    let (host, world, rules, to) = plain().await;
    let sandbox = world.sandbox(&rules);
    let mut stream = sandbox.connect().await;
    stream.write_all(silence(&to).as_bytes()).await.unwrap();
    wait_for_request(&host).await;
    drop(sandbox);
    is_unfinished(&written(&rules, 1).await[0], &host);
}

#[tokio::test]
async fn an_answered_request_is_written_down_once_and_a_connection_without_one_is_not() {
    let (_host, world, rules, to) = plain().await;
    let sandbox = world.sandbox(&rules);
    drop(sandbox.connect().await);
    let response = sandbox.client("").get(format!("http://{to}/")).send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "hello");
    drop(sandbox.tunnel(&to).await.unwrap());
    drop(sandbox);
    written(&rules, 2).await;
    let attempts = all_written(&rules).await;
    assert_eq!(attempts.len(), 2, "{attempts:?}");
    assert!(attempts.iter().all(|it| it.allowed && it.reason.is_none()), "{attempts:?}");
}

#[tokio::test]
async fn an_intercepted_tunnel_is_written_down_although_nothing_is_asked_in_it() {
    let vouching = Vouching::new();
    let host = Host::tls(vouching.config(&["api.test"], &["http/1.1"], |_| {})).await;
    let world = World::new(&vouching.pem(), all_names(), limits());
    let credentials = vec![credential("api.test", host.port())];
    let rules = Rules::new(EgressPolicy { credentials, ..policy(&["127.0.0.2:0"]) });
    let sandbox = world.sandbox(&rules);
    let to = format!("api.test:{}", host.port());

    drop(sandbox.tunnel(&to).await.unwrap());
    let left = written(&rules, 1).await.pop().unwrap();
    assert_eq!((left.host.as_str(), left.port), ("api.test", host.port()));
    assert_eq!(left.integration.as_deref(), Some("secret:openai"));
    assert!(left.reason.is_some());

    let stream = sandbox.tunnel(&to).await.unwrap();
    let name = ServerName::try_from("api.test").unwrap();
    drop(tls_connector(&world.ca).connect(name, stream).await.unwrap());
    let greeted = written(&rules, 2).await.pop().unwrap();
    assert!(greeted.allowed && greeted.reason.is_some(), "{greeted:?}");

    // One in which something is asked is one attempt.
    let response = sandbox.client("").get(format!("https://{to}/")).send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "hello");
    written(&rules, 3).await;
    let attempts = all_written(&rules).await;
    assert_eq!(attempts.len(), 3, "{attempts:?}");
    assert_eq!(attempts[2].reason, None);
}

#[tokio::test]
async fn a_request_that_is_not_understood_is_written_down_with_what_it_names() {
    let (host, world, rules, to) = plain().await;
    let sandbox = world.sandbox(&rules);
    sandbox.say(format!("GET http://{to}/ HTTP/1.1\r\nHost: evil.test:7\r\n\r\n")).await;
    sandbox.say("GET / HTTP/1.1\r\nHost: other.test:8\r\n\r\n").await;
    sandbox.say("GET / HTTP/1.0\r\n\r\n").await;
    let attempts = written(&rules, 3).await;
    let named: Vec<_> = attempts.iter().map(|it| (it.host.as_str(), it.port)).collect();
    assert_eq!(named, [("good.test", host.port()), ("other.test", 8), ("", 0)]);
    assert!(attempts.iter().all(|it| !it.allowed && it.reason.is_some()), "{attempts:?}");
}

/// What one says inside of an intercepted tunnel, and what is written down of it.
async fn inside(message: &str) -> Vec<EgressAttempt> {
    let vouching = Vouching::new();
    let host = Host::tls(vouching.config(&["api.test"], &["http/1.1"], |_| {})).await;
    let world = World::new(&vouching.pem(), all_names(), limits());
    let credentials = vec![credential("api.test", host.port())];
    let rules = Rules::new(EgressPolicy { credentials, ..policy(&["127.0.0.2:0"]) });
    let sandbox = world.sandbox(&rules);
    let to = format!("api.test:{}", host.port());
    let stream = sandbox.tunnel(&to).await.unwrap();
    let name = ServerName::try_from("api.test").unwrap();
    let mut stream = tls_connector(&world.ca).connect(name, stream).await.unwrap();
    stream.write_all(message.replace("TO", &to).as_bytes()).await.unwrap();
    let mut received = Vec::new();
    // A connection that is reset has ended too.
    let _ =
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut received)).await.expect("an end");
    drop(stream);
    written(&rules, 1).await;
    all_written(&rules).await
}

#[tokio::test]
async fn what_is_refused_inside_of_an_intercepted_tunnel_is_written_down_as_refused() {
    for (message, reason) in [
        ("GET / HTTP/1.1\r\nHost: other.test\r\n\r\n", "the Host header does not match"),
        ("GET http://other.test/ HTTP/1.1\r\nHost: TO\r\n\r\n", "the Host header does not match"),
        (
            "CONNECT other.test:1 HTTP/1.1\r\nHost: other.test:1\r\n\r\n",
            "the Host header does not match",
        ),
        ("GET / HTTP/1.1\r\nX : y\r\nHost: TO\r\n\r\n", "the request head is not valid HTTP/1.1"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "the request head is not valid HTTP/1.1"),
    ] {
        let attempts = inside(message).await;
        let [attempt] = &attempts[..] else { panic!("{message}: {attempts:?}") };
        assert_eq!(attempt.host, "api.test", "{message}");
        assert!(!attempt.allowed, "{message}: {attempt:?}");
        assert!(attempt.reason.as_ref().unwrap().starts_with(reason), "{message}: {attempt:?}");
    }
    // The second of two as well.
    let attempts = inside("GET / HTTP/1.1\r\nHost: TO\r\n\r\nnonsense\r\n\r\n").await;
    let allowed: Vec<bool> = attempts.iter().map(|it| it.allowed).collect();
    assert_eq!(allowed, [true, false], "{attempts:?}");
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_written_down_as_such() {
    let message =
        "POST /body HTTP/1.1\r\nHost: TO\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nZ\r\n";
    let attempts = inside(message).await;
    let [attempt] = &attempts[..] else { panic!("{attempts:?}") };
    assert!(attempt.allowed);
    let reason = attempt.reason.as_ref().unwrap();
    assert!(reason.starts_with("the body of a request to api.test:"), "{reason}");
}

#[tokio::test]
async fn a_request_for_which_there_is_no_room_is_written_down() {
    let (host, _, rules, to) = plain().await;
    let mut few = limits();
    few.connections = 1;
    let sandbox = World::new("", all_names(), few).sandbox(&rules);
    let _only = sandbox.tunnel(&to).await.unwrap();
    sandbox.tunnel(&to).await.unwrap_err();
    let refused = written(&rules, 2).await.pop().unwrap();
    assert_eq!((refused.host.as_str(), refused.port), ("good.test", host.port()));
    assert!(!refused.allowed);
    assert!(refused.reason.unwrap().contains("connections of this session reached"));
}

#[tokio::test]
async fn a_web_socket_that_is_cut_off_is_written_down() {
    let (_host, _, rules, to) = plain().await;
    let mut silent = limits();
    silent.idle_timeout = SHORT;
    let sandbox = World::new("", all_names(), silent).sandbox(&rules);
    let mut stream = sandbox.connect().await;
    let request = format!(
        "GET http://{to}/socket HTTP/1.1\r\nHost: {to}\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    assert!(head(&mut stream).await.starts_with("HTTP/1.1 101"));
    let attempts = written(&rules, 2).await;
    assert_eq!(attempts[0].reason, None);
    assert!(attempts[1].allowed);
    assert!(attempts[1].reason.as_deref().unwrap().contains("no data for"));
}
