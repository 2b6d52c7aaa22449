//! Whether code that somebody sends is run, refused, or shown to a person first.

use super::Routes;
use crate::extract::Json;
use crate::problem::Problem;
use crate::{AppState, HttpCaller};
use axum::extract::State;
use service::{PermissionChange, ToolPermission};
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(get, set))
}

/// What becomes of code that is sent to this workspace
#[utoipa::path(
    get,
    path = "/permissions/execute_python",
    operation_id = "getCodePermission",
    tag = "approvals",
    responses((status = 200, description = "As it is now", body = ToolPermission))
)]
async fn get(
    State(app): State<Arc<AppState>>,
    caller: HttpCaller,
) -> Result<Json<ToolPermission>, Problem> {
    Ok(Json(app.service.code_permission(&caller)?))
}

/// Say what becomes of code that is sent to this workspace
///
/// It holds for `execute_python` and for every other way to send code, from the next run on. With
/// `ask` each run waits for an answer, with `ask_once` the first of each session. Needs MODIFY on the
/// workspace.
#[utoipa::path(
    put,
    path = "/permissions/execute_python",
    operation_id = "setCodePermission",
    tag = "approvals",
    request_body = PermissionChange,
    responses((status = 200, description = "As it is now", body = ToolPermission))
)]
async fn set(
    State(app): State<Arc<AppState>>,
    caller: HttpCaller,
    Json(change): Json<PermissionChange>,
) -> Result<Json<ToolPermission>, Problem> {
    Ok(Json(app.service.set_code_permission(&caller, change).await?))
}
