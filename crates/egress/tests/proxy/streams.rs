//! Long and endless streams pass as they arrive, in both directions.

use crate::host::{Host, Vouching};
use crate::wait;
use crate::world::{
    Rules, SECRET, Sandbox, World, all_names, credential, head, limits, policy, tls_connector,
};
use belljar_egress::EgressPolicy;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

const LARGE: u64 = 64 << 20;
/// More than any buffer could hold by chance.
const HUGE: u64 = 4 * LARGE;
/// What the buffers of sockets can grow to on the way, on both sides of the proxy.
const HELD_MAX: u64 = 80 << 20;
/// With the buffer of the host itself, which is not of the proxy.
const TUNNEL_HELD_MAX: u64 = 8 << 20;
/// Long enough for buffers to fill.
const SETTLED: Duration = Duration::from_millis(500);

/// A host that speaks TLS and has a credential, one that has none, and one that does not speak TLS.
struct Hosts {
    api: Host,
    good: Host,
    plain: Host,
    vouching: Vouching,
    world: World,
    rules: Arc<Rules>,
}

impl Hosts {
    /// The host with a credential speaks this version of HTTP and no other.
    async fn new(alpn: &str) -> Self {
        Self::speaking(&[alpn]).await
    }

    /// The host with a credential would rather speak what comes first.
    async fn speaking(alpn: &[&str]) -> Self {
        let vouching = Vouching::new();
        let api = Host::tls(vouching.config(&["api.test"], alpn, |_| {})).await;
        Self::with(vouching, api).await
    }

    /// This one has a credential.
    async fn with(vouching: Vouching, api: Host) -> Self {
        let good = Host::tls(vouching.config(&["good.test"], &["http/1.1"], |_| {})).await;
        let plain = Host::plain().await;
        let world = World::new(&vouching.pem(), all_names(), limits());
        let credentials = vec![credential("api.test", api.port())];
        let rules =
            Rules::new(EgressPolicy { credentials, ..policy(&["good.test:0", "127.0.0.2:0"]) });
        Self { api, good, plain, vouching, world, rules }
    }

    fn sandbox(&self) -> Sandbox {
        self.world.sandbox(&self.rules)
    }

    /// By an intercepted tunnel, by one that is not, and by a whole URL.
    fn ways(&self) -> [(String, &Host); 3] {
        [
            (format!("https://api.test:{}", self.api.port()), &self.api),
            (format!("https://good.test:{}", self.good.port()), &self.good),
            (format!("http://good.test:{}", self.plain.port()), &self.plain),
        ]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_answer_is_not_taken_from_the_host_before_the_client_wants_it() {
    for alpn in ["http/1.1", "h2"] {
        let hosts = Hosts::new(alpn).await;
        let sandbox = hosts.sandbox();
        let client = sandbox.client(&hosts.vouching.pem());
        for (url, host) in hosts.ways() {
            host.given.store(0, Ordering::Relaxed);
            let asked = client.get(format!("{url}/long?{HUGE}")).send().await;
            let mut response = asked.unwrap();
            let given = async || host.given.load(Ordering::Relaxed);
            let given = wait::at_rest(SETTLED, "the host", given).await;
            assert!(given < HELD_MAX, "{url} {alpn}: {given}");
            let mut received = 0;
            while let Some(part) = response.chunk().await.unwrap() {
                received += part.len() as u64;
            }
            assert_eq!(received, HUGE, "{url} {alpn}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_body_arrives_whole_in_either_version() {
    let body: Vec<u8> = (0..LARGE).map(|index| (index % 251) as u8).collect();
    for alpn in ["http/1.1", "h2"] {
        let hosts = Hosts::new(alpn).await;
        let sandbox = hosts.sandbox();
        let client = sandbox.client(&hosts.vouching.pem());
        for (url, host) in hosts.ways() {
            let response = client.post(format!("{url}/body")).body(body.clone()).send().await;
            assert!(response.unwrap().bytes().await.unwrap() == body, "{url} {alpn}");
            let seen = host.seen.lock().unwrap().pop().unwrap();
            assert!(seen.body == body, "{url} {alpn}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_body_is_not_taken_from_the_client_before_the_host_wants_it() {
    let hosts = Hosts::new("http/1.1").await;
    let sandbox = hosts.sandbox();
    let to = format!("good.test:{}", hosts.plain.port());
    let mut stream = sandbox.connect().await;
    let head =
        format!("POST http://{to}/deaf HTTP/1.1\r\nHost: {to}\r\nContent-Length: {HUGE}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let part = vec![0; 64 * 1024];
    let mut taken = 0;
    while let Ok(written) = tokio::time::timeout(SETTLED, stream.write(&part)).await {
        taken += written.unwrap() as u64;
        assert!(taken < HELD_MAX);
    }
    assert!(taken > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_that_is_not_read_any_more_takes_little_of_the_machine() {
    let hosts = Hosts::new("http/1.1").await;
    let sandbox = hosts.sandbox();
    let to = format!("good.test:{}", hosts.plain.port());
    let mut stream = sandbox.tunnel(&to).await.unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 64 * 1024).unwrap();
    let request = format!("GET /long?{HUGE} HTTP/1.1\r\nHost: {to}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    // Read as fast as can be for a while, so that the system makes its buffers larger.
    let (mut part, mut received) = (vec![0; 1 << 20], 0);
    while received < LARGE {
        received += stream.read(&mut part).await.unwrap() as u64;
    }
    let given = async || hosts.plain.given.load(Ordering::Relaxed);
    let held = wait::at_rest(SETTLED, "the host", given).await - received;
    assert!(held < TUNNEL_HELD_MAX, "{held}");
}

#[tokio::test]
async fn a_host_is_asked_in_http_1_1_as_the_client_asks_and_in_http_2_if_it_takes_nothing_else() {
    let (http1, http2) = (http::Version::HTTP_11, http::Version::HTTP_2);
    for (alpn, version, connections) in [
        (vec!["http/1.1"], http1, 1),
        (vec!["h2", "http/1.1"], http1, 1),
        // It chooses neither, and is asked which of them it takes.
        (vec![], http1, 2),
        // It has to say first that it does not take the other.
        (vec!["h2"], http2, 2),
        // Or it does not say it.
        (vec!["quiet"], http2, 2),
    ] {
        let hosts = match alpn[..] {
            ["quiet"] => {
                let vouching = Vouching::new();
                let api = Host::quiet_http2(vouching.config(&["api.test"], &["h2"], |_| {})).await;
                Hosts::with(vouching, api).await
            }
            _ => Hosts::speaking(&alpn).await,
        };
        let sandbox = hosts.sandbox();
        let client = sandbox.client("");
        let url = format!("https://api.test:{}/a/b?c=d", hosts.api.port());
        for _ in 0..3 {
            let response = client.get(&url).send().await.unwrap();
            assert_eq!(response.version(), http::Version::HTTP_11);
            assert_eq!(response.text().await.unwrap(), "hello");
        }
        let seen = hosts.api.requests().pop().unwrap();
        assert_eq!(seen.version, version, "{alpn:?}");
        assert!(seen.line.ends_with("/a/b?c=d"), "{}", seen.line);
        let made = hosts.api.connections.load(Ordering::Relaxed);
        assert_eq!(made, connections, "{alpn:?}: it is kept");
    }
}

#[tokio::test]
async fn a_host_that_does_not_say_what_it_speaks_is_asked_once() {
    let hosts = Hosts::speaking(&[]).await;
    let sandbox = hosts.sandbox();
    let url = format!("https://api.test:{}/", hosts.api.port());
    for connections in [2, 3, 4] {
        let response = sandbox.client("").get(&url).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "hello");
        assert_eq!(hosts.api.connections.load(Ordering::Relaxed), connections);
    }
}

#[tokio::test]
async fn a_host_that_closed_a_kept_connection_is_asked_over_another() {
    let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let to = format!("good.test:{}", listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            // It does not say that it will close.
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        }
    });
    let world = World::usual();
    let sandbox = world.sandbox(&Rules::new(policy(&[&to, "127.0.0.2:0"])));
    let client = sandbox.client("");
    for _ in 0..5 {
        let response = client.get(format!("http://{to}/")).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "ok");
        wait::any_moment(Duration::from_millis(20)).await;
    }
}

const ASK: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// What is heard back, over what has become a WebSocket, when this is said.
async fn echo<S: AsyncReadExt + AsyncWriteExt + Unpin>(stream: &mut S, said: &[u8]) -> Vec<u8> {
    let (mut input, mut output) = tokio::io::split(stream);
    let mut received = vec![0; said.len()];
    let (wrote, read) = tokio::join!(output.write_all(said), input.read_exact(&mut received));
    wrote.unwrap();
    read.unwrap();
    received
}

/// A message of a host, of less than 64 KiB.
fn message(text: &[u8]) -> Vec<u8> {
    [&[0x81, 126], &u16::try_from(text.len()).unwrap().to_be_bytes()[..], text].concat()
}

/// Whether what is said is heard back as it was.
async fn echoes<S: AsyncReadExt + AsyncWriteExt + Unpin>(stream: &mut S) {
    for said in [&b"\x81\x05hello"[..], &message(&[7; 60_000]).repeat(4)] {
        assert!(echo(stream, said).await == said);
    }
}

/// A WebSocket to the host with a credential.
async fn keyed_socket(hosts: &Hosts, sandbox: &Sandbox, ask: &str) -> TlsStream<TcpStream> {
    let to = format!("api.test:{}", hosts.api.port());
    let stream = sandbox.tunnel(&to).await.unwrap();
    let name = ServerName::try_from("api.test").unwrap();
    let mut stream = tls_connector(&hosts.world.ca).connect(name, stream).await.unwrap();
    let request = format!("GET /socket HTTP/1.1\r\nHost: {to}\r\n{ask}");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    stream
}

#[tokio::test]
async fn a_web_socket_goes_through_by_a_whole_url() {
    let hosts = Hosts::new("http/1.1").await;
    let sandbox = hosts.sandbox();
    let to = format!("good.test:{}", hosts.plain.port());
    let mut stream = sandbox.connect().await;
    let request = format!("GET http://{to}/socket HTTP/1.1\r\nHost: {to}\r\n{ASK}");
    stream.write_all(request.as_bytes()).await.unwrap();
    let answer = head(&mut stream).await.to_lowercase();
    assert!(answer.starts_with("http/1.1 101"), "{answer}");
    assert!(answer.contains("upgrade: websocket") && answer.contains("connection: upgrade"));
    echoes(&mut stream).await;
    let seen = hosts.plain.requests().pop().unwrap();
    assert_eq!(seen.header("sec-websocket-key"), Some("dGhlIHNhbXBsZSBub25jZQ=="));
}

#[tokio::test]
async fn a_web_socket_goes_through_an_intercepted_tunnel_with_its_credential() {
    for alpn in ["http/1.1", "h2"] {
        // A host that prefers HTTP/2 is asked in the version that has WebSockets.
        let hosts = Hosts::speaking(&[alpn, "http/1.1"]).await;
        let sandbox = hosts.sandbox();
        let mut stream = keyed_socket(&hosts, &sandbox, ASK).await;
        echoes(&mut stream).await;
        let seen = hosts.api.requests().pop().unwrap();
        assert!(seen.header("authorization").unwrap().starts_with("Bearer sk-live"));
    }
}

#[tokio::test]
async fn t42_a_web_socket_does_not_say_the_credential_back() {
    let hosts = Hosts::new("http/1.1").await;
    let sandbox = hosts.sandbox();
    let compressed = format!("Sec-WebSocket-Extensions: permessage-deflate\r\n{ASK}");
    let mut stream = keyed_socket(&hosts, &sandbox, &compressed).await;
    let seen = hosts.api.requests().pop().unwrap();
    assert_eq!(seen.header("sec-websocket-extensions"), None, "what is packed is not looked into");
    let covered = "*".repeat(SECRET.len());
    let received = echo(&mut stream, &message(format!("is {SECRET}!").as_bytes())).await;
    assert_eq!(received, message(format!("is {covered}!").as_bytes()));
    // In two frames.
    let (one, two) = SECRET.as_bytes().split_at(7);
    let cut = |one: &[u8], two: &[u8]| {
        [&[0x01, one.len() as u8], one, &[0x80, two.len() as u8], two].concat()
    };
    let received = echo(&mut stream, &cut(one, two)).await;
    assert_eq!(received, cut(&vec![b'*'; one.len()], &vec![b'*'; two.len()]));
    // A host that does not speak in frames is not heard any more.
    stream.write_all(b"\xff\xff").await.unwrap();
    assert_eq!(stream.read(&mut [0; 16]).await.unwrap_or_default(), 0);
    let reason = hosts.rules.last().reason.unwrap();
    assert!(reason.contains("sent a WebSocket frame"), "{reason}");
}
