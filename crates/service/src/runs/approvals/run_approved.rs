//! Runs an approved call once, or records why it cannot run.

use super::subject::ApprovalSubject;
use super::unstarted::UnstartedOutcome;
use super::{not_pending_error, subject_changed_error};
use crate::error::{RequestError, not_found};
use crate::origins::Requester;
use crate::runs::executions::{RunContext, SubmitOptions};
use crate::runs::launch::InputFiles;
use crate::service::Service;
use db::{AwaitedApproval, DatabaseError, Tx};
use policy::{ApprovalStage, mac_for_execution, macs_equal};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use types::{
    Approval, ApprovalId, ApprovalState, Error, ErrorCode, ExecutionId, Principal, WorkspaceId,
};

/// Delay between two attempts to get capacity for an approved call.
const CAPACITY_RETRY: Duration = Duration::from_millis(500);
/// Delay between two attempts while the database fails, which takes longer to recover.
const DATABASE_RETRY: Duration = Duration::from_secs(5);

impl Service {
    /// Starts an approved call as soon as there is capacity, or records why it cannot start.
    pub(super) async fn run_approved(
        self: Arc<Self>,
        workspace: WorkspaceId,
        id: ApprovalId,
        execution: ExecutionId,
    ) {
        loop {
            match self.try_run_approved(workspace, id).await {
                Ok(()) => return,
                Err(refused) if refused.error.retryable => sleep(retry_delay(&refused.error)).await,
                Err(refused) => {
                    return self.fail_approved(workspace, id, execution, *refused.error).await;
                }
            }
        }
    }

    #[boxed::future]
    async fn try_run_approved(
        self: &Arc<Self>,
        workspace: WorkspaceId,
        id: ApprovalId,
    ) -> Result<(), RequestError> {
        let (approval, subject, requester) = self.approved_subject(workspace, id).await?;
        let key = self.check_requester(workspace, &approval)?;
        // So that the call is stopped when the requester loses the right to make it.
        let origin = Requester { workspace, principal: approval.requester, key };
        self.register_execution(approval.execution_id).set_requester(origin);
        let ApprovalSubject { run, inputs, parent, .. } = subject;
        let options = SubmitOptions { parent, ..SubmitOptions::default() };
        let context = RunContext {
            approval: Some(approval.id),
            requested_at: Some(approval.created_at),
            ..RunContext::new(workspace, approval.requester, options)
        };
        let (id, files) = (approval.execution_id, InputFiles::Stored(&inputs));
        self.launch(id, &requester, run, files, context).await?.detach();
        Ok(())
    }

    /// The call that was approved, if it is unchanged.
    async fn approved_subject(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
    ) -> Result<(Approval, ApprovalSubject, Principal), RequestError> {
        let found = self.db.read(|rows| rows.approval(workspace, id))?;
        let (approval, seal) = found.ok_or_else(|| not_found("approval", id))?;
        if approval.state != ApprovalState::Allowed {
            return Err(not_pending_error(&approval));
        }
        if approval.expires_at <= self.now() {
            return Err(not_pending_error(&Approval { state: ApprovalState::Expired, ..approval }));
        }
        self.check_requester(workspace, &approval)?;
        let (subject, requester) = self.approval_subject(workspace, &approval).await?;
        let by = approval.decided_by.ok_or_else(subject_changed_error)?;
        let bound = subject.bound_call(workspace, approval.requester);
        let once = subject.bound_execution(approval.execution_id, approval.expires_at);
        if !macs_equal(
            &seal,
            &mac_for_execution(&self.approval_key, ApprovalStage::AllowedBy(by), &bound, &once),
        ) {
            return Err(subject_changed_error());
        }
        Ok((approval, subject, requester))
    }

    /// Repeats the write until the failure of the call is recorded.
    async fn fail_approved(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
        execution: ExecutionId,
        error: Error,
    ) {
        let ended = loop {
            let ending = UnstartedOutcome::failed(error.clone());
            let void = (error.code == ErrorCode::ApprovalInvalid).then(|| error.message.clone());
            let now = self.now();
            let written = move |tx: &Tx<'_>| {
                if let Some(reason) = void {
                    tx.void_approval(workspace, id, now, reason)?;
                }
                ending.write(tx, workspace, execution, now)
            };
            match self.db.write(written).await {
                Ok(ended) => break ended,
                Err(error) => {
                    tracing::error!(%execution, %error, "cannot write the end of an approved call");
                    sleep(DATABASE_RETRY).await;
                }
            }
        };
        if let Some(ended) = ended {
            self.publish_end(ended).await;
        }
    }

    /// Resumes or starts the calls that waited when the server stopped. Must run before anything
    /// else can end an approval.
    pub(crate) async fn resume_approvals(self: &Arc<Self>) -> Result<(), DatabaseError> {
        for question in self.db.read(|rows| rows.awaited_approvals())? {
            let AwaitedApproval { workspace, id, execution, state } = question;
            match state {
                ApprovalState::Pending => drop(self.register_waiting(execution, id)),
                ApprovalState::Allowed => {
                    self.register_waiting(execution, id);
                    tokio::spawn(Arc::clone(self).run_approved(workspace, id, execution));
                }
                ApprovalState::Used
                | ApprovalState::Denied
                | ApprovalState::Expired
                | ApprovalState::Void => {
                    self.write_missing_end(workspace, id).await?;
                }
            }
        }
        Ok(())
    }

    async fn write_missing_end(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
    ) -> Result<(), DatabaseError> {
        let now = self.now();
        let written = self.db.write(move |tx| match tx.approval(workspace, id)? {
            Some((approval, _)) => UnstartedOutcome::from_approval(&approval).write(
                tx,
                workspace,
                approval.execution_id,
                now,
            ),
            None => Ok(None),
        });
        if let Some(ended) = written.await? {
            self.publish_end(ended).await;
        }
        Ok(())
    }
}

fn retry_delay(error: &Error) -> Duration {
    match error.code {
        ErrorCode::DatabaseUnavailable => DATABASE_RETRY,
        _ => CAPACITY_RETRY,
    }
}
