//! Servers that send exactly the bytes of a test, and listeners that must not be reached.

use crate::wait;
use belljar_egress::{FetchConfig, FetchError, FetchedFile, Fetcher, Resolver};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Long enough for a connection on this machine to be seen.
const SETTLED: Duration = Duration::from_millis(100);

/// A server at an address that an exception may open.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// The heads of all requests so far.
    pub(crate) heads: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Answers each request by its path.
    pub(crate) async fn start<F>(answer: impl Fn(String, TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = heads.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let head = request_head(&mut stream).await;
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                seen.lock().unwrap().push(head);
                tokio::spawn(answer(path, stream));
            }
        });
        Self { address, heads }
    }

    /// Sends the same to every client.
    pub(crate) async fn saying(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self::start(move |_, stream| say(stream, bytes.clone())).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://docs.test:{}{path}", self.address.port())
    }

    pub(crate) fn requests(&self) -> usize {
        self.heads.lock().unwrap().len()
    }

    /// A configuration in which `docs.test` is this server, and an exception of the operator.
    pub(crate) fn config(&self) -> FetchConfig {
        config(&[("docs.test", self.address)])
    }
}

async fn request_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

/// Writes and closes gracefully. A client that has disconnected does not fail the test.
pub(crate) async fn say(mut stream: TcpStream, bytes: Vec<u8>) {
    let _ = stream.write_all(&bytes).await;
    let _ = stream.shutdown().await;
}

pub(crate) fn ok(headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

pub(crate) fn redirect(location: &str) -> Vec<u8> {
    let head = format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
    head.into_bytes()
}

/// Names with one address each, all of them exceptions of the operator.
pub(crate) fn config(known: &[(&str, SocketAddr)]) -> FetchConfig {
    let exceptions = known.iter().map(|(name, address)| format!("{name}:{}", address.port()));
    let table: HashMap<String, IpAddr> =
        known.iter().map(|(name, address)| ((*name).to_owned(), address.ip())).collect();
    FetchConfig {
        exceptions: exceptions.map(|exception| exception.parse().unwrap()).collect(),
        resolver: resolver(move |name| table.get(name).map(|address| vec![*address])),
        time_max: Duration::from_secs(10),
        ..FetchConfig::default()
    }
}

pub(crate) fn resolver(
    lookup: impl Fn(&str) -> Option<Vec<IpAddr>> + Send + Sync + 'static,
) -> Resolver {
    Resolver::Custom(Arc::new(move |name| {
        lookup(name).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such name"))
    }))
}

pub(crate) async fn fetch(
    config: FetchConfig,
    url: &str,
) -> (Result<FetchedFile, FetchError>, Vec<u8>) {
    let mut bytes = Vec::new();
    let fetched = Fetcher::new(config).fetch(url, &mut bytes).await;
    (fetched, bytes)
}

/// Counts connections.
pub(crate) struct Tripwire {
    addresses: Vec<SocketAddr>,
    count: Arc<AtomicUsize>,
}

impl Tripwire {
    pub(crate) fn new() -> Self {
        Self { addresses: Vec::new(), count: Arc::default() }
    }

    /// Listens at one more address, or says why it cannot.
    pub(crate) async fn listen(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        self.addresses.push(address);
        let count = self.count.clone();
        tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Ok(address)
    }

    /// Asserts that no connection was made; one would have been seen.
    pub(crate) async fn was_not_touched(self) {
        let count = async || self.count.load(Ordering::Relaxed);
        wait::stays(SETTLED, "nobody connects", async || count().await == 0).await;
        for address in &self.addresses {
            TcpStream::connect(address).await.unwrap();
        }
        let all = self.addresses.len();
        wait::until("those who connect are seen", async || count().await == all).await;
    }
}
