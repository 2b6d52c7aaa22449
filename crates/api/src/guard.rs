//! Checks before every handler: the `Host` and `Origin` headers, a request id, authentication, and
//! rate limits.
//!
//! Web pages in a browser on the same machine can reach a loopback address too. They cannot forge
//! `Host` and `Origin`, and the server uses no cookies.

use super::metrics::HttpMetrics;
use super::problem::Problem;
use super::rate_limit::{Admission, BodyKind, BodyMemoryPermit};
use super::response_memory::{ReservedResponse, ResponsePermits, hold_until_taken};
use super::{AppState, ProtectedResource, extract, idempotency, signed_url, sse, unread_body};
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{AUTHORIZATION, CONNECTION, EXPECT, HOST, ORIGIN, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body::Body as _;
use service::{Caller, RequestCaller};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tracing::Instrument;
use types::{Error, ErrorCode};
use uuid::Uuid;

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// An error repeats at most this much of a refused header; a DNS name has at most 253 characters.
const SHOWN_HEADER_CHARS_MAX: usize = 255;

/// Values of `Host` that this server accepts, with their ports.
#[derive(Debug, Clone)]
pub struct AllowedHosts(BTreeSet<String>);

impl AllowedHosts {
    /// A loopback address has several names, any other address only its own. `public` has the names
    /// that the operator adds, such as that of a proxy.
    pub fn new(listen: SocketAddr, public: &[String]) -> Self {
        let port = listen.port();
        let mut names = BTreeSet::from([listen.to_string()]);
        if listen.ip().is_loopback() || listen.ip().is_unspecified() {
            let loopback = ["127.0.0.1", "localhost", "[::1]"];
            names.extend(loopback.iter().map(|name| format!("{name}:{port}")));
        }
        names.extend(public.iter().map(|name| name.to_ascii_lowercase()));
        Self(names)
    }

    fn contains(&self, authority: &str) -> bool {
        self.0.contains(&authority.to_ascii_lowercase())
    }

    fn allows_host(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) => host.to_str().ok(),
            (None, None) => uri.authority().map(|authority| authority.as_str()),
            _ => None,
        };
        // If both the URI and the `Host` header have an authority, both must be allowed.
        let authority = uri.authority().is_none_or(|authority| self.contains(authority.as_str()));
        authority && host.is_some_and(|host| self.contains(host))
    }

    fn allows_origin(&self, headers: &HeaderMap) -> bool {
        headers.get_all(ORIGIN).iter().all(|origin| {
            let origin = origin.to_str().unwrap_or_default();
            let named = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            named.is_some_and(|authority| self.contains(authority))
        })
    }
}

/// State of the outermost layer.
#[derive(Debug, Clone)]
pub(crate) struct Receiver {
    pub(crate) allowed_hosts: Arc<AllowedHosts>,
    pub(crate) metrics: Arc<HttpMetrics>,
}

/// Outermost layer: assigns the request id, rejects unknown hosts and origins, and logs one line.
pub(crate) async fn receive(
    State(Receiver { allowed_hosts: names, metrics }): State<Receiver>,
    request: Request,
    next: Next,
) -> Response {
    let began = Instant::now();
    let number = Uuid::now_v7();
    let method = request.method().clone();
    let (version, expects) = (request.version(), request.headers().contains_key(EXPECT));
    let (request, unread) = unread_body::track_body(request);
    // Log the route, not the path: paths contain the users' file names and keys.
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    let mut response = if !names.allows_host(request.uri(), request.headers()) {
        host_not_allowed(&request).into_response()
    } else if !names.allows_origin(request.headers()) {
        Problem::from(origin_not_allowed(&request)).into_response()
    } else {
        let span = tracing::info_span!("request", %method, route, request_id = %number);
        next.run(request).instrument(span).await
    };
    if version < Version::HTTP_2 && !unread.drain(expects).await {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if let Ok(number) = HeaderValue::from_str(&number.to_string()) {
        response.headers_mut().insert(REQUEST_ID, number);
    }
    set_security_headers(response.headers_mut());
    metrics.record(response.status(), began.elapsed());
    log_request(&method, route, number, response.status(), began);
    response
}

fn host_not_allowed(request: &Request) -> Response {
    let host =
        shown_header(request, &HOST).or_else(|| Some(request.uri().authority()?.to_string()));
    let message = format!("Host header {:?} is not allowed", host.unwrap_or_default());
    let error = Error::new(ErrorCode::RequestRefused, message)
        .hint("use the address that the server printed, or allow the host with --public-host");
    Problem::from(error).with_status(StatusCode::MISDIRECTED_REQUEST).into_response()
}

fn origin_not_allowed(request: &Request) -> Error {
    let origin = shown_header(request, &ORIGIN).unwrap_or_default();
    Error::new(ErrorCode::RequestRefused, format!("Origin {origin:?} is not allowed"))
        .hint("if the page is yours, allow its host with --public-host")
}

/// The start of a header's value, for an error.
fn shown_header(request: &Request, name: &HeaderName) -> Option<String> {
    let value = String::from_utf8_lossy(request.headers().get(name)?.as_bytes()).into_owned();
    Some(value.chars().take(SHOWN_HEADER_CHARS_MAX).collect())
}

/// Forbids browsers to sniff, frame or cache any response.
fn set_security_headers(headers: &mut HeaderMap) {
    let mut set = |name: &'static str, value: &'static str| {
        let name = HeaderName::from_static(name);
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    set("x-content-type-options", "nosniff");
    set("referrer-policy", "no-referrer");
    set("x-frame-options", "DENY");
    set("cache-control", "no-store");
    set("cross-origin-resource-policy", "same-origin");
}

fn log_request(method: &Method, route: &str, number: Uuid, status: StatusCode, began: Instant) {
    let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    tracing::info!(%method, route, request_id = %number, status = status.as_u16(), micros, "request");
}

/// Authenticates requests below `/v1` with an API key or an access token. A 401 response names the
/// OAuth issuer, if there is one.
pub(crate) async fn authenticate(
    State(app): State<Arc<AppState>>,
    request: Request,
    next: Next,
) -> Response {
    let challenge = app.resource.as_ref().map(ProtectedResource::challenge);
    let mut response = admit_request(app, request, next).await;
    if let (StatusCode::UNAUTHORIZED, Some(challenge)) = (response.status(), challenge) {
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    response
}

/// Applies the rate limits of the key or the principal.
async fn admit_request(app: Arc<AppState>, mut request: Request, next: Next) -> Response {
    let caller = match signed_url::identify(&app, &mut request) {
        Ok(Some(caller)) => Ok(caller),
        Ok(None) => identify(&app, request.headers()).await,
        Err(problem) => Err(problem),
    };
    let caller = match caller {
        Ok(caller) => caller,
        Err(problem) => return problem.into_response(),
    };
    let permit = match app.rate_limiter.admit(caller.rate_limits(), app.service.clock().instant()) {
        Admission::Admitted(permit) => permit,
        Admission::Refused(error) => return Problem::from(error).into_response(),
    };
    if !has_small_body(&request) {
        match app.service.has_any_grant(&caller) {
            Ok(true) => {}
            Ok(false) => return Problem::from(no_grant_error()).into_response(),
            Err(refused) => return Problem::from(refused).into_response(),
        }
    }
    let (subject, workspace) = (caller.rate_limits().subject, caller.workspace());
    let is_safe = request.method().is_safe();
    let response_memory =
        Arc::new(app.rate_limiter.body_permit(BodyKind::Response, subject, workspace));
    if let Err(error) = if is_safe { response_memory.add(0) } else { response_memory.reserve() } {
        return Problem::from(error).into_response();
    }
    let request_memory =
        Arc::new(app.rate_limiter.body_permit(BodyKind::Request, subject, workspace));
    let caller = RequestCaller { caller: Arc::new(caller), permit: Some(Arc::new(permit)) };
    request.extensions_mut().insert(caller.clone());
    request.extensions_mut().insert(Arc::clone(&request_memory));
    request.extensions_mut().insert(ReservedResponse(Arc::clone(&response_memory)));
    let mut response = next.run(request).await;
    drop(request_memory);
    if app.service.is_stopping()
        && let Some(problem) = response.extensions_mut().remove::<Problem>()
    {
        response = problem.while_stopping().into_response();
    }
    let response = match count_response(&response_memory, &response, is_safe) {
        Ok(()) => response,
        Err(error) => Problem::from(error).into_response(),
    };
    let permits = ResponsePermits::new(response_memory, caller.permit.clone());
    hold_until_taken(sse::until_key_revoked(response, app, caller), permits)
}

/// Counts a large response of known size until the client has read it; a stream is counted frame by
/// frame. The response to a request that has changed something is sent in any case; the next
/// request of the key is then refused.
fn count_response(
    response_memory: &BodyMemoryPermit,
    response: &Response,
    is_safe: bool,
) -> Result<(), Error> {
    response_memory.give_back();
    let bytes = response.body().size_hint().exact().unwrap_or_default();
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    if bytes <= extract::SMALL_BYTES_MAX {
        return Ok(());
    }
    if is_safe || idempotency::is_replayed(response) {
        return response_memory.add(bytes);
    }
    response_memory.add_unchecked(bytes);
    Ok(())
}

/// Whether the body is known to be small. The server reads other bodies only for callers with some
/// privilege in the workspace.
fn has_small_body(request: &Request) -> bool {
    let most = request.body().size_hint().upper();
    most.is_some_and(|bytes| bytes <= extract::SMALL_BYTES_MAX as u64)
}

fn no_grant_error() -> Error {
    let message = format!(
        "the request body exceeds {} bytes, the limit for a key without grants",
        extract::SMALL_BYTES_MAX
    );
    Error::new(ErrorCode::GrantMissing, message).hint("ask an owner of the workspace for a grant")
}

async fn identify(app: &AppState, headers: &HeaderMap) -> Result<Caller, Problem> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let bearer = match (given.next(), given.next()) {
        (Some(value), None) => value.to_str().ok().and_then(bearer_token),
        _ => None,
    };
    match bearer {
        Some(bearer) => Ok(app.service.authenticate_bearer(bearer).await?),
        None => Err(Error::new(ErrorCode::AuthMissing, "missing API key")
            .hint(
                "send `Authorization: Bearer bj_…` with the key that `belljar serve` printed, or \
                   with one from `belljar key new`",
            )
            .into()),
    }
}

fn bearer_token(value: &str) -> Option<&str> {
    let (scheme, shown) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| shown.trim())
}
