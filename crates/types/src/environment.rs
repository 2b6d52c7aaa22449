//! An environment as people see it: what it is made of, and whether it is there.

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
    /// Which versions of Python it can be built with.
    pub python: String,
    /// The exact version that it was built with.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub python_version: Option<String>,
    /// All that is installed, with exact versions; empty until it is built.
    pub packages: Vec<InstalledPackage>,
    /// What its files hold, most of it shared with other environments.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub built_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_used_at: Option<DateTime<Utc>>,
    /// What is being done, while it is being built.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub progress: Option<String>,
    /// Why the last build failed. What was built before still serves.
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
    /// It comes with Belljar.
    Shipped,
    /// Somebody has added it.
    Own,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EnvironmentStatus {
    /// It serves. If a later build has failed, `error` says why.
    Ready,
    /// It is being made now; what was built before serves meanwhile.
    Building,
    /// The last build has failed, and there is none that could serve.
    Failed,
    /// It is made when it is first asked for.
    Unbuilt,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InstalledPackage {
    pub name: String,
    pub version: String,
}
