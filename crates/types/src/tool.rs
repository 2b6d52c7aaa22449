//! Tools and agents as they are stored: their authors' text, and the data parsed from it.

use crate::execution::memory_bytes;
use crate::{AgentId, PrincipalId, ToolId, WorkspaceId};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use utoipa::ToSchema;

/// Whether a call runs, is denied, or needs a confirmation or an approval.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalAction {
    #[default]
    Allow,
    /// Calls of agents and MCP clients need a confirmation by the user of the agent or client; a
    /// direct call is confirmed by making it.
    Confirm,
    /// Every call needs an approval by a principal that may change the tool or the agent.
    Review,
    Deny,
}

impl ApprovalAction {
    /// From the least strict to the strictest.
    pub const ALL: [Self; 4] = [Self::Allow, Self::Confirm, Self::Review, Self::Deny];

    pub fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Confirm => "confirm",
            Self::Review => "review",
            Self::Deny => "deny",
        }
    }

    /// Whether a person has to say yes before each call.
    pub fn asks(self) -> bool {
        match self {
            Self::Allow | Self::Deny => false,
            Self::Confirm | Self::Review => true,
        }
    }
}

impl fmt::Display for ApprovalAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Tool {
    pub id: ToolId,
    pub name: String,
    pub owner: PrincipalId,
    /// The principal who wrote or confirmed the current code. The code can use only what its author
    /// may use.
    pub author: PrincipalId,
    pub description: String,
    /// The fields of the definition that have no field here, as its author wrote them:
    /// `configuration`, and `tool_type` or `type`.
    #[serde(flatten)]
    pub definition: Map<String, Value>,
    /// `handle` or `run`, or `function` for a tool that calls one.
    pub entry: String,
    /// Absent for a tool that calls a function, which has its own.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub environment: String,
    pub approval_action: ApprovalAction,
    /// The input schema, as a model sees it.
    pub input_schema: Value,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output_schema: Option<Value>,
    /// Hash of the code, byte for byte.
    pub code_sha256: String,
    pub deployment_id: WorkspaceId,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl Tool {
    /// Memory that the schemas and the description take in a process.
    pub fn memory_bytes(&self) -> usize {
        let output = self.output_schema.as_ref().map_or(0, memory_bytes);
        self.description.len() + memory_bytes(&self.input_schema) + output
    }
}

/// The principal whose rights code of an agent has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunAs {
    #[default]
    Owner,
    Caller,
}

/// The format of a specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SpecificationFormat {
    Yaml,
    Json,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Agent {
    pub id: AgentId,
    pub name: String,
    pub owner: PrincipalId,
    /// The principal who wrote or confirmed the current specification. The code can use only what its
    /// author may use.
    pub author: PrincipalId,
    /// The original text, byte for byte.
    pub specification: String,
    pub format: SpecificationFormat,
    pub run_as: RunAs,
    /// Approval actions of tools in its specification, by name, that were set apart from it. They
    /// take precedence over the specification.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub approval_actions: BTreeMap<String, ApprovalAction>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// A tool of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ToolBinding {
    pub agent_id: AgentId,
    pub tool_id: ToolId,
    pub tool_name: String,
    pub approval_action: ApprovalAction,
    pub created_at: DateTime<Utc>,
}
