//! Who may do what, and why a call is or is not allowed.

use super::Routes;
use crate::http::body::{Json, Path, Query};
use crate::http::problem::Problem;
use crate::http::{App, Known};
use axum::extract::State;
use axum::http::StatusCode;
use service::{ExplainQuery, Explanation, GrantQuery, GrantRequest, Listed};
use std::sync::Arc;
use types::{Grant, GrantId};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(delete))
        .routes(routes!(explain))
}

/// Grant a privilege on something that you own
///
/// OWNERSHIP of a tool or an agent is handed over, since each has one owner; OWNERSHIP of the
/// workspace is shared. A grant that is there already is given again.
#[utoipa::path(
    post,
    path = "/grants",
    operation_id = "createGrant",
    tag = "identity",
    request_body = GrantRequest,
    responses((status = 201, description = "It holds from the next request on", body = Grant))
)]
async fn create(
    State(app): State<Arc<App>>,
    caller: Known,
    Json(request): Json<GrantRequest>,
) -> Result<(StatusCode, axum::Json<Grant>), Problem> {
    Ok((StatusCode::CREATED, axum::Json(app.service.grant(&caller, request).await?)))
}

/// List grants, newest first: your own, and all on what you own
#[utoipa::path(
    get,
    path = "/grants",
    operation_id = "listGrants",
    tag = "identity",
    params(GrantQuery),
    responses((status = 200, description = "A part of the list", body = Listed<Grant>))
)]
async fn list(
    State(app): State<Arc<App>>,
    caller: Known,
    Query(query): Query<GrantQuery>,
) -> Result<axum::Json<Listed<Grant>>, Problem> {
    Ok(axum::Json(app.service.grants(&caller, query).await?))
}

/// Take a grant away
#[utoipa::path(
    delete,
    path = "/grants/{grant_id}",
    operation_id = "deleteGrant",
    tag = "identity",
    params(("grant_id" = GrantId, Path)),
    responses((status = 204, description = "It holds no longer, from the next request on"))
)]
async fn delete(
    State(app): State<Arc<App>>,
    caller: Known,
    Path(id): Path<GrantId>,
) -> Result<StatusCode, Problem> {
    app.service.ungrant(&caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What a call could reach, and why it is or is not allowed
///
/// For yourself; for others if you own the tool and the agent, or the workspace.
#[utoipa::path(
    get,
    path = "/explain",
    operation_id = "explain",
    tag = "identity",
    params(ExplainQuery),
    responses((status = 200, description = "As a call would find it now", body = Explanation))
)]
async fn explain(
    State(app): State<Arc<App>>,
    caller: Known,
    Query(query): Query<ExplainQuery>,
) -> Result<axum::Json<Explanation>, Problem> {
    Ok(axum::Json(app.service.explain(&caller, &query).await?))
}
