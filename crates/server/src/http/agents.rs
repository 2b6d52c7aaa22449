//! Sessions of MCP's older era: each is its principal's, and nobody has more of them than a few.

use super::limits::{Charge, until_sent};
use super::problem::Problem;
use super::{Known, body};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use mcp::{SessionOwner, SessionUse, Sessions, SessionsFull};
use std::sync::Arc;
use types::{Code, Fault};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// What a client says of itself at the beginning is kept as long as its session is.
const HELLO_BYTES_MAX: u64 = 64 * 1024;

pub(super) async fn own_session(
    State(sessions): State<Arc<Sessions>>,
    known: Known,
    request: Request,
    next: Next,
) -> Response {
    let request = match read(request).await {
        Ok(request) => request,
        Err(problem) => return problem.into_response(),
    };
    let id = text(request.headers(), &SESSION);
    let owner = SessionOwner { workspace: known.workspace(), principal: known.id() };
    let kind = match *request.method() {
        Method::GET => SessionUse::Listen,
        _ => SessionUse::Call,
    };
    let in_use = match &id {
        None => None,
        Some(id) => match sessions.begin_use(id, owner, kind) {
            Some(in_use) => Some(in_use),
            None => return Problem::from(gone()).into_response(),
        },
    };
    let (ends, is_short) = (request.method() == Method::DELETE, is_short(request.headers()));
    let mut response = match ends {
        // Whoever leaves does not wait long, and what runs for them has to end all the same.
        true => match tokio::spawn(next.run(request)).await {
            Ok(response) => response,
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        },
        false => next.run(request).await,
    };
    // Whether a session is begun is seen by the answer: what a request says of itself may be a lie.
    match (id, text(response.headers(), &SESSION)) {
        (Some(id), _) if ends => {
            sessions.ended(&id);
            // Clients take "accepted" for a failure: nothing is left to be done.
            if response.status() == StatusCode::ACCEPTED {
                *response.status_mut() = StatusCode::NO_CONTENT;
            }
        }
        (None, Some(new)) if is_short => {
            if let Err(full) = sessions.make_room(owner).await {
                sessions.close(new).await;
                return Problem::from(too_many(full)).into_response();
            }
            sessions.begun(&new, owner);
        }
        (None, Some(new)) => {
            sessions.close(new).await;
            return Problem::from(too_long()).into_response();
        }
        _ => {}
    }
    until_sent(response, in_use)
}

/// Reads a message before the protocol does: within the bounds of every body, and off the serving threads.
async fn read(request: Request) -> Result<Request, Problem> {
    if request.method() != Method::POST {
        return Ok(request);
    }
    let (parts, rest) = request.into_parts();
    let charge = parts.extensions.get::<Arc<Charge>>().cloned();
    let bytes = body::read(rest, body::JSON_BYTES_MAX, charge.as_deref()).await?;
    let checked = body::apart(bytes, |bytes| body::check_nodes(bytes).map(|()| bytes.to_vec()));
    Ok(Request::from_parts(parts, Body::from(checked.await?)))
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

fn is_short(headers: &HeaderMap) -> bool {
    let length = text(headers, &CONTENT_LENGTH).and_then(|length| length.parse().ok());
    // What names no length may have any.
    length.is_some_and(|length: u64| length <= HELLO_BYTES_MAX)
        && !headers.contains_key(axum::http::header::TRANSFER_ENCODING)
}

fn gone() -> Fault {
    Fault::new(Code::SessionNotFound, "there is no such session of the protocol")
        .hint("begin another one with `initialize`")
}

fn too_many(full: SessionsFull) -> Fault {
    let (whose, sessions) = match full {
        SessionsFull::OfPrincipal(sessions) => ("of this principal", sessions),
        SessionsFull::OfWorkspace(sessions) => ("of this workspace", sessions),
        SessionsFull::OfAll(sessions) => ("of all workspaces", sessions),
    };
    let message = format!(
        "there are {sessions} sessions of MCP {whose} with calls under way, which is the most"
    );
    Fault::new(Code::RateExceeded, message)
        .hint("end one of them, or wait for its calls to be answered")
}

fn too_long() -> Fault {
    let message = format!("the first request of a session has at most {HELLO_BYTES_MAX} bytes");
    Fault::new(Code::RequestTooLarge, message)
}
