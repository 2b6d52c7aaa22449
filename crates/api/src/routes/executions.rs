//! Executions: code that runs, and its records.

use super::Routes;
use crate::AppState;
use crate::execution_response::{call_response, submit_options};
use crate::extract::{Json, Path, Query};
use crate::idempotency::ClaimedKey;
use crate::problem::Problem;
use crate::record_response::{page_response, record_response, stored_response};
use crate::sse::{self, LastEventId, ResponseMode};
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use service::{ExecuteRequest, ExecutionQuery, Page, RequestCaller};
use std::sync::Arc;
use types::{Execution, ExecutionId};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(execute))
        .routes(routes!(list))
        .routes(routes!(get))
        .routes(routes!(events))
        .routes(routes!(cancel))
}

/// Run code in a fresh sandbox
///
/// The response is the finished record, even if the code failed: see `status`. If the client
/// disconnects, the run is cancelled; a run with `Prefer: respond-async` or an `Idempotency-Key`
/// continues.
#[utoipa::path(
    post,
    path = "/execute",
    operation_id = "execute",
    tag = "executions",
    params(
        ("Prefer" = Option<String>, Header, description = "`respond-async` to get a response at once"),
        ("Idempotency-Key" = Option<String>, Header, description = "a request with the same key is \
         executed once"),
    ),
    request_body = ExecuteRequest,
    responses(
        (status = 200, description = "The record, or its events with `Accept: text/event-stream`", body = Execution),
        (status = 202, description = "Running, or waiting for an approval; `Location` has the record", body = Execution),
    )
)]
async fn execute(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    mode: ResponseMode,
    claim: ClaimedKey,
    Json(request): Json<ExecuteRequest>,
) -> Result<Response, Problem> {
    call_response(
        app.service
            .run(&caller, request.into_run(None), submit_options(&caller, claim, mode))
            .await?,
        mode,
        app.service.file_urls(&caller),
    )
    .await
}

/// List executions, newest first, without output and results
#[utoipa::path(
    get,
    path = "/executions",
    operation_id = "listExecutions",
    tag = "executions",
    params(ExecutionQuery),
    responses(
        (status = 200, description = "One page of the list", body = Page<Execution>),
    )
)]
async fn list(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Query(query): Query<ExecutionQuery>,
) -> Result<Response, Problem> {
    Ok(page_response(&app.service.executions(&caller, query).await?))
}

/// Get the record of an execution
#[utoipa::path(
    get,
    path = "/executions/{id}",
    operation_id = "getExecution",
    tag = "executions",
    params(("id" = ExecutionId, Path)),
    responses(
        (status = 200, description = "The record", body = Execution),
    )
)]
async fn get(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<ExecutionId>,
) -> Result<Response, Problem> {
    if let Some(stored) = app.service.stored_execution(&caller, id).await?
        && let Some(response) = stored_response(stored)
    {
        return Ok(response);
    }
    let record = app.service.execution_record(&caller, id).await?;
    Ok(record_response(record, &app.service.file_urls(&caller)))
}

/// Stream the events of an execution (SSE), from the first or after `Last-Event-ID` to its end
#[utoipa::path(
    get,
    path = "/executions/{id}/events",
    operation_id = "streamExecution",
    tag = "executions",
    params(
        ("id" = ExecutionId, Path),
        ("Last-Event-ID" = Option<u64>, Header, description = "the last event that was seen"),
    ),
    responses(
        (status = 200, description = "Events", body = types::Event, content_type = "text/event-stream"),
    )
)]
async fn events(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<ExecutionId>,
    LastEventId(after): LastEventId,
) -> Result<Response, Problem> {
    let events = app.service.execution_events(&caller, id, after).await?;
    Ok(sse::event_stream(events, app.service.file_urls(&caller)))
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CancelResult {
    /// Whether the execution was still running
    pub(crate) cancelled: bool,
}

/// Cancel an execution
#[utoipa::path(
    post,
    path = "/executions/{id}/cancel",
    operation_id = "cancelExecution",
    tag = "executions",
    params(("id" = ExecutionId, Path)),
    responses(
        (status = 202, description = "Cancellation requested", body = CancelResult),
    )
)]
async fn cancel(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<ExecutionId>,
) -> Result<(StatusCode, Json<CancelResult>), Problem> {
    let cancelled = app.service.cancel_execution(&caller, id).await?;
    Ok((StatusCode::ACCEPTED, Json(CancelResult { cancelled })))
}
