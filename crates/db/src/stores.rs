//! Directories that outlive sessions: their names, owners and quotas. Their bytes are elsewhere.

use crate::columns::to_json;
use crate::named_objects::NamedTable;
use crate::{DatabaseError, ObjectFilter, PageRequest, Reader, RowPage, Tx};
use types::{Store, StoreId, WorkspaceId};

const STORES: NamedTable = NamedTable { table: "stores", grant_kind: "store", noun: "store" };

impl Tx<'_> {
    pub fn insert_store(&self, workspace: WorkspaceId, store: &Store) -> Result<(), DatabaseError> {
        self.execute(
            "INSERT INTO stores (workspace, id, name, owner, quota_bytes, body) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            (
                workspace.uuid(),
                store.id.uuid(),
                &store.name,
                store.owner.uuid(),
                store.quota_bytes,
                to_json("store", store)?,
            ),
        )
        .map_err(|error| error.or_name_taken("store", &store.name))?;
        Ok(())
    }

    /// False if there is none.
    pub fn update_store(
        &self,
        workspace: WorkspaceId,
        store: &Store,
    ) -> Result<bool, DatabaseError> {
        let changed = self
            .execute(
                "UPDATE stores SET name = ?3, owner = ?4, quota_bytes = ?5, body = ?6 \
                 WHERE workspace = ?1 AND id = ?2",
                (
                    workspace.uuid(),
                    store.id.uuid(),
                    &store.name,
                    store.owner.uuid(),
                    store.quota_bytes,
                    to_json("store", store)?,
                ),
            )
            .map_err(|error| error.or_name_taken("store", &store.name))?;
        Ok(changed == 1)
    }

    pub fn delete_store(&self, workspace: WorkspaceId, id: StoreId) -> Result<bool, DatabaseError> {
        self.delete_named(STORES, workspace, id.uuid())
    }
}

impl Reader<'_> {
    pub fn store(
        &self,
        workspace: WorkspaceId,
        id: StoreId,
    ) -> Result<Option<Store>, DatabaseError> {
        self.find_by_id(STORES, workspace, id.uuid())
    }

    pub fn store_by_name(
        &self,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<Option<Store>, DatabaseError> {
        self.find_by_name(STORES, workspace, name)
    }

    /// How many stores a workspace has, and their quotas together.
    pub fn store_totals(&self, workspace: WorkspaceId) -> Result<(u64, u64), DatabaseError> {
        let sql = "SELECT count(*), coalesce(sum(quota_bytes), 0) FROM stores WHERE workspace = ?1";
        let totals =
            self.query_one(sql, [workspace.uuid()], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(totals.unwrap_or_default())
    }

    /// Of all workspaces, to find directories that no row speaks of.
    pub fn store_ids(&self) -> Result<Vec<StoreId>, DatabaseError> {
        self.query_many("SELECT id FROM stores", [], |row| Ok(StoreId::new(row.get(0)?)))
    }

    /// A search is in their names.
    pub fn stores(
        &self,
        workspace: WorkspaceId,
        filter: &ObjectFilter,
        page: PageRequest,
    ) -> Result<RowPage<Store>, DatabaseError> {
        self.list_named(STORES, workspace, filter, page)
    }
}
