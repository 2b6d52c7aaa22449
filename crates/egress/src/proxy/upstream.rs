//! A connection to a host: dialled at an address that was judged, greeted if it speaks TLS, and
//! kept for the next request of the same client to the same host. It is never another client's.

use super::meter::{Ending, Metered};
use super::passage::Passage;
use super::refusal::Refusal;
use super::{HTTP1, HTTP2, Sandbox, TLS_READ_BYTES, buffers};
use crate::authority::Scheme;
use http::header::{HOST, HeaderValue};
use http::uri::{self, PathAndQuery, Uri};
use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use policy::Destination;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use url::Host;

/// More than servers send; what does not fit is an answer that cannot be read.
const HEADER_BYTES_MAX: u32 = 128 * 1024;
/// What a host may send ahead of a client that reads slowly.
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 2 * STREAM_WINDOW_BYTES;
/// A name with more addresses than this has others that are as good.
const ADDRESSES_MAX: usize = 8;

/// What may be spoken to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speech {
    /// HTTP/1.1, as the clients speak it: HTTP/2 would cost more and give nothing to a connection
    /// that has one client. It is for hosts that take nothing else.
    Any,
    /// A WebSocket begins with HTTP/1.1.
    Http1,
}

/// Connects to one of the addresses of a passage.
pub(super) async fn dial(
    sandbox: &Sandbox,
    passage: &Passage,
) -> Result<(SocketAddr, Metered<TcpStream>), Refusal> {
    sandbox.meter.check().map_err(Refusal::Spent)?;
    let time_max = sandbox.proxy.limits.connect;
    let mut addresses = passage.route(sandbox).await?;
    addresses.truncate(ADDRESSES_MAX);
    let to = passage.to();
    let mut refusal = Refusal::Unresolved(to.clone());
    for address in &addresses {
        let share = time_max / u32::try_from(addresses.len()).unwrap_or(1);
        refusal = match timeout(share, connect(*address)).await {
            Ok(Ok(stream)) => {
                return Ok((*address, Metered::new(stream, sandbox.meter.clone())));
            }
            Ok(Err(source)) => Refusal::Unreachable { to: to.clone(), source },
            Err(_) => Refusal::ConnectTime(to.clone()),
        };
    }
    Err(refusal)
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    buffers::bound(&socket, buffers::FAR_BYTES)?;
    socket.set_nodelay(true)?;
    socket.connect(address).await
}

/// A host that requests can be sent to.
#[derive(Debug)]
pub(super) struct Upstream {
    to: Destination,
    scheme: Scheme,
    address: SocketAddr,
    sender: Sender,
    ending: Ending,
    /// Drives the connection, and ends when this is dropped.
    _driver: JoinSet<()>,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Incoming>),
    Http2(http2::SendRequest<Incoming>),
}

/// A request that was not answered. It comes back if nothing of it was sent.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) refusal: Refusal,
    pub(super) unsent: Option<Box<Request<Incoming>>>,
}

impl Upstream {
    pub(super) async fn connect(
        sandbox: &Sandbox,
        passage: &Passage,
        speech: Speech,
    ) -> Result<Self, Refusal> {
        match passage.scheme() {
            Scheme::Http => {
                let (address, stream) = dial(sandbox, passage).await?;
                let (ending, mut driver) = (stream.ending(), JoinSet::new());
                let sender = hello_http1(passage.to(), stream, &mut driver).await?;
                Ok(Self::new(passage, address, sender, ending, driver))
            }
            Scheme::Https => Self::connect_tls(sandbox, passage, speech).await,
        }
    }

    /// A host that does not take HTTP/1.1 says so in its greeting, or says nothing there. As hosts do
    /// that take nothing else: which of them it is is asked once.
    async fn connect_tls(
        sandbox: &Sandbox,
        passage: &Passage,
        speech: Speech,
    ) -> Result<Self, Refusal> {
        let (http1, http2) = (&sandbox.proxy.tls_http1, &sandbox.proxy.tls_http2);
        let to = passage.to();
        let is_silent = match Greeted::new(sandbox, passage, http1).await {
            Ok(host) if speech == Speech::Http1 || host.chose(HTTP1) || sandbox.is_plain(to) => {
                return host.http1(passage).await;
            }
            // Some hosts have one connection at a time: this one is let go.
            Ok(_) => true,
            Err(refusal) if speech == Speech::Any && refusal.is_of_protocol() => false,
            Err(refusal) => return Err(refusal),
        };
        match Greeted::new(sandbox, passage, http2).await {
            Ok(host) if host.chose(HTTP2) => host.http2(passage).await,
            Ok(host) if is_silent => {
                sandbox.note_plain(to);
                host.http1(passage).await
            }
            Err(_) if is_silent => {
                sandbox.note_plain(to);
                Greeted::new(sandbox, passage, http1).await?.http1(passage).await
            }
            Ok(host) => host.http2(passage).await,
            Err(refusal) => Err(refusal),
        }
    }

    fn new(
        passage: &Passage,
        address: SocketAddr,
        sender: Sender,
        ending: Ending,
        driver: JoinSet<()>,
    ) -> Self {
        let (to, scheme) = (passage.to().clone(), passage.scheme());
        Self { to, scheme, address, sender, ending, _driver: driver }
    }

    /// Whether it is where a passage leads, by the rules of now.
    pub(super) fn serves(&self, passage: &Passage, speech: Speech) -> bool {
        let (closed, http1) = match &self.sender {
            Sender::Http1(sender) => (sender.is_closed(), true),
            Sender::Http2(sender) => (sender.is_closed(), false),
        };
        !closed
            && (speech == Speech::Any || http1)
            && self.to == *passage.to()
            && self.scheme == passage.scheme()
            && passage.judge(&[self.address.ip()]).is_ok()
    }

    pub(super) fn ending(&self) -> Ending {
        self.ending.clone()
    }

    pub(super) async fn send(
        &mut self,
        mut request: Request<Incoming>,
    ) -> Result<Response<Incoming>, Unanswered> {
        self.address_to_host(&mut request);
        let ready = match &mut self.sender {
            Sender::Http1(sender) => sender.ready().await,
            Sender::Http2(sender) => sender.ready().await,
        };
        if let Err(error) = ready {
            return Err(self.unanswered(error, Some(request)));
        }
        let sent = match &mut self.sender {
            Sender::Http1(sender) => sender.try_send_request(request).await,
            Sender::Http2(sender) => sender.try_send_request(request).await,
        };
        sent.map_err(|mut error| {
            let unsent = error.take_message();
            self.unanswered(error.into_error(), unsent)
        })
    }

    fn unanswered(&self, source: hyper::Error, unsent: Option<Request<Incoming>>) -> Unanswered {
        let refusal = match self.ending.get() {
            Some(bound) => Refusal::bound(&self.to, *bound),
            None if source.is_user() => Refusal::Body(self.to.clone()),
            None => Refusal::answer(&self.to, source),
        };
        Unanswered { refusal, unsent: unsent.map(Box::new) }
    }

    /// Says whom the request is for, in the way of the protocol and in no other.
    fn address_to_host(&self, request: &mut Request<Incoming>) {
        let path = request.uri().path_and_query().cloned();
        let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
        let usual = super::message::usual_port(self.scheme) == self.to.port();
        let host = if usual { self.to.host().to_string() } else { self.to.to_string() };
        let headers = request.headers_mut();
        headers.remove(HOST);
        match self.sender {
            Sender::Http1(_) => {
                if let Ok(host) = HeaderValue::try_from(host) {
                    headers.insert(HOST, host);
                }
                *request.uri_mut() = path.into();
                *request.version_mut() = Version::HTTP_11;
            }
            Sender::Http2(_) => {
                let whole = Uri::builder().scheme(uri::Scheme::HTTPS).authority(host);
                *request.uri_mut() = whole.path_and_query(path).build().unwrap_or_default();
                *request.version_mut() = Version::HTTP_2;
            }
        }
    }
}

/// A host that has shown its certificate.
struct Greeted {
    address: SocketAddr,
    stream: TlsStream<BufReader<Metered<TcpStream>>>,
    ending: Ending,
}

impl Greeted {
    async fn new(
        sandbox: &Sandbox,
        passage: &Passage,
        config: &Arc<ClientConfig>,
    ) -> Result<Self, Refusal> {
        let (address, stream) = dial(sandbox, passage).await?;
        let ending = stream.ending();
        let stream = greet(sandbox, passage.to(), stream, config).await?;
        Ok(Self { address, stream, ending })
    }

    /// Whether it has chosen this of what it was offered.
    fn chose(&self, protocol: &[u8]) -> bool {
        self.stream.get_ref().1.alpn_protocol() == Some(protocol)
    }

    async fn http1(self, passage: &Passage) -> Result<Upstream, Refusal> {
        let Self { address, stream, ending } = self;
        let mut driver = JoinSet::new();
        let sender = hello_http1(passage.to(), stream, &mut driver).await?;
        Ok(Upstream::new(passage, address, sender, ending, driver))
    }

    async fn http2(self, passage: &Passage) -> Result<Upstream, Refusal> {
        let Self { address, stream, ending } = self;
        let mut driver = JoinSet::new();
        let sender = hello_http2(passage.to(), stream, &mut driver).await?;
        Ok(Upstream::new(passage, address, sender, ending, driver))
    }
}

/// Speaks TLS, and believes only a certificate for the host.
async fn greet(
    sandbox: &Sandbox,
    to: &Destination,
    stream: Metered<TcpStream>,
    config: &Arc<ClientConfig>,
) -> Result<TlsStream<BufReader<Metered<TcpStream>>>, Refusal> {
    let name = match to.host() {
        Host::Domain(name) => ServerName::try_from(name.clone()).map_err(io::Error::other),
        Host::Ipv4(address) => Ok(ServerName::from(std::net::IpAddr::from(*address))),
        Host::Ipv6(address) => Ok(ServerName::from(std::net::IpAddr::from(*address))),
    };
    let name = name.map_err(|source| Refusal::Tls { to: to.clone(), source })?;
    let stream = BufReader::with_capacity(TLS_READ_BYTES, stream);
    let greeting = TlsConnector::from(config.clone()).connect(name, stream);
    match timeout(sandbox.proxy.limits.connect, greeting).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(source)) => Err(Refusal::greeting(to, source)),
        Err(_) => Err(Refusal::ConnectTime(to.clone())),
    }
}

async fn hello_http1<S>(
    to: &Destination,
    stream: S,
    driver: &mut JoinSet<()>,
) -> Result<Sender, Refusal>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.max_header_size(HEADER_BYTES_MAX as usize);
    let greeted = builder.handshake(TokioIo::new(stream)).await;
    let (sender, connection) = greeted.map_err(|source| Refusal::answer(to, source))?;
    driver.spawn(async move {
        // How it ended is told to who waits for an answer.
        let _ = connection.with_upgrades().await;
    });
    Ok(Sender::Http1(sender))
}

async fn hello_http2<S>(
    to: &Destination,
    stream: S,
    driver: &mut JoinSet<()>,
) -> Result<Sender, Refusal>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(HEADER_BYTES_MAX);
    let greeted = builder.handshake(TokioIo::new(stream)).await;
    let (sender, connection) = greeted.map_err(|source| Refusal::answer(to, source))?;
    driver.spawn(async move {
        // How it ended is told to who waits for an answer.
        let _ = connection.await;
    });
    Ok(Sender::Http2(sender))
}
