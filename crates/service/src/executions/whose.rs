//! Everything about a run that the engine does not need to know: on whose behalf, and who is told.

use crate::caller::Caller;
use crate::network::Trail;
use crate::origins::Asker;
use chrono::{DateTime, Utc};
use std::any::Any;
use std::sync::Arc;
use store::AuditLine;
use types::{
    AgentId, ApprovalId, Execution, ExecutionId, FunctionId, KeyId, PrincipalId, WorkspaceId,
};

/// What the one who asks wants to hear of a run.
#[derive(Debug, Clone, Default)]
pub struct Manner {
    /// The key under which the same request may come again.
    pub claim: Option<String>,
    /// Its id is told before it is over.
    pub announced: bool,
    /// Let go when it is over, whoever is still there: what counts the requests of a key.
    pub place: Option<Arc<dyn Any + Send + Sync>>,
    /// The run of a model that it is part of.
    pub parent: Option<ExecutionId>,
}

#[derive(Debug, Clone)]
pub(crate) struct Whose {
    pub(crate) workspace: WorkspaceId,
    pub(crate) principal: PrincipalId,
    /// Absent when a token was shown, or the server starts what somebody has agreed to.
    pub(crate) key: Option<KeyId>,
    pub(crate) run_as: PrincipalId,
    pub(crate) agent: Option<AgentId>,
    pub(crate) function: Option<FunctionId>,
    pub(crate) approval: Option<ApprovalId>,
    /// When it was asked for, if a person was asked first and took their time.
    pub(crate) asked_at: Option<DateTime<Utc>>,
    /// Where what its code tries to reach is noted, if it can leave at all.
    pub(crate) trail: Option<Arc<Trail>>,
    pub(crate) manner: Manner,
}

impl Whose {
    pub(crate) fn caller(caller: &Caller, manner: Manner) -> Self {
        Self {
            workspace: caller.workspace,
            principal: caller.id(),
            key: caller.key(),
            run_as: caller.id(),
            agent: None,
            function: None,
            approval: None,
            asked_at: None,
            trail: None,
            manner,
        }
    }

    pub(crate) fn asker(&self) -> Asker {
        Asker { workspace: self.workspace, principal: self.principal, key: self.key }
    }

    /// Nobody has a name for this run before its end, nothing is used up by it, and it changes nothing
    /// outside of its sandbox.
    pub(super) fn is_told_at_the_end(&self) -> bool {
        let Manner { announced, claim, .. } = &self.manner;
        !announced && claim.is_none() && self.approval.is_none() && self.trail.is_none()
    }

    pub(crate) fn ran(&self, execution: &Execution) -> AuditLine {
        AuditLine {
            at: Utc::now(),
            workspace: self.workspace,
            principal: Some(self.principal),
            key: self.key,
            action: "execution.run".to_owned(),
            object: execution.id.to_string(),
            detail: execution.status.name().to_owned(),
        }
    }

    pub(crate) fn mark(&self, execution: Execution) -> Execution {
        Execution {
            principal: Some(self.principal),
            run_as: Some(self.run_as),
            agent: self.agent,
            function_id: self.function,
            approval_id: self.approval,
            parent: self.manner.parent,
            created_at: self.asked_at.unwrap_or(execution.created_at),
            ..execution
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::Redactor;
    use uuid::Uuid;

    #[test]
    fn a_run_that_can_leave_its_sandbox_has_a_row_before_it_begins() {
        let (workspace, principal) = (WorkspaceId::new(Uuid::nil()), PrincipalId::new(Uuid::nil()));
        let inside = Whose {
            workspace,
            principal,
            key: None,
            run_as: principal,
            agent: None,
            function: None,
            approval: None,
            asked_at: None,
            trail: None,
            manner: Manner::default(),
        };
        assert!(inside.is_told_at_the_end());
        let trail = Trail::new(workspace, principal, Arc::default(), Redactor::default());
        let outside = Whose { trail: Some(Arc::new(trail)), ..inside };
        assert!(!outside.is_told_at_the_end());
    }
}
