//! The packages that sessions of a workspace may install.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use utoipa::ToSchema;

/// Names are normalized as an index does: lower case, with single dashes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PackagePolicy {
    /// The only packages that may be installed; null for all.
    #[schema(value_type = Option<Vec<String>>)]
    pub allow: Option<BTreeSet<String>>,
    /// Packages that may not be installed, even if `allow` has them.
    #[schema(value_type = Vec<String>)]
    pub deny: BTreeSet<String>,
    /// The only version of a package that may be installed, by its name.
    pub pins: BTreeMap<String, String>,
}
