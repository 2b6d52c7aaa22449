//! What the code of one sandbox has tried to reach: on the record of the execution that ran at the
//! moment, and in the history of the workspace.

use super::history::History;
use crate::executions::Whose;
use crate::service::Service;
use chrono::TimeDelta;
use egress::Attempt;
use engine::Redactor;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;
use types::{
    Execution, ExecutionId, NetworkAttempt, NetworkEntry, PrincipalId, SandboxId, WorkspaceId,
};

/// Of one execution, on its record and in the history: code that tries without end would fill the disk.
const ATTEMPTS_MAX: usize = 1_000;
const MORE: &str = "further attempts of this execution are not written down";

#[derive(Debug)]
pub(crate) struct Trail {
    workspace: WorkspaceId,
    principal: PrincipalId,
    history: Arc<History>,
    /// A name that code makes up can have anything in it.
    redactor: Redactor,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Of what runs, from when it begins.
    redactor: Redactor,
    sandbox: Option<SandboxId>,
    running: Option<(ExecutionId, Instant)>,
    attempts: Vec<NetworkAttempt>,
    /// Of this execution, or since the last one.
    noted: usize,
}

impl Trail {
    pub(crate) fn new(
        workspace: WorkspaceId,
        principal: PrincipalId,
        history: Arc<History>,
        redactor: Redactor,
    ) -> Self {
        Self { workspace, principal, history, redactor, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on attempts are of this execution.
    pub(crate) fn begin(
        &self,
        sandbox: Option<SandboxId>,
        execution: ExecutionId,
        redactor: &Redactor,
    ) {
        let mut state = self.state();
        state.redactor = redactor.clone();
        state.sandbox = sandbox.or(state.sandbox);
        state.running = Some((execution, Instant::now()));
        state.attempts.clear();
        state.noted = 0;
    }

    /// The attempts of the execution that ends.
    pub(crate) fn end(&self, execution: ExecutionId) -> Vec<NetworkAttempt> {
        let mut state = self.state();
        if state.running.is_none_or(|(running, _)| running != execution) {
            return Vec::new();
        }
        state.running = None;
        state.noted = 0;
        take(&mut state.attempts)
    }

    pub(super) fn add(&self, attempt: Attempt) {
        let mut state = self.state();
        let redactor = state.redactor.clone();
        let clean = |text: String| redactor.text(&self.redactor.text(&text)).into_owned();
        let attempt =
            Attempt { host: clean(attempt.host), reason: attempt.reason.map(clean), ..attempt };
        state.noted += 1;
        if state.noted > ATTEMPTS_MAX {
            return;
        }
        let reason =
            if state.noted == ATTEMPTS_MAX { Some(MORE.to_owned()) } else { attempt.reason };
        let attempt = Attempt { reason, ..attempt };
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
        let entry = NetworkEntry {
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
        self.history.add((self.workspace, entry));
    }
}

impl Service {
    /// Of a sandbox without a way out, whose attempts only its record knows.
    pub(crate) fn note_refused(&self, whose: &Whose, execution: &Execution) {
        let Some(sandbox_id) = execution.sandbox_id else { return };
        for attempt in &execution.network {
            let since = TimeDelta::milliseconds(attempt.t.try_into().unwrap_or_default());
            let entry = NetworkEntry {
                at: execution.started_at.unwrap_or(execution.created_at) + since,
                principal: whose.principal,
                sandbox_id,
                execution_id: Some(execution.id),
                host: attempt.host.clone(),
                port: attempt.port,
                integration: None,
                allowed: attempt.allowed,
                reason: attempt.reason.clone(),
            };
            self.history.add((whose.workspace, entry));
        }
    }
}
