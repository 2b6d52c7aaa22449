//! The log of attempted connections of one sandbox: in the record of the execution that ran at the
//! time, and in the log of the workspace.

use super::egress_log_queue::EgressLogQueue;
use crate::runs::executions::RunContext;
use crate::service::Service;
use chrono::TimeDelta;
use egress::EgressAttempt;
use redact::OutputRedactor;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;
use types::{
    Execution, ExecutionId, NetworkAttempt, NetworkLogEntry, PrincipalId, SandboxId, WorkspaceId,
};

/// Maximum number of logged attempts per execution: code that retries forever would fill the disk.
const ATTEMPTS_MAX: usize = 1_000;
const ATTEMPTS_TRUNCATED: &str = "further attempts of this execution are not logged";

#[derive(Debug)]
pub(crate) struct EgressLog {
    workspace: WorkspaceId,
    principal: PrincipalId,
    queue: Arc<EgressLogQueue>,
    /// Redacts host names, which code can make up from any text.
    redactor: OutputRedactor,
    state: Mutex<EgressLogState>,
}

#[derive(Debug, Default)]
struct EgressLogState {
    /// The redactor of the running execution, from its start.
    redactor: OutputRedactor,
    sandbox: Option<SandboxId>,
    running: Option<(ExecutionId, Instant)>,
    attempts: Vec<NetworkAttempt>,
    /// The number of attempts in this execution, or since the last one.
    count: usize,
}

impl EgressLog {
    pub(crate) fn new(
        workspace: WorkspaceId,
        principal: PrincipalId,
        history: Arc<EgressLogQueue>,
        redactor: OutputRedactor,
    ) -> Self {
        Self { workspace, principal, queue: history, redactor, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, EgressLogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Assigns attempts from now on to this execution.
    pub(crate) fn begin_execution(
        &self,
        sandbox: SandboxId,
        execution: ExecutionId,
        redactor: &OutputRedactor,
    ) {
        let mut state = self.state();
        state.redactor = redactor.clone();
        state.sandbox = Some(sandbox);
        state.running = Some((execution, Instant::now()));
        state.attempts.clear();
        state.count = 0;
    }

    /// Returns the attempts of the execution that ends.
    pub(crate) fn end_execution(&self, execution: ExecutionId) -> Vec<NetworkAttempt> {
        let mut state = self.state();
        if state.running.is_none_or(|(running, _)| running != execution) {
            return Vec::new();
        }
        state.running = None;
        state.count = 0;
        take(&mut state.attempts)
    }

    pub(super) fn running_execution(&self) -> Option<ExecutionId> {
        self.state().running.map(|(id, _)| id)
    }

    pub(super) fn record(&self, attempt: EgressAttempt) {
        let mut state = self.state();
        let redactor = state.redactor.clone();
        let clean =
            |text: String| redactor.redact_text(&self.redactor.redact_text(&text)).into_owned();
        let attempt = EgressAttempt {
            host: clean(attempt.host),
            reason: attempt.reason.map(clean),
            ..attempt
        };
        state.count += 1;
        if state.count > ATTEMPTS_MAX {
            return;
        }
        let reason = if state.count == ATTEMPTS_MAX {
            Some(ATTEMPTS_TRUNCATED.to_owned())
        } else {
            attempt.reason
        };
        let attempt = EgressAttempt { reason, ..attempt };
        let running = state.running;
        if let Some((_, since)) = running {
            let t = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
            state.attempts.push(NetworkAttempt {
                t,
                host: attempt.host.clone(),
                port: attempt.port,
                integration: attempt.integration.clone(),
                allowed: attempt.allowed,
                reason: attempt.reason.clone(),
            });
        }
        let Some(sandbox_id) = state.sandbox else { return };
        let entry = NetworkLogEntry {
            at: attempt.at,
            principal: self.principal,
            sandbox_id,
            execution_id: running.map(|(id, _)| id),
            host: attempt.host,
            port: attempt.port,
            integration: attempt.integration,
            allowed: attempt.allowed,
            reason: attempt.reason,
        };
        self.queue.push((self.workspace, entry));
    }
}

impl Service {
    /// Logs the attempts of a sandbox without network access, which only its record has.
    pub(crate) fn log_refused_attempts(&self, context: &RunContext, execution: &Execution) {
        let Some(sandbox_id) = execution.sandbox_id else { return };
        for attempt in &execution.network {
            let since = TimeDelta::milliseconds(attempt.t.try_into().unwrap_or_default());
            let entry = NetworkLogEntry {
                at: execution.started_at.unwrap_or(execution.created_at) + since,
                principal: context.principal,
                sandbox_id,
                execution_id: Some(execution.id),
                host: attempt.host.clone(),
                port: attempt.port,
                integration: None,
                allowed: attempt.allowed,
                reason: attempt.reason.clone(),
            };
            self.egress_log_queue.push((context.workspace, entry));
        }
    }
}
