//! Workspaces, and the principals in them.

use crate::columns::{
    from_json_column, from_nanos, parse_variant, to_json, to_nanos, variant_name,
};
use crate::{DatabaseError, PageRequest, Reader, RowPage, Tx};
use rusqlite::Row;
use types::{Permission, Principal, PrincipalId, Workspace, WorkspaceId};

/// The numbers of objects that a principal owns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnedCounts {
    pub tools: u64,
    pub agents: u64,
    pub volumes: u64,
    /// Shared secrets; personal ones are deleted with the principal.
    pub secrets: u64,
    pub functions: u64,
    pub network_rules: u64,
    pub integrations: u64,
    pub skills: u64,
    pub documents: u64,
}

impl Tx<'_> {
    pub fn insert_workspace(&self, workspace: &Workspace) -> Result<(), DatabaseError> {
        self.execute(
            "INSERT INTO workspaces (id, name, created_at) VALUES (?1, ?2, ?3)",
            (workspace.id.uuid(), &workspace.name, to_nanos(workspace.created_at)),
        )
        .map_err(|error| error.or_name_taken("workspace", &workspace.name))?;
        Ok(())
    }

    pub fn insert_principal(
        &self,
        workspace: WorkspaceId,
        principal: &Principal,
    ) -> Result<(), DatabaseError> {
        self.execute(
            "INSERT INTO principals (workspace, id, name, body) VALUES (?1, ?2, ?3, ?4)",
            (
                workspace.uuid(),
                principal.id.uuid(),
                &principal.name,
                to_json("principal", principal)?,
            ),
        )
        .map_err(|error| error.or_name_taken("principal", &principal.name))?;
        Ok(())
    }

    /// False if there is no such principal.
    pub fn update_principal(
        &self,
        workspace: WorkspaceId,
        principal: &Principal,
    ) -> Result<bool, DatabaseError> {
        let changed = self
            .execute(
                "UPDATE principals SET name = ?3, body = ?4 WHERE workspace = ?1 AND id = ?2",
                (
                    workspace.uuid(),
                    principal.id.uuid(),
                    &principal.name,
                    to_json("principal", principal)?,
                ),
            )
            .map_err(|error| error.or_name_taken("principal", &principal.name))?;
        Ok(changed == 1)
    }

    pub fn set_code_permission(
        &self,
        workspace: WorkspaceId,
        permission: Permission,
    ) -> Result<(), DatabaseError> {
        let sql = "UPDATE workspaces SET code_permission = ?2 WHERE id = ?1";
        self.execute(sql, (workspace.uuid(), variant_name("permission", &permission)?)).map(drop)
    }

    /// Deletes a principal with its keys and grants. The objects that it owns stay: check
    /// `count_owned` first.
    pub fn delete_principal(
        &self,
        workspace: WorkspaceId,
        principal: PrincipalId,
    ) -> Result<bool, DatabaseError> {
        let key = (workspace.uuid(), principal.uuid());
        self.execute("DELETE FROM principals WHERE workspace = ?1 AND id = ?2", key)
            .map(|changed| changed == 1)
    }
}

impl Reader<'_> {
    pub fn workspaces(&self) -> Result<Vec<Workspace>, DatabaseError> {
        self.query_many(
            "SELECT id, name, created_at FROM workspaces ORDER BY id",
            [],
            workspace_from_row,
        )
    }

    pub fn workspace(&self, id: WorkspaceId) -> Result<Option<Workspace>, DatabaseError> {
        let sql = "SELECT id, name, created_at FROM workspaces WHERE id = ?1";
        self.query_one(sql, [id.uuid()], workspace_from_row)
    }

    /// The approval policy for submitted code; `Deny` in a workspace that does not exist.
    pub fn code_permission(&self, id: WorkspaceId) -> Result<Permission, DatabaseError> {
        let sql = "SELECT code_permission FROM workspaces WHERE id = ?1";
        let found = self.query_one(sql, [id.uuid()], |row| Ok(row.get::<_, String>(0)?))?;
        found.map_or(Ok(Permission::Deny), |found| parse_variant("permission", &found))
    }

    pub fn workspace_by_name(&self, name: &str) -> Result<Option<Workspace>, DatabaseError> {
        let sql = "SELECT id, name, created_at FROM workspaces WHERE name = ?1";
        self.query_one(sql, [name], workspace_from_row)
    }

    pub fn principal(
        &self,
        workspace: WorkspaceId,
        id: PrincipalId,
    ) -> Result<Option<Principal>, DatabaseError> {
        let sql = "SELECT body FROM principals WHERE workspace = ?1 AND id = ?2";
        self.query_one(sql, (workspace.uuid(), id.uuid()), principal)
    }

    pub fn principal_by_name(
        &self,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<Option<Principal>, DatabaseError> {
        let sql = "SELECT body FROM principals WHERE workspace = ?1 AND name = ?2";
        self.query_one(sql, (workspace.uuid(), name), principal)
    }

    /// All principals with this external id. There should be at most one; with several, callers
    /// must not choose one.
    pub fn principals_by_external_id(
        &self,
        workspace: WorkspaceId,
        external_id: &str,
    ) -> Result<Vec<Principal>, DatabaseError> {
        let sql = "SELECT body FROM principals WHERE workspace = ?1 \
                   AND json_extract(body, '$.external_id') = ?2";
        self.query_many(sql, (workspace.uuid(), external_id), principal)
    }

    pub fn principals(
        &self,
        workspace: WorkspaceId,
        page: PageRequest,
    ) -> Result<RowPage<Principal>, DatabaseError> {
        self.query_page(
            page,
            "SELECT id, body FROM principals WHERE workspace = ?3 AND id < ?1 \
             ORDER BY id DESC LIMIT ?2",
            &[&workspace.uuid()],
            principal,
        )
    }

    /// The members of a role.
    pub fn role_members(
        &self,
        workspace: WorkspaceId,
        role: &str,
    ) -> Result<Vec<Principal>, DatabaseError> {
        self.query_many(
            "SELECT body FROM principals WHERE workspace = ?1 AND EXISTS \
             (SELECT 1 FROM json_each(body, '$.roles') WHERE value = ?2) ORDER BY id",
            (workspace.uuid(), role),
            principal,
        )
    }

    /// The ids of the names that are roles. The name of a user is not a role, so that roles do not
    /// give the privileges of a user.
    pub fn role_ids(
        &self,
        workspace: WorkspaceId,
        names: &[String],
    ) -> Result<Vec<PrincipalId>, DatabaseError> {
        let sql = "SELECT id FROM principals WHERE workspace = ?1 AND name = ?2 \
                   AND json_extract(body, '$.kind') = 'role'";
        let mut ids = Vec::with_capacity(names.len());
        for name in names {
            ids.extend(self.query_one(sql, (workspace.uuid(), name), |row| {
                Ok(PrincipalId::new(row.get(0)?))
            })?);
        }
        Ok(ids)
    }

    pub fn count_owned(
        &self,
        workspace: WorkspaceId,
        principal: PrincipalId,
    ) -> Result<OwnedCounts, DatabaseError> {
        let counts = self.query_one(
            "SELECT \
             (SELECT count(*) FROM tools WHERE workspace = ?1 AND owner = ?2), \
             (SELECT count(*) FROM agents WHERE workspace = ?1 AND owner = ?2), \
             (SELECT count(*) FROM volumes WHERE workspace = ?1 AND owner = ?2), \
             (SELECT count(*) FROM secrets WHERE workspace = ?1 AND owner = ?2 AND whose = x''), \
             (SELECT count(*) FROM functions WHERE workspace = ?1 AND owner = ?2), \
             (SELECT count(*) FROM network_rules WHERE workspace = ?1 AND owner = ?2), \
             (SELECT count(*) FROM integrations WHERE workspace = ?1 AND owner = ?2 \
              AND name <> 'internet'), \
             (SELECT count(*) FROM skills WHERE workspace = ?1 AND owner = ?2), \
             (SELECT count(*) FROM files WHERE workspace = ?1 AND owner = ?2 \
              AND source <> 'code')",
            (workspace.uuid(), principal.uuid()),
            |row| {
                Ok(OwnedCounts {
                    tools: row.get(0)?,
                    agents: row.get(1)?,
                    volumes: row.get(2)?,
                    secrets: row.get(3)?,
                    functions: row.get(4)?,
                    network_rules: row.get(5)?,
                    integrations: row.get(6)?,
                    skills: row.get(7)?,
                    documents: row.get(8)?,
                })
            },
        )?;
        Ok(counts.unwrap_or_default())
    }
}

fn workspace_from_row(row: &Row<'_>) -> Result<Workspace, DatabaseError> {
    Ok(Workspace {
        id: WorkspaceId::new(row.get("id")?),
        name: row.get("name")?,
        created_at: from_nanos(row.get("created_at")?),
    })
}

fn principal(row: &Row<'_>) -> Result<Principal, DatabaseError> {
    from_json_column("principal", row, "body")
}
