//! Hosts on this machine that record what reaches them.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::server::Acceptor;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

/// Address of the hosts; 127.0.0.1 and 127.0.0.3 are for hosts that must not be reached.
pub(crate) const PLACE: &str = "127.0.0.2:0";

/// What one request was when it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) version: Version,
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }
}

#[derive(Clone)]
pub(crate) struct Host {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Mutex<Vec<Seen>>>,
    pub(crate) connections: Arc<AtomicUsize>,
    /// Bytes of endless answers that were taken from it.
    pub(crate) given: Arc<AtomicU64>,
}

impl Host {
    pub(crate) async fn plain() -> Self {
        Self::start(None, PLACE).await
    }

    pub(crate) async fn tls(config: ServerConfig) -> Self {
        Self::start(Some(config), PLACE).await
    }

    /// A host with HTTP/2 only that, like OpenSSL hosts, selects no ALPN protocol if the client
    /// does not offer it.
    pub(crate) async fn quiet_http2(config: ServerConfig) -> Self {
        let listener = TcpListener::bind(PLACE).await.unwrap();
        let host = Self::at(listener.local_addr().unwrap());
        let mut quiet = config.clone();
        quiet.alpn_protocols.clear();
        let (config, quiet) = (Arc::new(config), Arc::new(quiet));
        let serving = host.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serving.connections.fetch_add(1, Ordering::Relaxed);
                let (host, config, quiet) = (serving.clone(), config.clone(), quiet.clone());
                tokio::spawn(async move {
                    let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await.unwrap();
                    let offered = hello.client_hello().alpn();
                    let knows = offered.is_some_and(|mut it| it.any(|one| one == b"h2"));
                    let greeted = hello.into_stream(if knows { config } else { quiet }).await;
                    if let Ok(stream) = greeted {
                        host.serve(stream, true).await;
                    }
                });
            }
        });
        host
    }

    fn at(address: SocketAddr) -> Self {
        let (seen, connections, given) = Default::default();
        Self { address, seen, connections, given }
    }

    pub(crate) async fn start(tls: Option<ServerConfig>, place: &str) -> Self {
        let listener = TcpListener::bind(place).await.unwrap();
        let host = Self::at(listener.local_addr().unwrap());
        let tls = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
        let serving = host.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serving.connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serving.clone().greet(tls.clone(), stream));
            }
        });
        host
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn requests(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    async fn greet(self, tls: Option<TlsAcceptor>, stream: TcpStream) {
        stream.set_nodelay(true).unwrap();
        let Some(tls) = tls else { return self.serve(stream, false).await };
        if let Ok(stream) = tls.accept(stream).await {
            let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            self.serve(stream, http2).await;
        }
    }

    async fn serve<S>(self, stream: S, http2: bool)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(|request| {
            let host = self.clone();
            async move { Ok::<_, Infallible>(host.answer(request).await) }
        });
        let stream = TokioIo::new(stream);
        if http2 {
            let _ =
                http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await;
        } else {
            let connection = http1::Builder::new().serve_connection(stream, service);
            let _ = connection.with_upgrades().await;
        }
    }

    async fn answer(&self, mut request: Request<Incoming>) -> Response<Said> {
        let path = request.uri().path().to_owned();
        let upgrade = (path == "/socket").then(|| hyper::upgrade::on(&mut request));
        let (parts, body) = request.into_parts();
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into();
        let headers = parts.headers.iter();
        let mut seen = Seen {
            version: parts.version,
            line: format!("{} {}", parts.method, parts.uri),
            headers: headers.map(|(name, value)| (name.to_string(), text(value))).collect(),
            body: Vec::new(),
        };
        if path == "/deaf" {
            self.seen.lock().unwrap().push(seen.clone());
            std::future::pending::<()>().await;
        }
        if let Ok(body) = body.collect().await {
            seen.body = body.to_bytes().to_vec();
        }
        self.seen.lock().unwrap().push(seen.clone());
        let query = parts.uri.query().unwrap_or_default();
        match path.as_str() {
            "/silence" => std::future::pending().await,
            "/echo" => echo(&seen),
            "/redirect" => redirect(query),
            "/encoded" => encoded(query, &seen),
            "/long" => self.long(query.parse().unwrap()),
            "/body" => reply(StatusCode::OK, seen.body),
            "/halves" => halves(seen.body.into(), query.parse().unwrap()),
            "/socket" => {
                let upgrade = upgrade.unwrap();
                tokio::spawn(async move {
                    let (mut input, mut output) =
                        tokio::io::split(TokioIo::new(upgrade.await.unwrap()));
                    let _ = tokio::io::copy(&mut input, &mut output).await;
                });
                let response = Response::builder().status(101).header("upgrade", "websocket");
                response.header("connection", "upgrade").body(empty()).unwrap()
            }
            _ => reply(StatusCode::OK, "hello"),
        }
    }

    fn long(&self, length: u64) -> Response<Said> {
        let body = Long { left: length, given: self.given.clone() };
        Response::builder()
            .header("content-length", length)
            .body(body.map_err(|never| match never {}).boxed_unsync())
            .unwrap()
    }
}

type Said = UnsyncBoxBody<Bytes, Infallible>;

fn empty() -> Said {
    Full::new(Bytes::new()).boxed_unsync()
}

fn reply(status: StatusCode, body: impl Into<Bytes>) -> Response<Said> {
    Response::builder().status(status).body(Full::new(body.into()).boxed_unsync()).unwrap()
}

/// Says back all that it was sent: in the body, in headers, and in a name of a header.
fn echo(seen: &Seen) -> Response<Said> {
    let mut body = format!("{}\n", seen.line);
    let mut response = Response::builder();
    for (name, value) in &seen.headers {
        body += &format!("{name}: {value}\n");
        response = response.header(format!("x-echo-{name}"), value);
        if let Some(last) = value.split(' ').next_back()
            && let Ok(named) = http::HeaderName::try_from(format!("x-named-{last}"))
        {
            response = response.header(named, "1");
        }
    }
    body += &String::from_utf8_lossy(&seen.body);
    response.body(Full::new(Bytes::from(body)).boxed_unsync()).unwrap()
}

/// Says that its body is encoded so.
fn encoded(coding: &str, seen: &Seen) -> Response<Said> {
    let mut response = echo(seen);
    response.headers_mut().insert("content-encoding", coding.parse().unwrap());
    response
}

fn redirect(location: &str) -> Response<Said> {
    Response::builder().status(302).header("location", location).body(empty()).unwrap()
}

/// Letters and digits in an order that does not come again.
const fn long_text() -> [u8; 64 * 1024] {
    let signs = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut text, mut at, mut number) = ([0; 64 * 1024], 0, 1_u32);
    while at < text.len() {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text[at] = signs[(number >> 26) as usize];
        at += 1;
    }
    text
}

/// Says the body back in two parts, with the cut after so many bytes.
fn halves(mut body: Bytes, at: usize) -> Response<Said> {
    let rest = body.split_off(at);
    let body = Halves(VecDeque::from([body, rest]));
    Response::new(body.map_err(|never| match never {}).boxed_unsync())
}

struct Halves(VecDeque<Bytes>);

impl Body for Halves {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|part| Ok(Frame::data(part))))
    }
}

struct Long {
    left: u64,
    given: Arc<AtomicU64>,
}

impl Body for Long {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        // As answers are: with all of the signs that a value may begin with.
        static PART: [u8; 64 * 1024] = long_text();
        let size = self.left.min(PART.len() as u64);
        if size == 0 {
            return Poll::Ready(None);
        }
        self.left -= size;
        self.given.fetch_add(size, Ordering::Relaxed);
        let part = Bytes::from_static(&PART[..usize::try_from(size).unwrap()]);
        Poll::Ready(Some(Ok(Frame::data(part))))
    }
}

/// Who vouches for hosts in a test, in the place of the authorities of the web.
pub(crate) struct Vouching(CertifiedIssuer<'static, KeyPair>);

impl Vouching {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "test authority");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// For these names, or with other faults.
    pub(crate) fn config(
        &self,
        names: &[&str],
        alpn: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> ServerConfig {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        served(certificate.der().clone(), &key, alpn)
    }
}

pub(crate) fn self_signed(name: &str) -> ServerConfig {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    served(params.self_signed(&key).unwrap().der().clone(), &key, &[])
}

fn served(
    certificate: tokio_rustls::rustls::pki_types::CertificateDer<'static>,
    key: &KeyPair,
    alpn: &[&str],
) -> ServerConfig {
    let provider = tokio_rustls::rustls::crypto::aws_lc_rs::default_provider();
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|it| it.as_bytes().to_vec()).collect();
    config
}
