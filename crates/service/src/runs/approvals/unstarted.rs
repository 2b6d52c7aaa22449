//! The end of a call that never started: written in the transaction that decides it, and published
//! after the commit. Without it, a client could wait forever for an approval that has ended.

use super::not_pending_error;
use crate::runs::executions::ActiveExecution;
use crate::service::Service;
use chrono::{DateTime, Utc};
use db::{DatabaseError, FinishedExecutionRow, NewAuditEntry, Reader, Tx};
use std::sync::Arc;
use types::{
    Approval, ApprovalId, ApprovalState, Error, ErrorCode, Event, Execution, ExecutionId,
    ExecutionStatus, WorkspaceId,
};

#[derive(Debug, Clone)]
pub(super) struct UnstartedOutcome {
    status: ExecutionStatus,
    error: Error,
}

impl UnstartedOutcome {
    /// The outcome of a call whose approval has ended.
    pub(super) fn from_approval(approval: &Approval) -> Self {
        match approval.state {
            ApprovalState::Denied => Self::denied(approval),
            ApprovalState::Expired => Self::expired(approval),
            _ => Self::failed(*not_pending_error(approval).error),
        }
    }

    fn denied(approval: &Approval) -> Self {
        let message = match &approval.reason {
            Some(reason) => format!("Tool '{}' was denied: {reason}", approval.tool_name),
            None => format!("Tool '{}' was denied", approval.tool_name),
        };
        let error = Error::new(ErrorCode::ApprovalDenied, message).hint("continue without it");
        Self { status: ExecutionStatus::Denied, error }
    }

    fn expired(approval: &Approval) -> Self {
        let (status, message) = match approval.decided_by {
            Some(_) => (
                ExecutionStatus::Failed,
                "the call was allowed, but there was no capacity for it in time",
            ),
            None => (ExecutionStatus::Denied, "the approval expired before a decision"),
        };
        let error = Error::new(ErrorCode::ApprovalExpired, message);
        Self { status, error: error.hint("call the tool again to request a new approval") }
    }

    pub(super) fn withdrawn() -> Self {
        let error = Error::new(ErrorCode::Cancelled, "the call was withdrawn before it started");
        Self { status: ExecutionStatus::Cancelled, error }
    }

    /// The outcome of a call whose key was revoked.
    pub(super) fn revoked(error: Error) -> Self {
        Self { status: ExecutionStatus::Cancelled, error }
    }

    /// The outcome of a call that could not start. Interrupting its session while it waits for a
    /// sandbox cancels it, as it does for a direct call.
    pub(super) fn failed(error: Error) -> Self {
        let status = match error.code {
            ErrorCode::Cancelled => ExecutionStatus::Cancelled,
            _ => ExecutionStatus::Failed,
        };
        Self { status, error }
    }

    /// Returns `None` if the call has started or has already ended.
    pub(super) fn write(
        self,
        tx: &Tx<'_>,
        workspace: WorkspaceId,
        id: ExecutionId,
        now: DateTime<Utc>,
    ) -> Result<Option<UnpublishedEnd>, DatabaseError> {
        match self.prepare(tx, workspace, id, now)? {
            Some(prepared) => prepared.write(tx),
            None => Ok(None),
        }
    }

    /// Reads the record without its code and arguments, and builds its text before the transaction.
    /// Returns `None` if the call has started or has already ended.
    pub(super) fn prepare(
        self,
        rows: &Reader<'_>,
        workspace: WorkspaceId,
        id: ExecutionId,
        now: DateTime<Utc>,
    ) -> Result<Option<PreparedEnd>, DatabaseError> {
        let found = rows.execution_without_inputs(workspace, id)?;
        let Some(record) = found.filter(|record| record.status == ExecutionStatus::WaitingApproval)
        else {
            return Ok(None);
        };
        let Self { status, error } = self;
        let mut events =
            Vec::from_iter(record.approval_id.map(waiting_events).into_iter().flatten());
        events.extend([Event::Error(error.clone()), Event::End { status }]);
        let ended = Execution { status, error: Some(error), ended_at: Some(now), ..record };
        let row = FinishedExecutionRow::new(&ended, &events)?;
        Ok(Some(PreparedEnd { workspace, ended, row, at: now }))
    }
}

/// The end of a call, ready to be written.
#[derive(Debug)]
pub(super) struct PreparedEnd {
    workspace: WorkspaceId,
    ended: Execution,
    row: FinishedExecutionRow,
    at: DateTime<Utc>,
}

impl PreparedEnd {
    /// Returns `None` if the call has started or ended meanwhile.
    pub(super) fn write(self, tx: &Tx<'_>) -> Result<Option<UnpublishedEnd>, DatabaseError> {
        let Self { workspace, ended, row, at } = self;
        if !tx.finish_waiting_execution(workspace, &row)? {
            return Ok(None);
        }
        tx.append_audit_entry(&NewAuditEntry {
            at,
            workspace,
            principal: ended.principal,
            key: None,
            action: "execution.run".to_owned(),
            object: ended.id.to_string(),
            detail: ended.status.name().to_owned(),
        })?;
        Ok(Some(UnpublishedEnd { workspace, ended }))
    }
}

/// A written end that has to be published.
#[derive(Debug)]
pub(super) struct UnpublishedEnd {
    workspace: WorkspaceId,
    /// Without its code and arguments, which can be megabytes.
    ended: Execution,
}

/// Publishes the first event of a call that waits for approval.
fn waiting_events(approval_id: ApprovalId) -> [Event; 2] {
    [Event::Status { status: ExecutionStatus::WaitingApproval }, Event::Approval { approval_id }]
}

impl Service {
    /// The log of a call. It exists before any client can know the id of the call, and until the
    /// end is published.
    pub(super) fn register_waiting(
        &self,
        id: ExecutionId,
        approval_id: ApprovalId,
    ) -> Arc<ActiveExecution> {
        let running = self.register_execution(id);
        waiting_events(approval_id).into_iter().for_each(|event| running.live.push(event));
        running
    }

    /// Publishes a written end, with the code and arguments of its record.
    pub(super) async fn publish_end(&self, UnpublishedEnd { workspace, ended }: UnpublishedEnd) {
        let id = ended.id;
        let whole = move |rows: &Reader<'_>| rows.execution_summary(workspace, id);
        // Publish the end even if they cannot be read now.
        let ended = self.db.read_off_thread(whole).await.ok().flatten().unwrap_or(ended);
        let running = self.register_execution(id);
        // A launch that is under way must not keep its session until a sandbox has started.
        running.request_stop();
        ended.error.iter().for_each(|error| running.live.push(Event::Error(error.clone())));
        self.publish_outcome(id, &running, Ok(ended));
    }
}
