//! The owners of a workspace. A workspace always has one.

use crate::error::RequestError;
use crate::identity::caller::Caller;
use crate::service::Service;
use db::{DatabaseError, Reader};
use policy::Permit;
use types::{Error, ErrorCode, Grant, ObjectRef, Principal, PrincipalKind, Privilege, WorkspaceId};

/// One reason for the ownership of a workspace: a grant, and its holder, directly or through a role.
#[derive(Debug)]
pub(crate) struct WorkspaceOwner {
    pub(crate) grant: Grant,
    pub(crate) who: Principal,
}

impl Service {
    /// Checks that the caller owns the workspace.
    pub(crate) fn require_owner(&self, caller: &Caller) -> Result<Permit, RequestError> {
        self.require_privilege(caller, Privilege::Ownership, ObjectRef::Workspace(caller.workspace))
    }
}

/// The refusal of a change that takes away every reason why anybody owns the workspace. A role
/// without members owns nothing.
pub(crate) fn last_owner_error(
    rows: &Reader<'_>,
    workspace: WorkspaceId,
    is_taken_away: impl Fn(&WorkspaceOwner) -> bool,
) -> Result<Option<RequestError>, DatabaseError> {
    let none_left = workspace_owners(rows, workspace)?.iter().all(is_taken_away);
    Ok(none_left.then(|| {
        owner_needed("the workspace would have no owner left")
            .hint("grant OWNERSHIP of the workspace to another principal first")
            .into()
    }))
}

/// Something would be left without an owner.
pub(crate) fn owner_needed(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::OwnerNeeded, message)
}

fn workspace_owners(
    rows: &Reader<'_>,
    workspace: WorkspaceId,
) -> Result<Vec<WorkspaceOwner>, DatabaseError> {
    let mut reasons = Vec::new();
    for grant in rows.ownership_grants(workspace, ObjectRef::Workspace(workspace))? {
        let holder = rows.principal(workspace, grant.principal)?;
        let holders = match holder {
            Some(role) if role.kind == PrincipalKind::Role => {
                rows.role_members(workspace, &role.name)?
            }
            holder => Vec::from_iter(holder),
        };
        reasons.extend(holders.into_iter().map(|who| WorkspaceOwner { grant: grant.clone(), who }));
    }
    Ok(reasons)
}
