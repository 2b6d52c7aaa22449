//! Secrets: values that are written and never returned. Only the code or the host that a value is
//! for receives it.
//!
//! A value is encrypted for one target. A caller that changes the target must send the value again,
//! so that a caller cannot redirect a value that it does not know. Only the owner of a secret may
//! change its target, because a principal that later sets a new value does not check the target
//! again. No other principal can use or change a personal secret.

mod injection;
mod rotation;
pub(crate) mod tool_variables;
mod usable_secrets;

pub use injection::SecretInjectionRequest;
pub(crate) use injection::check_project;
pub(crate) use injection::injection_target;
pub(crate) use injection::variable_destination;
pub use rotation::RotationResult;
pub(crate) use usable_secrets::{CodeAuthor, SecretConsumer, UsableSecret};

use crate::error::{RequestError, in_use, invalid_field, missing_privilege, not_found};
use crate::identity::caller::Caller;
use crate::identity::ownership::ObjectQuery;
use crate::names;
use crate::page::{Page, page_request};
use crate::serde_helpers::object;
use crate::service::Service;
use chrono::{DateTime, Utc};
use db::{DatabaseError, NewAuditEntry, ObjectFilter, Tx};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::sync::OwnedRwLockReadGuard;
use types::{
    Error, ErrorCode, ObjectRef, PrincipalId, Privilege, REDACTED_BYTES_MIN, SealContext, Secret,
    SecretId, SecretInjection, SecretScope, Warning, WorkspaceId,
};
use utoipa::ToSchema;
use uuid::Uuid;
use vault::{Plaintext, SealError, Vault};

/// Maximum number of secrets in a workspace: all secrets that code may use are read when it runs.
const SECRETS_MAX: u64 = 1_000;

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretRequest {
    pub name: String,
    /// Never returned.
    #[schema(value_type = String)]
    pub value: Plaintext,
    /// How code uses the secret; by default as a variable with the name of the secret.
    #[serde(default, deserialize_with = "object")]
    pub inject: SecretInjectionRequest,
    /// Default `workspace`.
    #[serde(default)]
    pub scope: SecretScope,
    pub comment: Option<String>,
}

/// Absent fields stay unchanged.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretChange {
    /// A change requires OWNERSHIP, and a change of the target requires the value again.
    #[serde(default, deserialize_with = "object")]
    pub inject: SecretInjectionRequest,
    #[schema(value_type = Option<String>)]
    pub value: Option<Plaintext>,
    /// An empty string removes it.
    pub comment: Option<String>,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretValue {
    /// Never returned.
    #[schema(value_type = String)]
    pub value: Plaintext,
}

/// A secret without its value, and warnings for its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SecretView {
    #[serde(flatten)]
    pub secret: Secret,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

impl Service {
    pub async fn create_secret(
        &self,
        caller: &Caller,
        request: SecretRequest,
    ) -> Result<SecretView, RequestError> {
        match request.scope {
            SecretScope::Workspace => self.require_create(caller)?,
            SecretScope::Caller => self.require_usage(caller).map(drop)?,
        }
        names::check_name("/name", &request.name)?;
        let inject = request.inject.validate(Some(&request.name))?;
        self.check_destination(caller, &inject)?;
        injection::check_value(&inject, &request.value)?;
        let now = self.now();
        let secret = Secret {
            id: SecretId::new(Uuid::now_v7()),
            name: request.name,
            owner: caller.id(),
            set_by: caller.id(),
            scope: request.scope,
            exposed: matches!(inject, SecretInjection::Env { .. }),
            inject,
            version: 1,
            comment: names::check_comment(request.comment)?,
            created_at: now,
            updated_at: now,
        };
        let object = ObjectRef::Secret(secret.id);
        let (grant, entry) = (
            caller.ownership_grant(object, now),
            caller.audit_entry("secret.create", object, &secret.name),
        );
        let (workspace, value, vault) =
            (caller.workspace, request.value, self.lock_vault_for_sealing().await);
        let written = self.db.write(move |tx| {
            if tx.count_secrets(workspace)? >= SECRETS_MAX {
                return Ok(Err(too_many()));
            }
            if let Err(error) = seal(tx, &vault, workspace, &secret, &value)? {
                return Ok(Err(error));
            }
            tx.insert_secret(workspace, &secret)?;
            tx.insert_grant(workspace, &grant)?;
            tx.append_audit_entry(&entry)?;
            secret_view(tx, workspace, secret, Some(&value)).map(Ok)
        });
        self.with_host_warning(caller, written.await??)
    }

    /// Newest first.
    pub async fn secrets(
        &self,
        caller: &Caller,
        query: ObjectQuery,
    ) -> Result<Page<Secret>, RequestError> {
        let page = page_request(query.limit, query.cursor.as_deref())?;
        let filter = ObjectFilter { search: query.search, seen_by: self.viewers(caller)? };
        let workspace = caller.workspace;
        let listed = self.db.read_off_thread(move |rows| rows.secrets(workspace, &filter, page));
        Ok(listed.await?.into())
    }

    pub fn secret(&self, caller: &Caller, id: SecretId) -> Result<Secret, RequestError> {
        let found = self.db.read(|rows| rows.secret(caller.workspace, id))?;
        match found {
            Some(secret) if self.can_see(caller, ObjectRef::Secret(id))? => Ok(secret),
            _ => Err(not_found("secret", id)),
        }
    }

    pub async fn replace_secret(
        &self,
        caller: &Caller,
        id: SecretId,
        SecretValue { value }: SecretValue,
    ) -> Result<SecretView, RequestError> {
        let change = SecretChange { value: Some(value), ..SecretChange::default() };
        self.update_secret(caller, id, change, "secret.replace").await
    }

    pub async fn change_secret(
        &self,
        caller: &Caller,
        id: SecretId,
        change: SecretChange,
    ) -> Result<SecretView, RequestError> {
        self.update_secret(caller, id, change, "secret.change").await
    }

    async fn update_secret(
        &self,
        caller: &Caller,
        id: SecretId,
        change: SecretChange,
        action: &str,
    ) -> Result<SecretView, RequestError> {
        let before = self.modifiable_secret(caller, id)?;
        let inject = match change.inject.is_empty() {
            true => None,
            false => Some(change.inject.validate(None)?),
        };
        if let Some(inject) = &inject {
            self.check_destination(caller, inject)?;
        }
        let object = ObjectRef::Secret(id);
        let is_owner =
            self.permit(caller.workspace, &caller.principal, Privilege::Ownership, object)?;
        let is_owner = is_owner.is_some();
        let comment = names::check_comment(change.comment)?;
        let entry = caller.audit_entry(action, object, before.name);
        let (workspace, value, vault) =
            (caller.workspace, change.value, self.lock_vault_for_sealing().await);
        let (set_by, clock) = (caller.id(), self.config.clock.clone());
        let written = self.db.write(move |tx| {
            let Some(current) = tx.secret(workspace, id)? else {
                return Ok(Err(not_found("secret", id)));
            };
            let set_by = value.as_ref().map(|_| set_by);
            let after = apply_change(current.clone(), inject, comment, set_by, clock.now());
            if after.inject != current.inject && !is_owner {
                return Ok(Err(target_change_error(object)));
            }
            if let Err(error) = check_change(&current, &after, value.as_ref()) {
                return Ok(Err(error));
            }
            if let Some(value) = &value
                && let Err(error) = seal(tx, &vault, workspace, &after, value)?
            {
                return Ok(Err(error));
            }
            write_change(tx, workspace, &after, &entry)?;
            secret_view(tx, workspace, after, value.as_ref()).map(Ok)
        });
        self.with_host_warning(caller, written.await??)
    }

    pub async fn delete_secret(&self, caller: &Caller, id: SecretId) -> Result<(), RequestError> {
        let secret = self.secret(caller, id)?;
        let object = ObjectRef::Secret(id);
        self.require_privilege(caller, Privilege::Ownership, object)?;
        let entry = caller.audit_entry("secret.delete", object, &secret.name);
        let name = secret.name;
        let workspace = caller.workspace;
        let is_shared = secret.scope == SecretScope::Workspace;
        let deleted = self.db.write(move |tx| {
            let integrations = tx.integrations_with_secret(workspace, &name)?;
            if is_shared && !integrations.is_empty() {
                let users = integrations.iter().map(|it| format!("integration {it:?}"));
                return Ok(Err(in_use(&format!("secret {name:?}"), &users.collect::<Vec<_>>())));
            }
            tx.delete_secret(workspace, id)?;
            tx.delete_grants_on(workspace, object)?;
            tx.append_audit_entry(&entry)?;
            Ok(Ok(()))
        });
        deleted.await?
    }

    /// Refuses a change of a personal secret by any other principal, even by an owner of the
    /// workspace.
    fn modifiable_secret(&self, caller: &Caller, id: SecretId) -> Result<Secret, RequestError> {
        let (secret, object) = (self.secret(caller, id)?, ObjectRef::Secret(id));
        self.require_privilege(caller, Privilege::Modify, object)?;
        if secret.scope == SecretScope::Caller && secret.owner != caller.id() {
            return Err(missing_privilege(Privilege::Modify, object));
        }
        Ok(secret)
    }

    /// A secret allows access to its host. For an address in the operator's network this requires
    /// ownership of the workspace, as for network rules, also for a personal secret.
    fn check_destination(
        &self,
        caller: &Caller,
        inject: &SecretInjection,
    ) -> Result<(), RequestError> {
        if !injection::targets_internal_address(inject) {
            return Ok(());
        }
        let all = ObjectRef::Workspace(caller.workspace);
        self.require_privilege(caller, Privilege::Ownership, all).map(drop)
    }

    /// Warns the owner of a personal credential whose host it does not allow.
    fn with_host_warning(
        &self,
        caller: &Caller,
        view: SecretView,
    ) -> Result<SecretView, RequestError> {
        let SecretView { secret, mut warnings } = view;
        if let Some(target) = injection::injection_target(&secret.inject)
            && !self.opens_host(caller.workspace, caller.id(), &secret)?
        {
            let message = format!(
                "this secret does not allow access to {}: a personal secret allows its host only \
                 for principals with MODIFY on the workspace; use an integration that allows the \
                 host",
                target.origin()
            );
            warnings.push(Warning { code: "secret.host_closed".to_owned(), message });
        }
        Ok(SecretView { secret, warnings })
    }

    /// Held until the encrypted value is stored, so that the key cannot be rotated in between.
    pub(crate) async fn lock_vault_for_sealing(&self) -> OwnedRwLockReadGuard<Vault> {
        Arc::clone(&self.vault).read_owned().await
    }
}

/// `set_by` is present if a new value was sent. Without one, the target of the secret cannot
/// change.
fn apply_change(
    secret: Secret,
    inject: Option<SecretInjection>,
    comment: Option<String>,
    set_by: Option<PrincipalId>,
    now: DateTime<Utc>,
) -> Secret {
    let inject = inject.unwrap_or(secret.inject);
    Secret {
        exposed: matches!(inject, SecretInjection::Env { .. }),
        inject,
        version: secret.version + u64::from(set_by.is_some()),
        set_by: set_by.unwrap_or(secret.set_by),
        comment: comment.or(secret.comment).filter(|comment| !comment.is_empty()),
        updated_at: now,
        ..secret
    }
}

fn check_change(
    before: &Secret,
    after: &Secret,
    value: Option<&Plaintext>,
) -> Result<(), RequestError> {
    match value {
        Some(value) => injection::check_value(&after.inject, value),
        None if injection::seal_destination(&before.inject)
            == injection::seal_destination(&after.inject) =>
        {
            Ok(())
        }
        None => Err(invalid_field(
            "/value",
            "is required, because the target changes: a value is only sent to the target that it \
             was set for",
        )),
    }
}

fn target_change_error(object: ObjectRef) -> RequestError {
    let mut error = missing_privilege(Privilege::Ownership, object);
    error.error.message = format!(
        "{}; MODIFY allows setting the value, but not changing its target",
        error.error.message
    );
    error
}

fn write_change(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    secret: &Secret,
    entry: &NewAuditEntry,
) -> Result<(), DatabaseError> {
    tx.update_secret(workspace, secret)?;
    tx.append_audit_entry(entry).map(drop)
}

/// Encrypts and stores the value.
fn seal(
    tx: &Tx<'_>,
    vault: &Vault,
    workspace: WorkspaceId,
    secret: &Secret,
    value: &Plaintext,
) -> Result<Result<(), RequestError>, DatabaseError> {
    let context = seal_context(workspace, secret);
    match vault.seal(&context, value) {
        Ok(sealed) => tx.upsert_sealed_value(&context, &sealed).map(Ok),
        Err(error) => Ok(Err(error.into())),
    }
}

fn seal_context(workspace: WorkspaceId, secret: &Secret) -> SealContext {
    SealContext {
        workspace,
        holder: secret.id.uuid(),
        name: secret.name.clone(),
        version: secret.version,
        destination: injection::seal_destination(&secret.inject),
    }
}

fn secret_view(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    secret: Secret,
    value: Option<&Plaintext>,
) -> Result<SecretView, DatabaseError> {
    let mut warnings = Vec::new();
    let mut warn = |code: &str, message: String| {
        warnings.push(Warning { code: code.to_owned(), message });
    };
    if value.is_some_and(|it| it.reveal().len() < REDACTED_BYTES_MIN) {
        let source = match secret.exposed {
            true => "the output of code",
            false => "responses of its host, where code may read it",
        };
        let message =
            format!("a value of less than {REDACTED_BYTES_MIN} bytes is not redacted in {source}");
        warn("secret.not_redacted", message);
    }
    if secret.exposed && !tx.is_allowed_secret(workspace, &secret.name)? {
        let message = format!(
            "no integration lists {:?} in `allowed_secrets` yet; code gets the variable only \
             through one that does",
            secret.name
        );
        warn("secret.not_allowed", message);
    }
    Ok(SecretView { secret, warnings })
}

fn too_many() -> RequestError {
    let message = format!("limit of {SECRETS_MAX} secrets in this workspace reached");
    Error::new(ErrorCode::QuotaExceeded, message)
        .hint("delete a secret that is no longer needed")
        .into()
}

impl From<SealError> for RequestError {
    fn from(error: SealError) -> Self {
        Error::new(ErrorCode::DatabaseUnavailable, error.to_string()).into()
    }
}
