//! The context of a run, which the engine does not need to know: its caller, and who gets its
//! result.

use crate::identity::caller::Caller;
use crate::origins::Requester;
use chrono::{DateTime, Utc};
use db::NewAuditEntry;
use std::any::Any;
use std::sync::Arc;
use types::{
    AgentId, ApprovalId, Execution, ExecutionId, FunctionId, KeyId, PrincipalId, WorkspaceId,
};

/// Options of the request for a run.
#[derive(Debug, Clone, Default)]
pub struct SubmitOptions {
    /// The key under which the same request may be repeated.
    pub idempotency_key: Option<String>,
    /// The client gets the id before the end of the run.
    pub announce_id: bool,
    /// Released at the end of the run, even after the client has disconnected: it counts the
    /// concurrent requests of an API key.
    pub concurrency_permit: Option<Arc<dyn Any + Send + Sync>>,
    /// The model run that it is part of.
    pub parent: Option<ExecutionId>,
}

#[derive(Debug, Clone)]
pub(crate) struct RunContext {
    pub(crate) workspace: WorkspaceId,
    pub(crate) principal: PrincipalId,
    /// Absent if the request had an access token, or if the server starts an approved call.
    pub(crate) key: Option<KeyId>,
    pub(crate) run_as: PrincipalId,
    pub(crate) agent: Option<AgentId>,
    pub(crate) function: Option<FunctionId>,
    pub(crate) approval: Option<ApprovalId>,
    /// The time of the request, if it had to wait for an approval.
    pub(crate) requested_at: Option<DateTime<Utc>>,
    pub(crate) options: SubmitOptions,
}

impl RunContext {
    pub(crate) fn for_caller(caller: &Caller, options: SubmitOptions) -> Self {
        Self { key: caller.key(), ..Self::new(caller.workspace, caller.id(), options) }
    }

    pub(crate) fn new(
        workspace: WorkspaceId,
        principal: PrincipalId,
        options: SubmitOptions,
    ) -> Self {
        Self {
            workspace,
            principal,
            key: None,
            run_as: principal,
            agent: None,
            function: None,
            approval: None,
            requested_at: None,
            options,
        }
    }

    pub(crate) fn requester(&self) -> Requester {
        Requester { workspace: self.workspace, principal: self.principal, key: self.key }
    }

    /// Whether the row of this run may be written at its end: no client knows its id before, it
    /// consumes neither an approval nor an idempotency key, and it has no effect outside of its
    /// sandbox.
    pub(super) fn can_defer_row(&self, has_egress: bool) -> bool {
        let SubmitOptions { announce_id: announced, idempotency_key: claim, .. } = &self.options;
        !announced && claim.is_none() && self.approval.is_none() && !has_egress
    }

    pub(crate) fn audit_entry(&self, execution: &Execution, at: DateTime<Utc>) -> NewAuditEntry {
        NewAuditEntry {
            at,
            workspace: self.workspace,
            principal: Some(self.principal),
            key: self.key,
            action: "execution.run".to_owned(),
            object: execution.id.to_string(),
            detail: execution.status.name().to_owned(),
        }
    }

    pub(crate) fn annotate(&self, execution: Execution) -> Execution {
        Execution {
            principal: Some(self.principal),
            run_as: Some(self.run_as),
            agent: self.agent,
            function_id: self.function,
            approval_id: self.approval,
            parent: self.options.parent,
            created_at: self.requested_at.unwrap_or(execution.created_at),
            ..execution
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_run_that_can_leave_its_sandbox_has_a_row_before_it_begins() {
        let (workspace, principal) = (WorkspaceId::new(Uuid::nil()), PrincipalId::new(Uuid::nil()));
        let context = RunContext::new(workspace, principal, SubmitOptions::default());
        assert!(context.can_defer_row(false));
        assert!(!context.can_defer_row(true));
    }
}
