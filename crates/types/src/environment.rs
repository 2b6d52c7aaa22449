//! An environment as users see it: its contents and its status.

use crate::Error;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Environment {
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub description: String,
    pub origin: EnvironmentOrigin,
    pub status: EnvironmentStatus,
    /// The versions of Python that it can be built with.
    pub python: String,
    /// The exact version that it was built with.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub python_version: Option<String>,
    /// All installed packages, with exact versions; empty until it is built.
    pub packages: Vec<InstalledPackage>,
    /// Size of its files, most of it shared with other environments.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub built_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_used_at: Option<DateTime<Utc>>,
    /// The current step of a build in progress.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub progress: Option<String>,
    /// Why the last build failed. The previous build stays in use.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<Error>,
    /// The definition, as TOML; not in lists.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub definition: Option<String>,
    /// The exact packages with their hashes; not in lists.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lock: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EnvironmentOrigin {
    /// The environment ships with Belljar.
    Shipped,
    /// A user has added it.
    Custom,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EnvironmentStatus {
    /// The environment is ready. If a later build has failed, `error` says why.
    Ready,
    /// The environment is being built; the previous build stays in use meanwhile.
    Building,
    /// The last build has failed, and there is no previous one.
    Failed,
    /// The environment is built at its first use.
    Unbuilt,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InstalledPackage {
    pub name: String,
    pub version: String,
}
