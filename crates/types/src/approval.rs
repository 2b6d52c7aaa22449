//! A request for a person's approval, bound to exactly what will run.

use crate::{AgentId, ApprovalId, ExecutionId, PrincipalId, SandboxId, ToolId};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use utoipa::ToSchema;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    Pending,
    /// Approved, and not started yet.
    Allowed,
    /// Used by the one execution that it was for.
    Used,
    Denied,
    Expired,
    /// Can no longer be decided: its subject has changed, or the key that requested it was revoked.
    Void,
}

/// What a decision covers. For code that a caller sends, `session` covers all later code of the
/// session, and `always` exactly the same code in a fresh sandbox.
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

/// The approval policy for code that callers send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    #[default]
    Allow,
    /// Every run needs an approval.
    Ask,
    /// The first run of a session needs an approval; without a session, every run.
    AskOnce,
    Deny,
}

impl Permission {
    pub const ALL: [Self; 4] = [Self::Allow, Self::Ask, Self::AskOnce, Self::Deny];

    pub fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::AskOnce => "ask_once",
            Self::Deny => "deny",
        }
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Approval {
    pub id: ApprovalId,
    pub state: ApprovalState,
    pub execution_id: ExecutionId,
    pub requester: PrincipalId,
    /// The principal whose rights the code would have.
    pub run_as: PrincipalId,
    /// All zeros for `execute_python`.
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
    /// The integrations through which the code could reach hosts, including those of its session.
    pub network: Vec<String>,
    /// The names of the secrets that the code could use, including those of its session.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub secrets: Vec<String>,
    /// For code in a session: SHA-256 over names and contents in its working directory at the time
    /// of the request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub working_directory: Option<String>,
    pub created_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub decided_by: Option<PrincipalId>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub decided_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// What the decision covers; for a pending approval, the default.
    pub scope: ApprovalScope,
}
