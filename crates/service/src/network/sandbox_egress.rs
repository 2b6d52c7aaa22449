//! The way out of one sandbox. On which grounds it has one is fixed when the sandbox is made; what
//! they open is asked anew for each request, so that a change is felt by the next one. What was
//! found is kept for as long as nothing by which it was decided has changed, and not for longer.

use super::credentials;
use super::egress_log::EgressLog;
use super::integrations::INTERNET;
use crate::data::volumes::privilege_for;
use crate::error::{RequestError, not_found};
use crate::runs::sessions::AuthorizedAgent;
use crate::secrets::{CodeAuthor, SecretConsumer};
use crate::service::Service;
use db::Revision;
use egress::{
    EgressAttempt, EgressPolicy, EgressPolicyFuture, EgressPolicySource, IntegrationsField,
};
use engine::{Command, EgressHandler, OutputRedactor};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use types::{
    AgentId, Error, ErrorCode, Integration, ObjectRef, Principal, PrincipalId, Privilege,
    SandboxId, Secret, SecretId, SecretScope, Session, VolumeId, WorkspaceId,
};

/// By what a sandbox may be left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum IntegrationSource {
    /// By these integrations, with the rights of one principal.
    Named { integrations: Vec<String>, run_as: PrincipalId, author: CodeAuthor },
    /// By what the specification of the agent names, with the rights of whoever its code runs as.
    Agent(AgentId),
}

impl IntegrationSource {
    /// Of all sandboxes of a session.
    pub(crate) fn from_session(session: &Session) -> Self {
        match session.agent {
            Some(agent) => Self::Agent(agent),
            None => {
                let integrations = session.integrations.clone();
                Self::Named { integrations, run_as: session.owner, author: CodeAuthor::Caller }
            }
        }
    }

    fn named_in(&self) -> IntegrationsField {
        match self {
            Self::Named { .. } => IntegrationsField::Request,
            Self::Agent(_) => IntegrationsField::Specification,
        }
    }
}

/// By which integrations code may leave at this moment, and who answers for it.
pub(super) struct ResolvedIntegrations {
    pub(super) integrations: Vec<String>,
    pub(super) run_as: Principal,
    pub(super) author: CodeAuthor,
}

/// What a request or a tool asks for in two ways.
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

/// What a sandbox is given of the world outside.
#[derive(Debug, Default)]
pub(crate) struct SandboxEgress {
    /// Absent if it can reach nobody.
    pub(crate) handler: Option<EgressHandler>,
    /// What its secrets, or the placeholders of them, are called inside.
    pub(crate) variables: BTreeMap<String, String>,
    /// Takes the values of its secrets out of what comes back.
    pub(crate) redactor: OutputRedactor,
    pub(crate) egress_log: Option<Arc<EgressLog>>,
    /// The secrets that it can read, by their versions.
    pub(crate) exposed_secrets: BTreeSet<(SecretId, u64)>,
}

/// Answers the proxy of one sandbox.
#[derive(Debug)]
struct SandboxPolicySource {
    /// The engine holds this for as long as the sandbox lives, and the service holds the engine.
    service: Weak<Service>,
    workspace: WorkspaceId,
    caller: PrincipalId,
    integrations: IntegrationSource,
    egress_log: Arc<EgressLog>,
    /// What was found last, and what the records were then.
    cached: Mutex<Option<(Revision, Arc<EgressPolicy>)>>,
}

impl SandboxPolicySource {
    fn cached_policy(&self, revision: Revision) -> Option<Arc<EgressPolicy>> {
        let found = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        found.as_ref().filter(|(then, _)| *then == revision).map(|(_, way)| Arc::clone(way))
    }

    async fn policy(&self, service: &Service) -> Result<Arc<EgressPolicy>, RequestError> {
        // Before anything is read, so that what is changed meanwhile is of another revision.
        let revision = service.db.revision();
        if let Some(way) = self.cached_policy(revision) {
            return Ok(way);
        }
        let way = Arc::new(service.current_egress_policy(self).await?);
        let found = Some((revision, Arc::clone(&way)));
        *self.cached.lock().unwrap_or_else(PoisonError::into_inner) = found;
        Ok(way)
    }
}

impl Service {
    /// How a sandbox can be left. What it is to have and may not is an error now, and not a host that
    /// cannot be reached later.
    pub(crate) async fn sandbox_egress(
        self: &Arc<Self>,
        workspace: WorkspaceId,
        caller: &Principal,
        grounds: IntegrationSource,
    ) -> Result<SandboxEgress, RequestError> {
        let ResolvedIntegrations { integrations: names, run_as, author } =
            self.resolve_integrations(workspace, caller, &grounds).await?;
        self.check_integrations(workspace, (&run_as, "as whom this code runs"), &names)?;
        self.check_author_egress(workspace, author.principal(), &names)?;
        let (integrations, _) =
            &self.integrations_granted_to_both(workspace, &run_as, author, &names)?;
        let caller = caller.id;
        let borrower = SecretConsumer { workspace, run_as: &run_as, caller, author, integrations };
        let secrets = self.open_secrets(borrower, |_| true).await?;
        let mut leave = SandboxEgress {
            variables: credentials::variables(&secrets),
            redactor: self.redactors.redactor(credentials::redacted_versions(&secrets)).await?,
            exposed_secrets: credentials::exposed_versions(&secrets),
            ..SandboxEgress::default()
        };
        if names.is_empty() && secrets.iter().all(|secret| secret.target().is_none()) {
            return Ok(leave);
        }
        let (history, redactor) = (Arc::clone(&self.egress_log_queue), leave.redactor.clone());
        let trail = Arc::new(EgressLog::new(workspace, caller, history, redactor));
        let gate = SandboxPolicySource {
            service: Arc::downgrade(self),
            workspace,
            caller,
            integrations: grounds,
            egress_log: Arc::clone(&trail),
            cached: Mutex::default(),
        };
        leave.handler = Some(self.egress_handler(Arc::new(gate)));
        leave.egress_log = Some(trail);
        Ok(leave)
    }

    fn egress_handler(&self, gate: Arc<SandboxPolicySource>) -> EgressHandler {
        let proxy = self.proxy.clone();
        EgressHandler::new(move |listener| {
            let (proxy, gate) = (proxy.clone(), Arc::clone(&gate));
            let serving = async move {
                if let Err(error) = proxy.serve(listener, gate).await {
                    tracing::error!(%error, "the outlet of a sandbox cannot be served");
                }
            };
            Box::new(AbortOnDrop(tokio::spawn(serving)))
        })
    }

    /// The secrets that code can read at this moment, without their values.
    pub(crate) async fn readable_secrets_now(
        &self,
        workspace: WorkspaceId,
        caller: &Principal,
        grounds: &IntegrationSource,
    ) -> Result<Vec<Secret>, RequestError> {
        let lent = self.usable_secrets_now(workspace, caller, grounds).await?;
        Ok(lent.into_iter().filter(|secret| secret.exposed).collect())
    }

    /// The secrets that code can use at this moment, without their values.
    async fn usable_secrets_now(
        &self,
        workspace: WorkspaceId,
        caller: &Principal,
        grounds: &IntegrationSource,
    ) -> Result<Vec<Secret>, RequestError> {
        let ResolvedIntegrations { integrations: names, run_as, author } =
            self.resolve_integrations(workspace, caller, grounds).await?;
        let (integrations, _) =
            &self.integrations_granted_to_both(workspace, &run_as, author, &names)?;
        let caller = caller.id;
        let borrower = SecretConsumer { workspace, run_as: &run_as, caller, author, integrations };
        self.usable_secrets(borrower)
    }

    /// The same for one execution. A session has a way of its own, which must be wide enough.
    pub(crate) async fn attach_egress(
        self: &Arc<Self>,
        command: Command,
        workspace: WorkspaceId,
        caller: &Principal,
        run_as: PrincipalId,
        (integrations, author): (Vec<String>, CodeAuthor),
    ) -> Result<(Command, Option<Arc<EgressLog>>), RequestError> {
        if let Some(session) = command.session {
            self.check_session_integrations(workspace, caller, session, &integrations).await?;
            if let Some(author) = author.principal() {
                self.check_author_in_session(workspace, caller, session, author).await?;
            }
            return Ok((command, self.session_egress_log(session)));
        }
        let grounds = IntegrationSource::Named { integrations, run_as, author };
        let leave = self.sandbox_egress(workspace, caller, grounds).await?;
        let SandboxEgress { handler: outlet, variables, redactor, egress_log: trail, .. } = leave;
        Ok((Command { egress: outlet, variables, redactor, ..command }, trail))
    }

    /// Refuses code in a session that has more than the author of the code may use: volumes, integrations
    /// and values of secrets that code can read.
    async fn check_author_in_session(
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
        let integrations = match session.agent {
            Some(agent) => {
                self.authorize_agent(workspace, caller, agent).await?.section.integrations
            }
            None => session.integrations.clone(),
        };
        self.check_author_egress(workspace, Some(author), &integrations)?;
        for volume in self.engine.volumes_of(session.sandbox_id)? {
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
                    let message = "the session can read secrets that are its owner's own";
                    let hint = "call the tool without a session";
                    return Err(Error::new(ErrorCode::GrantMissing, message).hint(hint).into());
                }
                // Code of others may act with a credential of the caller's own, and cannot read it.
                SecretScope::Caller => {}
            }
        }
        Ok(())
    }

    async fn check_session_integrations(
        &self,
        workspace: WorkspaceId,
        caller: &Principal,
        session: SandboxId,
        needed: &[String],
    ) -> Result<(), RequestError> {
        if needed.is_empty() {
            return Ok(());
        }
        let session = self.session_row(workspace, session)?;
        let has = match session.agent {
            Some(agent) => {
                self.authorize_agent(workspace, caller, agent).await?.section.integrations
            }
            None => session.integrations,
        };
        match needed.iter().find(|name| !has.contains(name)) {
            None => Ok(()),
            Some(name) => {
                let message = format!("it leaves by {name:?}, and the session does not have that");
                let hint = "call it without a session, or open one with this integration";
                Err(Error::new(ErrorCode::NetworkDenied, message).hint(hint).into())
            }
        }
    }

    /// The names of integrations, and with whose rights they are used.
    pub(super) async fn resolve_integrations(
        &self,
        workspace: WorkspaceId,
        caller: &Principal,
        grounds: &IntegrationSource,
    ) -> Result<ResolvedIntegrations, RequestError> {
        match grounds {
            IntegrationSource::Named { integrations, run_as, author } => {
                let run_as = self.find_principal(workspace, *run_as)?;
                Ok(ResolvedIntegrations {
                    integrations: integrations.clone(),
                    run_as,
                    author: *author,
                })
            }
            IntegrationSource::Agent(id) => {
                let AuthorizedAgent { agent, section, run_as } =
                    self.authorize_agent(workspace, caller, *id).await?;
                let author = CodeAuthor::Other { by: agent.author, has_values: false };
                Ok(ResolvedIntegrations { integrations: section.integrations, run_as, author })
            }
        }
    }

    /// Refuses code whose author may not leave by its integrations: others would carry out for them what
    /// they may not send themselves.
    pub(crate) fn check_author_egress(
        &self,
        workspace: WorkspaceId,
        author: Option<PrincipalId>,
        names: &[String],
    ) -> Result<(), RequestError> {
        let Some(author) = author.filter(|_| !names.is_empty()) else { return Ok(()) };
        let author = self.author_principal(workspace, author)?;
        self.check_integrations(workspace, (&author, "who wrote this code"), names)
    }

    /// Integrations that both the principal that code runs as and its author may use: those that are on,
    /// and those that are switched off.
    pub(crate) fn integrations_granted_to_both(
        &self,
        workspace: WorkspaceId,
        run_as: &Principal,
        author: CodeAuthor,
        names: &[String],
    ) -> Result<(Vec<Integration>, Vec<Integration>), RequestError> {
        let (mut on, mut off) = self.granted_integrations(workspace, run_as, names)?;
        let author = author.principal().filter(|author| *author != run_as.id);
        if let Some(author) = author {
            for granted in [&mut on, &mut off] {
                let mut kept = Vec::new();
                for integration in granted.drain(..) {
                    let object = ObjectRef::Integration(integration.id);
                    if self.author_may(workspace, author, Privilege::Usage, object)? {
                        kept.push(integration);
                    }
                }
                *granted = kept;
            }
        }
        Ok((on, off))
    }

    async fn current_egress_policy(
        &self,
        gate: &SandboxPolicySource,
    ) -> Result<EgressPolicy, RequestError> {
        let caller = self.find_principal(gate.workspace, gate.caller)?;
        let ResolvedIntegrations { integrations: names, run_as, author } =
            self.resolve_integrations(gate.workspace, &caller, &gate.integrations).await?;
        let workspace = gate.workspace;
        let (integrations, off) =
            &self.integrations_granted_to_both(workspace, &run_as, author, &names)?;
        let openings = self.integration_rules(workspace, integrations)?;
        let switched_off = self.integration_rules(workspace, off)?;
        let caller = gate.caller;
        let borrower = SecretConsumer { workspace, run_as: &run_as, caller, author, integrations };
        let secrets = self.open_secrets(borrower, |secret| !secret.exposed).await?;
        let named_in = gate.integrations.named_in();
        Ok(EgressPolicy {
            openings,
            disabled: switched_off,
            integrations_field: named_in,
            credentials: credentials::credentials(secrets),
        })
    }
}

impl EgressPolicySource for SandboxPolicySource {
    fn current_policy(&self) -> EgressPolicyFuture<'_> {
        Box::pin(async {
            let service = self.service.upgrade().ok_or("the server is stopping")?;
            self.policy(&service).await.map_err(|refused| refused.error.message)
        })
    }

    fn record_attempt(&self, attempt: EgressAttempt) {
        self.egress_log.record(attempt);
    }

    fn workspace(&self) -> WorkspaceId {
        self.workspace
    }
}

/// Nobody serves a sandbox that is gone.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
