//! Workspaces, for the operator of the server.

use super::Routes;
use crate::AppState;
use crate::extract::Json;
use crate::idempotency::respond_once;
use crate::problem::Problem;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use service::{NewWorkspace, Page, RequestCaller, WorkspaceRequest};
use std::sync::Arc;
use types::Workspace;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(create, list))
}

/// Create a workspace, and the first API key of its owner
///
/// Only this response contains `key.secret`.
#[utoipa::path(
    post,
    path = "/workspaces",
    operation_id = "createWorkspace",
    tag = "identity",
    request_body = WorkspaceRequest,
    responses((status = 201, description = "Created, and empty", body = NewWorkspace))
)]
async fn create(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Json(request): Json<WorkspaceRequest>,
) -> Result<Response, Problem> {
    let created = app.service.create_workspace(&caller, request).await?;
    Ok(respond_once(&created, &created.without_secret()))
}

/// List all workspaces of this server
#[utoipa::path(
    get,
    path = "/workspaces",
    operation_id = "listWorkspaces",
    tag = "identity",
    responses((status = 200, description = "The complete list", body = Page<Workspace>))
)]
async fn list(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
) -> Result<Json<Page<Workspace>>, Problem> {
    let items = app.service.workspaces(&caller)?;
    Ok(Json(Page { items, next_cursor: None }))
}
