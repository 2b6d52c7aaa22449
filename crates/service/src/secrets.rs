//! Secrets: values that are written and never read again, but by the code or the host that they are
//! for.
//!
//! A value was given for one place. Whoever changes the place gives the value again, so that nobody
//! can send elsewhere what they do not know. The place is the owner's to change: whoever sets the next
//! value does not look at it again. A secret of one's own is nobody else's to use or change.

mod inject;
mod rotation;
mod usable;

pub use inject::InjectRequest;
pub(crate) use inject::target;
pub(crate) use inject::variable_place;
pub use rotation::Rotated;
pub(crate) use usable::{Author, Borrower, Usable};

use crate::caller::Caller;
use crate::names;
use crate::object::object;
use crate::objects::ObjectQuery;
use crate::page::{Listed, page};
use crate::refused::{Refused, in_use, invalid, missing, not_found};
use crate::service::Service;
use chrono::Utc;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use store::{AuditLine, ObjectFilter, StoreError, Tx};
use tokio::sync::OwnedRwLockReadGuard;
use types::{
    Code, Fault, Inject, Label, Object, PrincipalId, Privilege, REDACTED_BYTES_MIN, Secret,
    SecretId, SecretScope, Warning, WorkspaceId,
};
use utoipa::ToSchema;
use uuid::Uuid;
use vault::{CannotSeal, Plain, Vault};

/// Of one workspace: all that code may use is read when it runs.
const SECRETS_MAX: u64 = 1_000;

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretRequest {
    pub name: String,
    /// Nobody is shown it again.
    #[schema(value_type = String)]
    pub value: Plain,
    /// How code uses it; as a variable of the secret's name if absent.
    #[serde(default, deserialize_with = "object")]
    pub inject: InjectRequest,
    /// `workspace` if absent.
    #[serde(default)]
    pub scope: SecretScope,
    pub comment: Option<String>,
}

/// What is absent stays as it is.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretChange {
    /// Another one needs OWNERSHIP, and with another place the value is needed again.
    #[serde(default, deserialize_with = "object")]
    pub inject: InjectRequest,
    #[schema(value_type = Option<String>)]
    pub value: Option<Plain>,
    pub comment: Option<String>,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretValue {
    /// Nobody is shown it again.
    #[schema(value_type = String)]
    pub value: Plain,
}

/// A secret without its value, and what its owner should know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct KeptSecret {
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
    ) -> Result<KeptSecret, Refused> {
        match request.scope {
            SecretScope::Workspace => self.require_maker(caller)?,
            SecretScope::Caller => self.require_usage(caller).map(drop)?,
        }
        names::check("/name", &request.name)?;
        let inject = request.inject.checked(Some(&request.name))?;
        self.check_place(caller, &inject)?;
        inject::check_value(&inject, &request.value)?;
        let now = Utc::now();
        let secret = Secret {
            id: SecretId::new(Uuid::now_v7()),
            name: request.name,
            owner: caller.id(),
            set_by: caller.id(),
            scope: request.scope,
            exposed: matches!(inject, Inject::Env { .. }),
            inject,
            version: 1,
            comment: names::comment(request.comment)?,
            created_at: now,
            updated_at: now,
        };
        let object = Object::Secret(secret.id);
        let (grant, entry) =
            (caller.owning(object, now), caller.did("secret.create", object, &secret.name));
        let (workspace, value, vault) = (caller.workspace, request.value, self.sealing().await);
        let written = self.store.write(move |tx| {
            if tx.secret_count(workspace)? >= SECRETS_MAX {
                return Ok(Err(too_many()));
            }
            if let Err(refused) = seal(tx, &vault, workspace, &secret, &value)? {
                return Ok(Err(refused));
            }
            tx.insert_secret(workspace, &secret)?;
            tx.insert_grant(workspace, &grant)?;
            tx.audit(&entry)?;
            kept(tx, workspace, secret, Some(&value)).map(Ok)
        });
        self.told_of_its_host(caller, written.await??)
    }

    /// Newest first.
    pub async fn secrets(
        &self,
        caller: &Caller,
        query: ObjectQuery,
    ) -> Result<Listed<Secret>, Refused> {
        let page = page(query.limit, query.cursor.as_deref())?;
        let filter = ObjectFilter { search: query.search, seen_by: self.viewers(caller)? };
        let workspace = caller.workspace;
        let listed = self.store.read_long(move |rows| rows.secrets(workspace, &filter, page));
        Ok(listed.await?.into())
    }

    pub fn secret(&self, caller: &Caller, id: SecretId) -> Result<Secret, Refused> {
        let found = self.store.read(|rows| rows.secret(caller.workspace, id))?;
        match found {
            Some(secret) if self.sees(caller, Object::Secret(id))? => Ok(secret),
            _ => Err(not_found("secret", id)),
        }
    }

    pub async fn replace_secret(
        &self,
        caller: &Caller,
        id: SecretId,
        SecretValue { value }: SecretValue,
    ) -> Result<KeptSecret, Refused> {
        let change = SecretChange { value: Some(value), ..SecretChange::default() };
        self.alter_secret(caller, id, change, "secret.replace").await
    }

    pub async fn change_secret(
        &self,
        caller: &Caller,
        id: SecretId,
        change: SecretChange,
    ) -> Result<KeptSecret, Refused> {
        self.alter_secret(caller, id, change, "secret.change").await
    }

    async fn alter_secret(
        &self,
        caller: &Caller,
        id: SecretId,
        change: SecretChange,
        action: &str,
    ) -> Result<KeptSecret, Refused> {
        let before = self.changeable(caller, id)?;
        let inject = match change.inject.is_silent() {
            true => None,
            false => Some(change.inject.checked(None)?),
        };
        if let Some(inject) = &inject {
            self.check_place(caller, inject)?;
        }
        let object = Object::Secret(id);
        let owns =
            self.permit(caller.workspace, &caller.principal, Privilege::Ownership, object)?;
        let owns = owns.is_some();
        let comment = names::comment(change.comment)?;
        let entry = caller.did(action, object, before.name);
        let (workspace, value, vault) = (caller.workspace, change.value, self.sealing().await);
        let set_by = caller.id();
        let written = self.store.write(move |tx| {
            let Some(now) = tx.secret(workspace, id)? else {
                return Ok(Err(not_found("secret", id)));
            };
            let set_by = value.as_ref().map(|_| set_by);
            let after = changed(now.clone(), inject, comment, set_by);
            if after.inject != now.inject && !owns {
                return Ok(Err(place_is_owners(object)));
            }
            if let Err(refused) = check_change(&now, &after, value.as_ref()) {
                return Ok(Err(refused));
            }
            if let Some(value) = &value
                && let Err(refused) = seal(tx, &vault, workspace, &after, value)?
            {
                return Ok(Err(refused));
            }
            write_change(tx, workspace, &after, &entry)?;
            kept(tx, workspace, after, value.as_ref()).map(Ok)
        });
        self.told_of_its_host(caller, written.await??)
    }

    pub async fn delete_secret(&self, caller: &Caller, id: SecretId) -> Result<(), Refused> {
        let secret = self.secret(caller, id)?;
        let object = Object::Secret(id);
        self.require(caller, Privilege::Ownership, object)?;
        let entry = caller.did("secret.delete", object, &secret.name);
        let name = secret.name;
        let workspace = caller.workspace;
        let is_of_all = secret.scope == SecretScope::Workspace;
        let deleted = self.store.write(move |tx| {
            let named = tx.integrations_with_secret(workspace, &name)?;
            if is_of_all && !named.is_empty() {
                let users = named.iter().map(|it| format!("integration {it:?}"));
                return Ok(Err(in_use(&format!("secret {name:?}"), &users.collect::<Vec<_>>())));
            }
            tx.delete_secret(workspace, id)?;
            tx.delete_grants_on(workspace, object)?;
            tx.audit(&entry)?;
            Ok(Ok(()))
        });
        deleted.await?
    }

    /// An owner of the workspace, who may everything else, changes nobody's own.
    fn changeable(&self, caller: &Caller, id: SecretId) -> Result<Secret, Refused> {
        let (secret, object) = (self.secret(caller, id)?, Object::Secret(id));
        self.require(caller, Privilege::Modify, object)?;
        if secret.scope == SecretScope::Caller && secret.owner != caller.id() {
            return Err(missing(Privilege::Modify, object));
        }
        Ok(secret)
    }

    /// A secret opens its host. Inside of the operator's network that is a matter of those who make
    /// rules, also where the secret is somebody's own.
    fn check_place(&self, caller: &Caller, inject: &Inject) -> Result<(), Refused> {
        if !inject::names_inside(inject) {
            return Ok(());
        }
        let all = Object::Workspace(caller.workspace);
        self.require(caller, Privilege::Ownership, all).map(drop)
    }

    /// Warns whoever has a credential of their own for a host that it does not open to them.
    fn told_of_its_host(&self, caller: &Caller, kept: KeptSecret) -> Result<KeptSecret, Refused> {
        let KeptSecret { secret, mut warnings } = kept;
        if let Some(target) = inject::target(&secret.inject)
            && !self.opens(caller.workspace, caller.id(), &secret)?
        {
            let message = format!(
                "code does not reach {} by this: a secret of one's own opens its host for those who have \
                 MODIFY on the workspace, and for others an integration that they may use has to",
                target.origin()
            );
            warnings.push(Warning { code: "secret.host_closed".to_owned(), message });
        }
        Ok(KeptSecret { secret, warnings })
    }

    /// Held until what is sealed with it is kept: no new key comes in between.
    pub(crate) async fn sealing(&self) -> OwnedRwLockReadGuard<Vault> {
        Arc::clone(&self.vault).read_owned().await
    }
}

/// `set_by` is there if a new value was given, without which the place of the secret cannot change.
fn changed(
    secret: Secret,
    inject: Option<Inject>,
    comment: Option<String>,
    set_by: Option<PrincipalId>,
) -> Secret {
    let inject = inject.unwrap_or(secret.inject);
    Secret {
        exposed: matches!(inject, Inject::Env { .. }),
        inject,
        version: secret.version + u64::from(set_by.is_some()),
        set_by: set_by.unwrap_or(secret.set_by),
        comment: comment.or(secret.comment),
        updated_at: Utc::now(),
        ..secret
    }
}

fn check_change(now: &Secret, after: &Secret, value: Option<&Plain>) -> Result<(), Refused> {
    match value {
        Some(value) => inject::check_value(&after.inject, value),
        None if inject::place(&now.inject) == inject::place(&after.inject) => Ok(()),
        None => Err(invalid(
            "/value",
            "is needed again: it was given for another place, and goes nowhere else",
        )),
    }
}

fn place_is_owners(object: Object) -> Refused {
    let mut refused = missing(Privilege::Ownership, object);
    refused.fault.message =
        format!("{}; MODIFY sets its value, and not where the value goes", refused.fault.message);
    refused
}

fn write_change(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    secret: &Secret,
    entry: &AuditLine,
) -> Result<(), StoreError> {
    tx.update_secret(workspace, secret)?;
    tx.audit(entry).map(drop)
}

/// Keeps the value, and nobody can read it there.
fn seal(
    tx: &Tx<'_>,
    vault: &Vault,
    workspace: WorkspaceId,
    secret: &Secret,
    value: &Plain,
) -> Result<Result<(), Refused>, StoreError> {
    let label = label(workspace, secret);
    match vault.seal(&label, value) {
        Ok(sealed) => tx.put_sealed(&label, &sealed).map(Ok),
        Err(cannot) => Ok(Err(cannot.into())),
    }
}

fn label(workspace: WorkspaceId, secret: &Secret) -> Label {
    Label {
        workspace,
        holder: secret.id.uuid(),
        name: secret.name.clone(),
        version: secret.version,
        place: inject::place(&secret.inject),
    }
}

fn kept(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    secret: Secret,
    value: Option<&Plain>,
) -> Result<KeptSecret, StoreError> {
    let mut warnings = Vec::new();
    let mut warn = |code: &str, message: String| {
        warnings.push(Warning { code: code.to_owned(), message });
    };
    if value.is_some_and(|it| it.reveal().len() < REDACTED_BYTES_MIN) {
        let where_from = match secret.exposed {
            true => "what code prints",
            false => "what its host answers: code may read it there",
        };
        let message = format!(
            "a value of less than {REDACTED_BYTES_MIN} bytes is not taken out of {where_from}"
        );
        warn("secret.not_redacted", message);
    }
    if secret.exposed && !tx.is_allowed_secret(workspace, &secret.name)? {
        let message = format!(
            "code has this variable if it leaves by an integration whose `allowed_secrets` has {:?}, \
             and there is none yet",
            secret.name
        );
        warn("secret.not_allowed", message);
    }
    Ok(KeptSecret { secret, warnings })
}

fn too_many() -> Refused {
    let message = format!("a workspace has at most {SECRETS_MAX} secrets");
    Fault::new(Code::QuotaExceeded, message).hint("delete one").into()
}

impl From<CannotSeal> for Refused {
    fn from(cannot: CannotSeal) -> Self {
        Fault::new(Code::StoreUnavailable, cannot.to_string()).into()
    }
}
