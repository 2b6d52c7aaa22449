//! Sessions of MCP's legacy revision: each belongs to its principal, who may have a few at a time.

use super::extract;
use super::problem::Problem;
use super::rate_limit::BodyMemoryPermit;
use super::response_body::hold_until_sent;
use super::response_memory::ReservedResponse;
use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use mcp::{McpSessionUse, McpSessions, SessionOwner, TooManyMcpSessions};
use service::RequestCaller;
use std::sync::Arc;
use types::{Error, ErrorCode};

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// The server keeps what a client sends in `initialize` as long as the session lasts.
const INITIALIZE_BYTES_MAX: u64 = 64 * 1024;

pub(super) async fn check_session_owner(
    State(sessions): State<Arc<McpSessions>>,
    caller: Extension<RequestCaller>,
    request: Request,
    next: Next,
) -> Response {
    let request = match read_message(request).await {
        Ok(request) => request,
        Err(problem) => return problem.into_response(),
    };
    // A call can run for long. Its response is a stream, whose frames are counted.
    if let Some(ReservedResponse(memory)) = request.extensions().get() {
        memory.give_back();
    }
    let id = header_text(request.headers(), &SESSION_ID);
    let owner = SessionOwner { workspace: caller.workspace(), principal: caller.id() };
    let kind = match *request.method() {
        Method::GET => McpSessionUse::Listen,
        _ => McpSessionUse::Call,
    };
    let in_use = match &id {
        None => None,
        Some(id) => match sessions.begin_use(id, owner, kind) {
            Some(in_use) => Some(in_use),
            None => return Problem::from(session_not_found()).into_response(),
        },
    };
    let (ends, is_short) = (request.method() == Method::DELETE, has_small_body(request.headers()));
    let mut response = match ends {
        // A client that closes its session does not wait long, but its executions must still be
        // cancelled.
        true => match tokio::spawn(next.run(request)).await {
            Ok(response) => response,
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        },
        false => next.run(request).await,
    };
    // Only the response shows whether a session began; the request's own headers are untrusted.
    match (id, header_text(response.headers(), &SESSION_ID)) {
        (Some(id), _) if ends => {
            sessions.unregister(&id);
            // Clients treat 202 as a failure here; nothing is left to do.
            if response.status() == StatusCode::ACCEPTED {
                *response.status_mut() = StatusCode::NO_CONTENT;
            }
        }
        (None, Some(new)) if is_short => {
            if let Err(full) = sessions.evict_if_full(owner).await {
                sessions.close(new).await;
                return Problem::from(too_many_sessions(full)).into_response();
            }
            sessions.register(&new, owner);
        }
        (None, Some(new)) => {
            sessions.close(new).await;
            return Problem::from(initialize_too_large()).into_response();
        }
        _ => {}
    }
    hold_until_sent(response, in_use)
}

/// Reads a message before the protocol does, with the limits of every body and off the server
/// threads.
async fn read_message(request: Request) -> Result<Request, Problem> {
    if request.method() != Method::POST {
        return Ok(request);
    }
    let (parts, rest) = request.into_parts();
    let charge = parts.extensions.get::<Arc<BodyMemoryPermit>>().cloned();
    let bytes = extract::read_body(rest, extract::JSON_BYTES_MAX, charge.as_deref()).await?;
    let checked = extract::parse_off_thread(bytes, |bytes| {
        extract::check_nodes(bytes).map(|()| bytes.to_vec())
    });
    Ok(Request::from_parts(parts, Body::from(checked.await?)))
}

fn header_text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

fn has_small_body(headers: &HeaderMap) -> bool {
    let length = header_text(headers, &CONTENT_LENGTH).and_then(|length| length.parse().ok());
    // A body without a declared length can have any size.
    length.is_some_and(|length: u64| length <= INITIALIZE_BYTES_MAX)
        && !headers.contains_key(axum::http::header::TRANSFER_ENCODING)
}

fn session_not_found() -> Error {
    Error::new(ErrorCode::SessionNotFound, "MCP session not found")
        .hint("start a new session with `initialize`")
}

fn too_many_sessions(full: TooManyMcpSessions) -> Error {
    let (subject, sessions) = match full {
        TooManyMcpSessions::OfPrincipal(sessions) => ("of this principal", sessions),
        TooManyMcpSessions::OfWorkspace(sessions) => ("of this workspace", sessions),
        TooManyMcpSessions::OfAll(sessions) => ("of all workspaces", sessions),
    };
    let message = format!(
        "limit of {sessions} MCP sessions {subject} reached, and all of them have calls in progress"
    );
    Error::new(ErrorCode::RateExceeded, message)
        .hint("end one of them, or wait until its calls have ended")
}

fn initialize_too_large() -> Error {
    let message = format!("the `initialize` request can have at most {INITIALIZE_BYTES_MAX} bytes");
    Error::new(ErrorCode::RequestTooLarge, message)
}
