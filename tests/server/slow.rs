//! Slow clients: they are disconnected, and delay no other client.

use crate::harness::wait;
use crate::raw::{authority, connect};
use crate::test_server::{Api, World};
use reqwest::Method;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Connections of each of the three kinds that never ask for anything.
const OF_EACH: usize = 100;
/// Bodies that never come to their end, and streams on which nothing happens.
const HELD: usize = 50;
/// What the server allows, and what a busy machine adds.
const SILENCE: Duration = Duration::from_secs(10 + 8);
const BODY: Duration = Duration::from_secs(30 + 15);
/// Connections that are open after this time fail the test.
const GIVEN_UP: Duration = Duration::from_secs(90);
/// Below this a request is fast, whatever it is compared with.
const FLOOR: Duration = Duration::from_millis(60);

/// The slowest but one of a hundred requests.
async fn p99(api: &Api) -> Duration {
    let mut taken = Vec::with_capacity(200);
    for _ in 0..200 {
        let began = Instant::now();
        api.get("/v1/principals/me").await;
        taken.push(began.elapsed());
    }
    taken.sort();
    taken[taken.len() * 99 / 100 - 1]
}

/// Says this much, then a letter a second, and tells when and how it was cut off.
fn drip(address: &str, begin: Vec<u8>, then: &'static [u8]) -> JoinHandle<(Duration, String)> {
    let address = address.to_owned();
    tokio::spawn(async move {
        let began = Instant::now();
        let mut stream = connect(&address).await;
        let _ = stream.write_all(&begin).await;
        let mut heard = Vec::new();
        while began.elapsed() < GIVEN_UP {
            let mut piece = [0; 4096];
            match tokio::time::timeout(Duration::from_secs(1), stream.read(&mut piece)).await {
                Ok(Ok(0) | Err(_)) => break,
                Ok(Ok(size)) => heard.extend_from_slice(&piece[..size]),
                Err(_) if stream.write_all(then).await.is_err() => break,
                Err(_) => {}
            }
        }
        (began.elapsed(), String::from_utf8_lossy(&heard).into_owned())
    })
}

fn headers(world: &World, line: &str) -> String {
    let host = authority(world.address());
    format!("{line}\r\nHost: {host}\r\nAuthorization: Bearer {}\r\n", world.owner.key)
}

#[tokio::test(flavor = "multi_thread")]
async fn t59_slow_clients_are_disconnected_and_delay_no_other_client() {
    let world = World::start().await;
    let usual = p99(&world.owner).await;
    let address = world.address();
    let mut silent = Vec::new();
    for _ in 0..OF_EACH {
        silent.push(drip(address, Vec::new(), b""));
        silent.push(drip(address, headers(&world, "GET /healthz HTTP/1.1").into(), b"x"));
        silent.push(drip(address, b"PRI * HTTP/2.0".to_vec(), b""));
    }
    let execute = headers(&world, "POST /v1/execute HTTP/1.1");
    let execute =
        format!("{execute}Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n{{");
    let form = headers(&world, "POST /v1/documents HTTP/1.1");
    let form = format!(
        "{form}Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 1000\r\n\r\n--b\r\n"
    );
    let bodies: Vec<_> = (0..HELD / 2)
        .flat_map(|_| [(&execute, b" ".as_slice()), (&form, b"".as_slice())])
        .map(|(begin, then)| drip(address, begin.clone().into(), then))
        .collect();
    let mut streams = Vec::new();
    for _ in 0..HELD {
        let stream = world.owner.request(Method::GET, "/v1/approvals/events").send().await.unwrap();
        assert_eq!(stream.status(), 200);
        streams.push(stream);
    }
    let beside = p99(&world.owner).await;
    assert!(beside < usual * 2 + FLOOR, "{usual:?} alone, {beside:?} beside slow ones");
    for slow in silent {
        let (after, heard) = slow.await.unwrap();
        assert!(after < SILENCE, "{after:?} {heard}");
        assert!(!heard.contains("200 OK"), "{heard}");
    }
    for slow in bodies {
        let (after, heard) = slow.await.unwrap();
        assert!(after < BODY, "{after:?}");
        assert!(heard.starts_with("HTTP/1.1 400"), "{heard}");
    }
    // A stream without events stays open, as its client wants.
    for mut stream in streams {
        let chunk = tokio::time::timeout(Duration::from_secs(20), stream.chunk()).await;
        assert!(chunk.unwrap().unwrap().unwrap().starts_with(b":\n\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t59_a_connection_can_be_used_again_and_is_not_kept_for_ever() {
    let world = World::start().await;
    let mut stream = connect(world.address()).await;
    let request = headers(&world, "GET /healthz HTTP/1.1") + "\r\n";
    for _ in 0..3 {
        stream.write_all(request.as_bytes()).await.unwrap();
        assert!(heard(&mut stream).await.starts_with("HTTP/1.1 200"));
        wait::slow_peer(Duration::from_secs(4)).await;
    }
    let idle = Instant::now();
    assert_eq!(heard(&mut stream).await, "", "it is closed");
    assert!(idle.elapsed() < SILENCE);
}

async fn heard(stream: &mut TcpStream) -> String {
    let mut piece = [0; 4096];
    let size = tokio::time::timeout(Duration::from_secs(30), stream.read(&mut piece));
    let size = size.await.unwrap().unwrap_or(0);
    String::from_utf8_lossy(&piece[..size]).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn t59_a_server_full_of_silence_serves_again_and_still_hears_its_operator() {
    // Half of so many descriptors are for connections.
    let mut world = World::under(&["prlimit", "--nofile=512:512"], &[]).await;
    let mut silent = Vec::new();
    for _ in 0..400 {
        silent.push(connect(world.address()).await);
    }
    // Our turn comes when the first of them are cut off.
    let began = Instant::now();
    let late = world.api(&world.owner.key);
    late.get("/v1/principals/me").await;
    assert!(began.elapsed() < SILENCE * 2, "{:?}", began.elapsed());
    assert_eq!(late.execute("1").await["value"], 1, "there are descriptors for sandboxes");
    for _ in 0..400 {
        silent.push(connect(world.address()).await);
    }
    let began = Instant::now();
    assert_eq!(world.stop().await, Some(0));
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
}
