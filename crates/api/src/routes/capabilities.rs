//! The capabilities of an agent: code execution, tools, functions, skills and MCP servers, as one list.

use super::Routes;
use crate::AppState;
use crate::extract::{Json, Path};
use crate::problem::Problem;
use agent::{Capability, CapabilityKind, NewCapability};
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use service::{Page, RequestCaller};
use std::sync::Arc;
use types::AgentId;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(list, add)).routes(routes!(remove))
}

/// List the capabilities of an agent
///
/// Everything that its model can use: code execution, tools, functions, skills and MCP servers,
/// whether they are in its specification or attached. The list is complete, on one page.
#[utoipa::path(
    get,
    path = "/agents/{agent_id}/capabilities",
    operation_id = "listAiAgentCapabilities",
    tag = "agents",
    params(("agent_id" = AgentId, Path)),
    responses((status = 200, description = "All its capabilities", body = Page<Capability>))
)]
async fn list(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<AgentId>,
) -> Result<Json<Page<Capability>>, Problem> {
    let items = app.agents.capabilities(&caller, id).await?;
    Ok(Json(Page { items, next_cursor: None }))
}

/// Add a capability to an agent
///
/// The body is `capability` of an entry of the catalog, or refers to a tool, a skill or an MCP
/// server. A tool is attached; everything else becomes a part of the specification, of which the rest does not change.
/// If the agent has the capability, nothing changes.
#[utoipa::path(
    post,
    path = "/agents/{agent_id}/capabilities",
    operation_id = "addAiAgentCapability",
    tag = "agents",
    params(("agent_id" = AgentId, Path)),
    request_body = NewCapability,
    responses((status = 200, description = "The agent has the capability", body = Capability))
)]
async fn add(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<AgentId>,
    Json(new): Json<NewCapability>,
) -> Result<Json<Capability>, Problem> {
    Ok(Json(app.agents.add_capability(&caller, id, new).await?))
}

/// Remove a capability from an agent
///
/// An attached tool is detached, and remains in the workspace. A part of the specification is
/// removed from it, with its section of `tool_resources`.
#[utoipa::path(
    delete,
    path = "/agents/{agent_id}/capabilities/{kind}/{name}",
    operation_id = "removeAiAgentCapability",
    tag = "agents",
    params(
        ("agent_id" = AgentId, Path),
        ("kind" = CapabilityKind, Path),
        ("name" = String, Path, description = "`name` of the capability"),
    ),
    responses((status = 204, description = "Removed"))
)]
async fn remove(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path((id, kind, name)): Path<(AgentId, CapabilityKind, String)>,
) -> Result<StatusCode, Problem> {
    app.agents.remove_capability(&caller, id, kind, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}
