//! Secrets. The API accepts their values and never returns them.

use super::Routes;
use crate::AppState;
use crate::extract::{Json, Path, Query};
use crate::problem::Problem;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use service::{
    ObjectQuery, Page, RequestCaller, RotationResult, SecretChange, SecretRequest, SecretValue,
    SecretView,
};
use std::sync::Arc;
use types::{Secret, SecretId};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(get, change, delete))
        .routes(routes!(replace))
        .routes(routes!(rotate))
}

/// Create a secret
///
/// `inject` says how code uses it: as an environment variable that the code can read (`{"env":
/// "NAME"}`, the default), as the credential of a client (`{"client": "openai"}`), or as a header
/// of requests to one host (`{"header": {"host", "name"}}`). With the last two, the value never
/// enters a sandbox. A secret with scope `workspace` is for code that runs as a principal with
/// USAGE on it; one with scope `caller` is for code that its owner runs.
#[utoipa::path(
    post,
    path = "/secrets",
    operation_id = "createSecret",
    tag = "secrets",
    request_body = SecretRequest,
    responses((status = 201, description = "Stored; its value is never returned", body = SecretView))
)]
async fn create(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Json(request): Json<SecretRequest>,
) -> Result<(StatusCode, Json<SecretView>), Problem> {
    Ok((StatusCode::CREATED, Json(app.service.create_secret(&caller, request).await?)))
}

/// List secrets without their values, newest first
#[utoipa::path(
    get,
    path = "/secrets",
    operation_id = "listSecrets",
    tag = "secrets",
    params(ObjectQuery),
    responses((status = 200, description = "One page of the list", body = Page<Secret>))
)]
async fn list(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Query(query): Query<ObjectQuery>,
) -> Result<Json<Page<Secret>>, Problem> {
    Ok(Json(app.service.secrets(&caller, query).await?))
}

/// Get a secret without its value
#[utoipa::path(
    get,
    path = "/secrets/{secret_id}",
    operation_id = "getSecret",
    tag = "secrets",
    params(("secret_id" = SecretId, Path)),
    responses((status = 200, description = "Its current state", body = Secret))
)]
async fn get(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<SecretId>,
) -> Result<Json<Secret>, Problem> {
    Ok(Json(app.service.secret(&caller, id)?))
}

/// Change the injection or the comment of a secret
///
/// A value that was set for one host, header or variable is not sent to another: if `inject` names
/// another target, the request must contain `value` too.
#[utoipa::path(
    patch,
    path = "/secrets/{secret_id}",
    operation_id = "updateSecret",
    tag = "secrets",
    params(("secret_id" = SecretId, Path)),
    request_body = SecretChange,
    responses((status = 200, description = "Its current state", body = SecretView))
)]
async fn change(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<SecretId>,
    Json(change): Json<SecretChange>,
) -> Result<Json<SecretView>, Problem> {
    Ok(Json(app.service.change_secret(&caller, id, change).await?))
}

/// Replace the value of a secret
///
/// Code that starts afterwards uses the new value.
#[utoipa::path(
    put,
    path = "/secrets/{secret_id}/value",
    operation_id = "replaceSecretValue",
    tag = "secrets",
    params(("secret_id" = SecretId, Path)),
    request_body = SecretValue,
    responses((status = 200, description = "Stored; its value is never returned", body = SecretView))
)]
async fn replace(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<SecretId>,
    Json(value): Json<SecretValue>,
) -> Result<Json<SecretView>, Problem> {
    Ok(Json(app.service.replace_secret(&caller, id, value).await?))
}

/// Delete a secret and its value
#[utoipa::path(
    delete,
    path = "/secrets/{secret_id}",
    operation_id = "deleteSecret",
    tag = "secrets",
    params(("secret_id" = SecretId, Path)),
    responses((status = 204, description = "Deleted"))
)]
async fn delete(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<SecretId>,
) -> Result<StatusCode, Problem> {
    app.service.delete_secret(&caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Re-encrypt all secrets of the server with a new key (operator only)
///
/// If the server stops during the operation, no secret is lost.
#[utoipa::path(
    post,
    path = "/secrets/rotate",
    operation_id = "rotateSecrets",
    tag = "secrets",
    responses((status = 200, description = "Rotated: the previous key is no longer used", body = RotationResult))
)]
async fn rotate(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
) -> Result<Json<RotationResult>, Problem> {
    Ok(Json(app.service.rotate_secrets(&caller).await?))
}
