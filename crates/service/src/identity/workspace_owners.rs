//! The owners of a workspace. A workspace always has one.

use crate::error::RequestError;
use crate::identity::caller::Caller;
use crate::service::Service;
use db::{DatabaseError, Reader};
use policy::Permit;
use types::{Error, ErrorCode, Grant, ObjectRef, Principal, PrincipalKind, Privilege, WorkspaceId};

/// An owner of a workspace: a grant, and a principal that has it directly or through a role.
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

/// The error if a change would leave the workspace without an owner. A role without members owns
/// nothing.
pub(crate) fn last_owner_error(
    rows: &Reader<'_>,
    workspace: WorkspaceId,
    is_taken_away: impl Fn(&WorkspaceOwner) -> bool,
) -> Result<Option<RequestError>, DatabaseError> {
    let no_owner_left = workspace_owners(rows, workspace)?.iter().all(is_taken_away);
    Ok(no_owner_left.then(|| {
        owner_needed_error("the workspace would have no owner left")
            .hint("grant OWNERSHIP of the workspace to another principal first")
            .into()
    }))
}

/// The error for a change that would leave an object without an owner.
pub(crate) fn owner_needed_error(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::OwnerNeeded, message)
}

fn workspace_owners(
    rows: &Reader<'_>,
    workspace: WorkspaceId,
) -> Result<Vec<WorkspaceOwner>, DatabaseError> {
    let mut owners = Vec::new();
    for grant in rows.ownership_grants(workspace, ObjectRef::Workspace(workspace))? {
        let holder = rows.principal(workspace, grant.principal)?;
        let holders = match holder {
            Some(role) if role.kind == PrincipalKind::Role => {
                rows.role_members(workspace, &role.name)?
            }
            holder => Vec::from_iter(holder),
        };
        owners.extend(holders.into_iter().map(|who| WorkspaceOwner { grant: grant.clone(), who }));
    }
    Ok(owners)
}
