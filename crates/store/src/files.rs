//! Which files there are. Their bytes are in `blobs`.
//!
//! The bytes come first and go last: there is never a row without them.

use crate::column::{body, from_body, moment, word};
use crate::{Listed, Page, Reader, StoreError, Tx};
use std::collections::HashSet;
use types::{ExecutionId, File, FileId, PrincipalId, WorkspaceId};

impl Tx<'_> {
    /// Its bytes must have been kept.
    pub fn insert_file(&self, workspace: WorkspaceId, file: &File) -> Result<(), StoreError> {
        self.change(
            "INSERT INTO files \
             (workspace, id, owner, execution_id, name, source, size, expires_at, body) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            (
                workspace.uuid(),
                file.id.uuid(),
                file.owner.uuid(),
                file.execution_id.map(ExecutionId::uuid),
                &file.name,
                word("file", &file.source)?,
                file.size,
                file.expires_at.map(moment),
                body("file", file)?,
            ),
        )?;
        Ok(())
    }

    /// `OverQuota` if the workspace would have more than `most` bytes then. Nobody else writes
    /// between the look and the change.
    pub fn insert_files(
        &self,
        workspace: WorkspaceId,
        files: &[File],
        most: u64,
    ) -> Result<(), StoreError> {
        let room = most.saturating_sub(self.file_bytes(workspace)?);
        if files.iter().map(|file| file.size).sum::<u64>() > room {
            return Err(StoreError::OverQuota { most });
        }
        files.iter().try_for_each(|file| self.insert_file(workspace, file))
    }

    /// When this is committed, and only then, its bytes can be removed.
    pub fn delete_file(&self, workspace: WorkspaceId, id: FileId) -> Result<bool, StoreError> {
        let key = (workspace.uuid(), id.uuid());
        Ok(self.change("DELETE FROM files WHERE workspace = ?1 AND id = ?2", key)? == 1)
    }
}

impl Reader<'_> {
    pub fn file(&self, workspace: WorkspaceId, id: FileId) -> Result<Option<File>, StoreError> {
        let sql = "SELECT body FROM files WHERE workspace = ?1 AND id = ?2";
        self.one(sql, (workspace.uuid(), id.uuid()), |row| from_body("file", row, "body"))
    }

    /// The newest one, if an execution has several of a name.
    pub fn file_of_execution(
        &self,
        workspace: WorkspaceId,
        execution: ExecutionId,
        name: &str,
    ) -> Result<Option<File>, StoreError> {
        self.one(
            "SELECT body FROM files WHERE workspace = ?1 AND execution_id = ?2 AND name = ?3 \
             ORDER BY id DESC LIMIT 1",
            (workspace.uuid(), execution.uuid(), name),
            |row| from_body("file", row, "body"),
        )
    }

    /// By name.
    pub fn files_of_execution(
        &self,
        workspace: WorkspaceId,
        execution: ExecutionId,
    ) -> Result<Vec<File>, StoreError> {
        self.many(
            "SELECT body FROM files WHERE workspace = ?1 AND execution_id = ?2 ORDER BY name, id",
            (workspace.uuid(), execution.uuid()),
            |row| from_body("file", row, "body"),
        )
    }

    /// What was uploaded or fetched, and not what code made.
    pub fn documents(
        &self,
        workspace: WorkspaceId,
        owner: Option<PrincipalId>,
        page: Page,
    ) -> Result<Listed<File>, StoreError> {
        self.list(
            page,
            "SELECT id, body FROM files WHERE workspace = ?3 AND id < ?1 AND source <> 'code' \
             AND (?4 IS NULL OR owner = ?4) ORDER BY id DESC LIMIT ?2",
            &[&workspace.uuid(), &owner.map(PrincipalId::uuid)],
            |row| from_body("file", row, "body"),
        )
    }

    /// What counts against the quota of a workspace: all its files together, and its open questions.
    pub fn file_bytes(&self, workspace: WorkspaceId) -> Result<u64, StoreError> {
        let sql = "SELECT file_bytes + question_bytes AS file_bytes FROM workspaces WHERE id = ?1";
        let bytes = self.one(sql, [workspace.uuid()], |row| Ok(row.get("file_bytes")?))?;
        Ok(bytes.unwrap_or(0))
    }

    /// Of all workspaces, to find bytes that no row speaks of.
    pub(crate) fn file_ids(&self) -> Result<HashSet<FileId>, StoreError> {
        let ids = self.many("SELECT id FROM files", [], |row| Ok(FileId::new(row.get("id")?)))?;
        Ok(ids.into_iter().collect())
    }
}
