//! Ownership of an object: offered by its owner, and transferred when the recipient accepts.
//!
//! An agent can run with its owner's rights, and a secret or a tool has more effect if its owner
//! has more rights. So a principal becomes an owner only by accepting, unless an owner of the
//! workspace transfers the object directly. A transfer ends the other grants on the object and sets
//! an agent to `run_as: caller`, until the new owner changes that.

use crate::error::{RequestError, invalid_field, missing_privilege, not_found};
use crate::identity::caller::Caller;
use crate::identity::grants::{exists, grant_error};
use crate::page::{Page, page_request};
use crate::serde_helpers::object;
use crate::service::Service;
use db::{DatabaseError, NewAuditEntry, ObjectFilter, Reader, Tx};
use serde::Deserialize;
use types::{
    Grant, GrantId, GrantedObject, ObjectRef, OfferId, OwnershipOffer, PrincipalId, Privilege,
    RunAs, WorkspaceId,
};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OfferRequest {
    /// The new owner.
    pub principal: PrincipalId,
    /// Any object except a workspace, whose ownership is shared by a grant.
    #[schema(value_type = GrantedObject)]
    #[serde(deserialize_with = "object")]
    pub object: ObjectRef,
}

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OfferQuery {
    /// Number of items, 1 to 200; default 50.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// `next_cursor` of the previous page.
    pub cursor: Option<String>,
}

impl Service {
    /// Offers OWNERSHIP of an object. A new offer replaces an earlier one of the same object.
    pub async fn offer_ownership(
        &self,
        caller: &Caller,
        request: OfferRequest,
    ) -> Result<OwnershipOffer, RequestError> {
        let OfferRequest { principal, object } = request;
        self.require_privilege(caller, Privilege::Ownership, object)?;
        let offer = OwnershipOffer {
            id: OfferId::new(Uuid::now_v7()),
            principal,
            object,
            offered_by: caller.id(),
            created_at: self.now(),
        };
        let workspace = caller.workspace;
        let entry = caller.audit_entry("ownership.offer", object, describe_offer(&offer));
        let written = self.db.write(move |tx| {
            if let Some(error) = grant_error(tx, workspace, principal, object)? {
                return Ok(Err(error));
            }
            if matches!(object, ObjectRef::Workspace(_)) {
                let message = "is a workspace; share its OWNERSHIP with a grant";
                return Ok(Err(invalid_field("/object", message)));
            }
            if is_owner(tx, workspace, principal, object)? {
                return Ok(Err(invalid_field("/principal", "is already the owner")));
            }
            tx.upsert_offer(workspace, &offer)?;
            tx.append_audit_entry(&entry)?;
            Ok(Ok(offer))
        });
        written.await?
    }

    /// Offers, newest first: those to and by the caller; all offers for an owner of the workspace.
    pub async fn ownership_offers(
        &self,
        caller: &Caller,
        query: OfferQuery,
    ) -> Result<Page<OwnershipOffer>, RequestError> {
        let page = page_request(query.limit, query.cursor.as_deref())?;
        let filter = ObjectFilter { search: None, seen_by: self.viewers(caller)? };
        let workspace = caller.workspace;
        let listed = self.db.read_off_thread(move |rows| rows.offers(workspace, &filter, page));
        Ok(listed.await?.into())
    }

    /// Makes the recipient of an offer the owner. The principal that offered it must still own the
    /// object.
    pub async fn accept_ownership(
        &self,
        caller: &Caller,
        id: OfferId,
    ) -> Result<Grant, RequestError> {
        let offer = self.visible_offer(caller, id)?;
        if !self.is_recipient(caller, &offer)? {
            return Err(missing_privilege(Privilege::Ownership, offer.object));
        }
        let workspace = caller.workspace;
        let entry = caller.audit_entry("ownership.accept", offer.object, describe_offer(&offer));
        let written = self.db.write(move |tx| write_acceptance(tx, workspace, id, &entry));
        let accepted = written.await?;
        self.notify_tools_changed(workspace);
        accepted
    }

    /// Ends an offer: the recipient declines it, or an owner of the object withdraws it.
    pub async fn end_offer(&self, caller: &Caller, id: OfferId) -> Result<(), RequestError> {
        let offer = self.visible_offer(caller, id)?;
        let action = match self.is_recipient(caller, &offer)? {
            true => "ownership.decline",
            false => "ownership.withdraw",
        };
        let workspace = caller.workspace;
        let entry = caller.audit_entry(action, offer.object, describe_offer(&offer));
        let ended = self.db.write(move |tx| {
            let ended = tx.delete_offer(workspace, id)?;
            if ended {
                tx.append_audit_entry(&entry)?;
            }
            Ok(ended)
        });
        if ended.await? { Ok(()) } else { Err(not_found("offer", id)) }
    }

    /// An offer to the caller, by the caller, or of an object that the caller owns.
    fn visible_offer(&self, caller: &Caller, id: OfferId) -> Result<OwnershipOffer, RequestError> {
        let workspace = caller.workspace;
        let found = self.db.read(|rows| rows.offer(workspace, id))?;
        let offer = found.ok_or_else(|| not_found("offer", id))?;
        let owns = self
            .permit(workspace, &caller.principal, Privilege::Ownership, offer.object)?
            .is_some();
        if owns || offer.offered_by == caller.id() || self.is_recipient(caller, &offer)? {
            return Ok(offer);
        }
        Err(not_found("offer", id))
    }

    fn is_recipient(&self, caller: &Caller, offer: &OwnershipOffer) -> Result<bool, RequestError> {
        if offer.principal == caller.id() {
            return Ok(true);
        }
        let roles = &caller.principal.roles;
        let roles = self.db.read(|rows| rows.role_ids(caller.workspace, roles))?;
        Ok(roles.contains(&offer.principal))
    }
}

fn describe_offer(offer: &OwnershipOffer) -> String {
    format!("OWNERSHIP for principal {}", offer.principal)
}

fn write_acceptance(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    id: OfferId,
    entry: &NewAuditEntry,
) -> Result<Result<Grant, RequestError>, DatabaseError> {
    let Some(offer) = tx.offer(workspace, id)? else { return Ok(Err(not_found("offer", id))) };
    let holds = holds_ownership(tx, workspace, offer.offered_by, offer.object)?;
    if !holds || !exists(tx, workspace, offer.object)? {
        return Ok(Err(not_found("offer", id)));
    }
    let grant = Grant {
        id: GrantId::new(Uuid::now_v7()),
        principal: offer.principal,
        privilege: Privilege::Ownership,
        object: offer.object,
        granted_by: offer.offered_by,
        created_at: entry.at,
    };
    let held = transfer_ownership(tx, workspace, &grant)?;
    tx.append_audit_entry(entry)?;
    Ok(Ok(held))
}

/// Whether a principal has OWNERSHIP of an object now: itself, through a role, or through the
/// workspace.
fn holds_ownership(
    rows: &Reader<'_>,
    workspace: WorkspaceId,
    id: PrincipalId,
    object: ObjectRef,
) -> Result<bool, DatabaseError> {
    let Some(principal) = rows.principal(workspace, id)? else { return Ok(false) };
    let mut subjects = rows.role_ids(workspace, &principal.roles)?;
    subjects.push(id);
    let held =
        rows.grants_held(workspace, &subjects, &[object, ObjectRef::Workspace(workspace)])?;
    Ok(policy::check_privilege(Privilege::Ownership, object, workspace, &held).is_ok())
}

fn is_owner(
    rows: &Reader<'_>,
    workspace: WorkspaceId,
    principal: PrincipalId,
    object: ObjectRef,
) -> Result<bool, DatabaseError> {
    let owners = rows.ownership_grants(workspace, object)?;
    Ok(owners.iter().any(|grant| grant.principal == principal))
}

/// Makes the principal of a grant the only owner of an object, and deletes all other grants on it
/// and remembered decisions about it. A workspace gets a further owner.
pub(crate) fn transfer_ownership(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    grant: &Grant,
) -> Result<Grant, DatabaseError> {
    if is_owner(tx, workspace, grant.principal, grant.object)? {
        return tx.insert_grant(workspace, grant);
    }
    let (owner, updated_at) = (grant.principal, grant.created_at);
    match grant.object {
        // A further owner takes nothing from the others.
        ObjectRef::Workspace(_) => return tx.insert_grant(workspace, grant),
        ObjectRef::Tool(id) => {
            if let Some((tool, source)) = tx.tool(workspace, id)? {
                tx.update_tool(workspace, &types::Tool { owner, updated_at, ..tool }, &source)?;
            }
            tx.delete_remembered_approvals_of_tool(workspace, id)?;
        }
        ObjectRef::Agent(id) => {
            if let Some(agent) = tx.agent(workspace, id)? {
                let run_as = RunAs::Caller;
                let agent = types::Agent { owner, run_as, updated_at, ..agent };
                tx.update_agent(workspace, &agent)?;
            }
            tx.delete_remembered_approvals_of_agent(workspace, id)?;
        }
        ObjectRef::Volume(id) => {
            if let Some(volume) = tx.volume(workspace, id)? {
                tx.update_volume(workspace, &types::Volume { owner, updated_at, ..volume })?;
            }
        }
        ObjectRef::Secret(id) => {
            if let Some(secret) = tx.secret(workspace, id)? {
                tx.update_secret(workspace, &types::Secret { owner, updated_at, ..secret })?;
            }
        }
        ObjectRef::Function(id) => {
            if let Some(function) = tx.function(workspace, id)? {
                // `updated_at` must not change: a deployment in progress identifies the function by
                // it.
                let function = types::Function { owner, ..function };
                tx.update_function(workspace, &function, None)?;
            }
        }
        ObjectRef::NetworkRule(id) => {
            if let Some(rule) = tx.network_rule(workspace, id)? {
                let rule = types::NetworkRule { owner, updated_at, ..rule };
                tx.update_network_rule(workspace, &rule)?;
            }
        }
        ObjectRef::Integration(id) => {
            if let Some(integration) = tx.integration(workspace, id)? {
                let integration = types::Integration { owner, updated_at, ..integration };
                tx.update_integration(workspace, &integration)?;
            }
        }
        ObjectRef::Skill(id) => {
            if let Some(skill) = tx.skill(workspace, id)? {
                let skill = types::UploadedSkill { owner, updated_at, ..skill };
                tx.update_skill(workspace, &skill, None)?;
            }
        }
    }
    tx.delete_grants_on(workspace, grant.object)?;
    tx.insert_grant(workspace, grant)
}
