//! Which packages the sessions of a workspace may install.

use super::Routes;
use crate::extract::Json;
use crate::problem::Problem;
use crate::{AppState, HttpCaller};
use axum::extract::State;
use std::sync::Arc;
use types::PackagePolicy;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(get, set))
}

/// Which packages sessions of this workspace may install
#[utoipa::path(
    get,
    path = "/packages/policy",
    operation_id = "getPackagePolicy",
    tag = "packages",
    responses((status = 200, description = "As it is now", body = PackagePolicy))
)]
async fn get(
    State(app): State<Arc<AppState>>,
    caller: HttpCaller,
) -> Result<Json<PackagePolicy>, Problem> {
    Ok(Json(app.service.package_policy(&caller)?))
}

/// Say which packages sessions of this workspace may install
///
/// It holds from the next install on, for what is asked for and for all that comes along. Whether a
/// session may install anything is said by its agent. Needs MODIFY on the workspace.
#[utoipa::path(
    put,
    path = "/packages/policy",
    operation_id = "setPackagePolicy",
    tag = "packages",
    request_body = PackagePolicy,
    responses((status = 200, description = "As it is now", body = PackagePolicy))
)]
async fn set(
    State(app): State<Arc<AppState>>,
    caller: HttpCaller,
    Json(policy): Json<PackagePolicy>,
) -> Result<Json<PackagePolicy>, Problem> {
    Ok(Json(app.service.set_package_policy(&caller, policy).await?))
}
