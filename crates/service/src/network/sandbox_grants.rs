//! Resolves what the code of a sandbox may use: integrations, secrets and volumes, by the rights of
//! the principal that it runs as and of its author.
//!
//! The source of the integrations is fixed when the sandbox is created. The hosts that they allow
//! are read again for each request (`egress_policy.rs`), so that a change applies to the next one.

use super::caller_token::CallerTokenGrant;
use super::credentials;
use super::integrations::INTERNET;
use crate::data::volumes::privilege_for;
use crate::error::{RequestError, not_found};
use crate::runs::sessions::AuthorizedAgent;
use crate::secrets::{CodeAuthor, SecretConsumer};
use crate::service::Service;
use egress::IntegrationsField;
use engine::{Command, GrantedVolume, SandboxGrants};
use redact::OutputRedactor;
use std::sync::Arc;
use types::{
    AgentId, Error, ErrorCode, Integration, ObjectRef, Principal, PrincipalId, Privilege,
    SandboxId, Secret, SecretScope, Session, VolumeId, WorkspaceId,
};

/// Where the integrations of a sandbox are named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum IntegrationSource {
    /// In a request or a tool; used with the rights of one principal.
    Named { integrations: Vec<String>, run_as: PrincipalId, author: CodeAuthor },
    /// In the specification of an agent; used with the rights of the principal that its code runs as.
    Agent(AgentId),
}

impl IntegrationSource {
    /// The source for all sandboxes of a session.
    pub(crate) fn from_session(session: &Session) -> Self {
        match session.agent {
            Some(agent) => Self::Agent(agent),
            None => {
                let integrations = session.integrations.clone();
                Self::Named { integrations, run_as: session.owner, author: CodeAuthor::Caller }
            }
        }
    }

    pub(super) fn named_in(&self) -> IntegrationsField {
        match self {
            Self::Named { .. } => IntegrationsField::Request,
            Self::Agent(_) => IntegrationsField::Specification,
        }
    }
}

/// The integrations that a source names now, and the principals whose rights count.
pub(super) struct ResolvedIntegrations {
    pub(super) integrations: Vec<String>,
    pub(super) run_as: Principal,
    pub(super) author: CodeAuthor,
}

/// The integrations of a request or a tool, with `internet` for `allow_network`.
pub(crate) fn requested_integrations(
    mut integrations: Vec<String>,
    allow_network: bool,
) -> Vec<String> {
    if allow_network && !integrations.iter().any(|name| name == INTERNET) {
        integrations.push(INTERNET.to_owned());
    }
    integrations
}

pub(crate) fn tool_integrations(tool: &contract::CodeTool) -> Vec<String> {
    requested_integrations(tool.integrations.clone(), tool.allow_network)
}

impl Service {
    /// Resolves what a sandbox may use. A missing right is an error now, and not an unreachable
    /// host later.
    pub(crate) async fn resolve_grants(
        self: &Arc<Self>,
        workspace: WorkspaceId,
        caller: &Principal,
        source: IntegrationSource,
        volumes: Vec<GrantedVolume>,
    ) -> Result<SandboxGrants, RequestError> {
        let ResolvedIntegrations { integrations: names, run_as, author } =
            self.resolve_integrations(workspace, caller, &source).await?;
        self.check_integrations(
            workspace,
            (&run_as, "the principal that this code runs as"),
            &names,
        )?;
        self.check_author_egress(workspace, author.principal(), &names)?;
        let (integrations, _) =
            &self.integrations_granted_to_both(workspace, &run_as, author, &names)?;
        let caller = caller.id;
        let consumer = SecretConsumer { workspace, run_as: &run_as, caller, author, integrations };
        let secrets = self.open_secrets(consumer, |_| true).await?;
        let caller_token = self.caller_token_grant(consumer, secrets.iter().map(|it| &it.inject));
        let redacted = credentials::redacted_versions(&secrets);
        let redactor = OutputRedactor::from_cache(&self.secret_encodings, &redacted).await?;
        let needs_egress =
            !names.is_empty() || secrets.iter().any(|secret| secret.target().is_some());
        let egress =
            needs_egress.then(|| self.egress_handler(workspace, caller, source, redactor.clone()));
        Ok(SandboxGrants {
            volumes,
            directories: Vec::new(),
            variables: credentials::variables(&secrets)
                .into_iter()
                .chain(caller_token.iter().flat_map(CallerTokenGrant::variables))
                .collect(),
            exposed_secrets: credentials::exposed_versions(&secrets),
            redactor,
            egress,
        })
    }

    /// The secrets that code can read at this moment, without their values.
    pub(crate) async fn readable_secrets_now(
        &self,
        workspace: WorkspaceId,
        caller: &Principal,
        source: &IntegrationSource,
    ) -> Result<Vec<Secret>, RequestError> {
        let usable = self.usable_secrets_now(workspace, caller, source).await?;
        Ok(usable.into_iter().filter(|secret| secret.exposed).collect())
    }

    /// The secrets that code can use at this moment, without their values.
    async fn usable_secrets_now(
        &self,
        workspace: WorkspaceId,
        caller: &Principal,
        source: &IntegrationSource,
    ) -> Result<Vec<Secret>, RequestError> {
        let ResolvedIntegrations { integrations: names, run_as, author } =
            self.resolve_integrations(workspace, caller, source).await?;
        let (integrations, _) =
            &self.integrations_granted_to_both(workspace, &run_as, author, &names)?;
        let caller = caller.id;
        let consumer = SecretConsumer { workspace, run_as: &run_as, caller, author, integrations };
        self.usable_secrets(consumer)
    }

    /// Gives a command the grants of its own sandbox. A session has its own, which must suffice.
    #[boxed::future]
    pub(crate) async fn attach_grants(
        self: &Arc<Self>,
        command: Command,
        workspace: WorkspaceId,
        caller: &Principal,
        run_as: PrincipalId,
        (integrations, author): (Vec<String>, CodeAuthor),
    ) -> Result<Command, RequestError> {
        if let Some(session) = command.session {
            if let Some(author) = author.principal() {
                self.check_author_in_session(workspace, caller, session, author).await?;
            }
            return Ok(command);
        }
        let source = IntegrationSource::Named { integrations, run_as, author };
        let grants = self.resolve_grants(workspace, caller, source, Vec::new()).await?;
        Ok(Command { grants, ..command })
    }

    /// Refuses code in a session that has more than the author of the code may use: volumes, integrations
    /// and values of secrets that code can read.
    pub(crate) async fn check_author_in_session(
        &self,
        workspace: WorkspaceId,
        caller: &Principal,
        session: SandboxId,
        author: PrincipalId,
    ) -> Result<(), RequestError> {
        let session = self.session_row(workspace, session)?;
        if author == session.owner {
            return Ok(());
        }
        let integrations = self.session_integrations(workspace, caller, &session).await?;
        self.check_author_egress(workspace, Some(author), &integrations)?;
        for volume in &self.engine.session_grants(session.sandbox_id)?.volumes {
            let privilege = privilege_for(volume.access);
            let id: Result<VolumeId, _> = volume.directory.parse();
            let id = id.map_err(|_| not_found("volume", &volume.name))?;
            self.require_author(workspace, author, privilege, ObjectRef::Volume(id))?;
        }
        let owner = self.find_principal(workspace, session.owner)?;
        for secret in self
            .usable_secrets_now(workspace, &owner, &IntegrationSource::from_session(&session))
            .await?
        {
            match secret.scope {
                SecretScope::Workspace => {
                    let object = ObjectRef::Secret(secret.id);
                    self.require_author(workspace, author, Privilege::Usage, object)?;
                }
                SecretScope::Caller if secret.exposed => {
                    let message = "the session can read personal secrets of its owner";
                    let hint = "call the tool without a session";
                    return Err(Error::new(ErrorCode::GrantMissing, message).hint(hint).into());
                }
                // Code of other authors may use a credential of the caller, because it cannot read
                // the value.
                SecretScope::Caller => {}
            }
        }
        Ok(())
    }

    /// The integrations that the code of a session may use.
    pub(crate) async fn session_integrations(
        &self,
        workspace: WorkspaceId,
        caller: &Principal,
        session: &Session,
    ) -> Result<Vec<String>, RequestError> {
        match session.agent {
            Some(agent) => {
                Ok(self.authorize_agent(workspace, caller, agent).await?.section.integrations)
            }
            None => Ok(session.integrations.clone()),
        }
    }

    /// The names of integrations, and the principals whose rights count.
    pub(super) async fn resolve_integrations(
        &self,
        workspace: WorkspaceId,
        caller: &Principal,
        source: &IntegrationSource,
    ) -> Result<ResolvedIntegrations, RequestError> {
        match source {
            IntegrationSource::Named { integrations, run_as, author } => {
                let run_as = self.find_principal(workspace, *run_as)?;
                Ok(ResolvedIntegrations {
                    integrations: integrations.clone(),
                    run_as,
                    author: *author,
                })
            }
            IntegrationSource::Agent(id) => {
                let AuthorizedAgent { agent, section, run_as, .. } =
                    self.authorize_agent(workspace, caller, *id).await?;
                let author = CodeAuthor::Other { by: agent.author, has_values: false };
                Ok(ResolvedIntegrations { integrations: section.integrations, run_as, author })
            }
        }
    }

    /// Refuses code whose author may not use its integrations. Otherwise an author could have
    /// others send what the author may not send.
    pub(crate) fn check_author_egress(
        &self,
        workspace: WorkspaceId,
        author: Option<PrincipalId>,
        names: &[String],
    ) -> Result<(), RequestError> {
        let Some(author) = author.filter(|_| !names.is_empty()) else { return Ok(()) };
        let author = self.author_principal(workspace, author)?;
        self.check_integrations(workspace, (&author, "the author of this code"), names)
    }

    /// The integrations that both the author of code and the principal that it runs as may use:
    /// those that are enabled, and those that are disabled.
    pub(crate) fn integrations_granted_to_both(
        &self,
        workspace: WorkspaceId,
        run_as: &Principal,
        author: CodeAuthor,
        names: &[String],
    ) -> Result<(Vec<Integration>, Vec<Integration>), RequestError> {
        let (mut enabled, mut disabled) = self.granted_integrations(workspace, run_as, names)?;
        let author = author.principal().filter(|author| *author != run_as.id);
        if let Some(author) = author {
            for granted in [&mut enabled, &mut disabled] {
                let mut of_both = Vec::new();
                for integration in granted.drain(..) {
                    let object = ObjectRef::Integration(integration.id);
                    if self.author_may(workspace, author, Privilege::Usage, object)? {
                        of_both.push(integration);
                    }
                }
                *granted = of_both;
            }
        }
        Ok((enabled, disabled))
    }
}
