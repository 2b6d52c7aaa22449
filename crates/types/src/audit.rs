//! Who did what, in an order that cannot be changed afterwards unnoticed.

use crate::{KeyId, PrincipalId, WorkspaceId};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One line of the audit log. Each has the hash of the one before it in its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    pub sequence: u64,
    pub at: DateTime<Utc>,
    pub workspace: WorkspaceId,
    /// Absent when the server did it by itself.
    pub principal: Option<PrincipalId>,
    pub key: Option<KeyId>,
    /// A verb and its noun, as in `tool.create`.
    pub action: String,
    /// What it was done to, as in `tool 0198…`.
    pub object: String,
    /// What else is worth knowing, in one line.
    pub detail: String,
    pub previous_hash: String,
    pub hash: String,
}
