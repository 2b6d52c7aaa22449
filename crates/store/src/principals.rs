//! Workspaces, and who is in them.

use crate::column::{at, body, from_body, moment, variant, word};
use crate::{Listed, Page, Reader, StoreError, Tx};
use rusqlite::Row;
use types::{Permission, Principal, PrincipalId, Workspace, WorkspaceId};

/// How many things a principal owns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Owned {
    pub tools: u64,
    pub agents: u64,
    pub stores: u64,
    /// Of the workspace; those of their own go with them.
    pub secrets: u64,
    pub functions: u64,
    pub network_rules: u64,
    pub integrations: u64,
    pub documents: u64,
}

impl Tx<'_> {
    pub fn insert_workspace(&self, workspace: &Workspace) -> Result<(), StoreError> {
        self.change(
            "INSERT INTO workspaces (id, name, created_at) VALUES (?1, ?2, ?3)",
            (workspace.id.uuid(), &workspace.name, moment(workspace.created_at)),
        )
        .map_err(|error| error.or_name_taken("workspace", &workspace.name))?;
        Ok(())
    }

    pub fn insert_principal(
        &self,
        workspace: WorkspaceId,
        principal: &Principal,
    ) -> Result<(), StoreError> {
        self.change(
            "INSERT INTO principals (workspace, id, name, body) VALUES (?1, ?2, ?3, ?4)",
            (workspace.uuid(), principal.id.uuid(), &principal.name, body("principal", principal)?),
        )
        .map_err(|error| error.or_name_taken("principal", &principal.name))?;
        Ok(())
    }

    /// False if there is none.
    pub fn update_principal(
        &self,
        workspace: WorkspaceId,
        principal: &Principal,
    ) -> Result<bool, StoreError> {
        let changed = self
            .change(
                "UPDATE principals SET name = ?3, body = ?4 WHERE workspace = ?1 AND id = ?2",
                (
                    workspace.uuid(),
                    principal.id.uuid(),
                    &principal.name,
                    body("principal", principal)?,
                ),
            )
            .map_err(|error| error.or_name_taken("principal", &principal.name))?;
        Ok(changed == 1)
    }

    pub fn set_code_permission(
        &self,
        workspace: WorkspaceId,
        permission: Permission,
    ) -> Result<(), StoreError> {
        let sql = "UPDATE workspaces SET code_permission = ?2 WHERE id = ?1";
        self.change(sql, (workspace.uuid(), word("permission", &permission)?)).map(drop)
    }

    /// With its keys and grants. What it owns stays behind: ask `owned_by` first.
    pub fn delete_principal(
        &self,
        workspace: WorkspaceId,
        principal: PrincipalId,
    ) -> Result<bool, StoreError> {
        let key = (workspace.uuid(), principal.uuid());
        self.change("DELETE FROM principals WHERE workspace = ?1 AND id = ?2", key)
            .map(|changed| changed == 1)
    }
}

impl Reader<'_> {
    pub fn workspaces(&self) -> Result<Vec<Workspace>, StoreError> {
        self.many("SELECT id, name, created_at FROM workspaces ORDER BY id", [], workspace)
    }

    pub fn workspace(&self, id: WorkspaceId) -> Result<Option<Workspace>, StoreError> {
        let sql = "SELECT id, name, created_at FROM workspaces WHERE id = ?1";
        self.one(sql, [id.uuid()], workspace)
    }

    /// Denied in a workspace that is not there.
    pub fn code_permission(&self, id: WorkspaceId) -> Result<Permission, StoreError> {
        let sql = "SELECT code_permission FROM workspaces WHERE id = ?1";
        let found = self.one(sql, [id.uuid()], |row| Ok(row.get::<_, String>(0)?))?;
        found.map_or(Ok(Permission::Deny), |found| variant("permission", &found))
    }

    pub fn workspace_by_name(&self, name: &str) -> Result<Option<Workspace>, StoreError> {
        let sql = "SELECT id, name, created_at FROM workspaces WHERE name = ?1";
        self.one(sql, [name], workspace)
    }

    pub fn principal(
        &self,
        workspace: WorkspaceId,
        id: PrincipalId,
    ) -> Result<Option<Principal>, StoreError> {
        let sql = "SELECT body FROM principals WHERE workspace = ?1 AND id = ?2";
        self.one(sql, (workspace.uuid(), id.uuid()), principal)
    }

    pub fn principal_by_name(
        &self,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<Option<Principal>, StoreError> {
        let sql = "SELECT body FROM principals WHERE workspace = ?1 AND name = ?2";
        self.one(sql, (workspace.uuid(), name), principal)
    }

    /// All whom another system calls so. There should be one at most, and whoever asks who
    /// somebody is must not choose between two.
    pub fn principals_known_as(
        &self,
        workspace: WorkspaceId,
        external_id: &str,
    ) -> Result<Vec<Principal>, StoreError> {
        let sql = "SELECT body FROM principals WHERE workspace = ?1 \
                   AND json_extract(body, '$.external_id') = ?2";
        self.many(sql, (workspace.uuid(), external_id), principal)
    }

    pub fn principals(
        &self,
        workspace: WorkspaceId,
        page: Page,
    ) -> Result<Listed<Principal>, StoreError> {
        self.list(
            page,
            "SELECT id, body FROM principals WHERE workspace = ?3 AND id < ?1 \
             ORDER BY id DESC LIMIT ?2",
            &[&workspace.uuid()],
            principal,
        )
    }

    /// Those who are in a role.
    pub fn members_of(
        &self,
        workspace: WorkspaceId,
        role: &str,
    ) -> Result<Vec<Principal>, StoreError> {
        self.many(
            "SELECT body FROM principals WHERE workspace = ?1 AND EXISTS \
             (SELECT 1 FROM json_each(body, '$.roles') WHERE value = ?2) ORDER BY id",
            (workspace.uuid(), role),
            principal,
        )
    }

    /// The ids of those names that are roles: the name of a user gives nothing of theirs.
    pub fn role_ids(
        &self,
        workspace: WorkspaceId,
        names: &[String],
    ) -> Result<Vec<PrincipalId>, StoreError> {
        let sql = "SELECT id FROM principals WHERE workspace = ?1 AND name = ?2 \
                   AND json_extract(body, '$.kind') = 'role'";
        let mut ids = Vec::with_capacity(names.len());
        for name in names {
            ids.extend(
                self.one(sql, (workspace.uuid(), name), |row| Ok(PrincipalId::new(row.get(0)?)))?,
            );
        }
        Ok(ids)
    }

    pub fn owned_by(
        &self,
        workspace: WorkspaceId,
        principal: PrincipalId,
    ) -> Result<Owned, StoreError> {
        let counts = self.one(
            "SELECT \
             (SELECT count(*) FROM tools WHERE workspace = ?1 AND owner = ?2), \
             (SELECT count(*) FROM agents WHERE workspace = ?1 AND owner = ?2), \
             (SELECT count(*) FROM stores WHERE workspace = ?1 AND owner = ?2), \
             (SELECT count(*) FROM secrets WHERE workspace = ?1 AND owner = ?2 AND whose = x''), \
             (SELECT count(*) FROM functions WHERE workspace = ?1 AND owner = ?2), \
             (SELECT count(*) FROM network_rules WHERE workspace = ?1 AND owner = ?2), \
             (SELECT count(*) FROM integrations WHERE workspace = ?1 AND owner = ?2 \
              AND name <> 'internet'), \
             (SELECT count(*) FROM files WHERE workspace = ?1 AND owner = ?2 \
              AND source <> 'code')",
            (workspace.uuid(), principal.uuid()),
            |row| {
                Ok(Owned {
                    tools: row.get(0)?,
                    agents: row.get(1)?,
                    stores: row.get(2)?,
                    secrets: row.get(3)?,
                    functions: row.get(4)?,
                    network_rules: row.get(5)?,
                    integrations: row.get(6)?,
                    documents: row.get(7)?,
                })
            },
        )?;
        Ok(counts.unwrap_or_default())
    }
}

fn workspace(row: &Row<'_>) -> Result<Workspace, StoreError> {
    Ok(Workspace {
        id: WorkspaceId::new(row.get("id")?),
        name: row.get("name")?,
        created_at: at(row.get("created_at")?),
    })
}

fn principal(row: &Row<'_>) -> Result<Principal, StoreError> {
    from_body("principal", row, "body")
}
