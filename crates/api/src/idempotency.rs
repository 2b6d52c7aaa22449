//! `Idempotency-Key`: a request with a key is executed once, and its response is replayed.
//!
//! The key is claimed on disk before the request is executed, and the response is persisted before
//! it is sent. If the server stops in between, the outcome of the claim is unknown and the request
//! is never executed again automatically. Rejections are not persisted, so that a client can retry
//! when there is capacity.

use super::AppState;
use super::extract::Json;
use super::problem::Problem;
use super::rate_limit::BodyMemoryPermit;
use axum::Extension;
use axum::body::{Body, to_bytes};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body::Body as _;
use serde::Serialize;
use service::{RequestCaller, RequestClaim, StoredResponse};
use sha2::{Digest, Sha256};
use std::convert::Infallible;
use std::sync::Arc;
use types::{Error, ErrorCode};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
const KEY_BYTES_MAX: usize = 255;
/// Larger requests, such as uploads, cannot be compared and are rejected if they have a key.
const REQUEST_BYTES_MAX: usize = super::extract::JSON_BYTES_MAX;
/// Responses are persisted up to this size. A larger response is an execution, whose record is
/// already persistent.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The key of this request, after it was claimed.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClaimedKey(Option<String>);

/// Marks the error of a request that has had a known effect: it is persisted like a success, because a
/// retry would repeat the effect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartialEffect;

impl ClaimedKey {
    pub(crate) fn key(self) -> Option<String> {
        self.0
    }
}

impl<S: Send + Sync> FromRequestParts<S> for ClaimedKey {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}

pub(crate) async fn handle_idempotent(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    request: Request,
    next: Next,
) -> Response {
    let mut given = request.headers().get_all(IDEMPOTENCY_KEY).iter();
    let key = match (given.next(), given.next()) {
        (None, _) => return next.run(request).await,
        (Some(key), None) => key.to_str().map(str::to_owned).unwrap_or_default(),
        (Some(_), Some(_)) => String::new(),
    };
    if !is_valid_key(&key) || request.method() != Method::POST {
        return Problem::from(invalid_key_error()).into_response();
    }
    // Runs to completion even if the client disconnects, so that each claim gets a response.
    let remembered = tokio::spawn(async move { run_once(&app, &caller, request, next, key).await });
    match remembered.await {
        Ok(Ok(response)) => response,
        Ok(Err(problem)) => problem.into_response(),
        Err(_) => Problem::from(outcome_unknown_error()).into_response(),
    }
}

fn is_valid_key(key: &str) -> bool {
    (1..=KEY_BYTES_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())
}

fn invalid_key_error() -> Error {
    let message = format!(
        "Idempotency-Key must be one header of 1 to {KEY_BYTES_MAX} printable characters, on a POST"
    );
    Error::new(ErrorCode::ArgsInvalid, message)
}

fn outcome_unknown_error() -> Error {
    Error::server_fault("the server failed during this request; whether it was done is unknown")
}

async fn run_once(
    app: &AppState,
    caller: &RequestCaller,
    request: Request,
    next: Next,
    key: String,
) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    let charge = parts.extensions.get::<Arc<BodyMemoryPermit>>().cloned();
    let body = super::extract::read_body(body, REQUEST_BYTES_MAX, charge.as_deref()).await?;
    let fingerprint = fingerprint(&parts, &body);
    match app.service.claim_request(caller, &key, fingerprint).await? {
        RequestClaim::New => {}
        RequestClaim::Completed(answer) => return Ok(replay_response(answer)),
        RequestClaim::Execution(id) => {
            let settled = app.service.wait_for_record(caller, id).await?;
            return Ok(mark_replayed(super::routes::settled_response(app, caller, settled).await?));
        }
    }
    parts.extensions.insert(ClaimedKey(Some(key.clone())));
    let response = next.run(Request::from_parts(parts, Body::from(body))).await;
    match response.status() {
        // The request had some effect, and its extent is unknown.
        StatusCode::INTERNAL_SERVER_ERROR => return Ok(response),
        status if !status.is_success() && !has_partial_effect(&response) => {
            app.service.release_request(caller, &key).await?;
            return Ok(response);
        }
        _ => {}
    }
    store_reply(app, caller, key, response).await
}

fn has_partial_effect(response: &Response) -> bool {
    response.extensions().get::<PartialEffect>().is_some()
}

/// The body that is replayed instead of the first response.
#[derive(Debug, Clone)]
struct ReplayBody(Vec<u8>);

/// Response to the creation of a secret. No record has the secret, so a replay of the request gets
/// `again`.
pub(crate) fn respond_once<T: Serialize>(answer: &T, again: &T) -> Response {
    let mut response = (StatusCode::CREATED, Json(answer)).into_response();
    let again = serde_json::to_vec(again).unwrap_or_default();
    response.extensions_mut().insert(ReplayBody(again));
    response
}

/// Two requests are equal if method, path and body are equal.
fn fingerprint(parts: &Parts, body: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    let kind = parts.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    for part in [parts.uri.to_string().as_bytes(), kind, body] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// Persists the response before it is sent, unless it is a stream or too large: those are
/// executions, whose record is persistent.
async fn store_reply(
    app: &AppState,
    caller: &RequestCaller,
    key: String,
    response: Response,
) -> Result<Response, Problem> {
    let kind = response.headers().get(CONTENT_TYPE).cloned();
    let streamed = kind.as_ref().is_some_and(|kind| kind == "text/event-stream");
    let size = response.body().size_hint().exact();
    // A record of unknown length is large.
    if streamed || size.is_none_or(|bytes| bytes > ANSWER_BYTES_MAX as u64) {
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, ANSWER_BYTES_MAX)
        .await
        .map_err(|_| Problem::from(outcome_unknown_error()))?;
    let kind = kind.and_then(|kind| kind.to_str().map(str::to_owned).ok()).unwrap_or_default();
    let again = parts.extensions.get::<ReplayBody>().map(|ReplayBody(again)| again.clone());
    let kept = again.unwrap_or_else(|| body.to_vec());
    let answer = StoredResponse { status: parts.status.as_u16(), content_type: kind, body: kept };
    app.service.store_response(caller, &key, answer).await?;
    Ok(Response::from_parts(parts, Body::from(body)))
}

fn replay_response(answer: StoredResponse) -> Response {
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    if let Ok(kind) = HeaderValue::from_str(&answer.content_type) {
        response.headers_mut().insert(CONTENT_TYPE, kind);
    }
    mark_replayed(response)
}

/// Whether this request has changed nothing: its response is that of an earlier one.
pub(crate) fn is_replayed(response: &Response) -> bool {
    response.headers().contains_key(REPLAYED)
}

fn mark_replayed(mut response: Response) -> Response {
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response
}
