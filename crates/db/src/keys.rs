//! API keys: their hashes, never their secrets.

use crate::columns::{from_json_column, to_json, to_nanos};
use crate::{DatabaseError, PageRequest, Reader, RowPage, Tx};
use chrono::{DateTime, Utc};
use types::{ApiKey, KeyId, Principal, PrincipalId, WorkspaceId};

/// The data that decides on a request with a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKeyRow {
    pub workspace: WorkspaceId,
    pub key: ApiKey,
    pub hash: [u8; 32],
    pub principal: Principal,
}

impl Tx<'_> {
    pub fn insert_key(
        &self,
        workspace: WorkspaceId,
        key: &ApiKey,
        hash: &[u8; 32],
    ) -> Result<(), DatabaseError> {
        self.execute(
            "INSERT INTO keys (id, workspace, principal, hash, body, ended_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            (
                key.id.uuid(),
                workspace.uuid(),
                key.principal.uuid(),
                hash,
                to_json("key", key)?,
                key.revoked_at.or(key.expires_at).map(to_nanos),
            ),
        )?;
        Ok(())
    }

    /// Revokes a key and the keys that its principal created with it, directly or indirectly,
    /// except `spared` and the keys created with that. Returns the keys that were active until now.
    pub fn revoke_key(
        &self,
        workspace: WorkspaceId,
        id: KeyId,
        spared: Option<KeyId>,
        at: DateTime<Utc>,
    ) -> Result<Vec<ApiKey>, DatabaseError> {
        let Some(mut key) = self.key(workspace, id)?.filter(|key| key.revoked_at.is_none()) else {
            return Ok(Vec::new());
        };
        key.revoked_at = Some(at);
        self.execute(
            "UPDATE keys SET body = ?3, ended_at = ?4 WHERE workspace = ?1 AND id = ?2",
            (workspace.uuid(), id.uuid(), to_json("key", &key)?, to_nanos(at)),
        )?;
        let made = self.keys_created_with(workspace, &key)?;
        let mut revoked = vec![key];
        for id in made.into_iter().filter(|id| Some(*id) != spared) {
            revoked.append(&mut self.revoke_key(workspace, id, spared, at)?);
        }
        Ok(revoked)
    }
}

impl Reader<'_> {
    /// The only look-up across workspaces: the key determines the workspace of a request.
    pub fn find_key(&self, id: KeyId) -> Result<Option<ApiKeyRow>, DatabaseError> {
        self.query_one(
            "SELECT k.workspace, k.hash, k.body AS key, p.body AS principal FROM keys k \
             JOIN principals p ON p.workspace = k.workspace AND p.id = k.principal \
             WHERE k.id = ?1",
            [id.uuid()],
            |row| {
                Ok(ApiKeyRow {
                    workspace: WorkspaceId::new(row.get("workspace")?),
                    hash: row.get("hash")?,
                    key: from_json_column("key", row, "key")?,
                    principal: from_json_column("principal", row, "principal")?,
                })
            },
        )
    }

    pub fn key(&self, workspace: WorkspaceId, id: KeyId) -> Result<Option<ApiKey>, DatabaseError> {
        let sql = "SELECT body FROM keys WHERE workspace = ?1 AND id = ?2";
        self.query_one(sql, (workspace.uuid(), id.uuid()), |row| {
            from_json_column("key", row, "body")
        })
    }

    /// The keys that the principal of a key has created with it, and that are not revoked.
    pub fn keys_created_with(
        &self,
        workspace: WorkspaceId,
        key: &ApiKey,
    ) -> Result<Vec<KeyId>, DatabaseError> {
        self.query_many(
            "SELECT id FROM keys WHERE workspace = ?1 AND principal = ?2 \
             AND json_extract(body, '$.created_with') = ?3 \
             AND json_extract(body, '$.revoked_at') IS NULL",
            (workspace.uuid(), key.principal.uuid(), key.id.to_string()),
            |row| Ok(KeyId::new(row.get("id")?)),
        )
    }

    /// The number of keys of a principal that are not revoked.
    pub fn count_active_keys(
        &self,
        workspace: WorkspaceId,
        principal: PrincipalId,
    ) -> Result<u64, DatabaseError> {
        let count = self.query_one(
            "SELECT count(*) FROM keys WHERE workspace = ?1 AND principal = ?2 \
             AND json_extract(body, '$.revoked_at') IS NULL",
            (workspace.uuid(), principal.uuid()),
            |row| Ok(row.get(0)?),
        )?;
        Ok(count.unwrap_or_default())
    }

    pub fn keys(
        &self,
        workspace: WorkspaceId,
        principal: Option<PrincipalId>,
        page: PageRequest,
    ) -> Result<RowPage<ApiKey>, DatabaseError> {
        self.query_page(
            page,
            "SELECT id, body FROM keys WHERE workspace = ?3 AND id < ?1 \
             AND (?4 IS NULL OR principal = ?4) ORDER BY id DESC LIMIT ?2",
            &[&workspace.uuid(), &principal.map(PrincipalId::uuid)],
            |row| from_json_column("key", row, "body"),
        )
    }
}
