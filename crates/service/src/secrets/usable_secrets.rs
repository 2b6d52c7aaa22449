//! The secrets that code may use, by the current rights.
//!
//! A personal secret is for code that its owner runs. A workspace secret requires USAGE for both
//! the principal that the code runs as and the author of the code. It must also be meant for that
//! code: listed by an integration that the code uses, or, if the value stays outside of the
//! sandbox, set by an owner of the workspace or by the principal that the code runs as. Otherwise
//! any principal that can create a secret could allow a host for all code of the workspace. The
//! principal that set the value counts, and not the owner, because the ownership of a secret can be
//! transferred.

use super::injection::{self, InjectionTarget};
use super::{Service, seal_context};
use crate::error::RequestError;
use db::ObjectFilter;
use policy::Destination;
use types::{
    Error, ErrorCode, Integration, ObjectRef, Principal, PrincipalId, Privilege, Secret, SecretId,
    SecretInjection, SecretScope, WorkspaceId,
};
use vault::{Plaintext, Vault};

/// How often a value that was replaced while it was read is read again.
const TRIES: usize = 3;

/// The author of code, in relation to the caller whose personal secrets it could use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CodeAuthor {
    /// The caller that requests the run.
    Caller,
    /// Another principal. Its code may use credentials of the caller, but not read personal values
    /// of the caller. `has_values` is set for a tool with values of its own, which the caller must
    /// not be able to redirect.
    Other { by: PrincipalId, has_values: bool },
}

impl CodeAuthor {
    /// The author whose rights count besides those of the principal that the code runs as.
    pub(crate) fn principal(self) -> Option<PrincipalId> {
        match self {
            Self::Caller => None,
            Self::Other { by, .. } => Some(by),
        }
    }
}

/// The principals and integrations of a run, which decide about its secrets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SecretConsumer<'a> {
    pub(crate) workspace: WorkspaceId,
    /// The principal whose rights the code has.
    pub(crate) run_as: &'a Principal,
    /// The principal that requested the run.
    pub(crate) caller: PrincipalId,
    pub(crate) author: CodeAuthor,
    pub(crate) integrations: &'a [Integration],
}

/// A secret that code may use, with its value.
#[derive(Debug, Clone)]
pub(crate) struct UsableSecret {
    pub(crate) id: SecretId,
    pub(crate) version: u64,
    pub(crate) name: String,
    pub(crate) inject: SecretInjection,
    /// Whether the secret by itself allows access to its host.
    pub(crate) opens_host: bool,
    pub(crate) value: Plaintext,
}

impl UsableSecret {
    /// Where its value is sent; absent if code has it as a variable.
    pub(crate) fn target(&self) -> Option<InjectionTarget> {
        injection::injection_target(&self.inject)
    }
}

impl Service {
    /// The usable secrets with their values. A credential that cannot be decrypted is left out, so
    /// that code cannot reach its host.
    pub(crate) async fn open_secrets(
        &self,
        consumer: SecretConsumer<'_>,
        is_wanted: impl Fn(&Secret) -> bool,
    ) -> Result<Vec<UsableSecret>, RequestError> {
        // Lock the vault first, so that the key is not rotated in between.
        let vault = self.vault.read().await;
        let mut usable: Vec<UsableSecret> = Vec::new();
        let mut bytes = 0;
        for secret in self.usable_secrets(consumer)?.into_iter().filter(|secret| is_wanted(secret))
        {
            match self.open_secret(&vault, consumer.workspace, &secret)? {
                Some(opened) => {
                    bytes += opened.value.reveal().len();
                    redact::check_secret_limits(usable.len() + 1, bytes)?;
                    let opens = self.opens_host(consumer.workspace, consumer.caller, &secret)?;
                    usable.push(UsableSecret { opens_host: opens, ..opened });
                }
                None if secret.exposed => return Err(unreadable(&secret)),
                None => tracing::error!(secret = %secret.id, "cannot decrypt a credential"),
            }
        }
        Ok(usable)
    }

    /// The usable secrets without their values. Of several for the same use, a personal one comes
    /// first, then the older one.
    pub(crate) fn usable_secrets(
        &self,
        consumer: SecretConsumer<'_>,
    ) -> Result<Vec<Secret>, RequestError> {
        let SecretConsumer { workspace, run_as, caller, .. } = consumer;
        let (personal, granted) = self.db.read(|rows| {
            let mut subjects = rows.role_ids(workspace, &run_as.roles)?;
            subjects.push(run_as.id);
            let workspace_grants =
                rows.grants_held(workspace, &subjects, &[ObjectRef::Workspace(workspace)])?;
            let is_owner =
                workspace_grants.iter().any(|grant| grant.privilege == Privilege::Ownership);
            let filter = ObjectFilter { search: None, seen_by: (!is_owner).then_some(subjects) };
            let personal = rows.private_secrets(workspace, caller)?;
            Ok((personal, rows.workspace_secrets(workspace, &filter)?))
        })?;
        let mut usable: Vec<Secret> = Vec::new();
        for secret in personal.into_iter().chain(granted) {
            let is_taken =
                usable.iter().any(|other| purpose(&other.inject) == purpose(&secret.inject));
            if !is_taken && self.is_usable(consumer, &secret)? {
                usable.push(secret);
            }
        }
        Ok(usable)
    }

    /// Whether a secret by itself allows access to its host. A personal secret does so for
    /// principals that could also create a network rule, and for others if an integration that they
    /// may use already allows the host.
    pub(crate) fn opens_host(
        &self,
        workspace: WorkspaceId,
        caller: PrincipalId,
        secret: &Secret,
    ) -> Result<bool, RequestError> {
        if secret.scope == SecretScope::Workspace {
            return Ok(true);
        }
        let caller = self.find_principal(workspace, caller)?;
        let all = ObjectRef::Workspace(workspace);
        if self.permit(workspace, &caller, Privilege::Modify, all)?.is_some() {
            return Ok(true);
        }
        let target = injection::injection_target(&secret.inject);
        let Some(destination) = target.and_then(|it| Destination::new(&it.host, it.port).ok())
        else {
            return Ok(false);
        };
        let names = self.db.read(|rows| rows.integration_names(workspace))?;
        let integrations = self.enabled_integrations(workspace, &caller, &names)?;
        Ok(policy::matching_integration(
            &self.integration_rules(workspace, &integrations)?,
            &destination,
        )
        .is_some())
    }

    fn is_usable(
        &self,
        consumer: SecretConsumer<'_>,
        secret: &Secret,
    ) -> Result<bool, RequestError> {
        let SecretConsumer { workspace, run_as, caller: _, author, integrations } = consumer;
        let is_listed = integrations.iter().any(|it| it.allowed_secrets.allows(&secret.name));
        if secret.scope == SecretScope::Caller {
            return Ok(match author {
                CodeAuthor::Caller => is_listed || !secret.exposed,
                CodeAuthor::Other { has_values, .. } => !secret.exposed && !has_values,
            });
        }
        let object = ObjectRef::Secret(secret.id);
        if self.permit(workspace, run_as, Privilege::Usage, object)?.is_none() {
            return Ok(false);
        }
        let code_author = author.principal().filter(|it| *it != run_as.id);
        if let Some(code_author) = code_author
            && !self.author_may(workspace, code_author, Privilege::Usage, object)?
        {
            return Ok(false);
        }
        if is_listed || secret.exposed {
            return Ok(is_listed);
        }
        if secret.set_by == run_as.id {
            return Ok(true);
        }
        let all = ObjectRef::Workspace(workspace);
        self.author_may(workspace, secret.set_by, Privilege::Ownership, all)
    }

    fn open_secret(
        &self,
        vault: &Vault,
        workspace: WorkspaceId,
        secret: &Secret,
    ) -> Result<Option<UsableSecret>, RequestError> {
        for _ in 0..TRIES {
            let (current, sealed_values) = self.db.read(|rows| {
                Ok((
                    rows.secret(workspace, secret.id)?,
                    rows.sealed_values(workspace, secret.id.uuid())?,
                ))
            })?;
            let Some(current) = current else { return Ok(None) };
            let context = seal_context(workspace, &current);
            let value =
                sealed_values.iter().find_map(|(_, sealed)| vault.open(&context, sealed).ok());
            if let Some(value) = value {
                let Secret { id, version, name, inject, .. } = current;
                return Ok(Some(UsableSecret {
                    id,
                    version,
                    name,
                    inject,
                    opens_host: false,
                    value,
                }));
            }
        }
        Ok(None)
    }
}

fn unreadable(secret: &Secret) -> RequestError {
    let message = format!("cannot decrypt secret {:?}", secret.name);
    Error::new(ErrorCode::SecretMissing, message)
        .hint("its record was changed outside of Belljar; set the value again")
        .into()
}

fn purpose(inject: &SecretInjection) -> (&'static str, &str, &str) {
    match inject {
        SecretInjection::Env { env } => ("env", env, ""),
        SecretInjection::Client(client) => ("client", client.client.name(), ""),
        SecretInjection::Header { header } => ("header", &header.host, &header.name),
    }
}
