//! Values that only the vault can read, each beside the label that it was sealed for.

use crate::{Reader, StoreError, Tx};
use rusqlite::Row;
use std::collections::BTreeSet;
use types::{Label, Sealed, SealingKeyId, WorkspaceId};
use uuid::Uuid;

impl Tx<'_> {
    /// In the place of the one before.
    pub fn put_sealed(&self, label: &Label, sealed: &Sealed) -> Result<(), StoreError> {
        self.change(
            "INSERT INTO sealed (workspace, holder, name, version, place, sealing_key, bytes) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) \
             ON CONFLICT (workspace, holder, name) DO UPDATE SET version = excluded.version, \
             place = excluded.place, sealing_key = excluded.sealing_key, bytes = excluded.bytes",
            (
                label.workspace.uuid(),
                label.holder,
                &label.name,
                label.version,
                &label.place,
                sealed.key,
                &sealed.bytes,
            ),
        )?;
        Ok(())
    }

    pub fn delete_sealed_named(
        &self,
        workspace: WorkspaceId,
        holder: Uuid,
        name: &str,
    ) -> Result<(), StoreError> {
        let sql = "DELETE FROM sealed WHERE workspace = ?1 AND holder = ?2 AND name = ?3";
        self.change(sql, (workspace.uuid(), holder, name)).map(drop)
    }

    /// All of one holder.
    pub fn delete_sealed(&self, workspace: WorkspaceId, holder: Uuid) -> Result<(), StoreError> {
        let sql = "DELETE FROM sealed WHERE workspace = ?1 AND holder = ?2";
        self.change(sql, (workspace.uuid(), holder)).map(drop)
    }
}

impl Reader<'_> {
    /// All of one holder, by name.
    pub fn sealed(
        &self,
        workspace: WorkspaceId,
        holder: Uuid,
    ) -> Result<Vec<(Label, Sealed)>, StoreError> {
        let sql = "SELECT * FROM sealed WHERE workspace = ?1 AND holder = ?2 ORDER BY name";
        self.many(sql, (workspace.uuid(), holder), sealed)
    }

    /// Of all workspaces, for a new key.
    pub fn sealed_holders(&self) -> Result<Vec<(WorkspaceId, Uuid)>, StoreError> {
        let sql = "SELECT DISTINCT workspace, holder FROM sealed";
        self.many(sql, [], |row| Ok((WorkspaceId::new(row.get(0)?), row.get(1)?)))
    }

    /// The keys without which something could not be read.
    pub fn sealing_keys(&self) -> Result<BTreeSet<SealingKeyId>, StoreError> {
        let keys =
            self.many("SELECT DISTINCT sealing_key FROM sealed", [], |row| Ok(row.get(0)?))?;
        Ok(keys.into_iter().collect())
    }
}

fn sealed(row: &Row<'_>) -> Result<(Label, Sealed), StoreError> {
    let label = Label {
        workspace: WorkspaceId::new(row.get("workspace")?),
        holder: row.get("holder")?,
        name: row.get("name")?,
        version: row.get("version")?,
        place: row.get("place")?,
    };
    Ok((label, Sealed { key: row.get("sealing_key")?, bytes: row.get("bytes")? }))
}
