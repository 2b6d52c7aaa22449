//! The egress policy of one sandbox, and the proxy that enforces it.
//!
//! The policy is cached, and read again when the records have changed, so that a change applies to
//! the next request.

use super::caller_token::CallerTokenGrant;
use super::credentials;
use super::egress_log::EgressLog;
use super::sandbox_grants::{IntegrationSource, ResolvedIntegrations};
use crate::error::RequestError;
use crate::identity::{CallerToken, MissingToken};
use crate::secrets::SecretConsumer;
use crate::service::Service;
use db::Revision;
use egress::{EgressAttempt, EgressPolicy, EgressPolicyFuture, EgressPolicySource, Proxy};
use engine::{EgressGuard, EgressHandler};
use redact::OutputRedactor;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use types::{
    ExecutionId, NetworkAttempt, Principal, PrincipalId, SandboxId, SecretId, WorkspaceId,
};

/// Provides the egress policy of one sandbox to the proxy.
#[derive(Debug)]
struct SandboxPolicySource {
    /// Weak, because the engine holds this for as long as the sandbox lives, and the service holds
    /// the engine.
    service: Weak<Service>,
    workspace: WorkspaceId,
    caller: PrincipalId,
    integrations: IntegrationSource,
    egress_log: EgressLog,
    /// The last policy, and what it was made from.
    cached: Mutex<Option<(PolicyInputs, Arc<EgressPolicy>)>>,
}

/// What a policy is made from: the revision of the records, and the token of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PolicyInputs {
    revision: Revision,
    token: Result<SecretId, MissingToken>,
}

impl SandboxPolicySource {
    fn cached_policy(&self, inputs: PolicyInputs) -> Option<Arc<EgressPolicy>> {
        let found = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        found.as_ref().filter(|(then, _)| *then == inputs).map(|(_, policy)| Arc::clone(policy))
    }

    async fn policy(&self, service: &Service) -> Result<Arc<EgressPolicy>, RequestError> {
        // Read first, so that a change made meanwhile belongs to a later revision.
        let revision = service.db.revision();
        let token = service.caller_token(self.caller, self.egress_log.running_execution());
        let inputs =
            PolicyInputs { revision, token: token.as_ref().map(|it| it.id).map_err(|it| *it) };
        if let Some(policy) = self.cached_policy(inputs) {
            return Ok(policy);
        }
        let policy = Arc::new(service.current_egress_policy(self, &token).await?);
        let found = Some((inputs, Arc::clone(&policy)));
        *self.cached.lock().unwrap_or_else(PoisonError::into_inner) = found;
        Ok(policy)
    }
}

/// Serves the proxy sockets of the sandboxes of one session or command.
#[derive(Debug)]
struct SandboxProxy {
    proxy: Proxy,
    policy: Arc<SandboxPolicySource>,
}

impl Service {
    /// Serves the network access of a sandbox with the policy that applies at each request.
    pub(super) fn egress_handler(
        self: &Arc<Self>,
        workspace: WorkspaceId,
        caller: PrincipalId,
        integrations: IntegrationSource,
        redactor: OutputRedactor,
    ) -> Arc<dyn EgressHandler> {
        let queue = Arc::clone(&self.egress_log_queue);
        let policy = Arc::new(SandboxPolicySource {
            service: Arc::downgrade(self),
            workspace,
            caller,
            integrations,
            egress_log: EgressLog::new(workspace, caller, queue, redactor),
            cached: Mutex::default(),
        });
        Arc::new(SandboxProxy { proxy: self.proxy.clone(), policy })
    }

    async fn current_egress_policy(
        &self,
        source: &SandboxPolicySource,
        token: &Result<Arc<CallerToken>, MissingToken>,
    ) -> Result<EgressPolicy, RequestError> {
        let caller = self.find_principal(source.workspace, source.caller)?;
        self.egress_policy_of(source.workspace, &caller, &source.integrations, token).await
    }

    /// The egress policy of code, or of a request of the server itself for an agent.
    pub(crate) async fn egress_policy_of(
        &self,
        workspace: WorkspaceId,
        caller: &Principal,
        source: &IntegrationSource,
        token: &Result<Arc<CallerToken>, MissingToken>,
    ) -> Result<EgressPolicy, RequestError> {
        let ResolvedIntegrations { integrations: names, run_as, author } =
            self.resolve_integrations(workspace, caller, source).await?;
        let (integrations, off) =
            &self.integrations_granted_to_both(workspace, &run_as, author, &names)?;
        let mut openings = self.integration_rules(workspace, integrations)?;
        let disabled = self.integration_rules(workspace, off)?;
        let caller = caller.id;
        let consumer = SecretConsumer { workspace, run_as: &run_as, caller, author, integrations };
        let secrets = self.open_secrets(consumer, |secret| !secret.exposed).await?;
        let grant = self.caller_token_grant(consumer, secrets.iter().map(|it| &it.inject));
        openings.extend(grant.as_ref().and_then(CallerTokenGrant::rules));
        let of_caller = grant.and_then(|grant| grant.credential(token));
        Ok(EgressPolicy {
            openings,
            disabled,
            integrations_field: source.named_in(),
            credentials: credentials::credentials(secrets).into_iter().chain(of_caller).collect(),
        })
    }
}

impl EgressPolicySource for SandboxPolicySource {
    fn current_policy(&self) -> EgressPolicyFuture<'_> {
        Box::pin(async {
            let service = self.service.upgrade().ok_or("the server is stopping")?;
            self.policy(&service).await.map_err(|error| error.error.message)
        })
    }

    fn record_attempt(&self, attempt: EgressAttempt) {
        self.egress_log.record(attempt);
    }

    fn workspace(&self) -> WorkspaceId {
        self.workspace
    }
}

impl EgressHandler for SandboxProxy {
    fn serve(&self, listener: TcpListener) -> EgressGuard {
        let (proxy, policy) = (self.proxy.clone(), Arc::clone(&self.policy));
        let serving = async move {
            if let Err(error) = proxy.serve(listener, policy).await {
                tracing::error!(%error, "cannot serve the proxy socket of a sandbox");
            }
        };
        Box::new(AbortOnDrop(tokio::spawn(serving)))
    }

    fn begin_execution(
        &self,
        sandbox: SandboxId,
        execution: ExecutionId,
        redactor: &OutputRedactor,
    ) {
        self.policy.egress_log.begin_execution(sandbox, execution, redactor);
    }

    fn end_execution(&self, execution: ExecutionId) -> Vec<NetworkAttempt> {
        self.policy.egress_log.end_execution(execution)
    }
}

/// Ends the task that serves a sandbox when the sandbox has ended.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
