//! Named directories that outlive sessions, and what code may do with them.

use crate::{PrincipalId, VolumeId};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeAccess {
    Read,
    Write,
}

/// A volume that the code of an agent is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeGrant {
    pub name: String,
    pub access: VolumeAccess,
    /// Where code sees it.
    pub path: String,
}

/// A named directory that outlives sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    pub id: VolumeId,
    pub name: String,
    pub owner: PrincipalId,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub comment: Option<String>,
    /// Of all its files together.
    pub quota_bytes: u64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}
