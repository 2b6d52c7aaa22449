//! Sessions, the code that runs in them, and their files.

use super::Routes;
use crate::AppState;
use crate::execution_response::{call_response, submit_options};
use crate::extract::{Json, Path, Query};
use crate::files::{self, Octets, Upload};
use crate::idempotency::ClaimedKey;
use crate::problem::Problem;
use crate::sse::ResponseMode;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use service::{
    ExecuteRequest, OpenedSession, Page, RequestCaller, SessionChange, SessionFile, SessionFiles,
    SessionQuery, SessionRequest,
};
use std::sync::Arc;
use types::{Execution, SandboxId, Session};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(open, list))
        .routes(routes!(get, change, close))
        .routes(routes!(execute))
        .routes(routes!(interrupt))
        .routes(routes!(reset))
        .routes(routes!(list_files))
        .routes(routes!(read_file, write_file, delete_file))
}

/// Open a session: an interpreter that keeps its state, with a working directory
///
/// If an open session of the same principal has the same `key`, the response is that session.
#[utoipa::path(
    post,
    path = "/sessions",
    operation_id = "createSession",
    tag = "sessions",
    request_body = SessionRequest,
    responses(
        (status = 201, description = "Opened", body = Session),
        (status = 200, description = "An open session with this key was reused", body = Session),
    )
)]
async fn open(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Json(request): Json<SessionRequest>,
) -> Result<(StatusCode, Json<Session>), Problem> {
    Ok(match app.service.open_session(&caller, request).await? {
        OpenedSession::New(session) => (StatusCode::CREATED, Json(session)),
        OpenedSession::Found(session) => (StatusCode::OK, Json(session)),
    })
}

/// List sessions, newest first
#[utoipa::path(
    get,
    path = "/sessions",
    operation_id = "listSessions",
    tag = "sessions",
    params(SessionQuery),
    responses((status = 200, description = "One page of the list", body = Page<Session>))
)]
async fn list(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Query(query): Query<SessionQuery>,
) -> Result<Json<Page<Session>>, Problem> {
    Ok(Json(app.service.sessions(&caller, query).await?))
}

/// Get a session
#[utoipa::path(
    get,
    path = "/sessions/{sandbox_id}",
    operation_id = "getSession",
    tag = "sessions",
    params(("sandbox_id" = SandboxId, Path)),
    responses((status = 200, description = "Its current state", body = Session))
)]
async fn get(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<SandboxId>,
) -> Result<Json<Session>, Problem> {
    Ok(Json(app.service.session(&caller, id)?))
}

/// Change the name, the key or the idle time of a session
#[utoipa::path(
    patch,
    path = "/sessions/{sandbox_id}",
    operation_id = "updateSession",
    tag = "sessions",
    params(("sandbox_id" = SandboxId, Path)),
    request_body = SessionChange,
    responses((status = 200, description = "Its current state", body = Session))
)]
async fn change(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<SandboxId>,
    Json(change): Json<SessionChange>,
) -> Result<Json<Session>, Problem> {
    Ok(Json(app.service.change_session(&caller, id, change).await?))
}

/// Close a session
#[utoipa::path(
    delete,
    path = "/sessions/{sandbox_id}",
    operation_id = "deleteSession",
    tag = "sessions",
    params(("sandbox_id" = SandboxId, Path)),
    responses((status = 204, description = "Closed; only its records remain"))
)]
async fn close(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<SandboxId>,
) -> Result<StatusCode, Problem> {
    app.service.close_session(&caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Run code in a session
///
/// The code sees the variables, imports and files of earlier executions. A session runs one
/// execution at a time: a request during an execution is refused with `session.busy`.
#[utoipa::path(
    post,
    path = "/sessions/{sandbox_id}/execute",
    operation_id = "executeInSession",
    tag = "sessions",
    params(
        ("sandbox_id" = SandboxId, Path),
        ("Prefer" = Option<String>, Header, description = "`respond-async` to get a response at \
                                                           once"),
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
    Path(id): Path<SandboxId>,
    mode: ResponseMode,
    claim: ClaimedKey,
    Json(request): Json<ExecuteRequest>,
) -> Result<Response, Problem> {
    call_response(
        app.service
            .run(&caller, request.into_run(Some(id)), submit_options(&caller, claim, mode))
            .await?,
        mode,
        app.service.file_urls(&caller),
    )
    .await
}

#[derive(Debug, Serialize, ToSchema)]
struct InterruptResult {
    /// Whether anything was running
    interrupted: bool,
}

/// Interrupt the execution of a session; variables remain if the code can be interrupted
#[utoipa::path(
    post,
    path = "/sessions/{sandbox_id}/interrupt",
    operation_id = "interruptSession",
    tag = "sessions",
    params(("sandbox_id" = SandboxId, Path)),
    responses((status = 202, description = "Cancellation requested", body = InterruptResult))
)]
async fn interrupt(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<SandboxId>,
) -> Result<(StatusCode, Json<InterruptResult>), Problem> {
    let interrupted = app.service.interrupt_session(&caller, id)?;
    Ok((StatusCode::ACCEPTED, Json(InterruptResult { interrupted })))
}

/// Restart a session with an empty state
#[utoipa::path(
    post,
    path = "/sessions/{sandbox_id}/reset",
    operation_id = "resetSession",
    tag = "sessions",
    params(("sandbox_id" = SandboxId, Path)),
    responses((status = 200, description = "Its new generation", body = Session))
)]
async fn reset(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<SandboxId>,
) -> Result<Json<Session>, Problem> {
    Ok(Json(app.service.reset_session(&caller, id).await?))
}

/// List the files of a session's working directory
#[utoipa::path(
    get,
    path = "/sessions/{sandbox_id}/files",
    operation_id = "listSessionFiles",
    tag = "sessions",
    params(("sandbox_id" = SandboxId, Path)),
    responses((status = 200, description = "The files of the working directory", body = SessionFiles))
)]
async fn list_files(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<SandboxId>,
) -> Result<Json<SessionFiles>, Problem> {
    Ok(Json(app.service.session_files(&caller, id).await?))
}

/// Read a file of a session
#[utoipa::path(
    get,
    path = "/sessions/{sandbox_id}/files/{*path}",
    operation_id = "readSessionFile",
    tag = "sessions",
    params(("sandbox_id" = SandboxId, Path), ("path" = String, Path, description = "relative to the working directory")),
    responses((status = 200, description = "The content of the file", body = Octets, content_type = "*/*"))
)]
async fn read_file(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path((id, path)): Path<(SandboxId, String)>,
) -> Result<Response, Problem> {
    let (file, size) = app.service.read_session_file(&caller, id, path.clone()).await?;
    Ok(files::download(file, size, &path))
}

/// Write a file of a session
#[utoipa::path(
    put,
    path = "/sessions/{sandbox_id}/files/{*path}",
    operation_id = "writeSessionFile",
    tag = "sessions",
    params(("sandbox_id" = SandboxId, Path), ("path" = String, Path, description = "relative to the working directory")),
    request_body(content = Option<Octets>, content_type = "application/octet-stream"),
    responses((status = 201, description = "Created", body = SessionFile))
)]
async fn write_file(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path((id, path)): Path<(SandboxId, String)>,
    upload: Upload,
) -> Result<(StatusCode, Json<SessionFile>), Problem> {
    app.service.check_upload(&caller, Some(id))?;
    let staged = upload.stage(&app.service).await?;
    let file = app.service.write_session_file(&caller, id, path, staged).await?;
    Ok((StatusCode::CREATED, Json(file)))
}

/// Delete a file of a session
#[utoipa::path(
    delete,
    path = "/sessions/{sandbox_id}/files/{*path}",
    operation_id = "deleteSessionFile",
    tag = "sessions",
    params(("sandbox_id" = SandboxId, Path), ("path" = String, Path, description = "relative to the working directory")),
    responses((status = 204, description = "Deleted"))
)]
async fn delete_file(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path((id, path)): Path<(SandboxId, String)>,
) -> Result<StatusCode, Problem> {
    app.service.delete_session_file(&caller, id, path).await?;
    Ok(StatusCode::NO_CONTENT)
}
