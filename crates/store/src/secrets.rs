//! Secrets: what is known about them.

use crate::column::{body, from_body};
use crate::named::{Kind, Tag};
use crate::{Listed, ObjectFilter, Page, Reader, StoreError, Tx};
use types::{PrincipalId, Secret, SecretId, SecretScope, WorkspaceId};

const SECRETS: Kind = Kind { table: "secrets", granted: "secret", word: "secret" };

impl Tx<'_> {
    pub fn insert_secret(&self, workspace: WorkspaceId, secret: &Secret) -> Result<(), StoreError> {
        self.change(
            "INSERT INTO secrets (workspace, id, name, owner, whose, body) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            (
                workspace.uuid(),
                secret.id.uuid(),
                &secret.name,
                secret.owner.uuid(),
                whose(secret),
                body("secret", secret)?,
            ),
        )
        .map_err(|error| error.or_name_taken("secret", &secret.name))?;
        Ok(())
    }

    /// False if there is none. Its name and its scope stay as they are.
    pub fn update_secret(
        &self,
        workspace: WorkspaceId,
        secret: &Secret,
    ) -> Result<bool, StoreError> {
        let tag = Tag { id: secret.id.uuid(), name: &secret.name, owner: secret.owner };
        self.update_named(SECRETS, workspace, tag, secret)
    }

    /// With its value.
    pub fn delete_secret(&self, workspace: WorkspaceId, id: SecretId) -> Result<bool, StoreError> {
        self.delete_sealed(workspace, id.uuid())?;
        self.delete_named(SECRETS, workspace, id.uuid())
    }
}

impl Reader<'_> {
    pub fn secret(
        &self,
        workspace: WorkspaceId,
        id: SecretId,
    ) -> Result<Option<Secret>, StoreError> {
        self.with_id(SECRETS, workspace, id.uuid())
    }

    /// How many a workspace has, of whomever.
    pub fn secret_count(&self, workspace: WorkspaceId) -> Result<u64, StoreError> {
        self.count_of(SECRETS, workspace)
    }

    /// Those that nobody but one uses, in the order in which they were made.
    pub fn secrets_of_one(
        &self,
        workspace: WorkspaceId,
        whose: PrincipalId,
    ) -> Result<Vec<Secret>, StoreError> {
        let sql = "SELECT body FROM secrets WHERE workspace = ?1 AND whose = ?2 ORDER BY id";
        let key = (workspace.uuid(), whose.uuid());
        self.many(sql, key, |row| from_body("secret", row, "body"))
    }

    /// Whether the workspace has a secret of this name that is nobody's own.
    pub fn is_workspace_secret(
        &self,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<bool, StoreError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM secrets \
                   WHERE workspace = ?1 AND whose = x'' AND name = ?2)";
        let key = (workspace.uuid(), name);
        Ok(self.one(sql, key, |row| Ok(row.get(0)?))?.unwrap_or_default())
    }

    /// Those of the workspace that are seen, in the order in which they were made.
    pub fn secrets_of_all(
        &self,
        workspace: WorkspaceId,
        filter: &ObjectFilter,
    ) -> Result<Vec<Secret>, StoreError> {
        let sql = "SELECT body FROM secrets WHERE workspace = ?1 AND whose = x'' \
                   AND (?2 IS NULL OR EXISTS (SELECT 1 FROM grants \
                        WHERE grants.workspace = secrets.workspace AND object_kind = 'secret' \
                        AND object_id = secrets.id \
                        AND principal IN (SELECT unhex(value) FROM json_each(?2)))) ORDER BY id";
        let key = (workspace.uuid(), filter.viewers());
        self.many(sql, key, |row| from_body("secret", row, "body"))
    }

    /// A search is in their names.
    pub fn secrets(
        &self,
        workspace: WorkspaceId,
        filter: &ObjectFilter,
        page: Page,
    ) -> Result<Listed<Secret>, StoreError> {
        self.list_of(SECRETS, workspace, filter, page)
    }
}

fn whose(secret: &Secret) -> Vec<u8> {
    match secret.scope {
        SecretScope::Workspace => Vec::new(),
        SecretScope::Caller => secret.owner.uuid().as_bytes().to_vec(),
    }
}
