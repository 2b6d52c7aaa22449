//! The principals of a workspace: users, services and roles.
//!
//! A member of a role has its grants, so every name in a principal's list of roles must be that of
//! a role: renaming or deleting a role changes its members in the same transaction.

use crate::error::{RequestError, invalid_field, not_found};
use crate::identity::caller::Caller;
use crate::identity::workspace_owners::{WorkspaceOwner, last_owner_error, owner_needed_error};
use crate::names;
use crate::page::{Page, page_request};
use crate::service::Service;
use crate::tasks::run_to_completion;
use chrono::{DateTime, Utc};
use db::{DatabaseError, NewAuditEntry, Origin, OwnedCounts, Reader, Tx};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use types::{Error, ErrorCode, ObjectRef, Principal, PrincipalId, PrincipalKind, WorkspaceId};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// Each role is looked up for every request of its members.
const ROLES_MAX: usize = 32;
const PREFERENCE_CHARS_MAX: usize = 200;
/// Unknown names are rejected, so that a typo is noticed.
const PREFERENCES: [&str; 1] = ["code_model"];

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PrincipalRequest {
    pub name: String,
    pub kind: PrincipalKind,
    /// Names of roles; a role itself has none.
    #[serde(default)]
    pub roles: Vec<String>,
    /// The unique name of this principal in another system: the subject of its tokens.
    pub external_id: Option<String>,
}

/// The principal and the workspace of the caller.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Me {
    #[serde(flatten)]
    pub principal: Principal,
    pub workspace: WorkspaceId,
}

/// Absent fields do not change.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PrincipalChange {
    pub name: Option<String>,
    /// The complete list of roles, not only new ones.
    pub roles: Option<Vec<String>>,
    /// An empty string removes it.
    pub external_id: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PrincipalQuery {
    /// Number of items, 1 to 200; default 50.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// `next_cursor` of the previous page.
    pub cursor: Option<String>,
}

impl Caller {
    pub fn me(&self) -> Me {
        Me { principal: self.principal.clone(), workspace: self.workspace }
    }
}

impl Service {
    pub async fn create_principal(
        &self,
        caller: &Caller,
        request: PrincipalRequest,
    ) -> Result<Principal, RequestError> {
        self.require_owner(caller)?;
        check_names(Some(&request.name), request.external_id.as_deref())?;
        let now = self.now();
        let principal = Principal {
            id: PrincipalId::new(Uuid::now_v7()),
            name: request.name,
            kind: request.kind,
            roles: request.roles,
            preferences: BTreeMap::new(),
            external_id: request.external_id,
            created_at: now,
            updated_at: now,
        };
        let (workspace, row) = (caller.workspace, principal.clone());
        let entry = principal_audit_entry(caller, "principal.create", row.id, &row.name);
        let written = move |tx: &Tx<'_>| {
            if let Some(error) = roles_error(tx, workspace, row.kind, &row.roles)? {
                return Ok(Err(error));
            }
            if let Some(error) = external_id_error(tx, workspace, &row)? {
                return Ok(Err(error));
            }
            tx.insert_principal(workspace, &row)?;
            tx.append_audit_entry(&entry)?;
            Ok(Ok(()))
        };
        self.db.write(written).await??;
        Ok(principal)
    }

    /// Principals of the workspace, newest first.
    pub async fn principals(
        &self,
        caller: &Caller,
        query: PrincipalQuery,
    ) -> Result<Page<Principal>, RequestError> {
        self.require_owner(caller)?;
        let (workspace, page) =
            (caller.workspace, page_request(query.limit, query.cursor.as_deref())?);
        let read = move |rows: &Reader<'_>| rows.principals(workspace, page);
        Ok(self.db.read_off_thread(read).await?.into())
    }

    pub fn principal(&self, caller: &Caller, id: PrincipalId) -> Result<Principal, RequestError> {
        if !self.may_see_owned_by(caller, id)? {
            return Err(not_found("principal", id));
        }
        let found = self.db.read(|rows| rows.principal(caller.workspace, id))?;
        found.ok_or_else(|| not_found("principal", id))
    }

    pub async fn change_principal(
        &self,
        caller: &Caller,
        id: PrincipalId,
        change: PrincipalChange,
    ) -> Result<Principal, RequestError> {
        self.require_owner(caller)?;
        let external_id = change.external_id.as_deref().filter(|id| !id.is_empty());
        check_names(change.name.as_deref(), external_id)?;
        let (workspace, now) = (caller.workspace, self.now());
        let entry = principal_audit_entry(
            caller,
            "principal.change",
            id,
            change.name.as_deref().unwrap_or(""),
        );
        let changed = move |tx: &Tx<'_>| write_change(tx, workspace, id, change, now, &entry);
        self.db.write(changed).await?
    }

    /// Deletes a principal with its keys and grants, and ends its pending approvals, sessions and
    /// executions. Objects that it owns must get another owner first.
    pub async fn delete_principal(
        self: &Arc<Self>,
        caller: &Caller,
        id: PrincipalId,
    ) -> Result<(), RequestError> {
        self.require_owner(caller)?;
        let (workspace, now) = (caller.workspace, self.now());
        let entry = principal_audit_entry(caller, "principal.delete", id, "");
        let service = Arc::clone(self);
        run_to_completion(async move {
            service.db.write(move |tx| write_deletion(tx, workspace, id, now, &entry)).await??;
            service.end_origin(workspace, Origin::Principal(id)).await
        })
        .await
    }

    /// The current preferences of the caller, which may have changed since the start of the
    /// request.
    pub fn preferences(&self, caller: &Caller) -> Result<BTreeMap<String, String>, RequestError> {
        self.principal(caller, caller.id()).map(|principal| principal.preferences)
    }

    /// Replaces all preferences: absent ones are removed.
    pub async fn set_preferences(
        &self,
        caller: &Caller,
        preferences: BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>, RequestError> {
        check_preferences(&preferences)?;
        self.write_preferences(caller, move |_| preferences).await
    }

    /// Sets some preferences, and removes those without a value.
    pub async fn change_preferences(
        &self,
        caller: &Caller,
        changes: BTreeMap<String, Option<String>>,
    ) -> Result<BTreeMap<String, String>, RequestError> {
        let named =
            changes.iter().map(|(name, value)| (name.clone(), value.clone().unwrap_or_default()));
        check_preferences(&named.collect())?;
        let change = |mut preferences: BTreeMap<String, String>| {
            for (name, value) in changes {
                match value {
                    Some(value) => preferences.insert(name, value),
                    None => preferences.remove(&name),
                };
            }
            preferences
        };
        self.write_preferences(caller, change).await
    }

    async fn write_preferences(
        &self,
        caller: &Caller,
        change: impl FnOnce(BTreeMap<String, String>) -> BTreeMap<String, String> + Send + 'static,
    ) -> Result<BTreeMap<String, String>, RequestError> {
        self.check_self_service_rate(caller)?;
        let (workspace, id, now) = (caller.workspace, caller.id(), self.now());
        let entry = principal_audit_entry(caller, "preferences.change", id, "");
        let written = move |tx: &Tx<'_>| {
            let Some(found) = tx.principal(workspace, id)? else {
                return Ok(Err(not_found("principal", id)));
            };
            let preferences = change(found.preferences.clone());
            let changed = Principal { preferences, updated_at: now, ..found };
            tx.update_principal(workspace, &changed)?;
            tx.append_audit_entry(&entry)?;
            Ok(Ok(changed.preferences))
        };
        self.db.write(written).await?
    }
}

fn principal_audit_entry(
    caller: &Caller,
    action: &str,
    id: PrincipalId,
    detail: &str,
) -> NewAuditEntry {
    caller.audit_entry(action, format_args!("principal {id}"), detail)
}

fn check_names(name: Option<&str>, external_id: Option<&str>) -> Result<(), RequestError> {
    name.map_or(Ok(()), |name| names::check_name("/name", name))?;
    external_id.map_or(Ok(()), |id| names::check_name("/external_id", id))
}

fn check_preferences(preferences: &BTreeMap<String, String>) -> Result<(), RequestError> {
    for (name, value) in preferences {
        let path = format!("/{name}");
        if !PREFERENCES.contains(&name.as_str()) {
            let known = PREFERENCES.join(", ");
            return Err(invalid_field(&path, format!("is not a preference; use {known}")));
        }
        if value.chars().count() > PREFERENCE_CHARS_MAX || value.chars().any(char::is_control) {
            let message = format!("must be one line of at most {PREFERENCE_CHARS_MAX} characters");
            return Err(invalid_field(&path, message));
        }
    }
    Ok(())
}

/// The errors in a list of roles.
fn roles_error(
    rows: &Reader<'_>,
    workspace: WorkspaceId,
    kind: PrincipalKind,
    roles: &[String],
) -> Result<Option<RequestError>, DatabaseError> {
    let invalid = |path: String, message: String| Ok(Some(invalid_field(&path, message)));
    if kind == PrincipalKind::Role && !roles.is_empty() {
        return invalid("/roles".into(), "a role cannot be a member of roles".into());
    }
    if roles.len() > ROLES_MAX {
        return invalid("/roles".into(), format!("can have at most {ROLES_MAX}"));
    }
    let mut seen = HashSet::new();
    for (index, name) in roles.iter().enumerate() {
        if !seen.insert(name) {
            return invalid(format!("/roles/{index}"), "is listed twice".into());
        }
        let found = rows.principal_by_name(workspace, name)?;
        if found.is_none_or(|found| found.kind != PrincipalKind::Role) {
            return invalid(format!("/roles/{index}"), format!("role {name:?} not found"));
        }
    }
    Ok(None)
}

/// The error if another principal has this external id, because a token must identify one
/// principal.
fn external_id_error(
    rows: &Reader<'_>,
    workspace: WorkspaceId,
    principal: &Principal,
) -> Result<Option<RequestError>, DatabaseError> {
    let Some(external_id) = &principal.external_id else { return Ok(None) };
    let existing = rows.principals_by_external_id(workspace, external_id)?;
    let holder = existing.into_iter().find(|existing| existing.id != principal.id);
    Ok(holder.map(|holder| {
        let message = format!("{} already has the external_id {external_id:?}", holder.name);
        Error::new(ErrorCode::NameTaken, message)
            .hint("remove it there first with an empty external_id")
            .into()
    }))
}

fn write_change(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    id: PrincipalId,
    change: PrincipalChange,
    now: DateTime<Utc>,
    entry: &NewAuditEntry,
) -> Result<Result<Principal, RequestError>, DatabaseError> {
    let Some(before) = tx.principal(workspace, id)? else {
        return Ok(Err(not_found("principal", id)));
    };
    let after = Principal {
        name: change.name.unwrap_or_else(|| before.name.clone()),
        roles: change.roles.unwrap_or_else(|| before.roles.clone()),
        external_id: change
            .external_id
            .or_else(|| before.external_id.clone())
            .filter(|id| !id.is_empty()),
        updated_at: now,
        ..before.clone()
    };
    if let Some(error) = roles_error(tx, workspace, after.kind, &after.roles)? {
        return Ok(Err(error));
    }
    if let Some(error) = external_id_error(tx, workspace, &after)? {
        return Ok(Err(error));
    }
    if after.roles != before.roles {
        let roles = tx.role_ids(workspace, &after.roles)?;
        let is_lost = |reason: &WorkspaceOwner| {
            let holder = reason.grant.principal;
            reason.who.id == id && holder != id && !roles.contains(&holder)
        };
        if let Some(error) = last_owner_error(tx, workspace, is_lost)? {
            return Ok(Err(error));
        }
    }
    if after.name != before.name && before.kind == PrincipalKind::Role {
        replace_role(tx, workspace, &before.name, Some(&after.name), now)?;
    }
    tx.update_principal(workspace, &after)?;
    tx.append_audit_entry(entry)?;
    Ok(Ok(after))
}

fn write_deletion(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    id: PrincipalId,
    now: DateTime<Utc>,
    entry: &NewAuditEntry,
) -> Result<Result<(), RequestError>, DatabaseError> {
    let Some(principal) = tx.principal(workspace, id)? else {
        return Ok(Err(not_found("principal", id)));
    };
    if let Some(owned) = describe_owned(tx.count_owned(workspace, id)?) {
        let error = owner_needed_error(format!(
            "principal {:?} cannot be deleted: it owns {owned}",
            principal.name
        ))
        .hint("offer them to another principal, or delete them");
        return Ok(Err(error.into()));
    }
    let is_affected = |reason: &WorkspaceOwner| reason.who.id == id || reason.grant.principal == id;
    if let Some(error) = last_owner_error(tx, workspace, is_affected)? {
        return Ok(Err(error));
    }
    if principal.kind == PrincipalKind::Role {
        replace_role(tx, workspace, &principal.name, None, now)?;
    }
    for secret in tx.private_secrets(workspace, id)? {
        tx.delete_secret(workspace, secret.id)?;
        tx.delete_grants_on(workspace, ObjectRef::Secret(secret.id))?;
    }
    tx.delete_remembered_approvals_of_requester(workspace, id)?;
    tx.delete_principal(workspace, id)?;
    tx.append_audit_entry(entry)?;
    Ok(Ok(()))
}

/// Renames a role in its members, or removes it: a later role of that name must not get the old
/// members.
fn replace_role(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    old: &str,
    new: Option<&str>,
    now: DateTime<Utc>,
) -> Result<(), DatabaseError> {
    for member in tx.role_members(workspace, old)? {
        let roles = member.roles.iter().filter_map(|role| match role == old {
            true => new.map(str::to_owned),
            false => Some(role.clone()),
        });
        let roles = roles.collect();
        tx.update_principal(workspace, &Principal { roles, updated_at: now, ..member })?;
    }
    Ok(())
}

/// The objects that would have no owner. Documents are not among them, because they expire.
fn describe_owned(owned: OwnedCounts) -> Option<String> {
    let kinds = [
        (owned.tools, "tool"),
        (owned.agents, "agent"),
        (owned.volumes, "volume"),
        (owned.secrets, "secret"),
        (owned.functions, "function"),
        (owned.network_rules, "network rule"),
        (owned.integrations, "integration"),
        (owned.skills, "skill"),
    ];
    let counted = kinds.iter().filter(|(count, _)| *count > 0).map(|(count, what)| match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    });
    let counted: Vec<String> = counted.collect();
    (!counted.is_empty()).then(|| counted.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_owns_is_said_in_words() {
        assert_eq!(describe_owned(OwnedCounts { documents: 3, ..OwnedCounts::default() }), None);
        let some = OwnedCounts { tools: 2, agents: 1, ..OwnedCounts::default() };
        assert_eq!(describe_owned(some).unwrap(), "2 tools, 1 agent");
    }

    #[test]
    fn only_preferences_that_something_reads_are_kept() {
        let one = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        assert!(check_preferences(&one("code_model", "small")).is_ok());
        let error = check_preferences(&one("code_modle", "small")).unwrap_err();
        assert_eq!(error.details[0].path.as_deref(), Some("/code_modle"));
        assert!(check_preferences(&one("code_model", "a\nb")).is_err());
        assert!(check_preferences(&one("code_model", &"x".repeat(201))).is_err());
    }
}
