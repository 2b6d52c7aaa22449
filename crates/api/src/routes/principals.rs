//! The principals of a workspace, and their preferences.

use super::Routes;
use crate::AppState;
use crate::extract::{Json, Path, Query};
use crate::problem::Problem;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use service::{Me, Page, PrincipalChange, PrincipalQuery, PrincipalRequest, RequestCaller};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{Principal, PrincipalId};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(me))
        .routes(routes!(get, change, delete))
        .routes(routes!(preferences, set_preferences, change_preferences))
}

/// Add a user, a role or a service to the workspace
///
/// A new principal has no privileges until it, or one of its roles, is granted some.
#[utoipa::path(
    post,
    path = "/principals",
    operation_id = "createPrincipal",
    tag = "identity",
    request_body = PrincipalRequest,
    responses((status = 201, description = "Created", body = Principal))
)]
async fn create(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Json(request): Json<PrincipalRequest>,
) -> Result<(StatusCode, Json<Principal>), Problem> {
    let principal = app.service.create_principal(&caller, request).await?;
    Ok((StatusCode::CREATED, Json(principal)))
}

/// List the principals of the workspace, newest first
#[utoipa::path(
    get,
    path = "/principals",
    operation_id = "listPrincipals",
    tag = "identity",
    params(PrincipalQuery),
    responses((status = 200, description = "One page of the list", body = Page<Principal>))
)]
async fn list(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Query(query): Query<PrincipalQuery>,
) -> Result<Json<Page<Principal>>, Problem> {
    Ok(Json(app.service.principals(&caller, query).await?))
}

/// Get the principal and the workspace of the API key
#[utoipa::path(
    get,
    path = "/principals/me",
    operation_id = "getMe",
    tag = "identity",
    responses((status = 200, description = "The principal of this request", body = Me))
)]
async fn me(caller: Extension<RequestCaller>) -> Json<Me> {
    Json(caller.me())
}

/// Get a principal
#[utoipa::path(
    get,
    path = "/principals/{principal_id}",
    operation_id = "getPrincipal",
    tag = "identity",
    params(("principal_id" = PrincipalId, Path)),
    responses((status = 200, description = "Its current state", body = Principal))
)]
async fn get(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<PrincipalId>,
) -> Result<Json<Principal>, Problem> {
    Ok(Json(app.service.principal(&caller, id)?))
}

/// Change the name, the roles or the external id of a principal
#[utoipa::path(
    patch,
    path = "/principals/{principal_id}",
    operation_id = "updatePrincipal",
    tag = "identity",
    params(("principal_id" = PrincipalId, Path)),
    request_body = PrincipalChange,
    responses((status = 200, description = "Its current state", body = Principal))
)]
async fn change(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<PrincipalId>,
    Json(change): Json<PrincipalChange>,
) -> Result<Json<Principal>, Problem> {
    Ok(Json(app.service.change_principal(&caller, id, change).await?))
}

/// Delete a principal with its keys and grants
#[utoipa::path(
    delete,
    path = "/principals/{principal_id}",
    operation_id = "deletePrincipal",
    tag = "identity",
    params(("principal_id" = PrincipalId, Path)),
    responses((status = 204, description = "Deleted: its keys are revoked; its executions, \
                                            sessions and pending approvals have ended"))
)]
async fn delete(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<PrincipalId>,
) -> Result<StatusCode, Problem> {
    app.service.delete_principal(&caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Get your preferences
#[utoipa::path(
    get,
    path = "/preferences",
    operation_id = "getPreferences",
    tag = "identity",
    responses((status = 200, description = "The preferences by name", body = BTreeMap<String, String>))
)]
async fn preferences(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
) -> Result<Json<BTreeMap<String, String>>, Problem> {
    Ok(Json(app.service.preferences(&caller)?))
}

/// Replace your preferences, such as `{"code_model": "…"}`
#[utoipa::path(
    put,
    path = "/preferences",
    operation_id = "setPreferences",
    tag = "identity",
    request_body = BTreeMap<String, String>,
    responses((status = 200, description = "Their current values", body = BTreeMap<String, String>))
)]
async fn set_preferences(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Json(preferences): Json<BTreeMap<String, String>>,
) -> Result<Json<BTreeMap<String, String>>, Problem> {
    Ok(Json(app.service.set_preferences(&caller, preferences).await?))
}

/// Set or remove some of your preferences, such as `{"code_model": null}`
///
/// A preference with the value null is removed; absent ones do not change.
#[utoipa::path(
    patch,
    path = "/preferences",
    operation_id = "updatePreferences",
    tag = "identity",
    request_body = BTreeMap<String, Option<String>>,
    responses((status = 200, description = "Their current values", body = BTreeMap<String, String>))
)]
async fn change_preferences(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Json(changes): Json<BTreeMap<String, Option<String>>>,
) -> Result<Json<BTreeMap<String, String>>, Problem> {
    Ok(Json(app.service.change_preferences(&caller, changes).await?))
}
