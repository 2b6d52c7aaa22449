//! Grants: who may do what, given and taken away by whoever owns the object.
//!
//! Rows of grants are the only truth about rights. A tool or an agent has exactly one owner, whose
//! row moves when it is given away; a workspace may have several, and always has one.

use crate::caller::Caller;
use crate::object::object;
use crate::owners::{last_owner, needed};
use crate::page::{Listed, page};
use crate::refused::{Refused, invalid, missing, not_found};
use crate::service::Service;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use store::{AuditLine, GrantFilter, Reader, StoreError, Tx};
use types::{
    AgentId, FunctionId, Grant, GrantId, GrantedObject, IntegrationId, NetworkRuleId, Object,
    PrincipalId, Privilege, SecretId, SecretScope, StoreId, ToolId, WorkspaceId,
};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantRequest {
    pub principal: PrincipalId,
    /// `OWNERSHIP` of a tool or an agent is taken from whoever has it.
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
    if tx.principal(workspace, grant.principal)?.is_none() {
        return Ok(Err(not_found("principal", grant.principal)));
    }
    let there = match grant.object {
        Object::Workspace(id) => id == workspace,
        Object::Tool(id) => tx.tool(workspace, id)?.is_some(),
        Object::Agent(id) => tx.agent(workspace, id)?.is_some(),
        Object::Store(id) => tx.store(workspace, id)?.is_some(),
        Object::Secret(id) => match tx.secret(workspace, id)? {
            Some(secret) if secret.scope == SecretScope::Caller => return Ok(Err(of_ones_own())),
            found => found.is_some(),
        },
        Object::Function(id) => tx.function(workspace, id)?.is_some(),
        Object::NetworkRule(id) => tx.network_rule(workspace, id)?.is_some(),
        Object::Integration(id) => tx.integration(workspace, id)?.is_some(),
    };
    if !there {
        return Ok(Err(not_found(grant.object.kind(), grant.object.uuid())));
    }
    if grant.privilege == Privilege::Ownership {
        give_away(tx, workspace, grant)?;
    }
    let held = tx.insert_grant(workspace, grant)?;
    tx.audit(entry)?;
    Ok(Ok(held))
}

/// The one owner of a thing that is no workspace is from now on somebody else.
fn give_away(tx: &Tx<'_>, workspace: WorkspaceId, to: &Grant) -> Result<(), StoreError> {
    let (owner, updated_at) = (to.principal, to.created_at);
    match to.object {
        // One owner more does not take anything from the others.
        Object::Workspace(_) => return Ok(()),
        Object::Tool(id) => {
            if let Some((tool, source)) = tx.tool(workspace, id)? {
                tx.update_tool(workspace, &types::Tool { owner, updated_at, ..tool }, &source)?;
            }
        }
        Object::Agent(id) => {
            if let Some(agent) = tx.agent(workspace, id)? {
                tx.update_agent(workspace, &types::Agent { owner, updated_at, ..agent })?;
            }
        }
        Object::Store(id) => {
            if let Some(store) = tx.store(workspace, id)? {
                tx.update_store(workspace, &types::Store { owner, updated_at, ..store })?;
            }
        }
        Object::Secret(id) => {
            if let Some(secret) = tx.secret(workspace, id)? {
                tx.update_secret(workspace, &types::Secret { owner, updated_at, ..secret })?;
            }
        }
        Object::Function(id) => {
            if let Some(function) = tx.function(workspace, id)? {
                // A deployment that is under way knows its function by when it was changed.
                let function = types::Function { owner, ..function };
                tx.update_function(workspace, &function, None)?;
            }
        }
        Object::NetworkRule(id) => {
            if let Some(rule) = tx.network_rule(workspace, id)? {
                let rule = types::NetworkRule { owner, updated_at, ..rule };
                tx.update_network_rule(workspace, &rule)?;
            }
        }
        Object::Integration(id) => {
            if let Some(integration) = tx.integration(workspace, id)? {
                let integration = types::Integration { owner, updated_at, ..integration };
                tx.update_integration(workspace, &integration)?;
            }
        }
    }
    for old in tx.owners_of(workspace, to.object)? {
        if old.principal != owner {
            tx.delete_grant(workspace, old.id)?;
        }
    }
    Ok(())
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
                .hint("grant OWNERSHIP of it to somebody else instead")
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
