//! Who may do what.

use crate::column::{at, moment, variant};
use crate::{Listed, Page, Reader, StoreError, Tx};
use rusqlite::Row;
use types::{
    AgentId, FunctionId, Grant, GrantId, IntegrationId, NetworkRuleId, Object, PrincipalId,
    SecretId, StoreId, ToolId, WorkspaceId,
};
use uuid::Uuid;

/// What is absent is not asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct GrantFilter {
    pub principal: Option<PrincipalId>,
    pub object: Option<Object>,
}

impl Tx<'_> {
    /// The grant that holds now: this one, or the same one from before.
    pub fn insert_grant(&self, workspace: WorkspaceId, grant: &Grant) -> Result<Grant, StoreError> {
        self.change(
            "INSERT INTO grants (id, workspace, principal, object_kind, object_id, privilege, \
             granted_by, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) \
             ON CONFLICT (workspace, principal, object_kind, object_id, privilege) DO NOTHING",
            (
                grant.id.uuid(),
                workspace.uuid(),
                grant.principal.uuid(),
                grant.object.kind(),
                grant.object.uuid(),
                grant.privilege.name(),
                grant.granted_by.uuid(),
                moment(grant.created_at),
            ),
        )?;
        let held = self.held(workspace, &[grant.principal], &[grant.object])?;
        let same = held.into_iter().find(|held| held.privilege == grant.privilege);
        same.ok_or(StoreError::Corrupt { what: "grant" })
    }

    pub fn delete_grant(&self, workspace: WorkspaceId, id: GrantId) -> Result<bool, StoreError> {
        let key = (workspace.uuid(), id.uuid());
        let deleted = self.change("DELETE FROM grants WHERE workspace = ?1 AND id = ?2", key)?;
        Ok(deleted == 1)
    }

    /// For an object that goes.
    pub fn delete_grants_on(
        &self,
        workspace: WorkspaceId,
        object: Object,
    ) -> Result<usize, StoreError> {
        self.change(
            "DELETE FROM grants WHERE workspace = ?1 AND object_kind = ?2 AND object_id = ?3",
            (workspace.uuid(), object.kind(), object.uuid()),
        )
    }
}

impl Reader<'_> {
    pub fn grant(&self, workspace: WorkspaceId, id: GrantId) -> Result<Option<Grant>, StoreError> {
        let sql = "SELECT * FROM grants WHERE workspace = ?1 AND id = ?2";
        self.one(sql, (workspace.uuid(), id.uuid()), grant)
    }

    /// Whether any of the subjects has a grant, on whatever.
    pub fn has_any_grant(
        &self,
        workspace: WorkspaceId,
        subjects: &[PrincipalId],
    ) -> Result<bool, StoreError> {
        let sql = "SELECT * FROM grants WHERE workspace = ?1 AND principal = ?2 LIMIT 1";
        for subject in subjects {
            if self.one(sql, (workspace.uuid(), subject.uuid()), grant)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Every grant of any of the subjects on any of the objects. It is asked at every request, with
    /// few of both: a look-up for each pair is faster than a list inside of one statement.
    pub fn held(
        &self,
        workspace: WorkspaceId,
        subjects: &[PrincipalId],
        objects: &[Object],
    ) -> Result<Vec<Grant>, StoreError> {
        let sql = "SELECT * FROM grants WHERE workspace = ?1 AND principal = ?2 \
                   AND object_kind = ?3 AND object_id = ?4";
        let mut held = Vec::new();
        for subject in subjects {
            for object in objects {
                let pair = (workspace.uuid(), subject.uuid(), object.kind(), object.uuid());
                held.append(&mut self.many(sql, pair, grant)?);
            }
        }
        Ok(held)
    }

    /// Who owns it. A tool or an agent has one owner, a workspace may have several.
    pub fn owners_of(
        &self,
        workspace: WorkspaceId,
        object: Object,
    ) -> Result<Vec<Grant>, StoreError> {
        self.many(
            "SELECT * FROM grants WHERE workspace = ?1 AND object_kind = ?2 AND object_id = ?3 \
             AND privilege = 'OWNERSHIP' ORDER BY id",
            (workspace.uuid(), object.kind(), object.uuid()),
            grant,
        )
    }

    pub fn grants(
        &self,
        workspace: WorkspaceId,
        filter: GrantFilter,
        page: Page,
    ) -> Result<Listed<Grant>, StoreError> {
        self.list(
            page,
            "SELECT * FROM grants WHERE workspace = ?3 AND id < ?1 \
             AND (?4 IS NULL OR principal = ?4) \
             AND (?5 IS NULL OR (object_kind = ?5 AND object_id = ?6)) \
             ORDER BY id DESC LIMIT ?2",
            &[
                &workspace.uuid(),
                &filter.principal.map(PrincipalId::uuid),
                &filter.object.map(Object::kind),
                &filter.object.map(Object::uuid),
            ],
            grant,
        )
    }
}

fn grant(row: &Row<'_>) -> Result<Grant, StoreError> {
    let privilege: String = row.get("privilege")?;
    let kind: String = row.get("object_kind")?;
    Ok(Grant {
        id: GrantId::new(row.get("id")?),
        principal: PrincipalId::new(row.get("principal")?),
        privilege: variant("grant", &privilege)?,
        object: object(&kind, row.get("object_id")?)?,
        granted_by: PrincipalId::new(row.get("granted_by")?),
        created_at: at(row.get("created_at")?),
    })
}

fn object(kind: &str, id: Uuid) -> Result<Object, StoreError> {
    match kind {
        "workspace" => Ok(Object::Workspace(WorkspaceId::new(id))),
        "tool" => Ok(Object::Tool(ToolId::new(id))),
        "agent" => Ok(Object::Agent(AgentId::new(id))),
        "store" => Ok(Object::Store(StoreId::new(id))),
        "secret" => Ok(Object::Secret(SecretId::new(id))),
        "function" => Ok(Object::Function(FunctionId::new(id))),
        "network_rule" => Ok(Object::NetworkRule(NetworkRuleId::new(id))),
        "integration" => Ok(Object::Integration(IntegrationId::new(id))),
        _ => Err(StoreError::Corrupt { what: "grant" }),
    }
}
