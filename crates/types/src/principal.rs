//! Principals and their API keys.

use crate::{KeyId, PrincipalId, WorkspaceId};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Workspace {
    pub id: WorkspaceId,
    pub name: String,
    pub created_at: DateTime<Utc>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PrincipalKind {
    User,
    /// Has no keys; its members have its grants.
    Role,
    Service,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Principal {
    pub id: PrincipalId,
    pub name: String,
    pub kind: PrincipalKind,
    /// Names of the roles that this principal is a member of.
    pub roles: Vec<String>,
    /// Preferences of this principal, such as `code_model`.
    pub preferences: BTreeMap<String, String>,
    /// The id of this principal in another system.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub external_id: Option<String>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// An API key without its secret part, of which only the hash is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApiKey {
    pub id: KeyId,
    pub name: String,
    pub principal: PrincipalId,
    /// The key that it was created with. If both belong to one principal, they are revoked
    /// together.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub created_with: Option<KeyId>,
    /// The key whose rate limits it shares: their requests are counted together.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub counted_with: Option<KeyId>,
    /// Requests per second; the server's default if absent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate_per_second: Option<u32>,
    /// Concurrent requests; the server's default if absent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub concurrency: Option<u32>,
    pub created_at: DateTime<Utc>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expires_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub revoked_at: Option<DateTime<Utc>>,
}

impl ApiKey {
    /// Whether it is neither revoked nor expired.
    pub fn is_good_at(&self, now: DateTime<Utc>) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|at| at > now)
    }
}
