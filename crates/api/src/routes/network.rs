//! Network access of code: network rules, integrations, and the egress log.

use super::Routes;
use crate::AppState;
use crate::extract::{Json, Path, Query};
use crate::problem::Problem;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use service::{
    IntegrationChange, IntegrationRequest, NetworkQuery, NetworkRuleRequest, ObjectQuery, Page,
    RequestCaller,
};
use std::sync::Arc;
use types::{Integration, IntegrationId, NetworkLogEntry, NetworkRule, NetworkRuleId};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(create_rule, list_rules))
        .routes(routes!(get_rule, replace_rule, delete_rule))
        .routes(routes!(create_integration, list_integrations))
        .routes(routes!(get_integration, change_integration, delete_integration))
        .routes(routes!(log))
}

/// Create a network rule
///
/// A rule is a named list of hosts and ports. It allows nothing until an integration contains it.
#[utoipa::path(
    post,
    path = "/network-rules",
    operation_id = "createNetworkRule",
    tag = "network",
    request_body = NetworkRuleRequest,
    responses((status = 201, description = "Created", body = NetworkRule))
)]
async fn create_rule(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Json(request): Json<NetworkRuleRequest>,
) -> Result<(StatusCode, Json<NetworkRule>), Problem> {
    Ok((StatusCode::CREATED, Json(app.service.create_network_rule(&caller, request).await?)))
}

/// List network rules, newest first
#[utoipa::path(
    get,
    path = "/network-rules",
    operation_id = "listNetworkRules",
    tag = "network",
    params(ObjectQuery),
    responses((status = 200, description = "One page of the list", body = Page<NetworkRule>))
)]
async fn list_rules(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Query(query): Query<ObjectQuery>,
) -> Result<Json<Page<NetworkRule>>, Problem> {
    Ok(Json(app.service.network_rules(&caller, query).await?))
}

/// Get a network rule
#[utoipa::path(
    get,
    path = "/network-rules/{network_rule_id}",
    operation_id = "getNetworkRule",
    tag = "network",
    params(("network_rule_id" = NetworkRuleId, Path)),
    responses((status = 200, description = "Its current state", body = NetworkRule))
)]
async fn get_rule(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<NetworkRuleId>,
) -> Result<Json<NetworkRule>, Problem> {
    Ok(Json(app.service.network_rule(&caller, id)?))
}

/// Replace the values of a network rule
///
/// The new values apply to the next connection of every session that uses the rule.
#[utoipa::path(
    put,
    path = "/network-rules/{network_rule_id}",
    operation_id = "replaceNetworkRule",
    tag = "network",
    params(("network_rule_id" = NetworkRuleId, Path)),
    request_body = NetworkRuleRequest,
    responses((status = 200, description = "Its current state", body = NetworkRule))
)]
async fn replace_rule(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<NetworkRuleId>,
    Json(request): Json<NetworkRuleRequest>,
) -> Result<Json<NetworkRule>, Problem> {
    Ok(Json(app.service.replace_network_rule(&caller, id, request).await?))
}

/// Delete a network rule that is in no integration
#[utoipa::path(
    delete,
    path = "/network-rules/{network_rule_id}",
    operation_id = "deleteNetworkRule",
    tag = "network",
    params(("network_rule_id" = NetworkRuleId, Path)),
    responses((status = 204, description = "Deleted"))
)]
async fn delete_rule(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<NetworkRuleId>,
) -> Result<StatusCode, Problem> {
    app.service.delete_network_rule(&caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Create an integration
///
/// Code of an agent can use it if the agent's specification lists it in
/// `tool_resources.code_execution.external_access_integrations` and the principal that the code
/// runs as has USAGE on it. Other code can use it if the request lists it in `integrations`.
#[utoipa::path(
    post,
    path = "/integrations",
    operation_id = "createIntegration",
    tag = "network",
    request_body = IntegrationRequest,
    responses((status = 201, description = "Created", body = Integration))
)]
async fn create_integration(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Json(request): Json<IntegrationRequest>,
) -> Result<(StatusCode, Json<Integration>), Problem> {
    Ok((StatusCode::CREATED, Json(app.service.create_integration(&caller, request).await?)))
}

/// List integrations, newest first
#[utoipa::path(
    get,
    path = "/integrations",
    operation_id = "listIntegrations",
    tag = "network",
    params(ObjectQuery),
    responses((status = 200, description = "One page of the list", body = Page<Integration>))
)]
async fn list_integrations(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Query(query): Query<ObjectQuery>,
) -> Result<Json<Page<Integration>>, Problem> {
    Ok(Json(app.service.integrations(&caller, query).await?))
}

/// Get an integration
#[utoipa::path(
    get,
    path = "/integrations/{integration_id}",
    operation_id = "getIntegration",
    tag = "network",
    params(("integration_id" = IntegrationId, Path)),
    responses((status = 200, description = "Its current state", body = Integration))
)]
async fn get_integration(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<IntegrationId>,
) -> Result<Json<Integration>, Problem> {
    Ok(Json(app.service.integration(&caller, id)?))
}

/// Change, enable or disable an integration
///
/// The change applies to the next connection of every session that uses the integration.
#[utoipa::path(
    patch,
    path = "/integrations/{integration_id}",
    operation_id = "updateIntegration",
    tag = "network",
    params(("integration_id" = IntegrationId, Path)),
    request_body = IntegrationChange,
    responses((status = 200, description = "Its current state", body = Integration))
)]
async fn change_integration(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<IntegrationId>,
    Json(change): Json<IntegrationChange>,
) -> Result<Json<Integration>, Problem> {
    Ok(Json(app.service.change_integration(&caller, id, change).await?))
}

/// Delete an integration
#[utoipa::path(
    delete,
    path = "/integrations/{integration_id}",
    operation_id = "deleteIntegration",
    tag = "network",
    params(("integration_id" = IntegrationId, Path)),
    responses((status = 204, description = "Deleted"))
)]
async fn delete_integration(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<IntegrationId>,
) -> Result<StatusCode, Problem> {
    app.service.delete_integration(&caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List network access attempts of code, newest first
///
/// An owner of the workspace sees all attempts, other principals those of their own code.
#[utoipa::path(
    get,
    path = "/network/log",
    operation_id = "listNetworkLog",
    tag = "network",
    params(NetworkQuery),
    responses((status = 200, description = "One page of the list", body = Page<NetworkLogEntry>))
)]
async fn log(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Query(query): Query<NetworkQuery>,
) -> Result<Json<Page<NetworkLogEntry>>, Problem> {
    Ok(Json(app.service.network_log(&caller, query).await?))
}
