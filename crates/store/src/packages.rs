//! What workspaces say of packages.

use crate::column::{body, from_body};
use crate::{Reader, StoreError, Tx};
use std::collections::BTreeSet;
use types::{PackagePolicy, WorkspaceId};

impl Tx<'_> {
    pub fn set_package_policy(
        &self,
        workspace: WorkspaceId,
        policy: &PackagePolicy,
    ) -> Result<(), StoreError> {
        let sql = "UPDATE workspaces SET package_policy = ?2 WHERE id = ?1";
        self.change(sql, (workspace.uuid(), body("package policy", policy)?)).map(drop)
    }
}

impl Reader<'_> {
    /// Nothing is allowed in a workspace that is not there.
    pub fn package_policy(&self, workspace: WorkspaceId) -> Result<PackagePolicy, StoreError> {
        let sql = "SELECT package_policy FROM workspaces WHERE id = ?1";
        let read = |row: &rusqlite::Row<'_>| from_body("package policy", row, "package_policy");
        let nothing = PackagePolicy { allow: Some(BTreeSet::new()), ..PackagePolicy::default() };
        Ok(self.one(sql, [workspace.uuid()], read)?.unwrap_or(nothing))
    }
}
