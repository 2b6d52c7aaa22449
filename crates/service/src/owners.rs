//! Who owns a workspace, and that somebody always does.

use crate::caller::Caller;
use crate::refused::Refused;
use crate::service::Service;
use policy::Permit;
use store::{Reader, StoreError};
use types::{Code, Fault, Grant, Object, Principal, PrincipalKind, Privilege, WorkspaceId};

/// One reason why somebody owns a workspace: a grant, and who has it, by themselves or by a role.
#[derive(Debug)]
pub(crate) struct Reason {
    pub(crate) grant: Grant,
    pub(crate) who: Principal,
}

impl Service {
    /// To decide who is in a workspace, and what they may.
    pub(crate) fn require_owner(&self, caller: &Caller) -> Result<Permit, Refused> {
        self.require(caller, Privilege::Ownership, Object::Workspace(caller.workspace))
    }
}

/// The refusal of a change that takes away every reason why anybody owns the workspace. A role
/// without members owns nothing.
pub(crate) fn last_owner(
    rows: &Reader<'_>,
    workspace: WorkspaceId,
    is_taken_away: impl Fn(&Reason) -> bool,
) -> Result<Option<Refused>, StoreError> {
    let none_left = reasons(rows, workspace)?.iter().all(is_taken_away);
    Ok(none_left.then(|| {
        needed("the workspace would have no owner left")
            .hint("grant OWNERSHIP of the workspace to somebody else first")
            .into()
    }))
}

/// Something would be left without an owner.
pub(crate) fn needed(message: impl Into<String>) -> Fault {
    Fault::new(Code::OwnerNeeded, message)
}

fn reasons(rows: &Reader<'_>, workspace: WorkspaceId) -> Result<Vec<Reason>, StoreError> {
    let mut reasons = Vec::new();
    for grant in rows.owners_of(workspace, Object::Workspace(workspace))? {
        let holder = rows.principal(workspace, grant.principal)?;
        let holders = match holder {
            Some(role) if role.kind == PrincipalKind::Role => {
                rows.members_of(workspace, &role.name)?
            }
            holder => Vec::from_iter(holder),
        };
        reasons.extend(holders.into_iter().map(|who| Reason { grant: grant.clone(), who }));
    }
    Ok(reasons)
}
