//! Volumes: named directories that outlive sessions, and the access of code to them.

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

/// A volume that code of an agent can access.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeGrant {
    pub name: String,
    pub access: VolumeAccess,
    /// The path of the volume inside the sandbox.
    pub path: String,
}

/// A volume: a named directory that outlives sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    pub id: VolumeId,
    pub name: String,
    pub owner: PrincipalId,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub comment: Option<String>,
    /// Limit of all its files together.
    pub quota_bytes: u64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}
