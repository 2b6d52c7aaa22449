//! A question to a person, bound to exactly what will run.

use crate::{AgentId, ApprovalId, ExecutionId, PrincipalId, SandboxId, ToolId};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    Pending,
    /// Somebody agreed, and it has not begun.
    Allowed,
    /// It has been used for the one execution that it was for.
    Used,
    Denied,
    Expired,
}

/// What an answer is good for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalScope {
    #[default]
    Once,
    /// Any call of the same code by the same requester in the same session.
    Session,
    /// Any call of the same code by the same requester.
    Always,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Approval {
    pub id: ApprovalId,
    pub state: ApprovalState,
    pub execution_id: ExecutionId,
    pub requester: PrincipalId,
    /// Whose rights the code would have.
    pub run_as: PrincipalId,
    pub tool_id: ToolId,
    pub tool_name: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent_id: Option<AgentId>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sandbox_id: Option<SandboxId>,
    pub code: String,
    pub arguments: Value,
    /// Names of input files, and the hash of each.
    pub files: Vec<(String, String)>,
    pub environment: String,
    /// Hosts that the code could reach.
    pub network: Vec<String>,
    pub created_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub decided_by: Option<PrincipalId>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub decided_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    pub scope: ApprovalScope,
}
