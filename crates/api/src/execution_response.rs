//! Responses for an execution: the record, an event stream, or 202 with a location.

use super::extract::Json;
use super::idempotency::ClaimedKey;
use super::problem::Problem;
use super::record_response::record_response;
use super::sse::{self, ResponseMode};
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use service::{ExecutionHandle, FileUrlSigner, RequestCaller, SubmitOptions, Submitted};
use types::{Execution, ExecutionId};

pub(crate) fn submit_options(
    caller: &RequestCaller,
    claim: ClaimedKey,
    mode: ResponseMode,
) -> SubmitOptions {
    SubmitOptions {
        idempotency_key: claim.key(),
        announce_id: mode != ResponseMode::Record,
        concurrency_permit: caller.permit.clone(),
        parent: None,
    }
}

async fn execution_response(
    handle: ExecutionHandle,
    mode: ResponseMode,
    urls: FileUrlSigner,
) -> Result<Response, Problem> {
    Ok(match mode {
        ResponseMode::Record => record_response(handle.wait_for_record().await?, &urls),
        ResponseMode::Stream => {
            with_location(handle.id(), sse::event_stream(handle.events(), urls))
        }
        ResponseMode::Async => accepted_response(&handle.detach()),
    })
}

/// The response for a submitted call, which may first wait for an approval.
pub(crate) async fn call_response(
    submitted: Submitted,
    mode: ResponseMode,
    urls: FileUrlSigner,
) -> Result<Response, Problem> {
    match submitted {
        Submitted::Started(handle) => execution_response(handle, mode, urls).await,
        Submitted::AwaitingApproval(handle) => Ok(match mode {
            ResponseMode::Stream => {
                with_location(handle.id(), sse::event_stream(handle.events(), urls))
            }
            ResponseMode::Record | ResponseMode::Async => accepted_response(handle.record()),
        }),
    }
}

pub(crate) fn accepted_response(execution: &Execution) -> Response {
    with_location(execution.id, (StatusCode::ACCEPTED, Json(execution)).into_response())
}

/// A response without the record gives its location.
pub(crate) fn with_location(id: ExecutionId, mut response: Response) -> Response {
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/executions/{id}")) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}
