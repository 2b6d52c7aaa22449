//! Secrets: their metadata. Their values are in `sealed_values`.

use crate::columns::{from_json_column, to_json};
use crate::named_objects::{NamedRow, NamedTable};
use crate::{DatabaseError, ObjectFilter, PageRequest, Reader, RowPage, Tx};
use types::{PrincipalId, Secret, SecretId, SecretScope, WorkspaceId};

const SECRETS: NamedTable = NamedTable { table: "secrets", grant_kind: "secret", noun: "secret" };

impl Tx<'_> {
    pub fn insert_secret(
        &self,
        workspace: WorkspaceId,
        secret: &Secret,
    ) -> Result<(), DatabaseError> {
        self.execute(
            "INSERT INTO secrets (workspace, id, name, owner, whose, body) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            (
                workspace.uuid(),
                secret.id.uuid(),
                &secret.name,
                secret.owner.uuid(),
                private_owner(secret),
                to_json("secret", secret)?,
            ),
        )
        .map_err(|error| error.or_name_taken("secret", &secret.name))?;
        Ok(())
    }

    /// False if there is no such secret. Its name and its scope do not change.
    pub fn update_secret(
        &self,
        workspace: WorkspaceId,
        secret: &Secret,
    ) -> Result<bool, DatabaseError> {
        let row = NamedRow { id: secret.id.uuid(), name: &secret.name, owner: secret.owner };
        self.update_named(SECRETS, workspace, row, secret)
    }

    /// Deletes a secret and its value.
    pub fn delete_secret(
        &self,
        workspace: WorkspaceId,
        id: SecretId,
    ) -> Result<bool, DatabaseError> {
        self.delete_sealed_values(workspace, id.uuid())?;
        self.delete_named(SECRETS, workspace, id.uuid())
    }
}

impl Reader<'_> {
    pub fn secret(
        &self,
        workspace: WorkspaceId,
        id: SecretId,
    ) -> Result<Option<Secret>, DatabaseError> {
        self.find_by_id(SECRETS, workspace, id.uuid())
    }

    /// The number of secrets of a workspace, of all owners.
    pub fn count_secrets(&self, workspace: WorkspaceId) -> Result<u64, DatabaseError> {
        self.count_named(SECRETS, workspace)
    }

    /// The personal secrets of one principal, oldest first.
    pub fn private_secrets(
        &self,
        workspace: WorkspaceId,
        owner: PrincipalId,
    ) -> Result<Vec<Secret>, DatabaseError> {
        let sql = "SELECT body FROM secrets WHERE workspace = ?1 AND whose = ?2 ORDER BY id";
        let key = (workspace.uuid(), owner.uuid());
        self.query_many(sql, key, |row| from_json_column("secret", row, "body"))
    }

    /// Whether the workspace has a shared (not personal) secret of this name.
    pub fn is_workspace_secret(
        &self,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<bool, DatabaseError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM secrets \
                   WHERE workspace = ?1 AND whose = x'' AND name = ?2)";
        let key = (workspace.uuid(), name);
        Ok(self.query_one(sql, key, |row| Ok(row.get(0)?))?.unwrap_or_default())
    }

    /// The shared secrets that the caller may see, oldest first.
    pub fn workspace_secrets(
        &self,
        workspace: WorkspaceId,
        filter: &ObjectFilter,
    ) -> Result<Vec<Secret>, DatabaseError> {
        let sql = "SELECT body FROM secrets WHERE workspace = ?1 AND whose = x'' \
                   AND (?2 IS NULL OR EXISTS (SELECT 1 FROM grants \
                        WHERE grants.workspace = secrets.workspace AND object_kind = 'secret' \
                        AND object_id = secrets.id \
                        AND principal IN (SELECT unhex(value) FROM json_each(?2)))) ORDER BY id";
        let key = (workspace.uuid(), filter.viewers_json());
        self.query_many(sql, key, |row| from_json_column("secret", row, "body"))
    }

    /// Lists secrets; `search` looks in their names.
    pub fn secrets(
        &self,
        workspace: WorkspaceId,
        filter: &ObjectFilter,
        page: PageRequest,
    ) -> Result<RowPage<Secret>, DatabaseError> {
        self.list_named(SECRETS, workspace, filter, page)
    }
}

fn private_owner(secret: &Secret) -> Vec<u8> {
    match secret.scope {
        SecretScope::Workspace => Vec::new(),
        SecretScope::Caller => secret.owner.uuid().as_bytes().to_vec(),
    }
}
