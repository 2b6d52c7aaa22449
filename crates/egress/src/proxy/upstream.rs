//! A connection to a host: connected to a checked address, with TLS if needed, and reused for the
//! next request of the same client to the same host. It is never shared between clients.

use super::allowed_route::AllowedRoute;
use super::error::EgressError;
use super::meter::{MeteredStream, StreamEnd};
use super::{HTTP1, HTTP2, ProxyClient, TLS_READ_BYTES, socket_buffers};
use crate::policy_source::Scheme;
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

/// Maximum size of a response head: larger than servers send; a larger one is an error.
const HEADER_BYTES_MAX: u32 = 128 * 1024;
/// Maximum bytes that a host may send ahead of a slow client.
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 2 * STREAM_WINDOW_BYTES;
/// If a name has more addresses than this, the first ones will do.
const ADDRESSES_MAX: usize = 8;

/// HTTP versions that may be used with a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HttpVersionChoice {
    /// Prefers HTTP/1.1, which the clients use: for a connection with one client, HTTP/2 costs more
    /// and gains nothing. HTTP/2 is for hosts that accept nothing else.
    Any,
    /// A WebSocket begins with HTTP/1.1.
    Http1,
}

/// Connects to one of the addresses of a route.
pub(super) async fn dial(
    sandbox: &ProxyClient,
    route: &AllowedRoute,
) -> Result<(SocketAddr, MeteredStream<TcpStream>), EgressError> {
    sandbox.meter.check().map_err(EgressError::LimitReached)?;
    let time_max = sandbox.proxy.limits.connect_timeout;
    let mut addresses = route.resolve_addresses(sandbox).await?;
    addresses.truncate(ADDRESSES_MAX);
    let to = route.destination();
    let mut error = EgressError::Unresolved(to.clone());
    for address in &addresses {
        let share = time_max / u32::try_from(addresses.len()).unwrap_or(1);
        error = match timeout(share, connect_tcp(*address)).await {
            Ok(Ok(stream)) => {
                return Ok((*address, MeteredStream::new(stream, sandbox.meter.clone())));
            }
            Ok(Err(source)) => EgressError::Unreachable { to: to.clone(), source },
            Err(_) => EgressError::ConnectTimeout(to.clone()),
        };
    }
    Err(error)
}

async fn connect_tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket_buffers::set_socket_buffers(&socket, socket_buffers::UPSTREAM_BUFFER_BYTES)?;
    socket.set_nodelay(true)?;
    socket.connect(address).await
}

/// A connection over which requests can be sent.
#[derive(Debug)]
pub(super) struct UpstreamConnection {
    destination: Destination,
    scheme: Scheme,
    address: SocketAddr,
    sender: UpstreamSender,
    stream_end: StreamEnd,
    /// Drives the connection; aborted on drop.
    _driver: JoinSet<()>,
}

#[derive(Debug)]
enum UpstreamSender {
    Http1(http1::SendRequest<Incoming>),
    Http2(http2::SendRequest<Incoming>),
}

/// A request without a response. Contains the request if no byte of it was sent.
#[derive(Debug)]
pub(super) struct UpstreamSendError {
    pub(super) error: EgressError,
    pub(super) unsent: Option<Box<Request<Incoming>>>,
}

impl UpstreamConnection {
    pub(super) async fn connect(
        sandbox: &ProxyClient,
        route: &AllowedRoute,
        http_version: HttpVersionChoice,
    ) -> Result<Self, EgressError> {
        match route.scheme() {
            Scheme::Http => {
                let (address, stream) = dial(sandbox, route).await?;
                let (ending, mut driver) = (stream.stream_end(), JoinSet::new());
                let sender = http1_handshake(route.destination(), stream, &mut driver).await?;
                Ok(Self::new(route, address, sender, ending, driver))
            }
            Scheme::Https => Self::connect_tls(sandbox, route, http_version).await,
        }
    }

    /// A host that does not accept HTTP/1.1 says so by ALPN or selects nothing. A host that accepts
    /// only HTTP/1.1 may select nothing too, so HTTP/2 is tried once to tell them apart.
    async fn connect_tls(
        sandbox: &ProxyClient,
        route: &AllowedRoute,
        http_version: HttpVersionChoice,
    ) -> Result<Self, EgressError> {
        let (http1, http2) = (&sandbox.proxy.tls_http1, &sandbox.proxy.tls_http2);
        let to = route.destination();
        let is_silent = match TlsUpstream::new(sandbox, route, http1).await {
            Ok(host)
                if http_version == HttpVersionChoice::Http1
                    || host.negotiated(HTTP1)
                    || sandbox.is_http1_only(to) =>
            {
                return host.http1(route).await;
            }
            // Some hosts accept one connection at a time: drop this one.
            Ok(_) => true,
            Err(error) if http_version == HttpVersionChoice::Any && error.is_alpn_mismatch() => {
                false
            }
            Err(error) => return Err(error),
        };
        match TlsUpstream::new(sandbox, route, http2).await {
            Ok(host) if host.negotiated(HTTP2) => host.http2(route).await,
            Ok(host) if is_silent => {
                sandbox.mark_http1_only(to);
                host.http1(route).await
            }
            Err(_) if is_silent => {
                sandbox.mark_http1_only(to);
                TlsUpstream::new(sandbox, route, http1).await?.http1(route).await
            }
            Ok(host) => host.http2(route).await,
            Err(error) => Err(error),
        }
    }

    fn new(
        route: &AllowedRoute,
        address: SocketAddr,
        sender: UpstreamSender,
        ending: StreamEnd,
        driver: JoinSet<()>,
    ) -> Self {
        let (to, scheme) = (route.destination().clone(), route.scheme());
        Self { destination: to, scheme, address, sender, stream_end: ending, _driver: driver }
    }

    /// Whether this connection can serve a route, under the current policy.
    pub(super) fn can_serve(&self, route: &AllowedRoute, http_version: HttpVersionChoice) -> bool {
        let (closed, http1) = match &self.sender {
            UpstreamSender::Http1(sender) => (sender.is_closed(), true),
            UpstreamSender::Http2(sender) => (sender.is_closed(), false),
        };
        !closed
            && (http_version == HttpVersionChoice::Any || http1)
            && self.destination == *route.destination()
            && self.scheme == route.scheme()
            && route.check_addresses(&[self.address.ip()]).is_ok()
    }

    pub(super) fn stream_end(&self) -> StreamEnd {
        self.stream_end.clone()
    }

    pub(super) async fn send(
        &mut self,
        mut request: Request<Incoming>,
    ) -> Result<Response<Incoming>, UpstreamSendError> {
        self.set_request_target(&mut request);
        let ready = match &mut self.sender {
            UpstreamSender::Http1(sender) => sender.ready().await,
            UpstreamSender::Http2(sender) => sender.ready().await,
        };
        if let Err(error) = ready {
            return Err(self.send_error(error, Some(request)));
        }
        let sent = match &mut self.sender {
            UpstreamSender::Http1(sender) => sender.try_send_request(request).await,
            UpstreamSender::Http2(sender) => sender.try_send_request(request).await,
        };
        sent.map_err(|mut error| {
            let unsent = error.take_message();
            self.send_error(error.into_error(), unsent)
        })
    }

    fn send_error(
        &self,
        source: hyper::Error,
        unsent: Option<Request<Incoming>>,
    ) -> UpstreamSendError {
        let error = match self.stream_end.get() {
            Some(bound) => EgressError::limit_reached(&self.destination, *bound),
            None if source.is_user() => EgressError::RequestBody(self.destination.clone()),
            None => EgressError::invalid_response(&self.destination, source),
        };
        UpstreamSendError { error, unsent: unsent.map(Box::new) }
    }

    /// Sets the target of the request as the protocol version requires, and nowhere else.
    fn set_request_target(&self, request: &mut Request<Incoming>) {
        let path = request.uri().path_and_query().cloned();
        let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
        let usual = super::message::default_port(self.scheme) == self.destination.port();
        let host =
            if usual { self.destination.host().to_string() } else { self.destination.to_string() };
        let headers = request.headers_mut();
        headers.remove(HOST);
        match self.sender {
            UpstreamSender::Http1(_) => {
                if let Ok(host) = HeaderValue::try_from(host) {
                    headers.insert(HOST, host);
                }
                *request.uri_mut() = path.into();
                *request.version_mut() = Version::HTTP_11;
            }
            UpstreamSender::Http2(_) => {
                let whole = Uri::builder().scheme(uri::Scheme::HTTPS).authority(host);
                *request.uri_mut() = whole.path_and_query(path).build().unwrap_or_default();
                *request.version_mut() = Version::HTTP_2;
            }
        }
    }
}

/// A host whose certificate was verified.
struct TlsUpstream {
    address: SocketAddr,
    stream: TlsStream<BufReader<MeteredStream<TcpStream>>>,
    stream_end: StreamEnd,
}

impl TlsUpstream {
    async fn new(
        sandbox: &ProxyClient,
        route: &AllowedRoute,
        config: &Arc<ClientConfig>,
    ) -> Result<Self, EgressError> {
        let (address, stream) = dial(sandbox, route).await?;
        let ending = stream.stream_end();
        let stream = tls_handshake(sandbox, route.destination(), stream, config).await?;
        Ok(Self { address, stream, stream_end: ending })
    }

    /// Whether it selected this protocol by ALPN.
    fn negotiated(&self, protocol: &[u8]) -> bool {
        self.stream.get_ref().1.alpn_protocol() == Some(protocol)
    }

    async fn http1(self, route: &AllowedRoute) -> Result<UpstreamConnection, EgressError> {
        let Self { address, stream, stream_end: ending } = self;
        let mut driver = JoinSet::new();
        let sender = http1_handshake(route.destination(), stream, &mut driver).await?;
        Ok(UpstreamConnection::new(route, address, sender, ending, driver))
    }

    async fn http2(self, route: &AllowedRoute) -> Result<UpstreamConnection, EgressError> {
        let Self { address, stream, stream_end: ending } = self;
        let mut driver = JoinSet::new();
        let sender = http2_handshake(route.destination(), stream, &mut driver).await?;
        Ok(UpstreamConnection::new(route, address, sender, ending, driver))
    }
}

/// Performs the TLS handshake, and accepts only a valid certificate for the host.
async fn tls_handshake(
    sandbox: &ProxyClient,
    to: &Destination,
    stream: MeteredStream<TcpStream>,
    config: &Arc<ClientConfig>,
) -> Result<TlsStream<BufReader<MeteredStream<TcpStream>>>, EgressError> {
    let name = match to.host() {
        Host::Domain(name) => ServerName::try_from(name.clone()).map_err(io::Error::other),
        Host::Ipv4(address) => Ok(ServerName::from(std::net::IpAddr::from(*address))),
        Host::Ipv6(address) => Ok(ServerName::from(std::net::IpAddr::from(*address))),
    };
    let name = name.map_err(|source| EgressError::Tls { to: to.clone(), source })?;
    let stream = BufReader::with_capacity(TLS_READ_BYTES, stream);
    let handshake = TlsConnector::from(config.clone()).connect(name, stream);
    match timeout(sandbox.proxy.limits.connect_timeout, handshake).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(source)) => Err(EgressError::tls_handshake(to, source)),
        Err(_) => Err(EgressError::ConnectTimeout(to.clone())),
    }
}

async fn http1_handshake<S>(
    to: &Destination,
    stream: S,
    driver: &mut JoinSet<()>,
) -> Result<UpstreamSender, EgressError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.max_header_size(HEADER_BYTES_MAX as usize);
    let handshake = builder.handshake(TokioIo::new(stream)).await;
    let (sender, connection) =
        handshake.map_err(|source| EgressError::invalid_response(to, source))?;
    driver.spawn(async move {
        // The pending request gets the error.
        let _ = connection.with_upgrades().await;
    });
    Ok(UpstreamSender::Http1(sender))
}

async fn http2_handshake<S>(
    to: &Destination,
    stream: S,
    driver: &mut JoinSet<()>,
) -> Result<UpstreamSender, EgressError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(HEADER_BYTES_MAX);
    let handshake = builder.handshake(TokioIo::new(stream)).await;
    let (sender, connection) =
        handshake.map_err(|source| EgressError::invalid_response(to, source))?;
    driver.spawn(async move {
        // The pending request gets the error.
        let _ = connection.await;
    });
    Ok(UpstreamSender::Http2(sender))
}
