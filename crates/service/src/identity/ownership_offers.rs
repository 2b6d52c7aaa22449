//! Ownership of an object: offered by its owner, and handed over when the recipient accepts.
//!
//! An agent can run with its owner's rights, and a secret or a tool counts for more if its owner may do
//! more. So a principal becomes an owner only by accepting. Only an owner of the workspace, who may do
//! everything in it, hands over without an offer. What others were granted on the object ends with a
//! change of its owner, and an agent runs with the rights of its callers until the new owner says
//! otherwise.

use crate::error::{RequestError, invalid_field, missing_privilege, not_found};
use crate::identity::caller::Caller;
use crate::identity::grants::{exists, grant_error};
use crate::page::{Page, page_request};
use crate::serde_helpers::object;
use crate::service::Service;
use chrono::Utc;
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
    /// Any object but a workspace, whose ownership is shared by a grant.
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
    /// Offers OWNERSHIP of an object, in the place of an earlier offer of it.
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
            created_at: Utc::now(),
        };
        let workspace = caller.workspace;
        let entry = caller.audit_entry("ownership.offer", object, describe_offer(&offer));
        let written = self.db.write(move |tx| {
            if let Some(refused) = grant_error(tx, workspace, principal, object)? {
                return Ok(Err(refused));
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

    /// Newest first: offers to the caller and of the caller, and all of them for an owner of the
    /// workspace.
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

    /// Makes the recipient of an offer the owner. The principal who offered it must still own it.
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

    /// An offer that the caller made, may accept, or could have made.
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

/// Whether a principal holds OWNERSHIP of an object now: by itself, by a role, or of the workspace.
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

/// Makes the principal of a grant the one owner of an object that is no workspace. All other grants on
/// it end, and so do answers that were remembered about it.
pub(crate) fn transfer_ownership(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    to: &Grant,
) -> Result<Grant, DatabaseError> {
    if is_owner(tx, workspace, to.principal, to.object)? {
        return tx.insert_grant(workspace, to);
    }
    let (owner, updated_at) = (to.principal, to.created_at);
    match to.object {
        // One owner more does not take anything from the others.
        ObjectRef::Workspace(_) => return tx.insert_grant(workspace, to),
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
                // A deployment that is under way knows its function by `updated_at`.
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
    }
    tx.delete_grants_on(workspace, to.object)?;
    tx.insert_grant(workspace, to)
}
