//! The audit log.

use super::Routes;
use crate::AppState;
use crate::extract::{Json, Query};
use crate::problem::Problem;
use axum::Extension;
use axum::extract::State;
use service::{AuditQuery, Page, RequestCaller};
use std::sync::Arc;
use types::AuditEntry;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(list))
}

/// Read the audit log of the workspace, newest first
///
/// Each entry has the hash of the previous entry, which may belong to another workspace. `belljar
/// audit verify` checks the whole chain.
#[utoipa::path(
    get,
    path = "/audit",
    operation_id = "listAuditEntries",
    tag = "identity",
    params(AuditQuery),
    responses((status = 200, description = "One page of the list", body = Page<AuditEntry>))
)]
async fn list(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Query(query): Query<AuditQuery>,
) -> Result<Json<Page<AuditEntry>>, Problem> {
    Ok(Json(app.service.audit_log(&caller, query).await?))
}
