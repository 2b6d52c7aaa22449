//! Agents: a specification, and the tools that are attached to it.

use super::Routes;
use crate::AppState;
use crate::extract::{self, Json, Path, Query};
use crate::json_or_file::json_or_file;
use crate::problem::Problem;
use axum::Extension;
use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use service::{
    AgentQuery, AgentRequest, AgentView, ApprovalActionChange, ConfirmRequest, ObjectQuery, Page,
    RequestCaller,
};
use std::sync::Arc;
use types::{Agent, AgentId, ToolBinding, ToolId};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The registered media type, and those in use before its registration.
const YAML: [&str; 3] = ["application/yaml", "application/x-yaml", "text/yaml"];

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(get, replace, delete))
        .routes(routes!(attach, detach, set_action))
        .routes(routes!(confirm))
}

/// An agent as JSON, or its specification as YAML with the other fields in the query.
struct AgentBody(AgentRequest);

impl<S: Send + Sync> FromRequest<S> for AgentBody {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        json_or_file(request, &YAML, from_json, AgentRequest::from_yaml).await.map(Self)
    }
}

/// Reads an agent and keeps the source text of its specification, even if that is a JSON object.
fn from_json(bytes: &[u8]) -> Result<AgentRequest, Problem> {
    extract::check_object(bytes)?;
    let unreadable = || extract::invalid_field(String::new(), "must be a JSON object");
    let text = std::str::from_utf8(bytes).map_err(|_| unreadable())?;
    let text = AgentRequest::with_specification_as_text(text).map_err(|_| unreadable())?;
    extract::from_checked(text.as_bytes())
}

/// Create an agent
///
/// Its specification is YAML or JSON, and is stored as written. The agent can run code if `tools`
/// has an entry with type and name `code_execution` and `tool_resources` has a section of that
/// name; `code_execution.missing` lists what is missing.
#[utoipa::path(
    post,
    path = "/agents",
    operation_id = "createAiAgent",
    tag = "agents",
    params(AgentQuery),
    request_body(content((AgentRequest = "application/json"), (String = "application/yaml"))),
    responses((status = 201, description = "Created", body = AgentView))
)]
async fn create(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    AgentBody(agent): AgentBody,
) -> Result<(StatusCode, Json<AgentView>), Problem> {
    Ok((StatusCode::CREATED, Json(app.service.create_agent(&caller, agent).await?)))
}

/// List agents, newest first
#[utoipa::path(
    get,
    path = "/agents",
    operation_id = "listAiAgents",
    tag = "agents",
    params(ObjectQuery),
    responses((status = 200, description = "One page of the list", body = Page<Agent>))
)]
async fn list(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Query(query): Query<ObjectQuery>,
) -> Result<Json<Page<Agent>>, Problem> {
    Ok(Json(app.service.agents(&caller, query).await?))
}

/// Get an agent, its tools, and what its specification implies
#[utoipa::path(
    get,
    path = "/agents/{agent_id}",
    operation_id = "getAiAgent",
    tag = "agents",
    params(("agent_id" = AgentId, Path)),
    responses((status = 200, description = "Its current state", body = AgentView))
)]
async fn get(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<AgentId>,
) -> Result<Json<AgentView>, Problem> {
    Ok(Json(app.service.agent(&caller, id).await?))
}

/// Replace the whole specification of an agent
///
/// If the name or `run_as` is absent, it does not change.
#[utoipa::path(
    put,
    path = "/agents/{agent_id}",
    operation_id = "updateAiAgent",
    tag = "agents",
    params(("agent_id" = AgentId, Path), AgentQuery),
    request_body(content((AgentRequest = "application/json"), (String = "application/yaml"))),
    responses((status = 200, description = "Its current state", body = AgentView))
)]
async fn replace(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<AgentId>,
    AgentBody(agent): AgentBody,
) -> Result<Json<AgentView>, Problem> {
    Ok(Json(app.service.replace_agent(&caller, id, agent).await?))
}

/// Delete an agent; its tools remain
#[utoipa::path(
    delete,
    path = "/agents/{agent_id}",
    operation_id = "deleteAiAgent",
    tag = "agents",
    params(("agent_id" = AgentId, Path)),
    responses((status = 204, description = "Deleted"))
)]
async fn delete(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<AgentId>,
) -> Result<StatusCode, Problem> {
    app.service.delete_agent(&caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Attach a tool to an agent
///
/// If the tool is already attached, nothing changes, including its approval action.
#[utoipa::path(
    post,
    path = "/agents/{agent_id}/tools/{tool_id}",
    operation_id = "attachToolToAgent",
    tag = "agents",
    params(("agent_id" = AgentId, Path), ("tool_id" = ToolId, Path)),
    responses((status = 200, description = "The tool is attached", body = ToolBinding))
)]
async fn attach(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path((agent, tool)): Path<(AgentId, ToolId)>,
) -> Result<Json<ToolBinding>, Problem> {
    Ok(Json(app.service.attach_tool(&caller, agent, tool).await?))
}

/// Detach a tool from an agent
#[utoipa::path(
    delete,
    path = "/agents/{agent_id}/tools/{tool_id}",
    operation_id = "detachToolFromAgent",
    tag = "agents",
    params(("agent_id" = AgentId, Path), ("tool_id" = ToolId, Path)),
    responses((status = 204, description = "The tool is detached"))
)]
async fn detach(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path((agent, tool)): Path<(AgentId, ToolId)>,
) -> Result<StatusCode, Problem> {
    app.service.detach_tool(&caller, agent, tool).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Set the approval action for an agent's calls of a tool: allow, confirm, review or deny
///
/// Of an attached tool, of a tool of the specification, or of `code_execution`, by its name or id.
/// For a tool of the specification it takes precedence over the specification. With `confirm`, the
/// caller of the agent confirms each call.
#[utoipa::path(
    patch,
    path = "/agents/{agent_id}/tools/{tool_id}",
    operation_id = "updateAgentToolApprovalAction",
    tag = "agents",
    params(
        ("agent_id" = AgentId, Path),
        ("tool_id" = String, Path, description = "Name or id of a tool of the agent"),
    ),
    request_body = ApprovalActionChange,
    responses((status = 200, description = "Its current state", body = ToolBinding))
)]
async fn set_action(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path((agent, tool)): Path<(AgentId, String)>,
    Json(change): Json<ApprovalActionChange>,
) -> Result<Json<ToolBinding>, Problem> {
    Ok(Json(app.service.set_agent_tool_action(&caller, agent, &tool, change).await?))
}

/// Confirm the code of an agent that you own and have reviewed
///
/// You become its author: it then runs with your privileges, not only with those of the principal
/// who wrote it. Refused if it was changed since `updated_at`.
#[utoipa::path(
    post,
    path = "/agents/{agent_id}/confirm",
    operation_id = "confirmAiAgent",
    tag = "agents",
    params(("agent_id" = AgentId, Path)),
    request_body = ConfirmRequest,
    responses((status = 200, description = "Confirmed", body = Agent))
)]
async fn confirm(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<AgentId>,
    Json(request): Json<ConfirmRequest>,
) -> Result<Json<Agent>, Problem> {
    Ok(Json(app.service.confirm_agent(&caller, id, request).await?))
}
