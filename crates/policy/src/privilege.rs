//! Decides whether a principal may do something to an object, and by which grant.
//!
//! Denied unless a grant allows it. OWNERSHIP contains the other privileges, and OWNERSHIP of a
//! workspace contains everything in it; no other privilege on a workspace applies to an object in
//! it.

use types::{Grant, ObjectRef, Privilege, WorkspaceId};

/// The grant that allows something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    pub object: ObjectRef,
    pub privilege: Privilege,
    pub grant: Grant,
}

/// The missing grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{privilege} on {object} is not granted")]
pub struct PrivilegeDenied {
    pub privilege: Privilege,
    pub object: ObjectRef,
}

/// `held` are the grants of the caller and of the caller's roles.
pub fn check_privilege(
    privilege: Privilege,
    object: ObjectRef,
    workspace: WorkspaceId,
    held: &[Grant],
) -> Result<Permit, PrivilegeDenied> {
    let suffices = |grant: &&Grant| {
        let on_it = grant.object == object
            && (grant.privilege == privilege || grant.privilege == Privilege::Ownership);
        let on_all = grant.object == ObjectRef::Workspace(workspace)
            && grant.privilege == Privilege::Ownership;
        on_it || on_all
    };
    match held.iter().find(suffices) {
        Some(grant) => Ok(Permit { object, privilege, grant: grant.clone() }),
        None => Err(PrivilegeDenied { privilege, object }),
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

    fn grant(privilege: Privilege, object: ObjectRef) -> Grant {
        let holder = PrincipalId::new(Uuid::from_u128(7));
        Grant {
            id: GrantId::new(Uuid::from_u128(8)),
            principal: holder,
            privilege,
            object,
            granted_by: holder,
            created_at: DateTime::UNIX_EPOCH,
        }
    }

    fn allowed(need: Privilege, object: ObjectRef, held: &[Grant]) -> bool {
        check_privilege(need, object, workspace(1), held).is_ok()
    }

    #[test]
    fn nothing_is_allowed_without_a_grant() {
        let tool = ObjectRef::Tool(ToolId::new(Uuid::from_u128(2)));
        for privilege in Privilege::ALL {
            assert!(!allowed(privilege, tool, &[]));
            assert!(!allowed(privilege, ObjectRef::Workspace(workspace(1)), &[]));
        }
    }

    // proves S-034, S-035
    #[test]
    fn one_privilege_is_not_another() {
        let agent = ObjectRef::Agent(AgentId::new(Uuid::from_u128(2)));
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
        let tool = ObjectRef::Tool(ToolId::new(Uuid::from_u128(2)));
        let other = ObjectRef::Tool(ToolId::new(Uuid::from_u128(3)));
        // The same number as another kind of object is another object.
        let agent = ObjectRef::Agent(AgentId::new(Uuid::from_u128(2)));
        let held = [grant(Privilege::Ownership, tool)];
        for privilege in Privilege::ALL {
            assert!(allowed(privilege, tool, &held));
            assert!(!allowed(privilege, other, &held));
            assert!(!allowed(privilege, agent, &held));
        }
    }

    #[test]
    fn only_ownership_of_the_workspace_reaches_into_its_objects() {
        let tool = ObjectRef::Tool(ToolId::new(Uuid::from_u128(2)));
        let here = ObjectRef::Workspace(workspace(1));
        let elsewhere = ObjectRef::Workspace(workspace(9));
        assert!(allowed(Privilege::Usage, tool, &[grant(Privilege::Ownership, here)]));
        assert!(!allowed(Privilege::Usage, tool, &[grant(Privilege::Usage, here)]));
        assert!(!allowed(Privilege::Usage, tool, &[grant(Privilege::Modify, here)]));
        assert!(!allowed(Privilege::Usage, tool, &[grant(Privilege::Ownership, elsewhere)]));
    }
}
