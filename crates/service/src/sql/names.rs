//! The names of statements: which object or principal each stands for.
//!
//! Belljar keeps names as they are written. A quoted name is exact. One without quotes stands for the
//! object of exactly that name, or else for the only one whose name differs in the case of letters. An
//! object that the caller cannot see is never found.

use super::NamedObjectRef;
use crate::error::{ErrorDetail, RequestError};
use crate::identity::caller::Caller;
use crate::service::Service;
use db::NameSpace;
use statements::{GranteeKind, GranteeName, NamedKind, ObjectName};
use types::{
    AgentId, Error, ErrorCode, IntegrationId, NetworkRuleId, ObjectRef, PrincipalId, PrincipalKind,
    SecretId, Warning,
};
use uuid::Uuid;

/// Limit of the objects that are looked at for one name, the one of exactly this name first: names that
/// differ in the case of letters only.
const SAME_NAMES_MAX: u32 = 16;

pub(super) fn object_ref(kind: NamedKind, id: Uuid) -> ObjectRef {
    match kind {
        NamedKind::NetworkRule => ObjectRef::NetworkRule(NetworkRuleId::new(id)),
        NamedKind::Integration => ObjectRef::Integration(IntegrationId::new(id)),
        NamedKind::Secret => ObjectRef::Secret(SecretId::new(id)),
        NamedKind::Agent => ObjectRef::Agent(AgentId::new(id)),
    }
}

fn name_space(kind: NamedKind) -> NameSpace {
    match kind {
        NamedKind::NetworkRule => NameSpace::NetworkRules,
        NamedKind::Integration => NameSpace::Integrations,
        NamedKind::Secret => NameSpace::WorkspaceSecrets,
        NamedKind::Agent => NameSpace::Agents,
    }
}

pub(super) fn named(kind: NamedKind, id: Uuid, name: impl Into<String>) -> NamedObjectRef {
    NamedObjectRef { kind: object_ref(kind, id).kind(), id, name: name.into() }
}

/// An error at a name.
pub(super) fn error_at(name: &ObjectName, error: Error) -> RequestError {
    let detail = ErrorDetail {
        message: error.message.clone(),
        code: Some(error.code.clone()),
        line: usize::try_from(name.position.line).ok(),
        column: usize::try_from(name.position.column).ok(),
        ..ErrorDetail::default()
    };
    RequestError { error: Box::new(error), details: vec![detail] }
}

pub(super) fn missing(kind: NamedKind, name: &ObjectName) -> RequestError {
    let message = format!("{} {:?} not found", kind.noun(), name.text);
    error_at(name, Error::new(ErrorCode::ObjectNotFound, message).hint("check the name"))
}

/// The warning for a name that has a database or a schema.
pub(super) fn qualifier_warning(name: &ObjectName) -> Option<Warning> {
    name.is_qualified.then(|| Warning {
        code: "statement.qualifier_ignored".to_owned(),
        message: format!(
            "database and schema of {:?} are ignored: a workspace has one list of names",
            name.text
        ),
    })
}

/// The one that a name stands for, among those that differ in the case of letters only.
fn select(
    name: &ObjectName,
    noun: &str,
    mut found: Vec<(Uuid, String)>,
) -> Result<Option<(Uuid, String)>, RequestError> {
    if let Some(exact) = found.iter().position(|(_, stored)| *stored == name.text) {
        return Ok(Some(found.swap_remove(exact)));
    }
    if name.is_quoted {
        return Ok(None);
    }
    if found.len() > 1 {
        let names: Vec<String> = found.iter().map(|(_, name)| format!("{name:?}")).collect();
        let message = format!("{noun} {:?} is one of {}", name.text, names.join(", "));
        let error = Error::new(ErrorCode::ArgsInvalid, message);
        return Err(error_at(name, error.hint("write the name in double quotes, as it is stored")));
    }
    Ok(found.pop())
}

impl Service {
    /// The object that a name stands for, if the caller can see it.
    pub(super) fn sql_find(
        &self,
        caller: &Caller,
        kind: NamedKind,
        name: &ObjectName,
    ) -> Result<Option<NamedObjectRef>, RequestError> {
        let workspace = caller.workspace;
        let space = name_space(kind);
        let found = self
            .db
            .read(|rows| rows.objects_named(space, workspace, &name.text, SAME_NAMES_MAX))?;
        let mut visible = Vec::new();
        for (id, stored) in found {
            if self.can_see(caller, object_ref(kind, id))? {
                visible.push((id, stored));
            }
        }
        Ok(select(name, kind.noun(), visible)?.map(|(id, name)| named(kind, id, name)))
    }

    pub(super) fn sql_require(
        &self,
        caller: &Caller,
        kind: NamedKind,
        name: &ObjectName,
    ) -> Result<NamedObjectRef, RequestError> {
        self.sql_find(caller, kind, name)?.ok_or_else(|| missing(kind, name))
    }

    /// The principal that a statement names. As over REST, only an owner of the workspace can look up
    /// others by their names; ids, in double quotes, stand for themselves.
    pub(super) fn sql_principal(
        &self,
        caller: &Caller,
        grantee: &GranteeName,
    ) -> Result<(PrincipalId, String), RequestError> {
        let name = &grantee.name;
        if name.is_quoted
            && let Ok(id) = name.text.parse::<Uuid>()
        {
            return Ok((PrincipalId::new(id), name.text.clone()));
        }
        let own = &caller.principal;
        let is_own = own.name == name.text && grantee.kind != Some(GranteeKind::Role);
        if !is_own && let Err(mut refused) = self.require_owner(caller) {
            let hint = "only an owner of the workspace can look up principals by name; write the id \
                        in double quotes";
            refused.error.hint = Some(hint.to_owned());
            return Err(error_at(name, *refused.error));
        }
        let workspace = caller.workspace;
        let found = self.db.read(|rows| {
            rows.objects_named(NameSpace::Principals, workspace, &name.text, SAME_NAMES_MAX)
        })?;
        let missing = || {
            let error = format!("principal {:?} not found", name.text);
            error_at(name, Error::new(ErrorCode::ObjectNotFound, error).hint("check the name"))
        };
        let (id, stored) = select(name, "principal", found)?.ok_or_else(missing)?;
        let id = PrincipalId::new(id);
        let principal = self.db.read(|rows| rows.principal(workspace, id))?.ok_or_else(missing)?;
        let is_role = principal.kind == PrincipalKind::Role;
        match grantee.kind {
            Some(GranteeKind::Role) if !is_role => Err(wrong_kind(name, "no role", "USER")),
            Some(GranteeKind::User) if is_role => Err(wrong_kind(name, "a role", "ROLE")),
            _ => Ok((id, stored)),
        }
    }
}

fn wrong_kind(name: &ObjectName, kind: &str, keyword: &str) -> RequestError {
    let message = format!("principal {:?} is {kind}", name.text);
    let hint = format!("write {keyword} {:?}", name.text);
    error_at(name, Error::new(ErrorCode::ArgsInvalid, message).hint(hint))
}
