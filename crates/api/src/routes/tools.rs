//! Tools: functions that an agent can call.

use super::Routes;
use crate::AppState;
use crate::extract::{self, Json, Path, Query};
use crate::json_or_file::json_or_file;
use crate::problem::Problem;
use axum::Extension;
use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use service::{
    ConfirmRequest, ObjectQuery, Page, PythonToolQuery, RequestCaller, ToolChange, ToolRequest,
    ToolValidation,
};
use std::sync::Arc;
use types::{Tool, ToolId};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(validate))
        .routes(routes!(get, change, delete))
        .routes(routes!(confirm))
}

/// A tool as JSON, or as a Python file with the other fields in the query.
struct ToolBody(ToolRequest);

impl<S: Send + Sync> FromRequest<S> for ToolBody {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let from_python = ToolRequest::from_python;
        json_or_file(request, &["text/x-python"], extract::from_json, from_python).await.map(Self)
    }
}

/// Create a tool
///
/// From the JSON of a CodeRunner tool (`tool_type: code_runner`, a function `run`), of a Run Python
/// code tool (`type: runPythonCode`, a function `handle`) or of a Call Function tool (`type:
/// callFunction`, a deployed function), or from a Python file with a function `handle`. The server
/// parses the code and never runs it. A tool with an invalid contract is refused with all of its
/// errors, by line and column.
#[utoipa::path(
    post,
    path = "/tools",
    operation_id = "createAiTool",
    tag = "tools",
    params(PythonToolQuery),
    request_body(content((ToolRequest = "application/json"), (String = "text/x-python"))),
    responses((status = 201, description = "Created", body = Tool))
)]
async fn create(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    ToolBody(tool): ToolBody,
) -> Result<(StatusCode, Json<Tool>), Problem> {
    Ok((StatusCode::CREATED, Json(app.service.create_tool(&caller, tool).await?)))
}

/// Check a tool: get its contract, or all of its errors, without storing it
///
/// Imports that its environment lacks, and programs that it starts, are warnings.
#[utoipa::path(
    post,
    path = "/tools/validate",
    operation_id = "validateAiTool",
    tag = "tools",
    params(PythonToolQuery),
    request_body(content((ToolRequest = "application/json"), (String = "text/x-python"))),
    responses((status = 200, description = "The contract, or the errors", body = ToolValidation))
)]
async fn validate(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    ToolBody(tool): ToolBody,
) -> Result<Json<ToolValidation>, Problem> {
    Ok(Json(app.service.validate_tool(&caller, tool).await?))
}

/// List tools, newest first, without their code
#[utoipa::path(
    get,
    path = "/tools",
    operation_id = "listAiTools",
    tag = "tools",
    params(ObjectQuery),
    responses((status = 200, description = "One page of the list", body = Page<Tool>))
)]
async fn list(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Query(query): Query<ObjectQuery>,
) -> Result<Json<Page<Tool>>, Problem> {
    Ok(Json(app.service.tools(&caller, query).await?))
}

/// Get a tool
#[utoipa::path(
    get,
    path = "/tools/{tool_id}",
    operation_id = "getAiTool",
    tag = "tools",
    params(("tool_id" = ToolId, Path)),
    responses((status = 200, description = "The tool with its exact code", body = Tool))
)]
async fn get(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<ToolId>,
) -> Result<Json<Tool>, Problem> {
    Ok(Json(app.service.tool(&caller, id).await?))
}

/// Change a tool
///
/// Absent fields do not change; `configuration` is replaced as a whole. Remembered approvals for
/// the tool are deleted.
#[utoipa::path(
    patch,
    path = "/tools/{tool_id}",
    operation_id = "updateAiTool",
    tag = "tools",
    params(("tool_id" = ToolId, Path)),
    request_body = ToolChange,
    responses((status = 200, description = "Its current state", body = Tool))
)]
async fn change(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<ToolId>,
    Json(change): Json<ToolChange>,
) -> Result<Json<Tool>, Problem> {
    Ok(Json(app.service.change_tool(&caller, id, change).await?))
}

/// Delete a tool that no agent has attached
#[utoipa::path(
    delete,
    path = "/tools/{tool_id}",
    operation_id = "deleteAiTool",
    tag = "tools",
    params(("tool_id" = ToolId, Path)),
    responses((status = 204, description = "Deleted"))
)]
async fn delete(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<ToolId>,
) -> Result<StatusCode, Problem> {
    app.service.delete_tool(&caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Confirm the code of a tool that you own and have reviewed
///
/// You become its author: it then runs with your privileges, not only with those of the principal
/// who wrote it. Refused if it was changed since `updated_at`.
#[utoipa::path(
    post,
    path = "/tools/{tool_id}/confirm",
    operation_id = "confirmAiTool",
    tag = "tools",
    params(("tool_id" = ToolId, Path)),
    request_body = ConfirmRequest,
    responses((status = 200, description = "Confirmed", body = Tool))
)]
async fn confirm(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<ToolId>,
    Json(request): Json<ConfirmRequest>,
) -> Result<Json<Tool>, Problem> {
    Ok(Json(app.service.confirm_tool(&caller, id, request).await?))
}
