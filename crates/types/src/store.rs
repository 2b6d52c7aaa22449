//! Named directories that outlive sessions, and what code may do with them.

use crate::{PrincipalId, StoreId};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StoreAccess {
    Read,
    Write,
}

/// A store that the code of an agent is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreGrant {
    pub name: String,
    pub access: StoreAccess,
    /// Where code sees it.
    pub path: String,
}

/// A named directory that outlives sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Store {
    pub id: StoreId,
    pub name: String,
    pub owner: PrincipalId,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub comment: Option<String>,
    /// Of all its files together.
    pub quota_bytes: u64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}
