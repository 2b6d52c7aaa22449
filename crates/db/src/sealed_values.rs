//! Values encrypted by the vault, each with the context that it is encrypted for.

use crate::{DatabaseError, Reader, Tx};
use rusqlite::Row;
use std::collections::BTreeSet;
use types::{SealContext, SealedValue, SealingKeyId, WorkspaceId};
use uuid::Uuid;

impl Tx<'_> {
    /// Stores a value. It replaces an earlier one with the same holder and name.
    pub fn upsert_sealed_value(
        &self,
        context: &SealContext,
        sealed: &SealedValue,
    ) -> Result<(), DatabaseError> {
        self.execute(
            "INSERT INTO sealed (workspace, holder, name, version, place, sealing_key, bytes) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) \
             ON CONFLICT (workspace, holder, name) DO UPDATE SET version = excluded.version, \
             place = excluded.place, sealing_key = excluded.sealing_key, bytes = excluded.bytes",
            (
                context.workspace.uuid(),
                context.holder,
                &context.name,
                context.version,
                &context.destination,
                sealed.key,
                &sealed.bytes,
            ),
        )?;
        Ok(())
    }

    pub fn delete_sealed_value(
        &self,
        workspace: WorkspaceId,
        holder: Uuid,
        name: &str,
    ) -> Result<(), DatabaseError> {
        let sql = "DELETE FROM sealed WHERE workspace = ?1 AND holder = ?2 AND name = ?3";
        self.execute(sql, (workspace.uuid(), holder, name)).map(drop)
    }

    /// Deletes all values of one holder.
    pub fn delete_sealed_values(
        &self,
        workspace: WorkspaceId,
        holder: Uuid,
    ) -> Result<(), DatabaseError> {
        let sql = "DELETE FROM sealed WHERE workspace = ?1 AND holder = ?2";
        self.execute(sql, (workspace.uuid(), holder)).map(drop)
    }
}

impl Reader<'_> {
    /// All values of one holder, by name.
    pub fn sealed_values(
        &self,
        workspace: WorkspaceId,
        holder: Uuid,
    ) -> Result<Vec<(SealContext, SealedValue)>, DatabaseError> {
        let sql = "SELECT * FROM sealed WHERE workspace = ?1 AND holder = ?2 ORDER BY name";
        self.query_many(sql, (workspace.uuid(), holder), sealed_value_from_row)
    }

    /// The holders of values in all workspaces, for a key rotation.
    pub fn sealed_holders(&self) -> Result<Vec<(WorkspaceId, Uuid)>, DatabaseError> {
        let sql = "SELECT DISTINCT workspace, holder FROM sealed";
        self.query_many(sql, [], |row| Ok((WorkspaceId::new(row.get(0)?), row.get(1)?)))
    }

    /// The keys that some value is encrypted with.
    pub fn sealing_keys(&self) -> Result<BTreeSet<SealingKeyId>, DatabaseError> {
        let keys =
            self.query_many("SELECT DISTINCT sealing_key FROM sealed", [], |row| Ok(row.get(0)?))?;
        Ok(keys.into_iter().collect())
    }
}

fn sealed_value_from_row(row: &Row<'_>) -> Result<(SealContext, SealedValue), DatabaseError> {
    let context = SealContext {
        workspace: WorkspaceId::new(row.get("workspace")?),
        holder: row.get("holder")?,
        name: row.get("name")?,
        version: row.get("version")?,
        destination: row.get("place")?,
    };
    Ok((context, SealedValue { key: row.get("sealing_key")?, bytes: row.get("bytes")? }))
}
