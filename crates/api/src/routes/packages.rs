//! Which packages the sessions of a workspace may install.

use super::Routes;
use crate::AppState;
use crate::extract::Json;
use crate::problem::Problem;
use axum::Extension;
use axum::extract::State;
use service::RequestCaller;
use std::sync::Arc;
use types::PackagePolicy;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(get, set))
}

/// Get the package policy for sessions of this workspace
#[utoipa::path(
    get,
    path = "/packages/policy",
    operation_id = "getPackagePolicy",
    tag = "packages",
    responses((status = 200, description = "Its current state", body = PackagePolicy))
)]
async fn get(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
) -> Result<Json<PackagePolicy>, Problem> {
    Ok(Json(app.service.package_policy(&caller)?))
}

/// Set the package policy for sessions of this workspace
///
/// It applies from the next installation on, to requested packages and all of their dependencies.
/// The agent decides whether a session may install packages at all. Needs MODIFY on the workspace.
#[utoipa::path(
    put,
    path = "/packages/policy",
    operation_id = "setPackagePolicy",
    tag = "packages",
    request_body = PackagePolicy,
    responses((status = 200, description = "Its current state", body = PackagePolicy))
)]
async fn set(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Json(policy): Json<PackagePolicy>,
) -> Result<Json<PackagePolicy>, Problem> {
    Ok(Json(app.service.set_package_policy(&caller, policy).await?))
}
