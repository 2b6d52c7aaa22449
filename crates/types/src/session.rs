//! A session as it is kept: what is still known of it when its interpreter is gone.

use crate::{AgentId, Limits, PrincipalId, SandboxId};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionStatus {
    Ready,
    Busy,
    /// Closed by somebody.
    Closed,
    /// Closed because nobody used it.
    Expired,
    /// Its interpreter ended with the server; a reset starts another.
    Lost,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Session {
    pub sandbox_id: SandboxId,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
    pub owner: PrincipalId,
    /// The agent whose code it runs, which lends it what its specification says.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent: Option<AgentId>,
    pub environment: String,
    /// By which its code can leave; an agent's specification says its own.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub integrations: Vec<String>,
    /// The conversation that it belongs to, in the words of whoever has it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<String>,
    pub status: SessionStatus,
    /// Grows when the memory was lost, so that nobody is surprised.
    pub generation: u64,
    pub limits: Limits,
    /// Closed after this time without use.
    pub idle_seconds: u64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    /// When it will be closed, if nobody uses it until then.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expires_at: Option<DateTime<Utc>>,
}
