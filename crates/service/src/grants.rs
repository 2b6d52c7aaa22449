//! Grants: who may do what, given and taken away by whoever owns the object.
//!
//! Rows of grants are the only truth about rights. A tool or an agent has exactly one owner, whose
//! row moves when it is given away; a workspace may have several, and always has one.

use crate::caller::Caller;
use crate::object::object;
use crate::offers::hand_over;
use crate::owners::{last_owner, needed};
use crate::page::{Listed, page};
use crate::refused::{Refused, invalid, missing, not_found};
use crate::service::Service;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use store::{AuditLine, GrantFilter, Reader, StoreError, Tx};
use types::{
    AgentId, Code, Fault, FunctionId, Grant, GrantId, GrantedObject, IntegrationId, NetworkRuleId,
    Object, PrincipalId, Privilege, SecretId, SecretScope, StoreId, ToolId, WorkspaceId,
};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantRequest {
    pub principal: PrincipalId,
    /// An owner of the workspace grants `OWNERSHIP` of any object; other owners offer it. The other
    /// grants on the object end then, but for those on a workspace, whose ownership is shared.
    pub privilege: Privilege,
    #[schema(value_type = GrantedObject)]
    #[serde(deserialize_with = "object")]
    pub object: Object,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    Workspace,
    Tool,
    Agent,
    Store,
    Secret,
    Function,
    NetworkRule,
    Integration,
}

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GrantQuery {
    /// To whom. Whoever does not own the object sees only their own.
    pub principal: Option<PrincipalId>,
    /// On what; together with `object_id`.
    #[param(inline)]
    pub object_kind: Option<ObjectKind>,
    pub object_id: Option<Uuid>,
    /// How many, from 1 to 200; 50 if absent.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// `next_cursor` of the page before.
    pub cursor: Option<String>,
}

/// The row that makes somebody the owner of what they have made.
pub(crate) fn ownership(owner: PrincipalId, object: Object, now: DateTime<Utc>) -> Grant {
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
    pub async fn grant(&self, caller: &Caller, request: GrantRequest) -> Result<Grant, Refused> {
        let GrantRequest { principal, privilege, object } = request;
        self.require(caller, Privilege::Ownership, object)?;
        if privilege == Privilege::Ownership && principal != caller.id() {
            let workspace = caller.workspace;
            let wrong =
                self.store.read(|rows| check_granted(rows, workspace, principal, object))?;
            wrong.map_or_else(|| self.require_to_hand_over(caller, object), Err)?;
        }
        let grant = Grant {
            id: GrantId::new(Uuid::now_v7()),
            principal,
            privilege,
            object,
            granted_by: caller.id(),
            created_at: Utc::now(),
        };
        let workspace = caller.workspace;
        let entry = caller.did("grant.create", object, in_words(&grant));
        let given = self.store.write(move |tx| given(tx, workspace, &grant, &entry)).await?;
        self.tools_changed(workspace);
        given
    }

    /// Nobody becomes an owner without agreeing to it, unless an owner of the workspace decides so.
    fn require_to_hand_over(&self, caller: &Caller, object: Object) -> Result<(), Refused> {
        let all = Object::Workspace(caller.workspace);
        if self.permit(caller.workspace, &caller.principal, Privilege::Ownership, all)?.is_some() {
            return Ok(());
        }
        let message = format!("OWNERSHIP of {object} has to be accepted by its recipient");
        Err(Fault::new(Code::GrantMissing, message)
            .hint("offer it instead: belljar grant offer PRINCIPAL KIND:NAME")
            .into())
    }

    /// Newest first: all of an object that the caller owns, and otherwise the caller's own.
    pub async fn grants(
        &self,
        caller: &Caller,
        query: GrantQuery,
    ) -> Result<Listed<Grant>, Refused> {
        let object = query.object()?;
        let page = page(query.limit, query.cursor.as_deref())?;
        let workspace = caller.workspace;
        let asked = object.unwrap_or(Object::Workspace(workspace));
        let all = self.permit(workspace, &caller.principal, Privilege::Ownership, asked)?.is_some();
        if !all && query.principal.is_some_and(|principal| principal != caller.id()) {
            return Err(missing(Privilege::Ownership, asked));
        }
        let principal = if all { query.principal } else { Some(caller.id()) };
        let filter = GrantFilter { principal, object };
        let read = move |rows: &Reader<'_>| rows.grants(workspace, filter, page);
        Ok(self.store.read_long(read).await?.into())
    }

    /// Felt by the next request.
    pub async fn ungrant(&self, caller: &Caller, id: GrantId) -> Result<(), Refused> {
        let workspace = caller.workspace;
        let grant = self.store.read(|rows| rows.grant(workspace, id))?;
        let grant = grant.ok_or_else(|| not_found("grant", id))?;
        let owner =
            self.permit(workspace, &caller.principal, Privilege::Ownership, grant.object)?;
        if owner.is_none() {
            let seen = grant.principal == caller.id();
            let refused = missing(Privilege::Ownership, grant.object);
            return Err(if seen { refused } else { not_found("grant", id) });
        }
        let entry = caller.did("grant.delete", grant.object, in_words(&grant));
        let taken = self.store.write(move |tx| taken(tx, workspace, &grant, &entry)).await?;
        self.tools_changed(workspace);
        taken
    }
}

impl ObjectKind {
    fn of(self, id: Uuid) -> Object {
        match self {
            Self::Workspace => Object::Workspace(WorkspaceId::new(id)),
            Self::Tool => Object::Tool(ToolId::new(id)),
            Self::Agent => Object::Agent(AgentId::new(id)),
            Self::Store => Object::Store(StoreId::new(id)),
            Self::Secret => Object::Secret(SecretId::new(id)),
            Self::Function => Object::Function(FunctionId::new(id)),
            Self::NetworkRule => Object::NetworkRule(NetworkRuleId::new(id)),
            Self::Integration => Object::Integration(IntegrationId::new(id)),
        }
    }
}

impl GrantQuery {
    fn object(&self) -> Result<Option<Object>, Refused> {
        match (self.object_kind, self.object_id) {
            (None, None) => Ok(None),
            (Some(kind), Some(id)) => Ok(Some(kind.of(id))),
            (None, Some(_)) => Err(invalid("query/object_kind", "is missing beside object_id")),
            (Some(_), None) => Err(invalid("query/object_id", "is missing beside object_kind")),
        }
    }
}

fn in_words(grant: &Grant) -> String {
    format!("{} for principal {}", grant.privilege, grant.principal)
}

fn given(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    grant: &Grant,
    entry: &AuditLine,
) -> Result<Result<Grant, Refused>, StoreError> {
    if let Some(refused) = check_granted(tx, workspace, grant.principal, grant.object)? {
        return Ok(Err(refused));
    }
    let held = match grant.privilege {
        Privilege::Ownership => hand_over(tx, workspace, grant)?,
        Privilege::Usage | Privilege::Modify | Privilege::Install => {
            tx.insert_grant(workspace, grant)?
        }
    };
    tx.audit(entry)?;
    Ok(Ok(held))
}

/// Why a principal cannot be granted or offered anything on an object.
pub(crate) fn check_granted(
    rows: &Reader<'_>,
    workspace: WorkspaceId,
    principal: PrincipalId,
    object: Object,
) -> Result<Option<Refused>, StoreError> {
    if rows.principal(workspace, principal)?.is_none() {
        return Ok(Some(not_found("principal", principal)));
    }
    if let Object::Secret(id) = object
        && rows.secret(workspace, id)?.is_some_and(|it| it.scope == SecretScope::Caller)
    {
        return Ok(Some(of_ones_own()));
    }
    let missing = !exists(rows, workspace, object)?;
    Ok(missing.then(|| not_found(object.kind(), object.uuid())))
}

pub(crate) fn exists(
    rows: &Reader<'_>,
    workspace: WorkspaceId,
    object: Object,
) -> Result<bool, StoreError> {
    Ok(match object {
        Object::Workspace(id) => id == workspace,
        Object::Tool(id) => rows.tool(workspace, id)?.is_some(),
        Object::Agent(id) => rows.agent(workspace, id)?.is_some(),
        Object::Store(id) => rows.store(workspace, id)?.is_some(),
        Object::Secret(id) => rows.secret(workspace, id)?.is_some(),
        Object::Function(id) => rows.function(workspace, id)?.is_some(),
        Object::NetworkRule(id) => rows.network_rule(workspace, id)?.is_some(),
        Object::Integration(id) => rows.integration(workspace, id)?.is_some(),
    })
}

/// Whoever used it would act as its owner.
fn of_ones_own() -> Refused {
    invalid("/object", "is a secret of one's own, which nobody else uses")
}

fn taken(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    grant: &Grant,
    entry: &AuditLine,
) -> Result<Result<(), Refused>, StoreError> {
    let refused = match (grant.privilege, grant.object) {
        (Privilege::Ownership, Object::Workspace(_)) => {
            last_owner(tx, workspace, |reason| reason.grant.id == grant.id)?
        }
        (Privilege::Ownership, object) => Some(
            needed(format!("{object} would have no owner"))
                .hint("offer OWNERSHIP of it to somebody else instead")
                .into(),
        ),
        _ => None,
    };
    if let Some(refused) = refused {
        return Ok(Err(refused));
    }
    if !tx.delete_grant(workspace, grant.id)? {
        return Ok(Err(not_found("grant", grant.id)));
    }
    tx.audit(entry)?;
    Ok(Ok(()))
}
