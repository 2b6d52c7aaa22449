//! API keys. Only the response to the creation contains the secret.

use super::Routes;
use crate::AppState;
use crate::extract::{Json, Path, Query};
use crate::idempotency::respond_once;
use crate::problem::Problem;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use service::{IssuedKey, KeyQuery, KeyRequest, Page, RequestCaller};
use std::sync::Arc;
use types::{ApiKey, KeyId};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(create, list)).routes(routes!(revoke))
}

/// Create an API key, for yourself or, as an owner of the workspace, for another principal
///
/// Only this response contains `secret`. A replay with the same `Idempotency-Key` does not.
#[utoipa::path(
    post,
    path = "/keys",
    operation_id = "createKey",
    tag = "identity",
    request_body = KeyRequest,
    responses((status = 201, description = "Created, and valid at once", body = IssuedKey))
)]
async fn create(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Json(request): Json<KeyRequest>,
) -> Result<Response, Problem> {
    let issued = app.service.create_key(&caller, request).await?;
    Ok(respond_once(&issued, &issued.without_secret()))
}

/// List API keys, newest first, without their secrets
#[utoipa::path(
    get,
    path = "/keys",
    operation_id = "listKeys",
    tag = "identity",
    params(KeyQuery),
    responses((status = 200, description = "One page of the list", body = Page<ApiKey>))
)]
async fn list(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Query(query): Query<KeyQuery>,
) -> Result<Json<Page<ApiKey>>, Problem> {
    Ok(Json(app.service.keys(&caller, query).await?))
}

/// Revoke an API key and the keys that its principal created with it
///
/// The key of this request stays valid, even if it was created with the revoked one: create the
/// next key, then revoke the previous one with it. A key that created others cannot revoke itself.
///
/// Running executions, sessions and pending approvals of the key end. Its event streams end within a
/// second of the next event.
#[utoipa::path(
    delete,
    path = "/keys/{key_id}",
    operation_id = "revokeKey",
    tag = "identity",
    params(("key_id" = KeyId, Path)),
    responses((status = 204, description = "Revoked from the next request on"))
)]
async fn revoke(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<KeyId>,
) -> Result<StatusCode, Problem> {
    app.service.revoke_key(&caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}
