//! Functions: code that is deployed independently of agents, and its calls.

use super::Routes;
use super::executions::CancelResult;
use crate::AppState;
use crate::execution_response::submit_options;
use crate::extract::{Json, Path, Query};
use crate::idempotency::ClaimedKey;
use crate::problem::Problem;
use crate::sse::ResponseMode;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use service::{
    ConfirmRequest, FunctionCallQuery, FunctionCallRequest, FunctionRequest, ObjectQuery, Page,
    RequestCaller,
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

/// Deploy a function, or replace the one with its name
///
/// The source is a directory with `handler.py`, whose `handle` may take `data`, `client`, `secrets`
/// and `function_call_info`. With `requirements.txt`, the function has its own environment.
/// `function.toml` sets `name`, `description`, `python`, `memory_mb`, `timeout_seconds` and
/// `integrations`. An invalid function is not stored. Until the deployment is done, and if it
/// fails, the previous one stays in use. The response comes when it is done, which takes seconds to
/// minutes with new packages, or at once with `Prefer: respond-async`. The deployment continues if
/// the client disconnects.
#[utoipa::path(
    post,
    path = "/functions",
    operation_id = "deployFunction",
    tag = "functions",
    params(
        ("Prefer" = Option<String>, Header, description = "`respond-async` to get a response at \
                                                           once"),
    ),
    request_body = FunctionRequest,
    responses(
        (status = 200, description = "Replaced", body = Function),
        (status = 201, description = "Deployed", body = Function),
        (status = 202, description = "Deployment started; `Location` has its status", body = Function),
    )
)]
async fn deploy(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    mode: ResponseMode,
    Json(request): Json<FunctionRequest>,
) -> Result<Response, Problem> {
    let deployment = app.service.deploy_function(&caller, request).await?;
    let location = [(LOCATION, format!("/v1/functions/{}", deployment.function.id))];
    if mode == ResponseMode::Async {
        return Ok((StatusCode::ACCEPTED, location, Json(deployment.function)).into_response());
    }
    let status = if deployment.new { StatusCode::CREATED } else { StatusCode::OK };
    let deployed = deployment.wait().await?;
    Ok((status, location, Json(deployed)).into_response())
}

/// List functions, newest first
#[utoipa::path(
    get,
    path = "/functions",
    operation_id = "listFunctions",
    tag = "functions",
    params(ObjectQuery),
    responses((status = 200, description = "One page of the list", body = Page<Function>))
)]
async fn list(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Query(query): Query<ObjectQuery>,
) -> Result<Json<Page<Function>>, Problem> {
    Ok(Json(app.service.functions(&caller, query).await?))
}

/// Get a function and the status of its deployment
#[utoipa::path(
    get,
    path = "/functions/{function_id}",
    operation_id = "getFunction",
    tag = "functions",
    params(("function_id" = FunctionId, Path)),
    responses((status = 200, description = "Its current state", body = Function))
)]
async fn get(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<FunctionId>,
) -> Result<Json<Function>, Problem> {
    Ok(Json(app.service.function(&caller, id)?))
}

/// Delete a function
///
/// Running calls finish. Tools that call the function report that it is deleted.
#[utoipa::path(
    delete,
    path = "/functions/{function_id}",
    operation_id = "deleteFunction",
    tag = "functions",
    params(("function_id" = FunctionId, Path)),
    responses((status = 204, description = "Deleted"))
)]
async fn delete(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<FunctionId>,
) -> Result<StatusCode, Problem> {
    app.service.delete_function(&caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Start a call of a function; the response is the call while it runs
#[utoipa::path(
    post,
    path = "/functions/{function_id}/call",
    operation_id = "callFunction",
    tag = "functions",
    params(("function_id" = FunctionId, Path)),
    request_body = FunctionCallRequest,
    responses((status = 202, description = "Started; `Location` has its status", body = FunctionCall))
)]
async fn call(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<FunctionId>,
    claim: ClaimedKey,
    Json(request): Json<FunctionCallRequest>,
) -> Result<Response, Problem> {
    let options = submit_options(&caller, claim, ResponseMode::Async);
    let call = app.service.call_function(&caller, id, request, options).await?;
    let location = [(LOCATION, format!("/v1/functions/{id}/calls/{}", call.id))];
    Ok((StatusCode::ACCEPTED, location, Json(call)).into_response())
}

/// List the calls of a function, newest first
#[utoipa::path(
    get,
    path = "/functions/{function_id}/calls",
    operation_id = "listFunctionCalls",
    tag = "functions",
    params(("function_id" = FunctionId, Path), FunctionCallQuery),
    responses((status = 200, description = "One page of the list", body = Page<FunctionCall>))
)]
async fn calls(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<FunctionId>,
    Query(query): Query<FunctionCallQuery>,
) -> Result<Json<Page<FunctionCall>>, Problem> {
    Ok(Json(app.service.function_calls(&caller, id, query).await?))
}

/// Get a call of a function
#[utoipa::path(
    get,
    path = "/functions/{function_id}/calls/{call_id}",
    operation_id = "getFunctionCall",
    tag = "functions",
    params(("function_id" = FunctionId, Path), ("call_id" = ExecutionId, Path)),
    responses((status = 200, description = "Its current state", body = FunctionCall))
)]
async fn get_call(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path((id, call)): Path<(FunctionId, ExecutionId)>,
) -> Result<Json<FunctionCall>, Problem> {
    Ok(Json(app.service.function_call(&caller, id, call).await?))
}

/// Get the return value of a call; 404 with `response.pending` while it runs
#[utoipa::path(
    get,
    path = "/functions/{function_id}/calls/{call_id}/response",
    operation_id = "getFunctionResponse",
    tag = "functions",
    params(("function_id" = FunctionId, Path), ("call_id" = ExecutionId, Path)),
    responses((status = 200, description = "The returned value", body = FunctionResponse))
)]
async fn response(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path((id, call)): Path<(FunctionId, ExecutionId)>,
) -> Result<Json<FunctionResponse>, Problem> {
    Ok(Json(app.service.function_response(&caller, id, call).await?))
}

/// Get the output of a call, line by line; of a running call, the output so far
#[utoipa::path(
    get,
    path = "/functions/{function_id}/calls/{call_id}/logs",
    operation_id = "getFunctionLogs",
    tag = "functions",
    params(("function_id" = FunctionId, Path), ("call_id" = ExecutionId, Path)),
    responses((status = 200, description = "All log lines", body = Page<LogLine>))
)]
async fn logs(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path((id, call)): Path<(FunctionId, ExecutionId)>,
) -> Result<Json<Page<LogLine>>, Problem> {
    let items = app.service.function_logs(&caller, id, call).await?;
    Ok(Json(Page { items, next_cursor: None }))
}

/// Cancel a call of a function
#[utoipa::path(
    post,
    path = "/functions/{function_id}/calls/{call_id}/cancel",
    operation_id = "cancelFunctionCall",
    tag = "functions",
    params(("function_id" = FunctionId, Path), ("call_id" = ExecutionId, Path)),
    responses((status = 202, description = "Cancellation requested", body = CancelResult))
)]
async fn cancel(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path((id, call)): Path<(FunctionId, ExecutionId)>,
) -> Result<(StatusCode, Json<CancelResult>), Problem> {
    let cancelled = app.service.cancel_function_call(&caller, id, call).await?;
    Ok((StatusCode::ACCEPTED, Json(CancelResult { cancelled })))
}

/// Confirm the code of a function that you own and have reviewed
///
/// You become its author: it then runs with your privileges, not only with those of the principal
/// who wrote it. Refused if it was changed since `updated_at`.
#[utoipa::path(
    post,
    path = "/functions/{function_id}/confirm",
    operation_id = "confirmFunction",
    tag = "functions",
    params(("function_id" = FunctionId, Path)),
    request_body = ConfirmRequest,
    responses((status = 200, description = "Confirmed", body = Function))
)]
async fn confirm(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<FunctionId>,
    Json(request): Json<ConfirmRequest>,
) -> Result<Json<Function>, Problem> {
    Ok(Json(app.service.confirm_function(&caller, id, request).await?))
}
