//! Finds objects by a name in any case of letters, for statements in SQL.

use crate::{DatabaseError, Reader};
use types::WorkspaceId;
use uuid::Uuid;

/// A set of objects whose names are unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameSpace {
    NetworkRules,
    Integrations,
    /// Those of the workspace, without personal ones.
    WorkspaceSecrets,
    Agents,
    Principals,
}

impl Reader<'_> {
    /// Ids and names of the objects with this name, in any case of ASCII letters, at most so many. The
    /// one of exactly this name is the first.
    pub fn objects_named(
        &self,
        space: NameSpace,
        workspace: WorkspaceId,
        name: &str,
        count_max: u32,
    ) -> Result<Vec<(Uuid, String)>, DatabaseError> {
        let (table, condition) = match space {
            NameSpace::NetworkRules => ("network_rules", ""),
            NameSpace::Integrations => ("integrations", ""),
            NameSpace::WorkspaceSecrets => ("secrets", " AND whose = x''"),
            NameSpace::Agents => ("agents", ""),
            NameSpace::Principals => ("principals", ""),
        };
        let sql = format!(
            "SELECT id, name FROM {table} \
             WHERE workspace = ?1 AND lower(name) = lower(?2){condition} \
             ORDER BY name != ?2, id LIMIT ?3"
        );
        self.query_many(&sql, (workspace.uuid(), name, count_max), |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
    }
}
