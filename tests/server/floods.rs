//! Floods of requests: clients that send too much, too many or never enough are refused with a reason, and delay
//! no other client.

use crate::harness::wait;
use crate::raw::{Answer, Kept, authority, connect, frame, request, send};
use crate::test_server::{Api, World};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const MIB: usize = 1024 * 1024;
/// Generous for a busy machine; what was mended took far longer or never ended.
const SOON: Duration = Duration::from_secs(8);

fn head(world: &World, key: &str, line: &str, kind: &str, length: usize) -> String {
    let host = authority(world.address());
    format!(
        "{line}\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\nContent-Type: {kind}\r\n\
         Content-Length: {length}\r\n\r\n"
    )
}

/// Reads the head of an answer, and as much of its body as comes with it.
async fn heard(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let reading = async {
        let mut piece = [0; 4096];
        loop {
            match stream.read(&mut piece).await {
                Ok(0) | Err(_) => break,
                Ok(size) => text.extend_from_slice(&piece[..size]),
            }
            let so_far = String::from_utf8_lossy(&text).to_lowercase();
            let length = so_far.split("content-length: ").nth(1);
            let length = length.and_then(|rest| rest.lines().next()?.parse::<usize>().ok());
            let body = so_far.split_once("\r\n\r\n").map(|(_, body)| body.len());
            if body.zip(length).is_some_and(|(body, length)| body >= length) {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(60), reading).await;
    String::from_utf8_lossy(&text).into_owned()
}

/// The slowest of some questions whether the server is there.
async fn slowest(api: &Api) -> Duration {
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        let began = Instant::now();
        api.get("/healthz").await;
        slowest = slowest.max(began.elapsed());
    }
    slowest
}

/// Memory of the server, in bytes.
fn resident(world: &World) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", world.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

#[tokio::test(flavor = "multi_thread")]
async fn t108_a_key_without_a_grant_is_refused_before_its_body_is_read() {
    let world = World::start().await;
    let nobody = world.principal("nobody", &[]).await;
    let began = Instant::now();
    let line = "POST /v1/execute HTTP/1.1";
    let mut stream = connect(world.address()).await;
    let begin = head(&world, &nobody.key, line, "application/json", 8 * MIB - 1);
    stream.write_all(begin.as_bytes()).await.unwrap();
    let answer = heard(&mut stream).await;
    assert!(
        answer.starts_with("HTTP/1.1 403") && answer.contains("a key without grants"),
        "{answer}"
    );
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    // A small body is handled as a request, and a principal with a grant may send more.
    let small = nobody.refused("POST", "/v1/execute", Some(json!({"code": "1"}))).await;
    assert_eq!(small, (403, "grant.missing".to_owned()));
    let code = format!("len('{}')", "x".repeat(MIB));
    assert_eq!(world.owner.execute(&code).await["value"], MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn t108_bodies_of_one_key_that_never_end_are_bounded_and_other_keys_have_room() {
    let world = World::start().await;
    let other = world.principal("other", &["USAGE"]).await;
    let begin =
        head(&world, &world.owner.key, "POST /v1/execute HTTP/1.1", "application/json", 8 * MIB);
    let almost = vec![b' '; 8 * MIB - 1];
    let mut unfinished = Vec::new();
    for _ in 0..9 {
        let mut stream = connect(world.address()).await;
        stream.write_all(begin.as_bytes()).await.unwrap();
        // The one that goes over the bound is refused while it sends.
        let _ = stream.write_all(&almost).await;
        unfinished.push(stream);
    }
    let began = Instant::now();
    let refused = 'answered: loop {
        for stream in &mut unfinished {
            let wait = Duration::from_millis(50);
            if tokio::time::timeout(wait, stream.peek(&mut [0; 1])).await.is_ok() {
                break 'answered heard(stream).await;
            }
        }
        assert!(began.elapsed() < SOON * 2, "none of them was refused");
    };
    assert!(refused.starts_with("HTTP/1.1 429"), "{refused}");
    assert!(
        refused.to_lowercase().contains("retry-after") && refused.contains("bodies of this key")
    );
    assert_eq!(other.execute("6 * 7").await["value"], 42);
    drop(unfinished);
    let code = || Some(json!({"code": "1"}));
    let has_room = async || world.owner.call("POST", "/v1/execute", code()).await.0 == 200;
    wait::within(SOON * 4, "room comes back", has_room).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t108_bodies_of_many_values_are_refused_and_delay_no_other_request() {
    let world = World::start().await;
    let body = format!("{{\"code\": \"1\", \"arguments\": [{}[]]}}", "[],".repeat(2_700_000));
    let mut sending = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (owner, body) = (world.owner.clone(), body.clone());
        sending.spawn(async move {
            let request = owner.request("POST".parse().unwrap(), "/v1/execute");
            let request = request.header("content-type", "application/json").body(body);
            request.send().await.unwrap().status().as_u16()
        });
    }
    let slowest = slowest(&world.owner).await;
    for status in sending.join_all().await {
        assert_eq!(status, 413);
    }
    assert!(slowest < Duration::from_secs(3), "{slowest:?}");
    let numbers: Vec<u32> = (0..100_000).collect();
    let code = format!("len({})", Value::from(numbers));
    assert_eq!(world.owner.execute(&code).await["value"], 100_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn t111_a_form_whose_preamble_or_headers_do_not_end_is_refused() {
    let world = World::start().await;
    let kind = "multipart/form-data; boundary=b";
    let part = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n";
    for (form, reason) in [
        ("x".repeat(MIB), "before its first part"),
        (format!("{part}X: {}", "x".repeat(MIB)), "bytes of headers"),
        (format!("{part}\r\n1\r\n{part}X: {}", "x".repeat(MIB)), "bytes of headers"),
    ] {
        let began = Instant::now();
        let begin = head(&world, &world.owner.key, "POST /v1/documents HTTP/1.1", kind, 200 * MIB);
        let mut stream = connect(world.address()).await;
        stream.write_all(begin.as_bytes()).await.unwrap();
        let _ = stream.write_all(form.as_bytes()).await;
        let answer = heard(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains(reason), "{answer}");
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    }
    let form = format!("a preamble\r\n{part}\r\nabc\r\n--b--\r\nan epilogue");
    let mut kept = Kept::open(world.address(), &world.owner.key).await;
    let (status, uploaded) = kept.post("/v1/documents", kind, &form).await;
    assert_eq!((status, &uploaded["items"][0]["size"]), (201, &json!(3)), "{uploaded}");
}

#[tokio::test(flavor = "multi_thread")]
async fn t113_a_refusal_leaves_the_connection_open_or_says_that_it_does_not() {
    let world = World::start().await;
    let mut kept = Kept::open(world.address(), "bj_nonsense").await;
    let body = json!({"code": "x".repeat(20_000)}).to_string();
    for _ in 0..3 {
        assert_eq!(kept.post("/v1/execute", "application/json", &body).await.0, 401);
    }
    let mut kept = Kept::open(world.address(), &world.owner.key).await;
    for _ in 0..3 {
        assert_eq!(kept.post("/v1/no-such-path", "application/json", &body).await.0, 404);
        assert_eq!(kept.post("/v1/execute", "text/plain", &body).await.0, 400);
    }
    for key in ["bj_nonsense", world.owner.key.as_str()] {
        let mut stream = connect(world.address()).await;
        let begin = head(&world, key, "POST /v1/no-such-path HTTP/1.1", "text/plain", 10 * MIB);
        stream.write_all(begin.as_bytes()).await.unwrap();
        let answer = heard(&mut stream).await.to_lowercase();
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t114_idle_connections_are_closed_for_new_clients() {
    // Half of so many descriptors are for connections.
    let world = World::under(&["prlimit", "--nofile=512:512"], &[]).await;
    let mut silent = Vec::new();
    for round in 0..3 {
        for _ in 0..300 {
            silent.push(connect(world.address()).await);
        }
        let began = Instant::now();
        world.api(&world.owner.key).get("/v1/principals/me").await;
        assert!(began.elapsed() < Duration::from_secs(5), "{round}: {:?}", began.elapsed());
    }
    // One that asks for something is not closed for it.
    let mut kept = Kept::open(world.address(), &world.owner.key).await;
    let slow = "import time; time.sleep(2); 42";
    let slow = json!({"code": slow}).to_string();
    let flood = async {
        for _ in 0..300 {
            silent.push(connect(world.address()).await);
        }
    };
    let (answered, ()) = tokio::join!(kept.post("/v1/execute", "application/json", &slow), flood);
    assert_eq!((answered.0, &answered.1["value"]), (200, &json!(42)), "{answered:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn t114_an_upload_that_is_said_to_be_too_large_is_refused_before_it_is_sent() {
    let world = World::with(&["--document-mib", "1"]).await;
    let session = world.owner.session().await;
    let kind = "multipart/form-data; boundary=b";
    for (line, kind) in [
        ("POST /v1/documents HTTP/1.1".to_owned(), kind),
        (format!("PUT /v1/sessions/{session}/files/a HTTP/1.1"), "application/octet-stream"),
    ] {
        let mut stream = connect(world.address()).await;
        let begin = head(&world, &world.owner.key, &line, kind, 10 * 1024 * MIB);
        stream.write_all(begin.as_bytes()).await.unwrap();
        let began = Instant::now();
        let answer = heard(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 413"), "{line}: {answer}");
        assert!(began.elapsed() < SOON, "{line}: {:?}", began.elapsed());
    }
    let form = format!(
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n{}\r\n--b--\r\n",
        "x".repeat(MIB)
    );
    let mut kept = Kept::open(world.address(), &world.owner.key).await;
    assert_eq!(
        kept.post("/v1/documents", kind, &form).await.0,
        201,
        "exactly as much as it may have"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn t107_more_secrets_than_a_sandbox_may_have_are_refused_with_their_number() {
    let world = World::start().await;
    let secret = |number: usize| {
        let header = json!({"host": format!("h{number}.example"), "name": "x-key"});
        json!({"name": format!("s{number}"), "value": format!("value-number-{number}"), "inject": {"header": header}})
    };
    for number in 0..256 {
        world.owner.post("/v1/secrets", secret(number)).await;
    }
    assert_eq!(world.owner.execute("1").await["value"], 1);
    let last = world.owner.post("/v1/secrets", secret(256)).await;
    let (status, refused) =
        world.owner.call("POST", "/v1/execute", Some(json!({"code": "1"}))).await;
    assert_eq!((status, &refused["code"]), (413, &json!("quota.exceeded")), "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("at most 256"), "{refused}");
    world.owner.delete(&format!("/v1/secrets/{}", last["id"].as_str().unwrap())).await;
    assert_eq!(world.owner.execute("1").await["value"], 1);
}

/// `GET /healthz`, as HTTP/2 packs it.
fn packed(host: &str) -> Vec<u8> {
    let length = u8::try_from(host.len()).unwrap();
    [b"\x82\x86\x04\x08/healthz\x41", &[length][..], host.as_bytes()].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn t116_floods_of_http2_end_their_connection_and_delay_no_other_client() {
    const HEADERS: u8 = 1;
    const RESET: u8 = 3;
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const CONTINUATION: u8 = 9;
    let world = World::start().await;
    let host = authority(world.address()).to_owned();
    let begin = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, b"")].concat();
    let resets: Vec<u8> = (0..5_000)
        .flat_map(|number| {
            let stream = 2 * number + 1;
            let open = frame(HEADERS, 4, stream, &packed(&host));
            [open, frame(RESET, 0, stream, &8_u32.to_be_bytes())].concat()
        })
        .collect();
    let endless = [
        frame(HEADERS, 1, 1, &packed(&host)),
        frame(CONTINUATION, 0, 1, &[b"\x00\x01a\x7f\xe9\x06".as_slice(), &[b'v'; 1000]].concat())
            .repeat(10_000),
    ]
    .concat();
    let pings = frame(PING, 0, 0, b"12345678").repeat(100_000);
    let settings = frame(SETTINGS, 0, 0, b"").repeat(100_000);
    slowest(&world.owner).await;
    let before = resident(&world);
    for (name, flood) in
        [("resets", resets), ("continuation", endless), ("pings", pings), ("settings", settings)]
    {
        let mut stream = connect(world.address()).await;
        stream.write_all(&begin).await.unwrap();
        let sending = tokio::spawn(async move {
            // It is over when the server closes, or when it takes no more.
            let _ = tokio::time::timeout(Duration::from_secs(15), stream.write_all(&flood)).await;
            let mut received = Vec::new();
            let ended =
                tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut received));
            ended.await.is_ok()
        });
        let slowest = slowest(&world.owner).await;
        assert!(slowest < Duration::from_secs(3), "{name}: {slowest:?}");
        assert!(sending.await.unwrap(), "{name}: it is still open");
        let grown = resident(&world).saturating_sub(before);
        assert!(grown < 64 * MIB, "{name}: {grown} bytes more");
    }
    // The same frames, once, are a request.
    let mut stream = connect(world.address()).await;
    let once = [begin, frame(HEADERS, 5, 1, &packed(&host))].concat();
    stream.write_all(&once).await.unwrap();
    let mut received = Vec::new();
    let began = Instant::now();
    while !received.windows(2).any(|two| two == b"ok") {
        assert!(began.elapsed() < SOON, "{:?}", String::from_utf8_lossy(&received));
        let mut piece = [0; 4096];
        let size = tokio::time::timeout(SOON, stream.read(&mut piece)).await.unwrap().unwrap();
        assert_ne!(size, 0, "{:?}", String::from_utf8_lossy(&received));
        received.extend_from_slice(&piece[..size]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t116_a_rebound_dns_name_reaches_no_route_without_an_allowed_host_header() {
    let world = World::start().await;
    let key = format!("Authorization: Bearer {}", world.owner.key);
    for path in ["/mcp", "/v1/execute", "/healthz"] {
        for host in ["evil.example", "evil.example:7117", "127.0.0.1.evil.example"] {
            let headers = [format!("Host: {host}"), key.clone()];
            let Answer { status, .. } =
                send(world.address(), &request("POST", path, &headers, "")).await;
            assert_eq!(status, 421, "{path} {host}");
        }
    }
    let ours = [format!("Host: {}", authority(world.address())), key];
    let answer = send(world.address(), &request("GET", "/healthz", &ours, "")).await;
    assert_eq!(answer.status, 200);
}
