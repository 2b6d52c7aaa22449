//! A session as it is stored: what is known of it even after its interpreter has ended.

use crate::{AgentId, Limits, PrincipalId, SandboxId};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionStatus {
    Ready,
    Busy,
    /// Closed by a caller.
    Closed,
    /// Closed because it expired.
    Expired,
    /// The interpreter ended with the server; a reset starts another.
    Lost,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Session {
    pub sandbox_id: SandboxId,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
    pub owner: PrincipalId,
    /// The agent whose code it runs, and whose specification defines its grants.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent: Option<AgentId>,
    pub environment: String,
    /// The integrations through which its code can reach the network; an agent's specification
    /// defines its own.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub integrations: Vec<String>,
    /// The conversation that it belongs to, as its client names it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<String>,
    pub status: SessionStatus,
    /// Increases when the session's state was lost.
    pub generation: u64,
    pub limits: Limits,
    /// Closed after this time without use.
    pub idle_seconds: u64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    /// When it expires if it is not used until then.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expires_at: Option<DateTime<Utc>>,
}
