//! Volumes: their names, owners and quotas. Their files are in `volumes/all/`.

use crate::columns::to_json;
use crate::named_objects::NamedTable;
use crate::{DatabaseError, ObjectFilter, PageRequest, Reader, RowPage, Tx};
use types::{Volume, VolumeId, WorkspaceId};

const VOLUMES: NamedTable = NamedTable { table: "volumes", grant_kind: "volume", noun: "volume" };

impl Tx<'_> {
    pub fn insert_volume(
        &self,
        workspace: WorkspaceId,
        volume: &Volume,
    ) -> Result<(), DatabaseError> {
        self.execute(
            "INSERT INTO volumes (workspace, id, name, owner, quota_bytes, body) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            (
                workspace.uuid(),
                volume.id.uuid(),
                &volume.name,
                volume.owner.uuid(),
                volume.quota_bytes,
                to_json("volume", volume)?,
            ),
        )
        .map_err(|error| error.or_name_taken("volume", &volume.name))?;
        Ok(())
    }

    /// False if there is no such volume.
    pub fn update_volume(
        &self,
        workspace: WorkspaceId,
        volume: &Volume,
    ) -> Result<bool, DatabaseError> {
        let changed = self
            .execute(
                "UPDATE volumes SET name = ?3, owner = ?4, quota_bytes = ?5, body = ?6 \
                 WHERE workspace = ?1 AND id = ?2",
                (
                    workspace.uuid(),
                    volume.id.uuid(),
                    &volume.name,
                    volume.owner.uuid(),
                    volume.quota_bytes,
                    to_json("volume", volume)?,
                ),
            )
            .map_err(|error| error.or_name_taken("volume", &volume.name))?;
        Ok(changed == 1)
    }

    pub fn delete_volume(
        &self,
        workspace: WorkspaceId,
        id: VolumeId,
    ) -> Result<bool, DatabaseError> {
        self.delete_named(VOLUMES, workspace, id.uuid())
    }
}

impl Reader<'_> {
    pub fn volume(
        &self,
        workspace: WorkspaceId,
        id: VolumeId,
    ) -> Result<Option<Volume>, DatabaseError> {
        self.find_by_id(VOLUMES, workspace, id.uuid())
    }

    pub fn volume_by_name(
        &self,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<Option<Volume>, DatabaseError> {
        self.find_by_name(VOLUMES, workspace, name)
    }

    /// The number of volumes of a workspace, and the sum of their quotas.
    pub fn volume_totals(&self, workspace: WorkspaceId) -> Result<(u64, u64), DatabaseError> {
        let sql =
            "SELECT count(*), coalesce(sum(quota_bytes), 0) FROM volumes WHERE workspace = ?1";
        let totals =
            self.query_one(sql, [workspace.uuid()], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(totals.unwrap_or_default())
    }

    /// The volumes of all workspaces, to find directories without a row.
    pub fn volume_ids(&self) -> Result<Vec<VolumeId>, DatabaseError> {
        self.query_many("SELECT id FROM volumes", [], |row| Ok(VolumeId::new(row.get(0)?)))
    }

    /// Lists volumes; `search` looks in their names.
    pub fn volumes(
        &self,
        workspace: WorkspaceId,
        filter: &ObjectFilter,
        page: PageRequest,
    ) -> Result<RowPage<Volume>, DatabaseError> {
        self.list_named(VOLUMES, workspace, filter, page)
    }
}
