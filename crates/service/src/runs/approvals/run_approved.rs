//! Carrying out what was agreed to, once, or saying why it cannot be.

use super::subject::ApprovalSubject;
use super::unstarted::UnstartedOutcome;
use super::{directory_changed_error, not_pending_error, subject_changed_error};
use crate::error::{RequestError, not_found};
use crate::network::EgressLog;
use crate::origins::Asker;
use crate::runs::executions::{RunContext, SubmitOptions};
use crate::service::Service;
use chrono::Utc;
use db::{AwaitedApproval, DatabaseError, Tx};
use engine::{Admitted, Command};
use policy::{ApprovalStage, mac_for_execution, macs_equal};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use types::{
    Approval, ApprovalId, ApprovalState, Error, ErrorCode, ExecutionId, KeyId, WorkspaceId,
};

/// Between two tries to find room for what was agreed to.
const CAPACITY_RETRY: Duration = Duration::from_millis(500);
/// Between two tries while the volume is in trouble, which takes longer to pass.
const DATABASE_RETRY: Duration = Duration::from_secs(5);

impl Service {
    /// Begins what was agreed to, as soon as there is room for it, or says why it cannot be.
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

    async fn try_run_approved(
        self: &Arc<Self>,
        workspace: WorkspaceId,
        id: ApprovalId,
    ) -> Result<(), RequestError> {
        let (approval, matter, key) = self.approved_subject(workspace, id).await?;
        let (mut admitted, trail) = self.admit_approved(workspace, &approval, &matter).await?;
        // Nobody else can change the files from here on: the session is ours until it has run.
        if let Some(asked) = &matter.pending.working_directory
            && admitted.directory_digest().await?.as_ref() != Some(asked)
        {
            return Err(directory_changed_error());
        }
        // So that it is stopped when the right of whoever asked is taken away.
        let asker = Asker { workspace, principal: approval.requester, key };
        self.register_execution(approval.execution_id).asked_by(asker);
        let whose = RunContext {
            workspace,
            principal: approval.requester,
            key: None,
            run_as: matter.call.run_as,
            agent: matter.call.agent,
            function: matter.call.target.function_id(),
            approval: Some(approval.id),
            requested_at: Some(approval.created_at),
            egress_log: trail,
            options: SubmitOptions { parent: matter.pending.parent, ..SubmitOptions::default() },
        };
        // All their bytes are read to know them again, so not at every look for room.
        let mut files = matter.call.target.source_files();
        files.extend(self.open_stored_inputs(workspace, &matter.pending.files).await?);
        self.start_execution(admitted.with_files(files), whose).await?.detach();
        Ok(())
    }

    /// What somebody has agreed to, if it is still that.
    async fn approved_subject(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
    ) -> Result<(Approval, ApprovalSubject, Option<KeyId>), RequestError> {
        let found = self.db.read(|rows| rows.approval(workspace, id))?;
        let (approval, seal) = found.ok_or_else(|| not_found("approval", id))?;
        if approval.state != ApprovalState::Allowed {
            return Err(not_pending_error(&approval));
        }
        if approval.expires_at <= Utc::now() {
            return Err(not_pending_error(&Approval { state: ApprovalState::Expired, ..approval }));
        }
        let key = self.check_requester(workspace, &approval)?;
        let matter = self.approval_subject(workspace, &approval).await?;
        let by = approval.decided_by.ok_or_else(subject_changed_error)?;
        let bound = matter.bound_call(workspace, approval.requester);
        let once = matter.bound_execution(approval.execution_id, approval.expires_at);
        if !macs_equal(
            &seal,
            &mac_for_execution(&self.approval_key, ApprovalStage::AllowedBy(by), &bound, &once),
        ) {
            return Err(subject_changed_error());
        }
        Ok((approval, matter, key))
    }

    async fn admit_approved(
        self: &Arc<Self>,
        workspace: WorkspaceId,
        approval: &Approval,
        matter: &ApprovalSubject,
    ) -> Result<(Admitted, Option<Arc<EgressLog>>), RequestError> {
        let requester = self.db.read(|rows| rows.principal(workspace, approval.requester))?;
        let requester = requester.ok_or_else(subject_changed_error)?;
        if let Some(id) = matter.pending.sandbox_id {
            let session = self.session_row(workspace, id)?;
            self.check_session_grants(workspace, &requester, &session).await?;
        }
        let callee = &matter.call.target;
        let entry = callee.entry(&matter.pending.arguments, approval.execution_id)?;
        let command = Command {
            id: approval.execution_id,
            limits: matter.pending.limits,
            session: matter.pending.sandbox_id,
            installer: self.installer(workspace, requester.id, matter.pending.sandbox_id),
            ..self.new_command(workspace, &requester, callee.environment(), entry)?
        };
        let needs = (callee.integrations(&matter.pending.arguments), callee.author());
        let run_as = matter.call.run_as;
        let (command, trail) =
            self.attach_egress(command, workspace, &requester, run_as, needs).await?;
        Ok((self.engine.admit(command).await?, trail))
    }

    /// That it cannot be is tried until it is written.
    async fn fail_approved(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
        execution: ExecutionId,
        fault: Error,
    ) {
        let ended = loop {
            let ending = UnstartedOutcome::failed(fault.clone());
            let void = (fault.code == ErrorCode::ApprovalInvalid).then(|| fault.message.clone());
            let written = move |tx: &Tx<'_>| {
                if let Some(reason) = void {
                    tx.void_approval(workspace, id, Utc::now(), reason)?;
                }
                ending.write(tx, workspace, execution)
            };
            match self.db.write(written).await {
                Ok(ended) => break ended,
                Err(error) => {
                    tracing::error!(%execution, %error, "its end could not be kept");
                    sleep(DATABASE_RETRY).await;
                }
            }
        };
        ended.into_iter().for_each(|ended| self.publish_end(ended));
    }

    /// What waited at the last stop waits on, or begins. Must come before anything else can end
    /// a question.
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
        let written = self.db.write(move |tx| match tx.approval(workspace, id)? {
            Some((approval, _)) => UnstartedOutcome::from_approval(&approval).write(
                tx,
                workspace,
                approval.execution_id,
            ),
            None => Ok(None),
        });
        written.await?.into_iter().for_each(|ended| self.publish_end(ended));
        Ok(())
    }
}

fn retry_delay(fault: &Error) -> Duration {
    match fault.code {
        ErrorCode::DatabaseUnavailable => DATABASE_RETRY,
        _ => CAPACITY_RETRY,
    }
}
