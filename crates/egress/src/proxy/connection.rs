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

/// More than clients send.
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

/// What a connection is upgraded to.
enum ConnectionUpgrade {
    Tunnel {
        client: OnUpgrade,
        passage: AllowedRoute,
        host: MeteredStream<TcpStream>,
        _seat: ConnectionSlot,
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
    _seat: ConnectionSlot,
}

/// What a CONNECT opened.
enum OpenedTunnel {
    Opaque { passage: AllowedRoute, host: MeteredStream<TcpStream> },
    Intercepted { tls: Option<Arc<ServerConfig>> },
}

impl Connection {
    fn new(sandbox: Arc<ProxyClient>, presence: Arc<TrackedConnection>) -> Self {
        Self {
            sandbox,
            tracked: presence,
            intercepted_target: None,
            pending_attempt: Mutex::default(),
            upstream: Default::default(),
            upgrade: Mutex::default(),
        }
    }

    fn intercepted(
        sandbox: &Arc<ProxyClient>,
        presence: &Arc<TrackedConnection>,
        attempt: PendingAttempt,
        scheme: Scheme,
    ) -> Self {
        let inside = Some((attempt.destination().clone(), scheme));
        let line = Self::new(sandbox.clone(), presence.clone());
        Self { intercepted_target: inside, pending_attempt: Mutex::new(Some(attempt)), ..line }
    }

    /// Serves a connection until it ends.
    pub(super) async fn run(
        sandbox: Arc<ProxyClient>,
        presence: Arc<TrackedConnection>,
        stream: TcpStream,
    ) {
        if stream.set_nodelay(true).is_err() {
            return;
        }
        let next = Self::new(sandbox.clone(), presence.clone()).serve(stream).await;
        let next = match next {
            Some(ConnectionUpgrade::Intercepted { client, attempt, tls }) => {
                serve_intercepted(&sandbox, &presence, client, attempt, tls).await
            }
            next => next,
        };
        match next {
            Some(ConnectionUpgrade::Tunnel { client, passage, host, _seat }) => {
                run_tunnel(&sandbox, client, &passage, host).await;
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
            let answered = self.handle_request(request).await;
            Ok::<_, Infallible>(answered.unwrap_or_else(|refusal| refusal.response()))
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
        let seat = self
            .tracked
            .acquire_slot()
            .inspect_err(|refusal| self.record_rejected_request(&request, refusal))?;
        let (mut attempt, scheme) = self.begin_attempt(&request)?;
        if request.method() == Method::CONNECT {
            return self.handle_connect(attempt, request, seat).await;
        }
        let answered = match attempt.authorize(scheme).await {
            Ok(passage) => self.forward(&passage, request, seat).await,
            Err(refusal) => Err(refusal),
        };
        attempt.finish(answered.as_ref().err());
        answered
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
                let refusal = malformed.into();
                match opened {
                    Some(opened) => opened.finish(Some(&refusal)),
                    None => record_rejection(&self.sandbox, request, &refusal),
                }
                Err(refusal)
            }
        }
    }

    async fn handle_connect(
        &self,
        mut attempt: PendingAttempt,
        mut request: Request<Incoming>,
        seat: ConnectionSlot,
    ) -> Result<Response<ProxyBody>, EgressError> {
        let client = hyper::upgrade::on(&mut request);
        let next = match self.open_tunnel(&mut attempt).await {
            Ok(OpenedTunnel::Opaque { passage, host }) => {
                attempt.finish(None);
                ConnectionUpgrade::Tunnel { client, passage, host, _seat: seat }
            }
            // Each request inside the tunnel takes its own slot.
            Ok(OpenedTunnel::Intercepted { tls }) => {
                ConnectionUpgrade::Intercepted { client, attempt, tls }
            }
            Err(refusal) => {
                attempt.finish(Some(&refusal));
                return Err(refusal);
            }
        };
        self.set_upgrade(next);
        Ok(Response::new(text_body("")))
    }

    /// Opens a tunnel. An intercepted one connects to nothing yet: its requests are checked one by
    /// one.
    async fn open_tunnel(&self, attempt: &mut PendingAttempt) -> Result<OpenedTunnel, EgressError> {
        let way = self.sandbox.current_policy().await?;
        match interception_scheme(&way, attempt.destination()) {
            Some(scheme) => {
                attempt.authorize_with(way, scheme)?;
                let stand_in = || self.sandbox.proxy.ca.server_config_for(attempt.destination());
                let tls = (scheme == Scheme::Https).then(stand_in).transpose()?;
                Ok(OpenedTunnel::Intercepted { tls })
            }
            None => {
                let passage = attempt.authorize_with(way, Scheme::Https)?;
                let (_, host) = dial(&self.sandbox, &passage).await?;
                Ok(OpenedTunnel::Opaque { passage, host })
            }
        }
    }

    /// Logs a request for which there is no slot.
    fn record_rejected_request(&self, request: &Request<Incoming>, refusal: &EgressError) {
        let opened = self.pending_attempt.lock().unwrap_or_else(PoisonError::into_inner).take();
        match opened {
            Some(opened) => opened.finish(Some(refusal)),
            None => record_rejection(&self.sandbox, request, refusal),
        }
    }

    fn set_upgrade(&self, next: ConnectionUpgrade) {
        *self.upgrade.lock().unwrap_or_else(PoisonError::into_inner) = Some(next);
    }

    /// Forwards a request with the credentials of its destination, and returns the response.
    async fn forward(
        &self,
        passage: &AllowedRoute,
        mut request: Request<Incoming>,
        seat: ConnectionSlot,
    ) -> Result<Response<ProxyBody>, EgressError> {
        let client =
            message::is_websocket_upgrade(&request).then(|| hyper::upgrade::on(&mut request));
        let is_head = request.method() == Method::HEAD;
        let redactor = self.sandbox.masking_stream(passage).await?;
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
        passage.inject_credentials(headers)?;
        let speech =
            if client.is_some() { HttpVersionChoice::Http1 } else { HttpVersionChoice::Any };
        let (mut response, ending) = self.send_upstream(passage, request, speech).await?;
        let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        match client {
            Some(_) if switched && redactor.is_some() && has_websocket_extensions(&response) => {
                Err(EgressError::UnexpectedEncoding(passage.destination().clone()))
            }
            Some(client) if switched => {
                let host = hyper::upgrade::on(&mut response).await;
                let host = host
                    .map_err(|error| EgressError::invalid_response(passage.destination(), error))?;
                let passage = passage.clone();
                let covers = redactor.clone();
                let socket = WebSocketRelay {
                    client,
                    route: passage,
                    host,
                    redactor: covers,
                    stream_end: ending,
                    _seat: seat,
                };
                self.set_upgrade(ConnectionUpgrade::WebSocket(socket));
                let mut response = client_response(response, redactor, None);
                message::set_websocket_upgrade(response.headers_mut());
                Ok(response)
            }
            None if switched => Err(EgressError::UnexpectedUpgrade(passage.destination().clone())),
            _ if redactor.is_some() && !is_head && has_encoded_body(&response) => {
                Err(EgressError::UnexpectedEncoding(passage.destination().clone()))
            }
            _ => Ok(client_response(response, redactor, Some(seat))),
        }
    }

    /// Sends a request over the previous upstream connection, if that has the same target.
    async fn send_upstream(
        &self,
        passage: &AllowedRoute,
        mut request: Request<Incoming>,
        speech: HttpVersionChoice,
    ) -> Result<(Response<Incoming>, StreamEnd), EgressError> {
        let mut kept = self.upstream.lock().await;
        if let Some(upstream) = kept.as_mut().filter(|it| it.can_serve(passage, speech)) {
            match upstream.send(request).await {
                // The host closed it before anything was sent.
                Err(UpstreamSendError { unsent: Some(unsent), .. }) => request = *unsent,
                Err(UpstreamSendError { error: refusal, .. }) => return Err(refusal),
                Ok(response) => return Ok((response, upstream.stream_end())),
            }
        }
        let upstream =
            kept.insert(UpstreamConnection::connect(&self.sandbox, passage, speech).await?);
        let sent = upstream.send(request).await;
        let response = sent.map_err(|unanswered| unanswered.error)?;
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
    seat: Option<ConnectionSlot>,
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
    let body = SlotHoldingBody::new(body, seat).boxed_unsync();
    Response::from_parts(parts, body)
}

/// Serves an intercepted tunnel in place of the host.
async fn serve_intercepted(
    sandbox: &Arc<ProxyClient>,
    presence: &Arc<TrackedConnection>,
    client: OnUpgrade,
    attempt: PendingAttempt,
    tls: Option<Arc<ServerConfig>>,
) -> Option<ConnectionUpgrade> {
    let client = TokioIo::new(client.await.ok()?);
    let Some(tls) = tls else {
        return Connection::intercepted(sandbox, presence, attempt, Scheme::Http)
            .serve(client)
            .await;
    };
    let mut client = BufReader::with_capacity(TLS_READ_BYTES, client);
    let first = timeout(sandbox.proxy.limits.header_timeout, client.fill_buf()).await;
    let first = first.ok().and_then(Result::ok).and_then(|read| read.first().copied());
    if first.is_some_and(|byte| byte != sni::TLS_HANDSHAKE_RECORD) {
        // A plain HTTP client gets the error as an HTTP response.
        return Connection::intercepted(sandbox, presence, attempt, Scheme::Http)
            .serve(client)
            .await;
    }
    let greeting = TlsAcceptor::from(tls).accept(client);
    let refusal = match timeout(sandbox.proxy.limits.header_timeout, greeting).await {
        Ok(Ok(stream))
            if sni::sni_matches(stream.get_ref().1.server_name(), attempt.destination()) =>
        {
            return Connection::intercepted(sandbox, presence, attempt, Scheme::Https)
                .serve(stream)
                .await;
        }
        Ok(Ok(_)) => EgressError::SniMismatch(attempt.destination().clone()),
        Ok(Err(_)) | Err(_) => EgressError::TlsRequired(attempt.destination().clone()),
    };
    attempt.finish(Some(&refusal));
    None
}

/// Relays bytes in both directions without interpreting them.
async fn run_tunnel(
    sandbox: &ProxyClient,
    client: OnUpgrade,
    passage: &AllowedRoute,
    mut host: MeteredStream<TcpStream>,
) {
    let Ok(client) = client.await else { return };
    let mut client = SniGuard::new(TokioIo::new(client), passage.destination().clone());
    relay(&mut client, &mut host).await;
    let refusal = match host.stream_end().get() {
        _ if client.is_rejected() => EgressError::SniMismatch(passage.destination().clone()),
        Some(bound) => EgressError::limit_reached(passage.destination(), *bound),
        None => return,
    };
    record_disconnect(sandbox, passage, &refusal);
}

impl WebSocketRelay {
    async fn run(self, sandbox: &ProxyClient) {
        let Self { client, route: passage, host, redactor, stream_end: ending, _seat } = self;
        let Ok(client) = client.await else { return };
        let (mut client, mut host) = (TokioIo::new(client), TokioIo::new(host));
        let refused = match redactor {
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
        let to = passage.destination();
        let refusal = match (refused, ending.get()) {
            (Some(why), _) => EgressError::InvalidFrame { to: to.clone(), why },
            (None, Some(bound)) => EgressError::limit_reached(to, *bound),
            (None, None) => return,
        };
        record_disconnect(sandbox, &passage, &refusal);
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
