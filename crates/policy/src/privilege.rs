//! Whether somebody may do something to an object, and by which grant.
//!
//! Denied unless a grant says otherwise. OWNERSHIP contains the other privileges, and OWNERSHIP of
//! a workspace contains everything in it; no other privilege on a workspace reaches into an object.

use types::{Grant, Object, Privilege, WorkspaceId};

/// Why something is allowed: the grant that says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    pub object: Object,
    pub privilege: Privilege,
    pub because: Grant,
}

/// What would have to be granted, and is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{privilege} on {object} is not granted")]
pub struct Refusal {
    pub privilege: Privilege,
    pub object: Object,
}

/// `held` are the grants of the one who asks, and of the roles that they have.
pub fn permit(
    privilege: Privilege,
    object: Object,
    workspace: WorkspaceId,
    held: &[Grant],
) -> Result<Permit, Refusal> {
    let suffices = |grant: &&Grant| {
        let on_it = grant.object == object
            && (grant.privilege == privilege || grant.privilege == Privilege::Ownership);
        let on_all =
            grant.object == Object::Workspace(workspace) && grant.privilege == Privilege::Ownership;
        on_it || on_all
    };
    match held.iter().find(suffices) {
        Some(grant) => Ok(Permit { object, privilege, because: grant.clone() }),
        None => Err(Refusal { privilege, object }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::DateTime;
    use types::{AgentId, GrantId, PrincipalId, ToolId};
    use uuid::Uuid;

    fn workspace(number: u128) -> WorkspaceId {
        WorkspaceId::new(Uuid::from_u128(number))
    }

    fn grant(privilege: Privilege, object: Object) -> Grant {
        let somebody = PrincipalId::new(Uuid::from_u128(7));
        Grant {
            id: GrantId::new(Uuid::from_u128(8)),
            principal: somebody,
            privilege,
            object,
            granted_by: somebody,
            created_at: DateTime::UNIX_EPOCH,
        }
    }

    fn allowed(need: Privilege, object: Object, held: &[Grant]) -> bool {
        permit(need, object, workspace(1), held).is_ok()
    }

    #[test]
    fn nothing_is_allowed_without_a_grant() {
        let tool = Object::Tool(ToolId::new(Uuid::from_u128(2)));
        for privilege in Privilege::ALL {
            assert!(!allowed(privilege, tool, &[]));
            assert!(!allowed(privilege, Object::Workspace(workspace(1)), &[]));
        }
    }

    // proves S-034, S-035
    #[test]
    fn one_privilege_is_not_another() {
        let agent = Object::Agent(AgentId::new(Uuid::from_u128(2)));
        let usage = [grant(Privilege::Usage, agent)];
        let modify = [grant(Privilege::Modify, agent)];
        assert!(allowed(Privilege::Usage, agent, &usage));
        assert!(!allowed(Privilege::Modify, agent, &usage));
        assert!(allowed(Privilege::Modify, agent, &modify));
        assert!(!allowed(Privilege::Usage, agent, &modify));
        assert!(!allowed(Privilege::Ownership, agent, &[usage, modify].concat()));
    }

    #[test]
    fn ownership_is_everything_on_its_object_and_nothing_on_another() {
        let tool = Object::Tool(ToolId::new(Uuid::from_u128(2)));
        let other = Object::Tool(ToolId::new(Uuid::from_u128(3)));
        // The same number as another kind of object is another object.
        let agent = Object::Agent(AgentId::new(Uuid::from_u128(2)));
        let held = [grant(Privilege::Ownership, tool)];
        for privilege in Privilege::ALL {
            assert!(allowed(privilege, tool, &held));
            assert!(!allowed(privilege, other, &held));
            assert!(!allowed(privilege, agent, &held));
        }
    }

    #[test]
    fn only_ownership_of_the_workspace_reaches_into_its_objects() {
        let tool = Object::Tool(ToolId::new(Uuid::from_u128(2)));
        let here = Object::Workspace(workspace(1));
        let elsewhere = Object::Workspace(workspace(9));
        assert!(allowed(Privilege::Usage, tool, &[grant(Privilege::Ownership, here)]));
        assert!(!allowed(Privilege::Usage, tool, &[grant(Privilege::Usage, here)]));
        assert!(!allowed(Privilege::Usage, tool, &[grant(Privilege::Modify, here)]));
        assert!(!allowed(Privilege::Usage, tool, &[grant(Privilege::Ownership, elsewhere)]));
    }
}
