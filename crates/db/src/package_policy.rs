//! Package policies of workspaces.

use crate::columns::{from_json_column, to_json};
use crate::{DatabaseError, Reader, Tx};
use std::collections::BTreeSet;
use types::{PackagePolicy, WorkspaceId};

impl Tx<'_> {
    pub fn set_package_policy(
        &self,
        workspace: WorkspaceId,
        policy: &PackagePolicy,
    ) -> Result<(), DatabaseError> {
        let sql = "UPDATE workspaces SET package_policy = ?2 WHERE id = ?1";
        self.execute(sql, (workspace.uuid(), to_json("package policy", policy)?)).map(drop)
    }
}

impl Reader<'_> {
    /// The package policy; it allows nothing in a workspace that does not exist.
    pub fn package_policy(&self, workspace: WorkspaceId) -> Result<PackagePolicy, DatabaseError> {
        let sql = "SELECT package_policy FROM workspaces WHERE id = ?1";
        let read =
            |row: &rusqlite::Row<'_>| from_json_column("package policy", row, "package_policy");
        let deny_all = PackagePolicy { allow: Some(BTreeSet::new()), ..PackagePolicy::default() };
        Ok(self.query_one(sql, [workspace.uuid()], read)?.unwrap_or(deny_all))
    }
}
