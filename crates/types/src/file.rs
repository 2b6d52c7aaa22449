//! Stored files.

use crate::{ExecutionId, FileId, PrincipalId, SandboxId};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileSource {
    Upload,
    Url,
    /// Code created it.
    Code,
}

/// A document that was uploaded or fetched, or a file that an execution created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct File {
    pub id: FileId,
    pub name: String,
    pub owner: PrincipalId,
    pub mime: String,
    pub size: u64,
    pub sha256: String,
    pub source: FileSource,
    /// URL of its content: absolute, signed, and valid for a limited time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub url: Option<String>,
    /// The URL that it was fetched from.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub source_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sandbox_id: Option<SandboxId>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub execution_id: Option<ExecutionId>,
    pub created_at: DateTime<Utc>,
    /// When it is deleted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expires_at: Option<DateTime<Utc>>,
}
