//! Which packages the sessions of a workspace may install.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use utoipa::ToSchema;

/// Names are in the form in which an index compares them: lower case, with single dashes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PackagePolicy {
    /// All that may be installed; null if there is no such list.
    #[schema(value_type = Option<Vec<String>>)]
    pub allow: Option<BTreeSet<String>>,
    /// What may not, also where it is on the other list.
    #[schema(value_type = Vec<String>)]
    pub deny: BTreeSet<String>,
    /// The one version of a package that may be installed, by its name.
    pub pins: BTreeMap<String, String>,
}
