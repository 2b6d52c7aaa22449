//! Agents, tools, functions and environments: what can be run.

pub(crate) mod agent_skills;
pub(crate) mod agent_tools;
pub(crate) mod agents;
pub(crate) mod callable_tools;
pub(crate) mod capabilities;
pub(crate) mod embedded_tools;
pub(crate) mod environments;
pub(crate) mod explain;
pub(crate) mod functions;
pub(crate) mod mcp_servers;
pub(crate) mod packages;
pub(crate) mod skills;
pub(crate) mod specification;
pub(crate) mod tool_bindings;
pub(crate) mod tool_definition;
pub(crate) mod tools;

use crate::error::RequestError;
use types::{Error, ErrorCode};

/// Maximum number of tools in a workspace: more than a model can choose from.
pub(crate) const TOOLS_MAX: u64 = 1_000;
/// Maximum number of agents in a workspace.
pub(crate) const AGENTS_MAX: u64 = 1_000;

/// The error for one more object of a kind than a workspace may have.
pub(crate) fn too_many(kind: &str, most: u64) -> RequestError {
    let message = format!("a workspace has at most {most} {kind}");
    Error::new(ErrorCode::QuotaExceeded, message).hint("delete one").into()
}
