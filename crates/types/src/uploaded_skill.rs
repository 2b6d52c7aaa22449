//! Skills that were uploaded to a workspace.

use crate::{PrincipalId, SkillId};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A skill that was uploaded: a folder with instructions for agents
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UploadedSkill {
    pub id: SkillId,
    /// The name in its SKILL.md
    pub name: String,
    /// The description in its SKILL.md
    pub description: String,
    pub owner: PrincipalId,
    /// The principal who uploaded the current files
    pub author: PrincipalId,
    /// Number of its files
    pub file_count: usize,
    /// Size of its files together
    pub bytes: u64,
    /// Digest of the names and contents of its files
    pub sha256: String,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}
