//! Grants of privileges, and offers of ownership.

use crate::columns::{from_nanos, parse_variant, to_nanos};
use crate::{DatabaseError, ObjectFilter, PageRequest, Reader, RowPage, Tx};
use rusqlite::Row;
use types::{
    AgentId, FunctionId, Grant, GrantId, IntegrationId, NetworkRuleId, ObjectRef, OfferId,
    OwnershipOffer, PrincipalId, SecretId, SkillId, ToolId, VolumeId, WorkspaceId,
};
use uuid::Uuid;

/// A filter; absent fields match everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct GrantFilter {
    pub principal: Option<PrincipalId>,
    pub object: Option<ObjectRef>,
}

impl Tx<'_> {
    /// Inserts a grant, or returns the existing one for the same principal, object and privilege.
    pub fn insert_grant(
        &self,
        workspace: WorkspaceId,
        grant: &Grant,
    ) -> Result<Grant, DatabaseError> {
        self.execute(
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
                to_nanos(grant.created_at),
            ),
        )?;
        let held = self.grants_held(workspace, &[grant.principal], &[grant.object])?;
        let existing = held.into_iter().find(|held| held.privilege == grant.privilege);
        existing.ok_or(DatabaseError::Corrupt { what: "grant" })
    }

    pub fn delete_grant(&self, workspace: WorkspaceId, id: GrantId) -> Result<bool, DatabaseError> {
        let key = (workspace.uuid(), id.uuid());
        let deleted = self.execute("DELETE FROM grants WHERE workspace = ?1 AND id = ?2", key)?;
        Ok(deleted == 1)
    }

    /// Deletes all grants on an object and the offer of its ownership, when the object is deleted
    /// or gets a new owner.
    pub fn delete_grants_on(
        &self,
        workspace: WorkspaceId,
        object: ObjectRef,
    ) -> Result<usize, DatabaseError> {
        let key = (workspace.uuid(), object.kind(), object.uuid());
        self.execute(
            "DELETE FROM ownership_offers \
             WHERE workspace = ?1 AND object_kind = ?2 AND object_id = ?3",
            key,
        )?;
        self.execute(
            "DELETE FROM grants WHERE workspace = ?1 AND object_kind = ?2 AND object_id = ?3",
            key,
        )
    }

    /// Stores an offer. It replaces an earlier one of the same object.
    pub fn upsert_offer(
        &self,
        workspace: WorkspaceId,
        offer: &OwnershipOffer,
    ) -> Result<(), DatabaseError> {
        self.execute(
            "INSERT OR REPLACE INTO ownership_offers \
             (workspace, id, principal, object_kind, object_id, offered_by, created_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            (
                workspace.uuid(),
                offer.id.uuid(),
                offer.principal.uuid(),
                offer.object.kind(),
                offer.object.uuid(),
                offer.offered_by.uuid(),
                to_nanos(offer.created_at),
            ),
        )
        .map(drop)
    }

    /// False if there is no such offer.
    pub fn delete_offer(&self, workspace: WorkspaceId, id: OfferId) -> Result<bool, DatabaseError> {
        let key = (workspace.uuid(), id.uuid());
        let sql = "DELETE FROM ownership_offers WHERE workspace = ?1 AND id = ?2";
        Ok(self.execute(sql, key)? == 1)
    }
}

impl Reader<'_> {
    pub fn offer(
        &self,
        workspace: WorkspaceId,
        id: OfferId,
    ) -> Result<Option<OwnershipOffer>, DatabaseError> {
        let sql = "SELECT * FROM ownership_offers WHERE workspace = ?1 AND id = ?2";
        self.query_one(sql, (workspace.uuid(), id.uuid()), offer_from_row)
    }

    /// Newest first: all offers, or those to or by any of `seen_by`.
    pub fn offers(
        &self,
        workspace: WorkspaceId,
        filter: &ObjectFilter,
        page: PageRequest,
    ) -> Result<RowPage<OwnershipOffer>, DatabaseError> {
        self.query_page(
            page,
            "SELECT * FROM ownership_offers WHERE workspace = ?3 AND id < ?1 \
             AND (?4 IS NULL OR principal IN (SELECT unhex(value) FROM json_each(?4)) \
                  OR offered_by IN (SELECT unhex(value) FROM json_each(?4))) \
             ORDER BY id DESC LIMIT ?2",
            &[&workspace.uuid(), &filter.viewers_json()],
            offer_from_row,
        )
    }

    pub fn grant(
        &self,
        workspace: WorkspaceId,
        id: GrantId,
    ) -> Result<Option<Grant>, DatabaseError> {
        let sql = "SELECT * FROM grants WHERE workspace = ?1 AND id = ?2";
        self.query_one(sql, (workspace.uuid(), id.uuid()), grant_from_row)
    }

    /// Whether any of the subjects has a grant on any object.
    pub fn has_any_grant(
        &self,
        workspace: WorkspaceId,
        subjects: &[PrincipalId],
    ) -> Result<bool, DatabaseError> {
        let sql = "SELECT * FROM grants WHERE workspace = ?1 AND principal = ?2 LIMIT 1";
        for subject in subjects {
            if self.query_one(sql, (workspace.uuid(), subject.uuid()), grant_from_row)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Every grant of any of the subjects on any of the objects. Each request checks this with few
    /// of both, so a look-up for each pair is faster than a list inside one statement.
    pub fn grants_held(
        &self,
        workspace: WorkspaceId,
        subjects: &[PrincipalId],
        objects: &[ObjectRef],
    ) -> Result<Vec<Grant>, DatabaseError> {
        let sql = "SELECT * FROM grants WHERE workspace = ?1 AND principal = ?2 \
                   AND object_kind = ?3 AND object_id = ?4";
        let mut held = Vec::new();
        for subject in subjects {
            for object in objects {
                let pair = (workspace.uuid(), subject.uuid(), object.kind(), object.uuid());
                held.append(&mut self.query_many(sql, pair, grant_from_row)?);
            }
        }
        Ok(held)
    }

    /// The owners of an object. A tool or an agent has one owner, a workspace may have several.
    pub fn ownership_grants(
        &self,
        workspace: WorkspaceId,
        object: ObjectRef,
    ) -> Result<Vec<Grant>, DatabaseError> {
        self.query_many(
            "SELECT * FROM grants WHERE workspace = ?1 AND object_kind = ?2 AND object_id = ?3 \
             AND privilege = 'OWNERSHIP' ORDER BY id",
            (workspace.uuid(), object.kind(), object.uuid()),
            grant_from_row,
        )
    }

    pub fn grants(
        &self,
        workspace: WorkspaceId,
        filter: GrantFilter,
        page: PageRequest,
    ) -> Result<RowPage<Grant>, DatabaseError> {
        self.query_page(
            page,
            "SELECT * FROM grants WHERE workspace = ?3 AND id < ?1 \
             AND (?4 IS NULL OR principal = ?4) \
             AND (?5 IS NULL OR (object_kind = ?5 AND object_id = ?6)) \
             ORDER BY id DESC LIMIT ?2",
            &[
                &workspace.uuid(),
                &filter.principal.map(PrincipalId::uuid),
                &filter.object.map(ObjectRef::kind),
                &filter.object.map(ObjectRef::uuid),
            ],
            grant_from_row,
        )
    }
}

fn grant_from_row(row: &Row<'_>) -> Result<Grant, DatabaseError> {
    let privilege: String = row.get("privilege")?;
    let kind: String = row.get("object_kind")?;
    Ok(Grant {
        id: GrantId::new(row.get("id")?),
        principal: PrincipalId::new(row.get("principal")?),
        privilege: parse_variant("grant", &privilege)?,
        object: object_ref(&kind, row.get("object_id")?)?,
        granted_by: PrincipalId::new(row.get("granted_by")?),
        created_at: from_nanos(row.get("created_at")?),
    })
}

fn offer_from_row(row: &Row<'_>) -> Result<OwnershipOffer, DatabaseError> {
    let kind: String = row.get("object_kind")?;
    Ok(OwnershipOffer {
        id: OfferId::new(row.get("id")?),
        principal: PrincipalId::new(row.get("principal")?),
        object: object_ref(&kind, row.get("object_id")?)?,
        offered_by: PrincipalId::new(row.get("offered_by")?),
        created_at: from_nanos(row.get("created_at")?),
    })
}

fn object_ref(kind: &str, id: Uuid) -> Result<ObjectRef, DatabaseError> {
    match kind {
        "workspace" => Ok(ObjectRef::Workspace(WorkspaceId::new(id))),
        "tool" => Ok(ObjectRef::Tool(ToolId::new(id))),
        "agent" => Ok(ObjectRef::Agent(AgentId::new(id))),
        "volume" => Ok(ObjectRef::Volume(VolumeId::new(id))),
        "secret" => Ok(ObjectRef::Secret(SecretId::new(id))),
        "function" => Ok(ObjectRef::Function(FunctionId::new(id))),
        "network_rule" => Ok(ObjectRef::NetworkRule(NetworkRuleId::new(id))),
        "integration" => Ok(ObjectRef::Integration(IntegrationId::new(id))),
        "skill" => Ok(ObjectRef::Skill(SkillId::new(id))),
        _ => Err(DatabaseError::Corrupt { what: "grant" }),
    }
}
