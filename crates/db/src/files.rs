//! Metadata of files. Their bytes are in `blobs`.
//!
//! The bytes are stored before the row and removed after it, so that no row is without bytes.

use crate::columns::{from_json_column, to_json, to_nanos, variant_name};
use crate::{DatabaseError, PageRequest, Reader, RowPage, Tx};
use std::collections::HashSet;
use types::{ExecutionId, File, FileId, PrincipalId, WorkspaceId};

impl Tx<'_> {
    /// Inserts the row of a file whose bytes are stored.
    pub fn insert_file(&self, workspace: WorkspaceId, file: &File) -> Result<(), DatabaseError> {
        self.execute(
            "INSERT INTO files \
             (workspace, id, owner, execution_id, name, source, size, expires_at, body) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            (
                workspace.uuid(),
                file.id.uuid(),
                file.owner.uuid(),
                file.execution_id.map(ExecutionId::uuid),
                &file.name,
                variant_name("file", &file.source)?,
                file.size,
                file.expires_at.map(to_nanos),
                to_json("file", file)?,
            ),
        )?;
        Ok(())
    }

    /// Fails with `QuotaExceeded` if the workspace would then have more than `most` bytes. No other
    /// writer comes between the check and the change.
    pub fn insert_files(
        &self,
        workspace: WorkspaceId,
        files: &[File],
        most: u64,
    ) -> Result<(), DatabaseError> {
        let free_bytes = most.saturating_sub(self.file_bytes(workspace)?);
        if files.iter().map(|file| file.size).sum::<u64>() > free_bytes {
            return Err(DatabaseError::QuotaExceeded { most });
        }
        files.iter().try_for_each(|file| self.insert_file(workspace, file))
    }

    /// Deletes the row of a file. Remove its bytes only after the commit.
    pub fn delete_file(&self, workspace: WorkspaceId, id: FileId) -> Result<bool, DatabaseError> {
        let key = (workspace.uuid(), id.uuid());
        Ok(self.execute("DELETE FROM files WHERE workspace = ?1 AND id = ?2", key)? == 1)
    }
}

impl Reader<'_> {
    pub fn file(&self, workspace: WorkspaceId, id: FileId) -> Result<Option<File>, DatabaseError> {
        let sql = "SELECT body FROM files WHERE workspace = ?1 AND id = ?2";
        self.query_one(sql, (workspace.uuid(), id.uuid()), |row| {
            from_json_column("file", row, "body")
        })
    }

    /// The file with this name; the newest one if the execution has several.
    pub fn file_of_execution(
        &self,
        workspace: WorkspaceId,
        execution: ExecutionId,
        name: &str,
    ) -> Result<Option<File>, DatabaseError> {
        self.query_one(
            "SELECT body FROM files WHERE workspace = ?1 AND execution_id = ?2 AND name = ?3 \
             ORDER BY id DESC LIMIT 1",
            (workspace.uuid(), execution.uuid(), name),
            |row| from_json_column("file", row, "body"),
        )
    }

    /// The files of an execution, ordered by name.
    pub fn files_of_execution(
        &self,
        workspace: WorkspaceId,
        execution: ExecutionId,
    ) -> Result<Vec<File>, DatabaseError> {
        self.query_many(
            "SELECT body FROM files WHERE workspace = ?1 AND execution_id = ?2 ORDER BY name, id",
            (workspace.uuid(), execution.uuid()),
            |row| from_json_column("file", row, "body"),
        )
    }

    /// Uploaded and fetched documents, without the output of code.
    pub fn documents(
        &self,
        workspace: WorkspaceId,
        owner: Option<PrincipalId>,
        page: PageRequest,
    ) -> Result<RowPage<File>, DatabaseError> {
        self.query_page(
            page,
            "SELECT id, body FROM files WHERE workspace = ?3 AND id < ?1 AND source <> 'code' \
             AND (?4 IS NULL OR owner = ?4) ORDER BY id DESC LIMIT ?2",
            &[&workspace.uuid(), &owner.map(PrincipalId::uuid)],
            |row| from_json_column("file", row, "body"),
        )
    }

    /// The bytes that count against the quota of a workspace: its files and its pending approvals.
    pub fn file_bytes(&self, workspace: WorkspaceId) -> Result<u64, DatabaseError> {
        let sql = "SELECT file_bytes + question_bytes AS file_bytes FROM workspaces WHERE id = ?1";
        let bytes = self.query_one(sql, [workspace.uuid()], |row| Ok(row.get("file_bytes")?))?;
        Ok(bytes.unwrap_or(0))
    }

    /// The files of all workspaces, to find bytes without a row.
    pub(crate) fn file_ids(&self) -> Result<HashSet<FileId>, DatabaseError> {
        let ids =
            self.query_many("SELECT id FROM files", [], |row| Ok(FileId::new(row.get("id")?)))?;
        Ok(ids.into_iter().collect())
    }
}
