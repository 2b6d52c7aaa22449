//! The audit log: who did what, in an order that cannot be changed unnoticed.

use crate::{KeyId, PrincipalId, WorkspaceId};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One entry of the audit log. Its hash includes the hash of the previous entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    pub sequence: u64,
    pub at: DateTime<Utc>,
    pub workspace: WorkspaceId,
    /// Absent for an action of the server itself.
    pub principal: Option<PrincipalId>,
    pub key: Option<KeyId>,
    /// A noun and a verb, as in `tool.create`.
    pub action: String,
    /// The object of the action, as in `tool 0198…`.
    pub object: String,
    /// Further details, in one line.
    pub detail: String,
    pub previous_hash: String,
    pub hash: String,
}
