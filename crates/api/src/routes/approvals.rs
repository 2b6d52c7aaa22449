//! Approvals: requests that a principal must allow or deny before a call runs.

use super::Routes;
use crate::extract::{Json, Path, Query};
use crate::problem::Problem;
use crate::{AppState, sse};
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use futures_util::StreamExt;
use service::{ApprovalQuery, DecisionRequest, Page, RequestCaller};
use std::sync::Arc;
use types::{Approval, ApprovalId};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(follow)).routes(routes!(get, decide))
}

/// List approvals that you requested or may decide, newest first
#[utoipa::path(
    get,
    path = "/approvals",
    operation_id = "listApprovals",
    tag = "approvals",
    params(ApprovalQuery),
    responses((status = 200, description = "One page of the list", body = Page<Approval>))
)]
async fn list(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Query(query): Query<ApprovalQuery>,
) -> Result<Json<Page<Approval>>, Problem> {
    Ok(Json(app.service.approvals(&caller, query).await?))
}

/// Stream approvals (SSE): those that are pending, then each one that is requested or decided
#[utoipa::path(
    get,
    path = "/approvals/events",
    operation_id = "streamApprovals",
    tag = "approvals",
    responses((status = 200, description = "Stream of approvals", body = Approval, content_type = "text/event-stream"))
)]
async fn follow(State(app): State<Arc<AppState>>, caller: Extension<RequestCaller>) -> Response {
    let approvals = app.service.watch_approvals(&caller);
    let numbered = approvals.enumerate().map(|(index, text)| (index as u64 + 1, "approval", text));
    sse::shared_sse_response(numbered)
}

/// Get an approval, with exactly what would run
#[utoipa::path(
    get,
    path = "/approvals/{id}",
    operation_id = "getApproval",
    tag = "approvals",
    params(("id" = ApprovalId, Path)),
    responses((status = 200, description = "The approval", body = Approval))
)]
async fn get(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<ApprovalId>,
) -> Result<Json<Approval>, Problem> {
    Ok(Json(app.service.approval(&caller, id)?))
}

/// Decide an approval: allow or deny it
///
/// An allowed run starts as soon as there is capacity. The requester cannot decide.
#[utoipa::path(
    post,
    path = "/approvals/{id}",
    operation_id = "decideApproval",
    tag = "approvals",
    params(("id" = ApprovalId, Path)),
    request_body = DecisionRequest,
    responses((status = 200, description = "The decision is stored", body = Approval))
)]
async fn decide(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<ApprovalId>,
    Json(request): Json<DecisionRequest>,
) -> Result<Json<Approval>, Problem> {
    Ok(Json(app.service.decide_approval(&caller, id, request).await?))
}
