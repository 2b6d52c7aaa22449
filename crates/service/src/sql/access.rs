//! GRANT and REVOKE.

use super::names::{error_at, object_ref, qualifier_warning};
use super::{Done, NamedObjectRef, StatementAction};
use crate::error::RequestError;
use crate::identity::caller::Caller;
use crate::identity::grants::{GrantQuery, GrantRequest, ObjectKind};
use crate::identity::principals::PrincipalChange;
use crate::service::Service;
use statements::{
    AccessChange, GrantedRole, GranteeKind, GranteeName, NamedKind, ObjectName, RoleChange,
};
use types::{Error, ErrorCode, Grant, ObjectRef, PrincipalId, Privilege};

pub(super) fn kind_in_grants(kind: NamedKind) -> ObjectKind {
    match kind {
        NamedKind::NetworkRule => ObjectKind::NetworkRule,
        NamedKind::Integration => ObjectKind::Integration,
        NamedKind::Secret => ObjectKind::Secret,
        NamedKind::Agent => ObjectKind::Agent,
    }
}

fn principal_ref(id: PrincipalId, name: String) -> NamedObjectRef {
    NamedObjectRef { kind: "principal", id: id.uuid(), name }
}

impl Service {
    pub(super) async fn sql_grant(
        &self,
        caller: &Caller,
        change: AccessChange,
    ) -> Result<Done, RequestError> {
        let AccessChange { privileges, kind, name, grantee } = change;
        let found = self.sql_require(caller, kind, &name)?;
        let object = object_ref(kind, found.id);
        self.require_privilege(caller, Privilege::Ownership, object)?;
        let (principal, _) = self.sql_principal(caller, &grantee)?;
        for privilege in privileges {
            let request = GrantRequest { principal, privilege, object };
            self.create_grant(caller, request).await?;
        }
        let warnings = Vec::from_iter(qualifier_warning(&name));
        Ok(Done { warnings, ..Done::new(StatementAction::Granted, found) })
    }

    pub(super) async fn sql_revoke(
        &self,
        caller: &Caller,
        change: AccessChange,
    ) -> Result<Done, RequestError> {
        let AccessChange { privileges, kind, name, grantee } = change;
        let found = self.sql_require(caller, kind, &name)?;
        let object = object_ref(kind, found.id);
        self.require_privilege(caller, Privilege::Ownership, object)?;
        let (principal, _) = self.sql_principal(caller, &grantee)?;
        let object_name = format!("{} {:?}", kind.noun(), found.name);
        let held = self.sql_grants_of(caller, principal, object).await?;
        let mut grants = Vec::new();
        for privilege in privileges {
            let grant = held.iter().find(|grant| grant.privilege == privilege);
            let missing = || no_such_grant(&grantee.name, privilege, &object_name);
            grants.push(grant.ok_or_else(missing)?.id);
        }
        for grant in grants {
            self.delete_grant(caller, grant).await?;
        }
        let warnings = Vec::from_iter(qualifier_warning(&name));
        Ok(Done { warnings, ..Done::new(StatementAction::Revoked, found) })
    }

    /// The direct grants of a principal on an object: at most one for each privilege, so one page.
    async fn sql_grants_of(
        &self,
        caller: &Caller,
        principal: PrincipalId,
        object: ObjectRef,
    ) -> Result<Vec<Grant>, RequestError> {
        let object_kind = match object {
            ObjectRef::NetworkRule(_) => ObjectKind::NetworkRule,
            ObjectRef::Integration(_) => ObjectKind::Integration,
            ObjectRef::Secret(_) => ObjectKind::Secret,
            ObjectRef::Agent(_) => ObjectKind::Agent,
            ObjectRef::Workspace(_) => ObjectKind::Workspace,
            ObjectRef::Tool(_)
            | ObjectRef::Volume(_)
            | ObjectRef::Function(_)
            | ObjectRef::Skill(_) => return Ok(Vec::new()),
        };
        let query = GrantQuery {
            principal: Some(principal),
            object_kind: Some(object_kind),
            object_id: Some(object.uuid()),
            ..GrantQuery::default()
        };
        Ok(self.grants(caller, query).await?.items)
    }

    pub(super) async fn sql_grant_role(
        &self,
        caller: &Caller,
        change: RoleChange,
    ) -> Result<Done, RequestError> {
        let (principal, name) = self.sql_principal(caller, &change.grantee)?;
        let done = |action| Done::new(action, principal_ref(principal, name));
        let role = match change.role {
            GrantedRole::PypiRepositoryUser => {
                let object = ObjectRef::Workspace(caller.workspace);
                let privilege = Privilege::Install;
                self.create_grant(caller, GrantRequest { principal, privilege, object }).await?;
                return Ok(done(StatementAction::Granted));
            }
            GrantedRole::Named(role) => self.sql_role(caller, role)?,
        };
        self.require_owner(caller)?;
        let mut roles = self.principal(caller, principal)?.roles;
        if roles.contains(&role) {
            return Ok(done(StatementAction::Unchanged));
        }
        roles.push(role);
        let change = PrincipalChange { roles: Some(roles), ..PrincipalChange::default() };
        self.change_principal(caller, principal, change).await?;
        Ok(done(StatementAction::Granted))
    }

    pub(super) async fn sql_revoke_role(
        &self,
        caller: &Caller,
        change: RoleChange,
    ) -> Result<Done, RequestError> {
        let (principal, name) = self.sql_principal(caller, &change.grantee)?;
        let grantee = &change.grantee.name;
        let done = |name| Done::new(StatementAction::Revoked, principal_ref(principal, name));
        let role = match change.role {
            GrantedRole::PypiRepositoryUser => {
                let object = ObjectRef::Workspace(caller.workspace);
                let held = self.sql_grants_of(caller, principal, object).await?;
                let grant = held.iter().find(|grant| grant.privilege == Privilege::Install);
                let missing = || no_such_grant(grantee, Privilege::Install, "the workspace");
                self.delete_grant(caller, grant.ok_or_else(missing)?.id).await?;
                return Ok(done(name));
            }
            GrantedRole::Named(role) => self.sql_role(caller, role)?,
        };
        self.require_owner(caller)?;
        let mut roles = self.principal(caller, principal)?.roles;
        if !roles.contains(&role) {
            let message = format!("principal {:?} does not have the role {role:?}", grantee.text);
            return Err(error_at(grantee, Error::new(ErrorCode::ObjectNotFound, message)));
        }
        roles.retain(|held| *held != role);
        let change = PrincipalChange { roles: Some(roles), ..PrincipalChange::default() };
        self.change_principal(caller, principal, change).await?;
        Ok(done(name))
    }

    /// The stored name of a role.
    fn sql_role(&self, caller: &Caller, name: ObjectName) -> Result<String, RequestError> {
        let role = GranteeName { kind: Some(GranteeKind::Role), name };
        let (id, _) = self.sql_principal(caller, &role)?;
        Ok(self.principal(caller, id)?.name)
    }
}

fn no_such_grant(grantee: &ObjectName, privilege: Privilege, object: &str) -> RequestError {
    let message =
        format!("principal {:?} has no grant of {privilege} on {object} itself", grantee.text);
    let hint = "SHOW GRANTS lists grants; a privilege can also come from a role or the workspace";
    error_at(grantee, Error::new(ErrorCode::ObjectNotFound, message).hint(hint))
}
