//! Limits of connections: whatever a host or a client does, the connection ends with a reason.

use crate::host::{Host, Vouching};
use crate::world::{
    Rules, Sandbox, World, all_names, credential, head, hear_all, limits, policy, status,
};
use crate::{wait, wait_blocking};
use belljar_egress::{EgressPolicy, ProxyLimits, Resolver};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const SHORT: Duration = Duration::from_millis(300);

fn bounded(change: impl FnOnce(&mut ProxyLimits)) -> World {
    let mut limits = limits();
    change(&mut limits);
    World::new("", all_names(), limits)
}

async fn plain(change: impl FnOnce(&mut ProxyLimits)) -> (Host, World, Arc<Rules>, Sandbox) {
    let host = Host::plain().await;
    let world = bounded(change);
    let rules = Rules::new(policy(&[&format!("good.test:{}", host.port()), "127.0.0.2:0"]));
    let sandbox = world.sandbox(&rules);
    (host, world, rules, sandbox)
}

/// A host that sends these bytes to every client, and then nothing.
async fn saying(bytes: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let to = format!("good.test:{}", listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(bytes).await;
            open.push(stream);
        }
    });
    to
}

#[tokio::test]
async fn a_host_that_hangs_is_left_after_a_time() {
    let (host, _world, rules, sandbox) = plain(|it| it.idle_timeout = SHORT).await;
    let url = format!("http://good.test:{}/silence", host.port());
    let response = sandbox.client("").get(url).send().await.unwrap();
    assert_eq!(response.status(), 504);
    // The timeout of this test, in whole seconds, and no other.
    assert!(response.text().await.unwrap().contains("no data for 0 seconds"));
    assert!(rules.last().allowed);
    assert!(rules.last().reason.is_some());
    let tunnel = &mut sandbox.tunnel(&format!("good.test:{}", host.port())).await.unwrap();
    assert_eq!(hear_all(tunnel).await, "");
}

#[tokio::test]
async fn a_host_that_does_not_finish_its_greeting_is_left_after_a_time() {
    let to = saying(b"").await;
    let world = bounded(|it| it.connect_timeout = SHORT);
    let port = to.rsplit(':').next().unwrap().parse().unwrap();
    let credentials = vec![credential("good.test", port)];
    let sandbox =
        world.sandbox(&Rules::new(EgressPolicy { credentials, ..policy(&["127.0.0.2:0"]) }));
    let response = sandbox.client("").get(format!("https://{to}/")).send().await.unwrap();
    assert_eq!(response.status(), 504);
    assert_eq!(response.text().await.unwrap(), format!("{to} did not respond in time\n"));
}

#[tokio::test]
async fn a_host_that_lies_about_its_length_is_not_believed() {
    let world = bounded(|it| it.idle_timeout = SHORT);
    for bytes in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"[..],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabcde",
        b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\nabc",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        b"not http at all\r\n\r\n",
    ] {
        let to = saying(bytes).await;
        let sandbox = world.sandbox(&Rules::new(policy(&[&to, "127.0.0.2:0"])));
        // It is either told that there is no answer, or its answer breaks off.
        let whole = match sandbox.client("").get(format!("http://{to}/")).send().await {
            Ok(response) if response.status() == 502 => false,
            Ok(response) => response.bytes().await.is_ok(),
            Err(_) => false,
        };
        assert!(!whole, "{}", String::from_utf8_lossy(bytes));
    }
    // More than it said is not part of the answer, nor of the next one.
    let to =
        saying(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\n\r\nevil").await;
    let sandbox = world.sandbox(&Rules::new(policy(&[&to, "127.0.0.2:0"])));
    let client = sandbox.client("");
    for _ in 0..2 {
        let response = client.get(format!("http://{to}/")).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "abc");
    }
}

#[tokio::test]
async fn a_redirect_to_this_machine_leads_to_a_denial() {
    let (host, _world, rules, sandbox) = plain(|_| {}).await;
    let tripwire = Host::start(None, "127.0.0.1:0").await;
    for inside in ["127.0.0.1", "localhost", "0x7f000001", "[::1]", "[::ffff:127.0.0.1]"] {
        let to = format!("http://{inside}:{}/", tripwire.port());
        let url = format!("http://good.test:{}/redirect?{to}", host.port());
        let response = sandbox.client("").get(url).send().await.unwrap();
        assert_eq!(response.status(), 403, "{to}");
        assert!(!rules.last().allowed);
    }
    assert_eq!(tripwire.connections.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn headers_without_end_are_refused() {
    let (host, _world, _rules, sandbox) = plain(|_| {}).await;
    let begin = format!("GET http://good.test:{}/ HTTP/1.1\r\n", host.port());
    let long = format!("{begin}X: {}\r\n\r\n", "a".repeat(200_000));
    let many = format!("{begin}{}\r\n", "X: a\r\n".repeat(500));
    for request in [long, many] {
        let mut stream = sandbox.connect().await;
        // It may not want to hear all of it.
        let _ = stream.write_all(request.as_bytes()).await;
        assert!(head(&mut stream).await.starts_with("HTTP/1.1 431"));
    }
    assert_eq!(host.requests().len(), 0);
}

#[tokio::test]
async fn a_client_that_says_nothing_is_left_after_a_time() {
    let (_host, _world, _rules, sandbox) = plain(|it| it.header_timeout = SHORT).await;
    let mut stream = sandbox.connect().await;
    stream.write_all(b"GET http://goo").await.unwrap();
    assert!(!hear_all(&mut stream).await.contains("200"));
}

#[tokio::test]
async fn more_connections_than_a_sandbox_may_have_are_told_so() {
    let (host, _world, _rules, sandbox) = plain(|it| it.connections = 2).await;
    let to = format!("good.test:{}", host.port());
    let first = sandbox.tunnel(&to).await.unwrap();
    let _second = sandbox.tunnel(&to).await.unwrap();
    let error = sandbox.tunnel(&to).await.unwrap_err();
    let expected = "HTTP/1.1 503 limit of 2 connections of this session reached; close some";
    assert_eq!(status(&error), expected);
    drop(first);
    wait::until("its place is free", async || sandbox.tunnel(&to).await.is_ok()).await;
}

#[tokio::test]
async fn a_sandbox_that_has_sent_or_received_too_much_is_told_so() {
    let (host, world, rules, sandbox) = plain(|it| {
        it.bytes_down = 100_000;
        it.bytes_up = 200_000;
    })
    .await;
    let url = format!("http://good.test:{}", host.port());
    let client = sandbox.client("");
    let response = client.get(format!("{url}/long?1000000")).send().await.unwrap();
    assert!(response.bytes().await.is_err());
    let refused = client.get(&url).send().await.unwrap();
    assert_eq!(refused.status(), 403);
    let expected = "network.denied: limit of 100000 bytes received by this session reached; reset the session\n";
    assert_eq!(refused.text().await.unwrap(), expected);

    // Another sandbox has its own account.
    let other = world.sandbox(&rules);
    let client = other.client("");
    assert_eq!(client.get(&url).send().await.unwrap().status(), 200);
    let sent = client.post(&url).body(vec![0; 1_000_000]).send().await;
    assert!(sent.is_err() || sent.unwrap().status() == 403);
    let refused = client.get(&url).send().await.unwrap();
    assert!(refused.text().await.unwrap().contains("limit of 200000 bytes sent"));
    assert!(other.tunnel(&format!("good.test:{}", host.port())).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_at_once_are_served_without_an_error() {
    let vouching = Vouching::new();
    let host = Host::tls(vouching.config(&["api.test"], &["h2", "http/1.1"], |_| {})).await;
    let world = World::new(&vouching.pem(), all_names(), limits());
    let credentials = vec![credential("api.test", host.port())];
    let sandbox =
        world.sandbox(&Rules::new(EgressPolicy { credentials, ..policy(&["127.0.0.2:0"]) }));
    let url = format!("https://api.test:{}/", host.port());
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..200 {
        // Each has its own connections.
        let (client, url) = (sandbox.client(""), url.clone());
        asking.spawn(async move { client.get(url).send().await.unwrap().status() });
    }
    let answers = asking.join_all().await;
    assert_eq!(answers.iter().filter(|status| **status == 200).count(), 200);
}

#[tokio::test]
async fn more_connections_than_all_sandboxes_may_have_are_told_so() {
    let (host, world, rules, sandbox) = plain(|it| it.connections_total = 2).await;
    let other = world.sandbox(&rules);
    let to = format!("good.test:{}", host.port());
    let first = sandbox.tunnel(&to).await.unwrap();
    let _second = sandbox.tunnel(&to).await.unwrap();
    let error = other.tunnel(&to).await.unwrap_err();
    let expected = "HTTP/1.1 503 limit of 2 connections of all sandboxes of this server";
    assert!(status(&error).starts_with(expected), "{error}");
    assert!(!rules.last().allowed);
    drop(first);
    wait::until("its place is free", async || other.tunnel(&to).await.is_ok()).await;
}

/// Names of `slow.test` are not found, and that takes long.
fn slow_names(time: Duration) -> (Resolver, Arc<AtomicUsize>) {
    let (maximum, count) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let most = maximum.clone();
    let resolver = Resolver::Custom(Arc::new(move |name| {
        if !name.ends_with(".slow.test") {
            return Ok(vec!["127.0.0.2".parse().unwrap()]);
        }
        maximum.fetch_max(1 + count.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
        wait_blocking::slow_peer(time);
        count.fetch_sub(1, Ordering::SeqCst);
        Err(std::io::ErrorKind::NotFound.into())
    }));
    (resolver, most)
}

#[tokio::test]
async fn names_that_take_long_do_not_take_the_threads_of_the_server() {
    let (resolver, most) = slow_names(8 * SHORT);
    let limits = ProxyLimits { connect_timeout: SHORT, lookups: 2, lookups_total: 3, ..limits() };
    let world = World::new("", resolver, limits);
    let host = Host::plain().await;
    let rules = Rules::new(policy(&["*.slow.test:0", "good.test:0", "127.0.0.2:0"]));
    let (one, other) = (world.sandbox(&rules), world.sandbox(&rules));
    let ask = async |sandbox: &Sandbox, name: &str| {
        sandbox.tunnel(&format!("{name}.slow.test:443")).await.unwrap_err()
    };
    let answers = tokio::join!(ask(&one, "a"), ask(&one, "b"), ask(&one, "c"));
    let unresolved = |answer: &str| status(answer).ends_with("cannot be resolved");
    assert!(unresolved(&answers.0) && unresolved(&answers.1));
    assert!(answers.2.starts_with("HTTP/1.1 504 c.slow.test:443 cannot be resolved: too many"));
    // The clients of those two lookups are gone, but their threads are still in use.
    let good = format!("good.test:{}", host.port());
    assert!(one.tunnel(&good).await.unwrap_err().contains("cannot be resolved: too many"));
    assert!(other.tunnel(&good).await.is_ok(), "another sandbox has its own limit");
    let answers = tokio::join!(ask(&other, "d"), ask(&other, "e"));
    assert!(unresolved(&answers.0) != unresolved(&answers.1), "{answers:?}");
    assert_eq!(most.load(Ordering::SeqCst), 3);
    wait::until("its threads are free", async || one.tunnel(&good).await.is_ok()).await;
}

#[tokio::test]
async fn t110_idle_connections_take_no_place_of_others() {
    let (host, world, rules, sandbox) = plain(|it| {
        it.connections_total = 8;
        it.connections_per_workspace = 4;
        it.idle_connections = 4;
        it.idle_connections_total = 6;
    })
    .await;
    let to = format!("good.test:{}", host.port());
    let mut busy = sandbox.tunnel(&to).await.unwrap();
    let sandboxes: Vec<Sandbox> = (0..5).map(|_| world.sandbox(&rules)).collect();
    let mut silent = Vec::new();
    for sandbox in &sandboxes {
        for _ in 0..20 {
            silent.push(sandbox.connect().await);
        }
    }
    // The connections that were idle longest are closed, not those in use.
    let first = &mut silent[0];
    let read = tokio::time::timeout(Duration::from_secs(10), first.read(&mut [0; 1])).await;
    assert!(matches!(read, Ok(Ok(0) | Err(_))), "{read:?}");
    for sandbox in sandboxes.iter().chain([&sandbox]) {
        let url = format!("http://{to}/");
        assert_eq!(sandbox.client("").get(url).send().await.unwrap().status(), 200);
    }
    let request = format!("GET / HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n");
    busy.write_all(request.as_bytes()).await.unwrap();
    assert!(hear_all(&mut busy).await.starts_with("HTTP/1.1 200"), "the tunnel is open");
}

#[tokio::test]
async fn t110_one_workspace_leaves_room_for_another() {
    let (host, world, rules, sandbox) = plain(|it| it.connections_per_workspace = 2).await;
    let to = format!("good.test:{}", host.port());
    let (second, first) = (world.sandbox(&rules), sandbox);
    let theirs = Rules::new(policy(&[&to, "127.0.0.2:0"]));
    let theirs = Arc::new(Rules { workspace: 7, ..Arc::into_inner(theirs).unwrap() });
    let other = world.sandbox(&theirs);
    let held = [first.tunnel(&to).await.unwrap(), second.tunnel(&to).await.unwrap()];
    let error = second.tunnel(&to).await.unwrap_err();
    let expected = "HTTP/1.1 503 limit of 2 connections of all sandboxes of this workspace";
    assert!(status(&error).starts_with(expected), "{error}");
    assert!(other.tunnel(&to).await.is_ok());
    drop(held);
    wait::until("their places are free", async || second.tunnel(&to).await.is_ok()).await;
}
