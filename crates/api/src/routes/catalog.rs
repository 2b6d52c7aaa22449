//! What can be added to an agent: the tool that runs code, and skills that explain its use.

use super::Routes;
use crate::extract::Json;
use agent::{
    CODE_INTERPRETER_DESCRIPTION, CODE_INTERPRETER_TITLE, CapabilityCategory, NewCapability,
    skill_title,
};
use axum::Extension;
use axum::http::header::HOST;
use axum::http::{HeaderMap, Uri};
use serde::Serialize;
use service::{Page, RequestCaller};
use skill::Skill;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Path of the MCP server.
const MCP_PATH: &str = "/mcp";
const TOOL: &str = "execute_python";

/// One item that can be added to an agent independently of the others
#[derive(Debug, Serialize, ToSchema)]
struct CatalogEntry {
    /// Display name
    #[schema(example = "Code Interpreter")]
    name: String,
    #[serde(rename = "type")]
    kind: CatalogEntryType,
    category: CapabilityCategory,
    /// What it is for and when to use it
    description: String,
    /// MCP tools only: its name on the server
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<&'static str>,
    /// MCP tools only: the URL of the server
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// Skills only: its name, as in `belljar skill install`
    #[serde(skip_serializing_if = "Option::is_none")]
    skill: Option<&'static str>,
    /// The body that adds the entry to an agent, for `POST /v1/agents/{agent_id}/capabilities`
    capability: NewCapability,
}

#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum CatalogEntryType {
    McpTool,
    Skill,
}

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(list))
}

/// List what can be added to an agent: the tool that runs code, and the skills
///
/// The tool works without its skill. With both, an agent also knows when to run code and what to do
/// when it fails. `capability` of an entry is the body that adds it to an agent.
#[utoipa::path(
    get,
    path = "/catalog",
    operation_id = "listCatalog",
    tag = "catalog",
    responses((status = 200, description = "The complete catalog", body = Page<CatalogEntry>))
)]
async fn list(
    _caller: Extension<RequestCaller>,
    uri: Uri,
    headers: HeaderMap,
) -> Json<Page<CatalogEntry>> {
    let skills = Skill::built_in_names().filter_map(skill_entry);
    let items = std::iter::once(tool_entry(mcp_url(&uri, &headers))).chain(skills).collect();
    Json(Page { items, next_cursor: None })
}

fn tool_entry(url: Option<String>) -> CatalogEntry {
    CatalogEntry {
        name: CODE_INTERPRETER_TITLE.to_owned(),
        kind: CatalogEntryType::McpTool,
        category: CapabilityCategory::Data,
        description: CODE_INTERPRETER_DESCRIPTION.to_owned(),
        tool: Some(TOOL),
        url,
        skill: None,
        capability: NewCapability::CodeExecution {},
    }
}

fn skill_entry(name: &'static str) -> Option<CatalogEntry> {
    Some(CatalogEntry {
        name: skill_title(name),
        kind: CatalogEntryType::Skill,
        category: CapabilityCategory::Data,
        description: Skill::built_in(name)?.summary.description,
        tool: None,
        url: None,
        skill: Some(name),
        capability: NewCapability::Skill { name: name.to_owned() },
    })
}

/// Builds the URL from the `Host` header, which the guard has checked. Only a proxy knows whether
/// it terminates TLS, so `X-Forwarded-Proto` is trusted; a caller who forges it misleads only
/// itself.
fn mcp_url(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let named = headers.get(HOST).and_then(|host| host.to_str().ok());
    // HTTP/2 has the authority in the URI.
    let host = named.or_else(|| uri.authority().map(|authority| authority.as_str()))?;
    let scheme = headers.get("x-forwarded-proto").filter(|scheme| *scheme == "https");
    let scheme = scheme.map_or("http", |_| "https");
    Some(format!("{scheme}://{host}{MCP_PATH}"))
}
