//! One connection of a sandbox, from its first request to its end.
//!
//! Each request is checked separately. A request can upgrade the connection: to a tunnel, to an
//! intercepted tunnel, or to a WebSocket. The upgrade is stored while the request is answered, and
//! the same task runs it after HTTP has released the connection, so that nothing outlives the
//! sandbox.

use super::allowed_route::{AllowedRoute, interception_scheme};
use super::attempt::{PendingAttempt, record_disconnect, record_rejection};
use super::connection_slots::{ConnectionSlot, SlotHoldingBody, TrackedConnection};
use super::error::{EgressError, MalformedRequest, ProxyBody, text_body};
use super::message;
use super::meter::{MeteredStream, StreamEnd};
use super::redacting_body::{RedactingBody, mask_headers};
use super::sni::{self, SniGuard};
use super::upstream::{HttpVersionChoice, UpstreamConnection, UpstreamSendError, dial};
use super::websocket_redact::RedactingWebSocketStream;
use super::{ProxyClient, TLS_READ_BYTES};
use crate::policy_source::Scheme;
use http::header::{ACCEPT_ENCODING, HeaderValue, SEC_WEBSOCKET_EXTENSIONS};
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::{TokioIo, TokioTimer};
use policy::Destination;
use redact::MaskingStream;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// Maximum size of a request head: larger than clients send.
const HEADER_BYTES_MAX: usize = 64 * 1024;
/// Buffer size of each direction.
const RELAY_BYTES: usize = 128 * 1024;

pub(super) struct Connection {
    sandbox: Arc<ProxyClient>,
    tracked: Arc<TrackedConnection>,
    /// The target of the tunnel, if this connection is inside one.
    intercepted_target: Option<(Destination, Scheme)>,
    /// The attempt that opened the tunnel; its first request continues it.
    pending_attempt: Mutex<Option<PendingAttempt>>,
    upstream: tokio::sync::Mutex<Option<UpstreamConnection>>,
    upgrade: Mutex<Option<ConnectionUpgrade>>,
}

/// The protocol that a connection is upgraded to.
enum ConnectionUpgrade {
    Tunnel {
        client: OnUpgrade,
        route: AllowedRoute,
        host: MeteredStream<TcpStream>,
        _slot: ConnectionSlot,
    },
    Intercepted {
        client: OnUpgrade,
        attempt: PendingAttempt,
        tls: Option<Arc<ServerConfig>>,
    },
    WebSocket(WebSocketRelay),
}

struct WebSocketRelay {
    client: OnUpgrade,
    route: AllowedRoute,
    host: Upgraded,
    /// Present if the host has a credential.
    redactor: Option<MaskingStream>,
    stream_end: StreamEnd,
    _slot: ConnectionSlot,
}

/// The tunnel that a CONNECT opened.
enum OpenedTunnel {
    Opaque { route: AllowedRoute, host: MeteredStream<TcpStream> },
    Intercepted { tls: Option<Arc<ServerConfig>> },
}

impl Connection {
    fn new(sandbox: Arc<ProxyClient>, tracked: Arc<TrackedConnection>) -> Self {
        Self {
            sandbox,
            tracked,
            intercepted_target: None,
            pending_attempt: Mutex::default(),
            upstream: Default::default(),
            upgrade: Mutex::default(),
        }
    }

    fn intercepted(
        sandbox: &Arc<ProxyClient>,
        tracked: &Arc<TrackedConnection>,
        attempt: PendingAttempt,
        scheme: Scheme,
    ) -> Self {
        let inside = Some((attempt.destination().clone(), scheme));
        let line = Self::new(sandbox.clone(), tracked.clone());
        Self { intercepted_target: inside, pending_attempt: Mutex::new(Some(attempt)), ..line }
    }

    /// Serves a connection until it ends.
    pub(super) async fn run(
        sandbox: Arc<ProxyClient>,
        tracked: Arc<TrackedConnection>,
        stream: TcpStream,
    ) {
        if stream.set_nodelay(true).is_err() {
            return;
        }
        let next = Self::new(sandbox.clone(), tracked.clone()).serve(stream).await;
        let next = match next {
            Some(ConnectionUpgrade::Intercepted { client, attempt, tls }) => {
                serve_intercepted(&sandbox, &tracked, client, attempt, tls).await
            }
            next => next,
        };
        match next {
            Some(ConnectionUpgrade::Tunnel { client, route, host, _slot }) => {
                run_tunnel(&sandbox, client, &route, host).await;
            }
            Some(ConnectionUpgrade::WebSocket(socket)) => socket.run(&sandbox).await,
            Some(ConnectionUpgrade::Intercepted { .. }) | None => {}
        }
    }

    /// Answers requests until the connection ends or is upgraded.
    async fn serve<S>(self, stream: S) -> Option<ConnectionUpgrade>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(async |request| {
            let result = self.handle_request(request).await;
            Ok::<_, Infallible>(result.unwrap_or_else(|error| error.response()))
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.sandbox.proxy.limits.header_timeout)
            .max_header_size(HEADER_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        if let Err(error) = connection.await {
            self.record_parse_error(&error);
            return None;
        }
        self.upgrade.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Logs a request head that could not be parsed. hyper has already answered it. Outside of a
    /// tunnel there is no destination to log.
    fn record_parse_error(&self, error: &hyper::Error) {
        let Some((to, _)) = self.intercepted_target.as_ref().filter(|_| error.is_parse()) else {
            return;
        };
        let opened = self.pending_attempt.lock().unwrap_or_else(PoisonError::into_inner).take();
        let attempt =
            opened.unwrap_or_else(|| PendingAttempt::new(self.sandbox.clone(), to.clone()));
        attempt.finish(Some(&MalformedRequest::InvalidHead.into()));
    }

    async fn handle_request(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<ProxyBody>, EgressError> {
        let slot = self
            .tracked
            .acquire_slot()
            .inspect_err(|error| self.record_rejected_request(&request, error))?;
        let (mut attempt, scheme) = self.begin_attempt(&request)?;
        if request.method() == Method::CONNECT {
            return self.handle_connect(attempt, request, slot).await;
        }
        let result = match attempt.authorize(scheme).await {
            Ok(route) => self.forward(&route, request, slot).await,
            Err(error) => Err(error),
        };
        attempt.finish(result.as_ref().err());
        result
    }

    /// Determines the destination of a request and starts its attempt.
    fn begin_attempt(
        &self,
        request: &Request<Incoming>,
    ) -> Result<(PendingAttempt, Scheme), EgressError> {
        let target = match &self.intercepted_target {
            Some((to, scheme)) => {
                message::check_tunnel_request(request, to, *scheme).map(|()| (to.clone(), *scheme))
            }
            None if request.method() == Method::CONNECT => {
                message::tunnel_target(request).map(|to| (to, Scheme::Https))
            }
            None => message::url_target(request).map(|to| (to, Scheme::Http)),
        };
        let opened = self.pending_attempt.lock().unwrap_or_else(PoisonError::into_inner).take();
        match target {
            Ok((to, scheme)) => {
                let new = || PendingAttempt::new(self.sandbox.clone(), to);
                Ok((opened.unwrap_or_else(new), scheme))
            }
            Err(malformed) => {
                let error = malformed.into();
                match opened {
                    Some(opened) => opened.finish(Some(&error)),
                    None => record_rejection(&self.sandbox, request, &error),
                }
                Err(error)
            }
        }
    }

    async fn handle_connect(
        &self,
        mut attempt: PendingAttempt,
        mut request: Request<Incoming>,
        slot: ConnectionSlot,
    ) -> Result<Response<ProxyBody>, EgressError> {
        let client = hyper::upgrade::on(&mut request);
        let next = match self.open_tunnel(&mut attempt).await {
            Ok(OpenedTunnel::Opaque { route, host }) => {
                attempt.finish(None);
                ConnectionUpgrade::Tunnel { client, route, host, _slot: slot }
            }
            // Each request inside the tunnel takes its own slot.
            Ok(OpenedTunnel::Intercepted { tls }) => {
                ConnectionUpgrade::Intercepted { client, attempt, tls }
            }
            Err(error) => {
                attempt.finish(Some(&error));
                return Err(error);
            }
        };
        self.set_upgrade(next);
        Ok(Response::new(text_body("")))
    }

    /// Opens a tunnel. An intercepted one connects to nothing yet: its requests are checked one by
    /// one.
    async fn open_tunnel(&self, attempt: &mut PendingAttempt) -> Result<OpenedTunnel, EgressError> {
        let policy = self.sandbox.current_policy().await?;
        match interception_scheme(&policy, attempt.destination()) {
            Some(scheme) => {
                attempt.authorize_with(policy, scheme)?;
                let to = attempt.destination();
                let config = || self.sandbox.proxy.ca.server_config_for(to);
                let tls = (scheme == Scheme::Https).then(config).transpose();
                let tls =
                    tls.map_err(|source| EgressError::Interception { to: to.clone(), source })?;
                Ok(OpenedTunnel::Intercepted { tls })
            }
            None => {
                let route = attempt.authorize_with(policy, Scheme::Https)?;
                let (_, host) = dial(&self.sandbox, &route).await?;
                Ok(OpenedTunnel::Opaque { route, host })
            }
        }
    }

    /// Logs a request for which there is no slot.
    fn record_rejected_request(&self, request: &Request<Incoming>, error: &EgressError) {
        let opened = self.pending_attempt.lock().unwrap_or_else(PoisonError::into_inner).take();
        match opened {
            Some(opened) => opened.finish(Some(error)),
            None => record_rejection(&self.sandbox, request, error),
        }
    }

    fn set_upgrade(&self, next: ConnectionUpgrade) {
        *self.upgrade.lock().unwrap_or_else(PoisonError::into_inner) = Some(next);
    }

    /// Forwards a request with the credentials of its destination, and returns the response.
    async fn forward(
        &self,
        route: &AllowedRoute,
        mut request: Request<Incoming>,
        slot: ConnectionSlot,
    ) -> Result<Response<ProxyBody>, EgressError> {
        let client =
            message::is_websocket_upgrade(&request).then(|| hyper::upgrade::on(&mut request));
        let is_head = request.method() == Method::HEAD;
        let redactor = self.sandbox.masking_stream(route).await?;
        request.extensions_mut().clear();
        let headers = request.headers_mut();
        message::strip_hop_by_hop_headers(headers);
        if client.is_some() {
            message::set_websocket_upgrade(headers);
        }
        if redactor.is_some() {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            // The common extension compresses frames.
            headers.remove(SEC_WEBSOCKET_EXTENSIONS);
        }
        route.inject_credentials(headers)?;
        let http_version =
            if client.is_some() { HttpVersionChoice::Http1 } else { HttpVersionChoice::Any };
        let (mut response, stream_end) = self.send_upstream(route, request, http_version).await?;
        let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        match client {
            Some(_) if switched && redactor.is_some() && has_websocket_extensions(&response) => {
                Err(EgressError::UnexpectedEncoding(route.destination().clone()))
            }
            Some(client) if switched => {
                let host = hyper::upgrade::on(&mut response).await;
                let host = host
                    .map_err(|error| EgressError::invalid_response(route.destination(), error))?;
                let route = route.clone();
                let covers = redactor.clone();
                let socket = WebSocketRelay {
                    client,
                    route,
                    host,
                    redactor: covers,
                    stream_end,
                    _slot: slot,
                };
                self.set_upgrade(ConnectionUpgrade::WebSocket(socket));
                let mut response = client_response(response, redactor, None);
                message::set_websocket_upgrade(response.headers_mut());
                Ok(response)
            }
            None if switched => Err(EgressError::UnexpectedUpgrade(route.destination().clone())),
            _ if redactor.is_some() && !is_head && has_encoded_body(&response) => {
                Err(EgressError::UnexpectedEncoding(route.destination().clone()))
            }
            _ => Ok(client_response(response, redactor, Some(slot))),
        }
    }

    /// Sends a request over the previous upstream connection, if that has the same target.
    async fn send_upstream(
        &self,
        route: &AllowedRoute,
        mut request: Request<Incoming>,
        http_version: HttpVersionChoice,
    ) -> Result<(Response<Incoming>, StreamEnd), EgressError> {
        let mut connection = self.upstream.lock().await;
        if let Some(upstream) = connection.as_mut().filter(|it| it.can_serve(route, http_version)) {
            match upstream.send(request).await {
                // The host closed it before anything was sent.
                Err(UpstreamSendError { unsent: Some(unsent), .. }) => request = *unsent,
                Err(UpstreamSendError { error, .. }) => return Err(error),
                Ok(response) => return Ok((response, upstream.stream_end())),
            }
        }
        let upstream = connection
            .insert(UpstreamConnection::connect(&self.sandbox, route, http_version).await?);
        let sent = upstream.send(request).await;
        let response = sent.map_err(|send_error| send_error.error)?;
        Ok((response, upstream.stream_end()))
    }
}

/// Whether a response has an encoded body, which cannot be searched for credentials.
fn has_encoded_body(response: &Response<Incoming>) -> bool {
    let has_none = matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    message::is_encoded(response.headers()) && !has_none && !response.body().is_end_stream()
}

/// Whether extensions may transform the content of frames.
fn has_websocket_extensions(response: &Response<Incoming>) -> bool {
    response.headers().contains_key(SEC_WEBSOCKET_EXTENSIONS)
}

/// The response of a host, in the form for the client.
fn client_response(
    response: Response<Incoming>,
    redactor: Option<MaskingStream>,
    slot: Option<ConnectionSlot>,
) -> Response<ProxyBody> {
    let (mut parts, body) = response.into_parts();
    parts.extensions.clear();
    parts.version = Version::HTTP_11;
    message::strip_hop_by_hop_headers(&mut parts.headers);
    let body = match redactor {
        Some(redactor) => {
            mask_headers(&redactor, &mut parts.headers);
            RedactingBody::new(body, redactor).boxed_unsync()
        }
        None => body.map_err(Into::into).boxed_unsync(),
    };
    let body = SlotHoldingBody::new(body, slot).boxed_unsync();
    Response::from_parts(parts, body)
}

/// Serves an intercepted tunnel in place of the host.
async fn serve_intercepted(
    sandbox: &Arc<ProxyClient>,
    tracked: &Arc<TrackedConnection>,
    client: OnUpgrade,
    attempt: PendingAttempt,
    tls: Option<Arc<ServerConfig>>,
) -> Option<ConnectionUpgrade> {
    let client = TokioIo::new(client.await.ok()?);
    let Some(tls) = tls else {
        return Connection::intercepted(sandbox, tracked, attempt, Scheme::Http)
            .serve(client)
            .await;
    };
    let mut client = BufReader::with_capacity(TLS_READ_BYTES, client);
    let first = timeout(sandbox.proxy.limits.header_timeout, client.fill_buf()).await;
    let first = first.ok().and_then(Result::ok).and_then(|read| read.first().copied());
    if first.is_some_and(|byte| byte != sni::TLS_HANDSHAKE_RECORD) {
        // A plain HTTP client gets the error as an HTTP response.
        return Connection::intercepted(sandbox, tracked, attempt, Scheme::Http)
            .serve(client)
            .await;
    }
    let handshake = TlsAcceptor::from(tls).accept(client);
    let error = match timeout(sandbox.proxy.limits.header_timeout, handshake).await {
        Ok(Ok(stream))
            if sni::sni_matches(stream.get_ref().1.server_name(), attempt.destination()) =>
        {
            return Connection::intercepted(sandbox, tracked, attempt, Scheme::Https)
                .serve(stream)
                .await;
        }
        Ok(Ok(_)) => EgressError::SniMismatch(attempt.destination().clone()),
        Ok(Err(_)) | Err(_) => EgressError::TlsRequired(attempt.destination().clone()),
    };
    attempt.finish(Some(&error));
    None
}

/// Relays bytes in both directions without interpreting them.
async fn run_tunnel(
    sandbox: &ProxyClient,
    client: OnUpgrade,
    route: &AllowedRoute,
    mut host: MeteredStream<TcpStream>,
) {
    let Ok(client) = client.await else { return };
    let mut client = SniGuard::new(TokioIo::new(client), route.destination().clone());
    relay(&mut client, &mut host).await;
    let error = match host.stream_end().get() {
        _ if client.is_rejected() => EgressError::SniMismatch(route.destination().clone()),
        Some(bound) => EgressError::limit_reached(route.destination(), *bound),
        None => return,
    };
    record_disconnect(sandbox, route, &error);
}

impl WebSocketRelay {
    async fn run(self, sandbox: &ProxyClient) {
        let Self { client, route, host, redactor, stream_end, _slot } = self;
        let Ok(client) = client.await else { return };
        let (mut client, mut host) = (TokioIo::new(client), TokioIo::new(host));
        let frame_error = match redactor {
            Some(redactor) => {
                let mut host = RedactingWebSocketStream::new(host, redactor);
                relay(&mut client, &mut host).await;
                host.error()
            }
            None => {
                relay(&mut client, &mut host).await;
                None
            }
        };
        let to = route.destination();
        let error = match (frame_error, stream_end.get()) {
            (Some(why), _) => EgressError::InvalidFrame { to: to.clone(), why },
            (None, Some(bound)) => EgressError::limit_reached(to, *bound),
            (None, None) => return,
        };
        record_disconnect(sandbox, &route, &error);
    }
}

/// Relays bytes in both directions. Both sides see the end as a closed connection.
async fn relay<A, B>(client: &mut A, host: &mut B)
where
    A: AsyncRead + AsyncWrite + Unpin + ?Sized,
    B: AsyncRead + AsyncWrite + Unpin + ?Sized,
{
    let _ = copy_bidirectional_with_sizes(client, host, RELAY_BYTES, RELAY_BYTES).await;
}
