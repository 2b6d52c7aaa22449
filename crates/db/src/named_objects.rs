//! Objects with a name that is unique in their workspace: the statements that the tables of all
//! kinds share.
//!
//! A row is `workspace, id, name, owner, body`. Statements for further columns are in the module of
//! the kind. Table names are constants of this crate; no text of a request becomes part of a
//! statement.

use crate::columns::{from_json_column, to_json};
use crate::{DatabaseError, ObjectFilter, PageRequest, Reader, RowPage, Tx};
use serde::Serialize;
use serde::de::DeserializeOwned;
use types::{PrincipalId, WorkspaceId};
use uuid::Uuid;

/// A kind of object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamedTable {
    pub(crate) table: &'static str,
    /// The name of the kind in grants.
    pub(crate) grant_kind: &'static str,
    /// The name of the kind in messages.
    pub(crate) noun: &'static str,
}

/// The columns of an object besides its workspace and its body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamedRow<'a> {
    pub(crate) id: Uuid,
    pub(crate) name: &'a str,
    pub(crate) owner: PrincipalId,
}

impl Tx<'_> {
    pub(crate) fn insert_named<T: Serialize>(
        &self,
        kind: NamedTable,
        workspace: WorkspaceId,
        NamedRow { id, name, owner }: NamedRow<'_>,
        object: &T,
    ) -> Result<(), DatabaseError> {
        let NamedTable { table, noun, .. } = kind;
        let sql = format!(
            "INSERT INTO {table} (workspace, id, name, owner, body) VALUES (?1, ?2, ?3, ?4, ?5)"
        );
        let row = (workspace.uuid(), id, name, owner.uuid(), to_json(noun, object)?);
        self.execute(&sql, row).map_err(|error| error.or_name_taken(noun, name)).map(drop)
    }

    /// False if there is no such object. The name does not change.
    pub(crate) fn update_named<T: Serialize>(
        &self,
        kind: NamedTable,
        workspace: WorkspaceId,
        NamedRow { id, owner, .. }: NamedRow<'_>,
        object: &T,
    ) -> Result<bool, DatabaseError> {
        let NamedTable { table, noun, .. } = kind;
        let sql =
            format!("UPDATE {table} SET owner = ?3, body = ?4 WHERE workspace = ?1 AND id = ?2");
        Ok(self.execute(&sql, (workspace.uuid(), id, owner.uuid(), to_json(noun, object)?))? == 1)
    }

    /// False if there is no such object.
    pub(crate) fn delete_named(
        &self,
        kind: NamedTable,
        workspace: WorkspaceId,
        id: Uuid,
    ) -> Result<bool, DatabaseError> {
        let sql = format!("DELETE FROM {} WHERE workspace = ?1 AND id = ?2", kind.table);
        Ok(self.execute(&sql, (workspace.uuid(), id))? == 1)
    }
}

impl Reader<'_> {
    pub(crate) fn find_by_id<T: DeserializeOwned>(
        &self,
        kind: NamedTable,
        workspace: WorkspaceId,
        id: Uuid,
    ) -> Result<Option<T>, DatabaseError> {
        let sql = format!("SELECT body FROM {} WHERE workspace = ?1 AND id = ?2", kind.table);
        self.query_one(&sql, (workspace.uuid(), id), |row| from_json_column(kind.noun, row, "body"))
    }

    pub(crate) fn find_by_name<T: DeserializeOwned>(
        &self,
        kind: NamedTable,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<Option<T>, DatabaseError> {
        let sql = format!("SELECT body FROM {} WHERE workspace = ?1 AND name = ?2", kind.table);
        self.query_one(&sql, (workspace.uuid(), name), |row| {
            from_json_column(kind.noun, row, "body")
        })
    }

    pub(crate) fn count_named(
        &self,
        kind: NamedTable,
        workspace: WorkspaceId,
    ) -> Result<u64, DatabaseError> {
        let sql = format!("SELECT count(*) FROM {} WHERE workspace = ?1", kind.table);
        Ok(self.query_one(&sql, [workspace.uuid()], |row| Ok(row.get(0)?))?.unwrap_or_default())
    }

    /// Newest first; `search` looks in the names.
    pub(crate) fn list_named<T: DeserializeOwned>(
        &self,
        kind: NamedTable,
        workspace: WorkspaceId,
        filter: &ObjectFilter,
        page: PageRequest,
    ) -> Result<RowPage<T>, DatabaseError> {
        let NamedTable { table, grant_kind, noun } = kind;
        let sql = format!(
            "SELECT id, body FROM {table} WHERE workspace = ?3 AND id < ?1 \
             AND (?4 IS NULL OR instr(lower(name), lower(?4)) > 0) \
             AND (?5 IS NULL OR EXISTS (SELECT 1 FROM grants \
                  WHERE grants.workspace = {table}.workspace AND object_kind = '{grant_kind}' \
                  AND object_id = {table}.id AND privilege <> 'INSTALL' \
                  AND principal IN (SELECT unhex(value) FROM json_each(?5)))) \
             ORDER BY id DESC LIMIT ?2"
        );
        let filters: [&dyn rusqlite::ToSql; 3] =
            [&workspace.uuid(), &filter.search, &filter.viewers_json()];
        self.query_page(page, &sql, &filters, |row| from_json_column(noun, row, "body"))
    }
}
