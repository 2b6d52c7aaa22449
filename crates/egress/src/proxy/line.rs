//! One connection of a sandbox, from its first request to its end.
//!
//! Each request on it is decided anew. A request can turn the connection into something else: a
//! tunnel, the inside of an intercepted one, or a WebSocket. That is remembered while the request
//! is answered, and carried out by the same task when HTTP is through with the connection, so
//! that nothing of it can outlive the sandbox.

use super::attempt::{UnderWay, cut_off, turned_away};
use super::frames::Covered;
use super::hello::{self, Screened};
use super::message;
use super::meter::{Ending, Metered};
use super::passage::{Passage, intercepted};
use super::redact::{Redacted, Redactor};
use super::refusal::{Body, Malformed, Refusal, said};
use super::seats::{Presence, Seat, Seated};
use super::upstream::{Speech, Unanswered, Upstream, dial};
use super::{Sandbox, TLS_READ_BYTES};
use crate::authority::Scheme;
use http::header::{ACCEPT_ENCODING, HeaderValue, SEC_WEBSOCKET_EXTENSIONS};
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::{TokioIo, TokioTimer};
use policy::Destination;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// More than clients send.
const HEADER_BYTES_MAX: usize = 64 * 1024;
/// What is read at once in each direction.
const RELAY_BYTES: usize = 128 * 1024;

pub(super) struct Line {
    sandbox: Arc<Sandbox>,
    presence: Arc<Presence>,
    /// Where the tunnel leads that this is the inside of.
    inside: Option<(Destination, Scheme)>,
    /// The attempt that opened the tunnel, until the first request in it goes on with it.
    opened: Mutex<Option<UnderWay>>,
    upstream: tokio::sync::Mutex<Option<Upstream>>,
    next: Mutex<Option<Next>>,
}

/// What a connection turns into.
enum Next {
    Tunnel { client: OnUpgrade, passage: Passage, host: Metered<TcpStream>, _seat: Seat },
    Inside { client: OnUpgrade, attempt: UnderWay, tls: Option<Arc<ServerConfig>> },
    WebSocket(WebSocket),
}

struct WebSocket {
    client: OnUpgrade,
    passage: Passage,
    host: Upgraded,
    /// For a host that has a credential.
    redactor: Option<Redactor>,
    ending: Ending,
    _seat: Seat,
}

/// What a CONNECT has opened.
enum Opened {
    Tunnel { passage: Passage, host: Metered<TcpStream> },
    Inside { tls: Option<Arc<ServerConfig>> },
}

impl Line {
    fn outside(sandbox: Arc<Sandbox>, presence: Arc<Presence>) -> Self {
        Self {
            sandbox,
            presence,
            inside: None,
            opened: Mutex::default(),
            upstream: Default::default(),
            next: Mutex::default(),
        }
    }

    fn inside(
        sandbox: &Arc<Sandbox>,
        presence: &Arc<Presence>,
        attempt: UnderWay,
        scheme: Scheme,
    ) -> Self {
        let inside = Some((attempt.to().clone(), scheme));
        let line = Self::outside(sandbox.clone(), presence.clone());
        Self { inside, opened: Mutex::new(Some(attempt)), ..line }
    }

    /// Serves a connection until it ends.
    pub(super) async fn run(sandbox: Arc<Sandbox>, presence: Arc<Presence>, stream: TcpStream) {
        if stream.set_nodelay(true).is_err() {
            return;
        }
        let next = Self::outside(sandbox.clone(), presence.clone()).serve(stream).await;
        let next = match next {
            Some(Next::Inside { client, attempt, tls }) => {
                inside(&sandbox, &presence, client, attempt, tls).await
            }
            next => next,
        };
        match next {
            Some(Next::Tunnel { client, passage, host, _seat }) => {
                tunnel(&sandbox, client, &passage, host).await;
            }
            Some(Next::WebSocket(socket)) => socket.run(&sandbox).await,
            Some(Next::Inside { .. }) | None => {}
        }
    }

    /// Answers requests, until the end or until the connection turns into something else.
    async fn serve<S>(self, stream: S) -> Option<Next>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(async |request| {
            let answered = self.answer(request).await;
            Ok::<_, Infallible>(answered.unwrap_or_else(|refusal| refusal.response()))
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.sandbox.proxy.limits.header)
            .max_header_size(HEADER_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        if let Err(error) = connection.await {
            self.broke_off(&error);
            return None;
        }
        self.next.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// A head that cannot be read has been answered, and nobody else has seen it. Outside of a tunnel it
    /// names nobody who could be written down.
    fn broke_off(&self, error: &hyper::Error) {
        let Some((to, _)) = self.inside.as_ref().filter(|_| error.is_parse()) else { return };
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        let attempt = opened.unwrap_or_else(|| UnderWay::new(self.sandbox.clone(), to.clone()));
        attempt.end(Some(&Malformed::Head.into()));
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
        let seat = self.presence.seat().inspect_err(|refusal| self.turn_away(&request, refusal))?;
        let (mut attempt, scheme) = self.attempt(&request)?;
        if request.method() == Method::CONNECT {
            return self.connect(attempt, request, seat).await;
        }
        let answered = match attempt.passage(scheme).await {
            Ok(passage) => self.forward(&passage, request, seat).await,
            Err(refusal) => Err(refusal),
        };
        attempt.end(answered.as_ref().err());
        answered
    }

    /// Whom a request is for.
    fn attempt(&self, request: &Request<Incoming>) -> Result<(UnderWay, Scheme), Refusal> {
        let target = match &self.inside {
            Some((to, scheme)) => {
                message::is_inside(request, to, *scheme).map(|()| (to.clone(), *scheme))
            }
            None if request.method() == Method::CONNECT => {
                message::tunnel_target(request).map(|to| (to, Scheme::Https))
            }
            None => message::url_target(request).map(|to| (to, Scheme::Http)),
        };
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        match target {
            Ok((to, scheme)) => {
                let new = || UnderWay::new(self.sandbox.clone(), to);
                Ok((opened.unwrap_or_else(new), scheme))
            }
            Err(malformed) => {
                let refusal = malformed.into();
                match opened {
                    Some(opened) => opened.end(Some(&refusal)),
                    None => turned_away(&self.sandbox, request, &refusal),
                }
                Err(refusal)
            }
        }
    }

    async fn connect(
        &self,
        mut attempt: UnderWay,
        mut request: Request<Incoming>,
        seat: Seat,
    ) -> Result<Response<Body>, Refusal> {
        let client = hyper::upgrade::on(&mut request);
        let next = match self.open(&mut attempt).await {
            Ok(Opened::Tunnel { passage, host }) => {
                attempt.end(None);
                Next::Tunnel { client, passage, host, _seat: seat }
            }
            // Each request inside of it has a seat of its own.
            Ok(Opened::Inside { tls }) => Next::Inside { client, attempt, tls },
            Err(refusal) => {
                attempt.end(Some(&refusal));
                return Err(refusal);
            }
        };
        self.turn_into(next);
        Ok(Response::new(said("")))
    }

    /// Opens a tunnel. An intercepted one leads nowhere yet: its requests are decided one by one.
    async fn open(&self, attempt: &mut UnderWay) -> Result<Opened, Refusal> {
        let way = self.sandbox.way().await?;
        match intercepted(&way, attempt.to()) {
            Some(scheme) => {
                attempt.passage_by(way, scheme)?;
                let stand_in = || self.sandbox.proxy.ca.stand_in(attempt.to());
                let tls = (scheme == Scheme::Https).then(stand_in).transpose()?;
                Ok(Opened::Inside { tls })
            }
            None => {
                let passage = attempt.passage_by(way, Scheme::Https)?;
                let (_, host) = dial(&self.sandbox, &passage).await?;
                Ok(Opened::Tunnel { passage, host })
            }
        }
    }

    /// Writes down a request for which there is no seat.
    fn turn_away(&self, request: &Request<Incoming>, refusal: &Refusal) {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        match opened {
            Some(opened) => opened.end(Some(refusal)),
            None => turned_away(&self.sandbox, request, refusal),
        }
    }

    fn turn_into(&self, next: Next) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(next);
    }

    /// Sends a request on, with the credentials of its destination, and gives the answer.
    async fn forward(
        &self,
        passage: &Passage,
        mut request: Request<Incoming>,
        seat: Seat,
    ) -> Result<Response<Body>, Refusal> {
        let client = message::wants_websocket(&request).then(|| hyper::upgrade::on(&mut request));
        let is_head = request.method() == Method::HEAD;
        let redactor = self.sandbox.redactor(passage).await?;
        request.extensions_mut().clear();
        let headers = request.headers_mut();
        message::strip(headers);
        if client.is_some() {
            message::ask_websocket(headers);
        }
        if redactor.is_some() {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            // One of them compresses what frames carry.
            headers.remove(SEC_WEBSOCKET_EXTENSIONS);
        }
        passage.give_credentials(headers)?;
        let speech = if client.is_some() { Speech::Http1 } else { Speech::Any };
        let (mut response, ending) = self.exchange(passage, request, speech).await?;
        let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        match client {
            Some(_) if switched && redactor.is_some() && is_extended(&response) => {
                Err(Refusal::Encoded(passage.to().clone()))
            }
            Some(client) if switched => {
                let host = hyper::upgrade::on(&mut response).await;
                let host = host.map_err(|error| Refusal::answer(passage.to(), error))?;
                let passage = passage.clone();
                let covers = redactor.clone();
                let socket =
                    WebSocket { client, passage, host, redactor: covers, ending, _seat: seat };
                self.turn_into(Next::WebSocket(socket));
                let mut response = told(response, redactor, None);
                message::ask_websocket(response.headers_mut());
                Ok(response)
            }
            None if switched => Err(Refusal::Switched(passage.to().clone())),
            _ if redactor.is_some() && !is_head && is_unreadable(&response) => {
                Err(Refusal::Encoded(passage.to().clone()))
            }
            _ => Ok(told(response, redactor, Some(seat))),
        }
    }

    /// Sends a request over the connection of the one before, if that leads where this one goes.
    async fn exchange(
        &self,
        passage: &Passage,
        mut request: Request<Incoming>,
        speech: Speech,
    ) -> Result<(Response<Incoming>, Ending), Refusal> {
        let mut kept = self.upstream.lock().await;
        if let Some(upstream) = kept.as_mut().filter(|it| it.serves(passage, speech)) {
            match upstream.send(request).await {
                // The host closed it before anything was sent.
                Err(Unanswered { unsent: Some(unsent), .. }) => request = *unsent,
                Err(Unanswered { refusal, .. }) => return Err(refusal),
                Ok(response) => return Ok((response, upstream.ending())),
            }
        }
        let upstream = kept.insert(Upstream::connect(&self.sandbox, passage, speech).await?);
        let sent = upstream.send(request).await;
        let response = sent.map_err(|unanswered| unanswered.refusal)?;
        Ok((response, upstream.ending()))
    }
}

/// Whether an answer has a body in which a credential cannot be looked for.
fn is_unreadable(response: &Response<Incoming>) -> bool {
    let has_none = matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    message::is_encoded(response.headers()) && !has_none && !response.body().is_end_stream()
}

/// Whether frames may carry something else than the bytes that they mean.
fn is_extended(response: &Response<Incoming>) -> bool {
    response.headers().contains_key(SEC_WEBSOCKET_EXTENSIONS)
}

/// The answer of a host, as the client may have it.
fn told(
    response: Response<Incoming>,
    redactor: Option<Redactor>,
    seat: Option<Seat>,
) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    parts.extensions.clear();
    parts.version = Version::HTTP_11;
    message::strip(&mut parts.headers);
    let body = match redactor {
        Some(redactor) => {
            redactor.clean(&mut parts.headers);
            Redacted::new(body, redactor).boxed_unsync()
        }
        None => body.map_err(Into::into).boxed_unsync(),
    };
    let body = Seated::new(body, seat).boxed_unsync();
    Response::from_parts(parts, body)
}

/// Serves the inside of an intercepted tunnel in the place of the host.
async fn inside(
    sandbox: &Arc<Sandbox>,
    presence: &Arc<Presence>,
    client: OnUpgrade,
    attempt: UnderWay,
    tls: Option<Arc<ServerConfig>>,
) -> Option<Next> {
    let client = TokioIo::new(client.await.ok()?);
    let Some(tls) = tls else {
        return Line::inside(sandbox, presence, attempt, Scheme::Http).serve(client).await;
    };
    let mut client = BufReader::with_capacity(TLS_READ_BYTES, client);
    let first = timeout(sandbox.proxy.limits.header, client.fill_buf()).await;
    let first = first.ok().and_then(Result::ok).and_then(|read| read.first().copied());
    if first.is_some_and(|byte| byte != hello::HANDSHAKE) {
        // Plain HTTP is told what is missing in its own words.
        return Line::inside(sandbox, presence, attempt, Scheme::Http).serve(client).await;
    }
    let greeting = TlsAcceptor::from(tls).accept(client);
    let refusal = match timeout(sandbox.proxy.limits.header, greeting).await {
        Ok(Ok(stream)) if hello::names(stream.get_ref().1.server_name(), attempt.to()) => {
            return Line::inside(sandbox, presence, attempt, Scheme::Https).serve(stream).await;
        }
        Ok(Ok(_)) => Refusal::OtherName(attempt.to().clone()),
        Ok(Err(_)) | Err(_) => Refusal::NoTls(attempt.to().clone()),
    };
    attempt.end(Some(&refusal));
    None
}

/// Carries bytes both ways, whatever they mean.
async fn tunnel(
    sandbox: &Sandbox,
    client: OnUpgrade,
    passage: &Passage,
    mut host: Metered<TcpStream>,
) {
    let Ok(client) = client.await else { return };
    let mut client = Screened::new(TokioIo::new(client), passage.to().clone());
    relay(&mut client, &mut host).await;
    let refusal = match host.ending().get() {
        _ if client.was_refused() => Refusal::OtherName(passage.to().clone()),
        Some(bound) => Refusal::bound(passage.to(), *bound),
        None => return,
    };
    cut_off(sandbox, passage, &refusal);
}

impl WebSocket {
    async fn run(self, sandbox: &Sandbox) {
        let Self { client, passage, host, redactor, ending, _seat } = self;
        let Ok(client) = client.await else { return };
        let (mut client, mut host) = (TokioIo::new(client), TokioIo::new(host));
        let refused = match redactor {
            Some(redactor) => {
                let mut host = Covered::new(host, redactor);
                relay(&mut client, &mut host).await;
                host.refused()
            }
            None => {
                relay(&mut client, &mut host).await;
                None
            }
        };
        let to = passage.to();
        let refusal = match (refused, ending.get()) {
            (Some(why), _) => Refusal::NoFrame { to: to.clone(), why },
            (None, Some(bound)) => Refusal::bound(to, *bound),
            (None, None) => return,
        };
        cut_off(sandbox, &passage, &refusal);
    }
}

/// Carries bytes both ways. How it ended is told to both by its end.
async fn relay<A, B>(client: &mut A, host: &mut B)
where
    A: AsyncRead + AsyncWrite + Unpin + ?Sized,
    B: AsyncRead + AsyncWrite + Unpin + ?Sized,
{
    let _ = copy_bidirectional_with_sizes(client, host, RELAY_BYTES, RELAY_BYTES).await;
}
