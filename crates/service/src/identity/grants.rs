//! Grants: privileges on objects, granted and revoked by the owner of the object.
//!
//! Rights are stored nowhere else. A tool or an agent has exactly one owner, whose grant moves with
//! a transfer; a workspace has one owner or several.

use crate::error::{RequestError, invalid_field, missing_privilege, not_found};
use crate::identity::caller::Caller;
use crate::identity::ownership_offers::transfer_ownership;
use crate::identity::workspace_owners::{last_owner_error, owner_needed_error};
use crate::page::{Page, page_request};
use crate::serde_helpers::object;
use crate::service::Service;
use chrono::{DateTime, Utc};
use db::{DatabaseError, GrantFilter, NewAuditEntry, Reader, Tx};
use serde::Deserialize;
use types::{
    AgentId, Error, ErrorCode, FunctionId, Grant, GrantId, GrantedObject, IntegrationId,
    NetworkRuleId, ObjectRef, PrincipalId, Privilege, SecretId, SecretScope, SkillId, ToolId,
    VolumeId, WorkspaceId,
};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantRequest {
    pub principal: PrincipalId,
    /// An owner of the workspace can grant `OWNERSHIP` of any object; other owners offer it. A new
    /// owner ends the other grants on the object, except on a workspace, whose ownership is shared.
    pub privilege: Privilege,
    #[schema(value_type = GrantedObject)]
    #[serde(deserialize_with = "object")]
    pub object: ObjectRef,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    Workspace,
    Tool,
    Agent,
    Volume,
    Secret,
    Function,
    NetworkRule,
    Integration,
    Skill,
}

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GrantQuery {
    /// Only grants of this principal. A caller that does not own the object sees only their own.
    pub principal: Option<PrincipalId>,
    /// Kind of the object; together with `object_id`.
    #[param(inline)]
    pub object_kind: Option<ObjectKind>,
    pub object_id: Option<Uuid>,
    /// Number of items, 1 to 200; default 50.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// `next_cursor` of the previous page.
    pub cursor: Option<String>,
}

/// The grant that makes a principal the owner of a new object.
pub(crate) fn new_ownership_grant(
    owner: PrincipalId,
    object: ObjectRef,
    now: DateTime<Utc>,
) -> Grant {
    Grant {
        id: GrantId::new(Uuid::now_v7()),
        principal: owner,
        privilege: Privilege::Ownership,
        object,
        granted_by: owner,
        created_at: now,
    }
}

impl Service {
    pub async fn create_grant(
        &self,
        caller: &Caller,
        request: GrantRequest,
    ) -> Result<Grant, RequestError> {
        let GrantRequest { principal, privilege, object } = request;
        self.require_privilege(caller, Privilege::Ownership, object)?;
        if privilege == Privilege::Ownership && principal != caller.id() {
            let workspace = caller.workspace;
            let error = self.db.read(|rows| grant_error(rows, workspace, principal, object))?;
            error.map_or_else(|| self.require_direct_transfer(caller, object), Err)?;
        }
        let grant = Grant {
            id: GrantId::new(Uuid::now_v7()),
            principal,
            privilege,
            object,
            granted_by: caller.id(),
            created_at: self.now(),
        };
        let workspace = caller.workspace;
        let entry = caller.audit_entry("grant.create", object, describe_grant(&grant));
        let granted = self.db.write(move |tx| write_grant(tx, workspace, &grant, &entry)).await?;
        self.notify_tools_changed(workspace);
        granted
    }

    /// Checks that the caller may transfer ownership without the acceptance of the recipient: only
    /// owners of the workspace may.
    fn require_direct_transfer(
        &self,
        caller: &Caller,
        object: ObjectRef,
    ) -> Result<(), RequestError> {
        let all = ObjectRef::Workspace(caller.workspace);
        if self.permit(caller.workspace, &caller.principal, Privilege::Ownership, all)?.is_some() {
            return Ok(());
        }
        let message = format!("OWNERSHIP of {object} must be accepted by its recipient");
        Err(Error::new(ErrorCode::GrantMissing, message)
            .hint("offer it with `belljar grant offer PRINCIPAL KIND:NAME`")
            .into())
    }

    /// Grants, newest first: all grants on an object that the caller owns, otherwise those of the
    /// caller.
    pub async fn grants(
        &self,
        caller: &Caller,
        query: GrantQuery,
    ) -> Result<Page<Grant>, RequestError> {
        let object = query.object()?;
        let page = page_request(query.limit, query.cursor.as_deref())?;
        let workspace = caller.workspace;
        let governing = object.unwrap_or(ObjectRef::Workspace(workspace));
        let all =
            self.permit(workspace, &caller.principal, Privilege::Ownership, governing)?.is_some();
        if !all && query.principal.is_some_and(|principal| principal != caller.id()) {
            return Err(missing_privilege(Privilege::Ownership, governing));
        }
        let principal = if all { query.principal } else { Some(caller.id()) };
        let filter = GrantFilter { principal, object };
        let read = move |rows: &Reader<'_>| rows.grants(workspace, filter, page);
        Ok(self.db.read_off_thread(read).await?.into())
    }

    /// Revokes a grant from the next request on.
    pub async fn delete_grant(&self, caller: &Caller, id: GrantId) -> Result<(), RequestError> {
        let workspace = caller.workspace;
        let grant = self.db.read(|rows| rows.grant(workspace, id))?;
        let grant = grant.ok_or_else(|| not_found("grant", id))?;
        let owner =
            self.permit(workspace, &caller.principal, Privilege::Ownership, grant.object)?;
        if owner.is_none() {
            let is_own = grant.principal == caller.id();
            let error = missing_privilege(Privilege::Ownership, grant.object);
            return Err(if is_own { error } else { not_found("grant", id) });
        }
        let entry = caller.audit_entry("grant.delete", grant.object, describe_grant(&grant));
        let revoked =
            self.db.write(move |tx| write_revocation(tx, workspace, &grant, &entry)).await?;
        self.notify_tools_changed(workspace);
        revoked
    }
}

impl ObjectKind {
    fn with_id(self, id: Uuid) -> ObjectRef {
        match self {
            Self::Workspace => ObjectRef::Workspace(WorkspaceId::new(id)),
            Self::Tool => ObjectRef::Tool(ToolId::new(id)),
            Self::Agent => ObjectRef::Agent(AgentId::new(id)),
            Self::Volume => ObjectRef::Volume(VolumeId::new(id)),
            Self::Secret => ObjectRef::Secret(SecretId::new(id)),
            Self::Function => ObjectRef::Function(FunctionId::new(id)),
            Self::NetworkRule => ObjectRef::NetworkRule(NetworkRuleId::new(id)),
            Self::Integration => ObjectRef::Integration(IntegrationId::new(id)),
            Self::Skill => ObjectRef::Skill(SkillId::new(id)),
        }
    }
}

impl GrantQuery {
    fn object(&self) -> Result<Option<ObjectRef>, RequestError> {
        match (self.object_kind, self.object_id) {
            (None, None) => Ok(None),
            (Some(kind), Some(id)) => Ok(Some(kind.with_id(id))),
            (None, Some(_)) => {
                Err(invalid_field("query/object_kind", "is required with object_id"))
            }
            (Some(_), None) => {
                Err(invalid_field("query/object_id", "is required with object_kind"))
            }
        }
    }
}

fn describe_grant(grant: &Grant) -> String {
    format!("{} for principal {}", grant.privilege, grant.principal)
}

fn write_grant(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    grant: &Grant,
    entry: &NewAuditEntry,
) -> Result<Result<Grant, RequestError>, DatabaseError> {
    if let Some(error) = grant_error(tx, workspace, grant.principal, grant.object)? {
        return Ok(Err(error));
    }
    let held = match grant.privilege {
        Privilege::Ownership => transfer_ownership(tx, workspace, grant)?,
        Privilege::Usage | Privilege::Modify | Privilege::Install => {
            tx.insert_grant(workspace, grant)?
        }
    };
    tx.append_audit_entry(entry)?;
    Ok(Ok(held))
}

/// The error if a principal cannot be granted or offered an object.
pub(crate) fn grant_error(
    rows: &Reader<'_>,
    workspace: WorkspaceId,
    principal: PrincipalId,
    object: ObjectRef,
) -> Result<Option<RequestError>, DatabaseError> {
    if rows.principal(workspace, principal)?.is_none() {
        return Ok(Some(not_found("principal", principal)));
    }
    if let ObjectRef::Secret(id) = object
        && rows.secret(workspace, id)?.is_some_and(|it| it.scope == SecretScope::Caller)
    {
        return Ok(Some(private_secret_error()));
    }
    let missing = !exists(rows, workspace, object)?;
    Ok(missing.then(|| not_found(object.kind(), object.uuid())))
}

pub(crate) fn exists(
    rows: &Reader<'_>,
    workspace: WorkspaceId,
    object: ObjectRef,
) -> Result<bool, DatabaseError> {
    Ok(match object {
        ObjectRef::Workspace(id) => id == workspace,
        ObjectRef::Tool(id) => rows.tool(workspace, id)?.is_some(),
        ObjectRef::Agent(id) => rows.agent(workspace, id)?.is_some(),
        ObjectRef::Volume(id) => rows.volume(workspace, id)?.is_some(),
        ObjectRef::Secret(id) => rows.secret(workspace, id)?.is_some(),
        ObjectRef::Function(id) => rows.function(workspace, id)?.is_some(),
        ObjectRef::NetworkRule(id) => rows.network_rule(workspace, id)?.is_some(),
        ObjectRef::Integration(id) => rows.integration(workspace, id)?.is_some(),
        ObjectRef::Skill(id) => rows.skill(workspace, id)?.is_some(),
    })
}

/// A principal that used a personal secret would act as its owner.
fn private_secret_error() -> RequestError {
    invalid_field("/object", "is a personal secret, which cannot be granted")
}

fn write_revocation(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    grant: &Grant,
    entry: &NewAuditEntry,
) -> Result<Result<(), RequestError>, DatabaseError> {
    let error = match (grant.privilege, grant.object) {
        (Privilege::Ownership, ObjectRef::Workspace(_)) => {
            last_owner_error(tx, workspace, |reason| reason.grant.id == grant.id)?
        }
        (Privilege::Ownership, object) => Some(
            owner_needed_error(format!(
                "the grant cannot be revoked: {object} would have no owner"
            ))
            .hint("offer its OWNERSHIP to another principal with `belljar grant offer`")
            .into(),
        ),
        _ => None,
    };
    if let Some(error) = error {
        return Ok(Err(error));
    }
    if !tx.delete_grant(workspace, grant.id)? {
        return Ok(Err(not_found("grant", grant.id)));
    }
    tx.append_audit_entry(entry)?;
    Ok(Ok(()))
}
