//! The egress of a sandbox: its proxy socket is served for as long as the sandbox lives, or closed. The
//! proxy here is the test's own and knows one host.

use crate::harness;
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use engine::{Config, Engine, NewSession, SandboxGrants};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use types::{ExecutionStatus, OutputStream};

/// The only host there is, whatever its address.
pub(crate) const KNOWN: &str = "known.example:80";
const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";
const DENIED: &[u8] =
    b"HTTP/1.1 403 no integration opens it\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// A server on loopback, and a proxy through which it is `known.example`.
pub(crate) struct Beyond {
    server: SocketAddr,
    served: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
}

struct Served {
    task: AbortHandle,
    open: Arc<AtomicUsize>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Beyond {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let head = head(&mut stream).await;
                    let answer = upgraded(&head).unwrap_or_else(|| HELLO.into());
                    let _ = stream.write_all(&answer).await;
                });
            }
        });
        Self { server, served: Arc::default(), open: Arc::default() }
    }

    pub(crate) fn grants(&self) -> SandboxGrants {
        let (server, served, open) = (self.server, self.served.clone(), self.open.clone());
        harness::egress(move |listener| {
            served.fetch_add(1, Ordering::Relaxed);
            open.fetch_add(1, Ordering::Relaxed);
            let listener = TcpListener::from_std(listener).unwrap();
            let task = tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(pass_on(stream, server));
                }
            });
            Box::new(Served { task: task.abort_handle(), open: open.clone() })
        })
    }

    /// The number of sandboxes whose proxy socket is served now.
    fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

async fn head(stream: &mut TcpStream) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(char::from(byte)),
            Err(_) => return String::new(),
        }
    }
    head
}

/// What begins a WebSocket, if the request wants one, with one message in it.
fn upgraded(request: &str) -> Option<Vec<u8>> {
    let key = request.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "))?;
    let known = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, known.as_bytes());
    let accept = BASE64_STANDARD.encode(hash);
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    Some([head.as_bytes(), b"\x81\x05hello\x88\x00"].concat())
}

async fn pass_on(mut stream: TcpStream, server: SocketAddr) {
    let head = head(&mut stream).await;
    let connect = head.starts_with(&format!("CONNECT {KNOWN} "));
    if !connect && !head.starts_with("GET http://known.example/") {
        let _ = stream.write_all(DENIED).await;
        return;
    }
    let mut there = TcpStream::connect(server).await.unwrap();
    if connect {
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    } else {
        there.write_all(head.as_bytes()).await.unwrap();
    }
    let _ = copy_bidirectional(&mut stream, &mut there).await;
}

const FETCH: &str = "import urllib.request
print(urllib.request.urlopen('http://known.example/').read())";

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_its_egress_for_life_through_reset_and_crash() {
    let (engine, beyond) = (Engine::start(harness::config()), Beyond::start().await);
    let asked = NewSession { grants: beyond.grants(), ..NewSession::new("bare") };
    let session = engine.open(asked).await.unwrap().id;
    let reaches = async || {
        let ran = harness::run_in(&engine, session, FETCH).await;
        assert_eq!(harness::printed(&ran, OutputStream::Stdout), "b'hello'\n", "{:?}", ran.error);
        assert_eq!(beyond.open(), 1);
    };
    reaches().await;
    engine.reset(session).await.unwrap();
    assert_eq!(beyond.open(), 0);
    reaches().await;
    let died = harness::run_in(&engine, session, "import os; os._exit(3)").await;
    assert_eq!((died.status, beyond.open()), (ExecutionStatus::Failed, 0));
    reaches().await;
    engine.close(session).await.unwrap();
    assert_eq!((beyond.open(), beyond.served.load(Ordering::Relaxed)), (0, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_sandbox_has_the_egress_of_its_command_and_another_none() {
    let (engine, beyond) = (Engine::start(harness::config()), Beyond::start().await);
    let with = engine::Command { grants: beyond.grants(), ..harness::command("bare", FETCH) };
    let ran = harness::run_with(&engine, with).await.execution;
    assert_eq!(harness::printed(&ran, OutputStream::Stdout), "b'hello'\n", "{:?}", ran.error);
    assert_eq!(beyond.open(), 0);
    let code = "import os, socket
print([name for name in os.environ if 'proxy' in name.lower()])
try:
    socket.create_connection(('127.0.0.1', 3128))
except ConnectionRefusedError:
    print('nobody listens')
socket.create_server(('127.0.0.1', 3128)).close()";
    let without = harness::run(&engine, code).await;
    let printed = harness::printed(&without, OutputStream::Stdout);
    assert_eq!(printed, "[]\nnobody listens\n", "{:?}", without.error);
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_that_code_starts_are_told_of_the_proxy() {
    let (engine, beyond) = (Engine::start(harness::config()), Beyond::start().await);
    let code = "import subprocess, sys
print(subprocess.check_output([sys.executable, '-c', '''
import urllib.request
print(urllib.request.urlopen('http://known.example/').read())''']))";
    let with = engine::Command { grants: beyond.grants(), ..harness::command("bare", code) };
    let ran = harness::run_with(&engine, with).await.execution;
    assert_eq!(
        harness::printed(&ran, OutputStream::Stdout),
        "b\"b'hello'\\n\"\n",
        "{:?}",
        ran.error
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_that_are_granted_are_there_to_the_end_of_a_session_or_a_run() {
    let engine = Engine::start(harness::config());
    let grants = harness::variables([("GRANTED", "1")]);
    let asked = NewSession { grants: grants.clone(), ..NewSession::new("bare") };
    let session = engine.open(asked).await.unwrap().id;
    let run = async |code: &str| {
        harness::printed(&harness::run_in(&engine, session, code).await, OutputStream::Stdout)
    };
    let show = "import os\nprint(os.environ.get('GRANTED'), os.environ.get('MINE'))";
    assert_eq!(run(show).await, "1 None\n");
    run("os.environ['MINE'] = '2'").await;
    assert_eq!(run(show).await, "1 2\n");
    engine.reset(session).await.unwrap();
    assert_eq!(run(show).await, "1 None\n");
    let late = "import atexit, os\natexit.register(lambda: print(os.environ['GRANTED']))";
    let script = engine::Command { grants, ..harness::script("bare", late) };
    let ran = harness::run_with(&engine, script).await.execution;
    assert_eq!(harness::printed(&ran, OutputStream::Stdout), "1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn code_trusts_the_certificates_that_the_operator_names() {
    let bundle = tempfile::NamedTempFile::new().unwrap();
    std::fs::set_permissions(bundle.path(), PermissionsExt::from_mode(0o644)).unwrap();
    std::fs::write(bundle.path(), "# nobody").unwrap();
    let config = Config { certificates: Some(bundle.path().into()), ..harness::config() };
    let code = "import os, ssl
print(ssl.get_default_verify_paths().cafile, open('/etc/ssl/belljar.pem').read())
print({os.environ[name] for name in ['REQUESTS_CA_BUNDLE', 'CURL_CA_BUNDLE', 'GIT_SSL_CAINFO']})
try:
    open('/etc/ssl/belljar.pem', 'a')
except OSError:
    print('read-only')";
    let ran = harness::run(&Engine::start(config), code).await;
    assert_eq!(
        harness::printed(&ran, OutputStream::Stdout),
        "/etc/ssl/belljar.pem # nobody\n{'/etc/ssl/belljar.pem'}\nread-only\n",
        "{:?}",
        ran.error
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn egress_ends_when_the_caller_goes_away_in_the_middle() {
    let (engine, beyond) = (Engine::start(harness::config()), Beyond::start().await);
    let command = engine::Command {
        grants: beyond.grants(),
        ..harness::command("bare", "import time; time.sleep(60)")
    };
    let mut quiet = |_: &types::Event| {};
    let given_up = engine.run(command, &mut quiet);
    assert!(tokio::time::timeout(Duration::from_secs(3), given_up).await.is_err());
    assert_eq!((beyond.open(), beyond.served.load(Ordering::Relaxed)), (0, 1));
}
