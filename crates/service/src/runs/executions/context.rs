//! Everything about a run that the engine does not need to know: on whose behalf, and who is told.

use crate::identity::caller::Caller;
use crate::origins::Asker;
use chrono::{DateTime, Utc};
use db::NewAuditEntry;
use std::any::Any;
use std::sync::Arc;
use types::{
    AgentId, ApprovalId, Execution, ExecutionId, FunctionId, KeyId, PrincipalId, WorkspaceId,
};

/// What the one who asks wants to hear of a run.
#[derive(Debug, Clone, Default)]
pub struct SubmitOptions {
    /// The key under which the same request may come again.
    pub idempotency_key: Option<String>,
    /// Its id is told before it is over.
    pub announce_id: bool,
    /// Let go when it is over, whoever is still there: what counts the requests of a key.
    pub concurrency_permit: Option<Arc<dyn Any + Send + Sync>>,
    /// The run of a model that it is part of.
    pub parent: Option<ExecutionId>,
}

#[derive(Debug, Clone)]
pub(crate) struct RunContext {
    pub(crate) workspace: WorkspaceId,
    pub(crate) principal: PrincipalId,
    /// Absent when a token was shown, or the server starts what somebody has agreed to.
    pub(crate) key: Option<KeyId>,
    pub(crate) run_as: PrincipalId,
    pub(crate) agent: Option<AgentId>,
    pub(crate) function: Option<FunctionId>,
    pub(crate) approval: Option<ApprovalId>,
    /// When it was asked for, if a person was asked first and took their time.
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

    pub(crate) fn asker(&self) -> Asker {
        Asker { workspace: self.workspace, principal: self.principal, key: self.key }
    }

    /// Nobody has a name for this run before its end, nothing is used up by it, and it changes nothing
    /// outside of its sandbox.
    pub(super) fn can_defer_row(&self, has_egress: bool) -> bool {
        let SubmitOptions { announce_id: announced, idempotency_key: claim, .. } = &self.options;
        !announced && claim.is_none() && self.approval.is_none() && !has_egress
    }

    pub(crate) fn audit_entry(&self, execution: &Execution) -> NewAuditEntry {
        NewAuditEntry {
            at: Utc::now(),
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
