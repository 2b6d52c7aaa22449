//! The approval policy for submitted code: allow, deny, or require an approval.

use super::Routes;
use crate::AppState;
use crate::extract::Json;
use crate::problem::Problem;
use axum::Extension;
use axum::extract::State;
use service::{PermissionChange, RequestCaller, ToolPermission};
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(get, set))
}

/// Get the approval policy for code that is submitted to this workspace
#[utoipa::path(
    get,
    path = "/permissions/execute_python",
    operation_id = "getCodePermission",
    tag = "approvals",
    responses((status = 200, description = "Its current state", body = ToolPermission))
)]
async fn get(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
) -> Result<Json<ToolPermission>, Problem> {
    Ok(Json(app.service.code_permission(&caller)?))
}

/// Set the approval policy for code that is submitted to this workspace
///
/// It applies to `execute_python` and all other operations that submit code, from the next run on.
/// With `ask`, each run waits for an approval; with `ask_once`, the first run of each session does.
/// Needs MODIFY on the workspace.
#[utoipa::path(
    put,
    path = "/permissions/execute_python",
    operation_id = "setCodePermission",
    tag = "approvals",
    request_body = PermissionChange,
    responses((status = 200, description = "Its current state", body = ToolPermission))
)]
async fn set(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Json(change): Json<PermissionChange>,
) -> Result<Json<ToolPermission>, Problem> {
    Ok(Json(app.service.set_code_permission(&caller, change).await?))
}
