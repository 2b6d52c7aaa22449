//! Functions: code that is deployed apart from agents, and its calls.

use super::Routes;
use super::executions::CancelResult;
use crate::execution_response::submit_options;
use crate::extract::{Json, Path, Query};
use crate::idempotency::ClaimedKey;
use crate::problem::Problem;
use crate::sse::ResponseMode;
use crate::{AppState, HttpCaller};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use service::{
    ConfirmRequest, FunctionCallQuery, FunctionCallRequest, FunctionRequest, ObjectQuery, Page,
};
use std::sync::Arc;
use types::{ExecutionId, Function, FunctionCall, FunctionId, FunctionResponse, LogLine};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(deploy, list))
        .routes(routes!(get, delete))
        .routes(routes!(call))
        .routes(routes!(calls))
        .routes(routes!(get_call))
        .routes(routes!(response))
        .routes(routes!(logs))
        .routes(routes!(cancel))
        .routes(routes!(confirm))
}

/// Deploy a function, or replace what is deployed under its name
///
/// From a folder with `handler.py`, whose `handle` may ask for `data`, `secrets` and
/// `function_call_info`; with `requirements.txt` it has an environment of its own, and `function.toml`
/// says `name`, `description`, `python`, `memory_mb` and `timeout_seconds`. Nothing is kept of one that
/// is not right. Until it is deployed, and if that fails, what was there before serves. The answer
/// comes when it is done, which with new packages takes seconds to minutes, or at once with
/// `Prefer: respond-async`; it is deployed in any case.
#[utoipa::path(
    post,
    path = "/functions",
    operation_id = "deployFunction",
    tag = "functions",
    params(
        ("Prefer" = Option<String>, Header, description = "`respond-async` to be answered at once"),
    ),
    request_body = FunctionRequest,
    responses(
        (status = 200, description = "It was replaced", body = Function),
        (status = 201, description = "It is deployed", body = Function),
        (status = 202, description = "It is being deployed; `Location` tells its status", body = Function),
    )
)]
async fn deploy(
    State(app): State<Arc<AppState>>,
    caller: HttpCaller,
    wanted: ResponseMode,
    Json(request): Json<FunctionRequest>,
) -> Result<Response, Problem> {
    let deploying = app.service.deploy_function(&caller, request).await?;
    let place = [(LOCATION, format!("/v1/functions/{}", deploying.function.id))];
    if wanted == ResponseMode::Async {
        return Ok((StatusCode::ACCEPTED, place, Json(deploying.function)).into_response());
    }
    let status = if deploying.new { StatusCode::CREATED } else { StatusCode::OK };
    let deployed = deploying.wait().await?;
    Ok((status, place, Json(deployed)).into_response())
}

/// List functions, newest first
#[utoipa::path(
    get,
    path = "/functions",
    operation_id = "listFunctions",
    tag = "functions",
    params(ObjectQuery),
    responses((status = 200, description = "A part of the list", body = Page<Function>))
)]
async fn list(
    State(app): State<Arc<AppState>>,
    caller: HttpCaller,
    Query(query): Query<ObjectQuery>,
) -> Result<Json<Page<Function>>, Problem> {
    Ok(Json(app.service.functions(&caller, query).await?))
}

/// A function, and how its deployment goes
#[utoipa::path(
    get,
    path = "/functions/{function_id}",
    operation_id = "getFunction",
    tag = "functions",
    params(("function_id" = FunctionId, Path)),
    responses((status = 200, description = "As it is now", body = Function))
)]
async fn get(
    State(app): State<Arc<AppState>>,
    caller: HttpCaller,
    Path(id): Path<FunctionId>,
) -> Result<Json<Function>, Problem> {
    Ok(Json(app.service.function(&caller, id)?))
}

/// Delete a function
///
/// Calls that run are seen through, and tools that call it say that it is gone.
#[utoipa::path(
    delete,
    path = "/functions/{function_id}",
    operation_id = "deleteFunction",
    tag = "functions",
    params(("function_id" = FunctionId, Path)),
    responses((status = 204, description = "It is gone"))
)]
async fn delete(
    State(app): State<Arc<AppState>>,
    caller: HttpCaller,
    Path(id): Path<FunctionId>,
) -> Result<StatusCode, Problem> {
    app.service.delete_function(&caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Call a function; the answer is the call, which runs on
#[utoipa::path(
    post,
    path = "/functions/{function_id}/call",
    operation_id = "callFunction",
    tag = "functions",
    params(("function_id" = FunctionId, Path)),
    request_body = FunctionCallRequest,
    responses((status = 202, description = "It runs; `Location` tells its status", body = FunctionCall))
)]
async fn call(
    State(app): State<Arc<AppState>>,
    caller: HttpCaller,
    Path(id): Path<FunctionId>,
    claim: ClaimedKey,
    Json(request): Json<FunctionCallRequest>,
) -> Result<Response, Problem> {
    let manner = submit_options(&caller, claim, ResponseMode::Async);
    let call = app.service.call_function(&caller, id, request, manner).await?;
    let place = [(LOCATION, format!("/v1/functions/{id}/calls/{}", call.id))];
    Ok((StatusCode::ACCEPTED, place, Json(call)).into_response())
}

/// List the calls of a function, newest first
#[utoipa::path(
    get,
    path = "/functions/{function_id}/calls",
    operation_id = "listFunctionCalls",
    tag = "functions",
    params(("function_id" = FunctionId, Path), FunctionCallQuery),
    responses((status = 200, description = "A part of the list", body = Page<FunctionCall>))
)]
async fn calls(
    State(app): State<Arc<AppState>>,
    caller: HttpCaller,
    Path(id): Path<FunctionId>,
    Query(query): Query<FunctionCallQuery>,
) -> Result<Json<Page<FunctionCall>>, Problem> {
    Ok(Json(app.service.function_calls(&caller, id, query).await?))
}

/// A call of a function
#[utoipa::path(
    get,
    path = "/functions/{function_id}/calls/{call_id}",
    operation_id = "getFunctionCall",
    tag = "functions",
    params(("function_id" = FunctionId, Path), ("call_id" = ExecutionId, Path)),
    responses((status = 200, description = "As it is now", body = FunctionCall))
)]
async fn get_call(
    State(app): State<Arc<AppState>>,
    caller: HttpCaller,
    Path((id, call)): Path<(FunctionId, ExecutionId)>,
) -> Result<Json<FunctionCall>, Problem> {
    Ok(Json(app.service.function_call(&caller, id, call).await?))
}

/// What a call has returned; 404 with `response.pending` while it runs
#[utoipa::path(
    get,
    path = "/functions/{function_id}/calls/{call_id}/response",
    operation_id = "getFunctionResponse",
    tag = "functions",
    params(("function_id" = FunctionId, Path), ("call_id" = ExecutionId, Path)),
    responses((status = 200, description = "What it has returned", body = FunctionResponse))
)]
async fn response(
    State(app): State<Arc<AppState>>,
    caller: HttpCaller,
    Path((id, call)): Path<(FunctionId, ExecutionId)>,
) -> Result<Json<FunctionResponse>, Problem> {
    Ok(Json(app.service.function_response(&caller, id, call).await?))
}

/// What a call has printed, line by line; of one that runs, so far
#[utoipa::path(
    get,
    path = "/functions/{function_id}/calls/{call_id}/logs",
    operation_id = "getFunctionLogs",
    tag = "functions",
    params(("function_id" = FunctionId, Path), ("call_id" = ExecutionId, Path)),
    responses((status = 200, description = "All lines", body = Page<LogLine>))
)]
async fn logs(
    State(app): State<Arc<AppState>>,
    caller: HttpCaller,
    Path((id, call)): Path<(FunctionId, ExecutionId)>,
) -> Result<Json<Page<LogLine>>, Problem> {
    let items = app.service.function_logs(&caller, id, call).await?;
    Ok(Json(Page { items, next_cursor: None }))
}

/// Stop a call of a function
#[utoipa::path(
    post,
    path = "/functions/{function_id}/calls/{call_id}/cancel",
    operation_id = "cancelFunctionCall",
    tag = "functions",
    params(("function_id" = FunctionId, Path), ("call_id" = ExecutionId, Path)),
    responses((status = 202, description = "It was asked to stop", body = CancelResult))
)]
async fn cancel(
    State(app): State<Arc<AppState>>,
    caller: HttpCaller,
    Path((id, call)): Path<(FunctionId, ExecutionId)>,
) -> Result<(StatusCode, Json<CancelResult>), Problem> {
    let cancelled = app.service.cancel_function_call(&caller, id, call).await?;
    Ok((StatusCode::ACCEPTED, Json(CancelResult { cancelled })))
}

/// Confirm the code of a function that you own and have read
///
/// You are its author from then on: it uses what you may use, and not only what the principal who wrote
/// it may use. Refused if it was changed since `updated_at`.
#[utoipa::path(
    post,
    path = "/functions/{function_id}/confirm",
    operation_id = "confirmFunction",
    tag = "functions",
    params(("function_id" = FunctionId, Path)),
    request_body = ConfirmRequest,
    responses((status = 200, description = "It is confirmed", body = Function))
)]
async fn confirm(
    State(app): State<Arc<AppState>>,
    caller: HttpCaller,
    Path(id): Path<FunctionId>,
    Json(request): Json<ConfirmRequest>,
) -> Result<Json<Function>, Problem> {
    Ok(Json(app.service.confirm_function(&caller, id, request).await?))
}
