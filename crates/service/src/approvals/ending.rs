//! The end of a call that never began: written in the transaction that decides it, and told when
//! that is kept. Otherwise one could wait for ever for a question that is over.

use super::over;
use crate::executions::Running;
use crate::service::Service;
use chrono::Utc;
use std::sync::Arc;
use store::{AuditLine, Finished, StoreError, Tx};
use types::{
    Approval, ApprovalId, ApprovalState, Code, Event, Execution, ExecutionId, Fault, Status,
    WorkspaceId,
};

#[derive(Debug, Clone)]
pub(super) struct Ending {
    status: Status,
    fault: Fault,
}

impl Ending {
    /// Of a call whose question is over.
    pub(super) fn of(approval: &Approval) -> Self {
        match approval.state {
            ApprovalState::Denied => Self::denied(approval),
            ApprovalState::Expired => Self::expired(approval),
            _ => Self::failed(*over(approval).fault),
        }
    }

    fn denied(approval: &Approval) -> Self {
        let message = match &approval.reason {
            Some(reason) => format!("Tool '{}' was denied: {reason}", approval.tool_name),
            None => format!("Tool '{}' was denied", approval.tool_name),
        };
        let fault = Fault::new(Code::ApprovalDenied, message).hint("go on without it");
        Self { status: Status::Denied, fault }
    }

    fn expired(approval: &Approval) -> Self {
        let (status, message) = match approval.decided_by {
            Some(_) => (Status::Failed, "it was allowed, and there was no room for it in time"),
            None => (Status::Denied, "nobody answered in time"),
        };
        let fault = Fault::new(Code::ApprovalExpired, message);
        Self { status, fault: fault.hint("call the tool again to ask again") }
    }

    pub(super) fn withdrawn() -> Self {
        let fault = Fault::new(Code::Cancelled, "the call was withdrawn before it began");
        Self { status: Status::Cancelled, fault }
    }

    /// Of a call whose key was revoked.
    pub(super) fn revoked(fault: Fault) -> Self {
        Self { status: Status::Cancelled, fault }
    }

    pub(super) fn failed(fault: Fault) -> Self {
        Self { status: Status::Failed, fault }
    }

    /// None if it has begun, or ended before.
    pub(super) fn write(
        self,
        tx: &Tx<'_>,
        workspace: WorkspaceId,
        id: ExecutionId,
    ) -> Result<Option<Execution>, StoreError> {
        let found = tx.execution_summary(workspace, id)?;
        let Some(record) = found.filter(|record| record.status == Status::WaitingApproval) else {
            return Ok(None);
        };
        let Self { status, fault } = self;
        let mut events = Vec::from_iter(record.approval_id.map(asked).into_iter().flatten());
        events.extend([Event::Error(fault.clone()), Event::End { status }]);
        let now = Utc::now();
        let ended = Execution { status, error: Some(fault), ended_at: Some(now), ..record };
        tx.finish_execution(workspace, &Finished::new(&ended, &events)?)?;
        tx.audit(&AuditLine {
            at: now,
            workspace,
            principal: ended.principal,
            key: None,
            action: "execution.run".to_owned(),
            object: id.to_string(),
            detail: status.name().to_owned(),
        })?;
        Ok(Some(ended))
    }
}

/// What is told of a call as soon as it waits.
fn asked(approval_id: ApprovalId) -> [Event; 2] {
    [Event::Status { status: Status::WaitingApproval }, Event::Approval { approval_id }]
}

impl Service {
    /// Where a call is heard of. It is there before anybody can know of the call, and until the end
    /// was told.
    pub(super) fn hear(&self, id: ExecutionId, approval_id: ApprovalId) -> Arc<Running> {
        let running = self.follow(id);
        asked(approval_id).into_iter().for_each(|event| running.live.push(event));
        running
    }

    /// Tells an end that was written.
    pub(super) fn tell_end(&self, ended: Execution) {
        let running = self.follow(ended.id);
        ended.error.iter().for_each(|fault| running.live.push(Event::Error(fault.clone())));
        self.conclude(ended.id, &running, Ok(ended));
    }
}
