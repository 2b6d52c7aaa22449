//! Carrying out what was agreed to, once, or saying why it cannot be.

use super::{changed, over};
use crate::executions::{Manner, Row, Whose};
use crate::refused::{Refused, not_found};
use crate::service::Service;
use chrono::Utc;
use engine::Command;
use policy::{Seal, Stage, seal_once, seals_match};
use std::sync::Arc;
use std::time::Duration;
use store::StoreError;
use types::{
    Approval, ApprovalId, ApprovalState, Event, Execution, ExecutionId, Fault, Status, WorkspaceId,
};

/// Between two tries to find room for what was agreed to.
const AGAIN: Duration = Duration::from_millis(500);

impl Service {
    /// Begins what was agreed to, as soon as there is room for it, or says why it cannot be.
    pub(crate) async fn carry_out(self: Arc<Self>, workspace: WorkspaceId, id: ApprovalId) {
        loop {
            let Ok(Some((approval, seal))) = self.store.read(|rows| rows.approval(workspace, id))
            else {
                return;
            };
            let execution = approval.execution_id;
            match self.carry_out_once(workspace, approval, seal).await {
                Ok(()) => return,
                Err(refused) if refused.fault.retryable => tokio::time::sleep(AGAIN).await,
                Err(refused) => {
                    let ended = self
                        .end_waiting(workspace, execution, Status::Failed, *refused.fault)
                        .await;
                    if let Err(refused) = ended {
                        tracing::error!(%execution, error = %refused.fault, "its end could not be kept");
                    }
                    return;
                }
            }
        }
    }

    async fn carry_out_once(
        self: &Arc<Self>,
        workspace: WorkspaceId,
        approval: Approval,
        seal: Seal,
    ) -> Result<(), Refused> {
        if approval.state != ApprovalState::Allowed || approval.expires_at <= Utc::now() {
            return Err(over(&approval));
        }
        let matter = self.matter(workspace, &approval)?;
        let files = self.open_kept(workspace, &matter.plan.files).await?;
        let by = approval.decided_by.ok_or_else(changed)?;
        let bound = matter.bound(workspace, approval.requester);
        let once = matter.once(approval.execution_id, approval.expires_at);
        if !seals_match(&seal, &seal_once(&self.seal_key, Stage::AllowedBy(by), &bound, &once)) {
            return Err(changed());
        }
        let requester = self.store.read(|rows| rows.principal(workspace, approval.requester))?;
        let requester = requester.ok_or_else(changed)?;
        let call = matter.route.checked.call(matter.plan.arguments.clone())?;
        let command = Command {
            files,
            limits: matter.plan.limits,
            session: matter.plan.sandbox_id,
            ..self.command(approval.execution_id, &requester, &matter.route.tool, call)
        };
        let whose = Whose {
            workspace,
            principal: approval.requester,
            key: None,
            run_as: matter.route.run_as,
            agent: matter.route.agent,
            approval: Some(approval.id),
            manner: Manner::default(),
        };
        let admitted = self.engine.admit(command).await?;
        self.begin(admitted, whose).await?.let_go();
        Ok(())
    }

    /// The end of one that never began.
    pub(super) async fn end_waiting(
        &self,
        workspace: WorkspaceId,
        id: ExecutionId,
        status: Status,
        fault: Fault,
    ) -> Result<(), Refused> {
        let found = self.store.read(|rows| rows.execution_summary(workspace, id))?;
        let Some(record) = found.filter(|record| record.status == Status::WaitingApproval) else {
            return Ok(());
        };
        let running = self.waiting(&record).ok_or_else(|| not_found("execution", id))?;
        running.live.push(Event::Error(fault.clone()));
        let whose = Whose {
            workspace,
            principal: record.principal.ok_or_else(changed)?,
            key: None,
            run_as: record.run_as.or(record.principal).ok_or_else(changed)?,
            agent: record.agent,
            approval: record.approval_id,
            manner: Manner::default(),
        };
        let record = Execution { status, error: Some(fault), ended_at: Some(Utc::now()), ..record };
        let kept = self.write_end(record, Vec::new(), &whose, &running.live, Row::There).await;
        let failed = kept.as_ref().err().cloned();
        self.conclude(id, &running, kept);
        failed.map_or(Ok(()), Err)
    }

    /// What was agreed to before the last stop, and had not begun.
    pub(crate) fn take_up_allowed(self: &Arc<Self>) -> Result<(), StoreError> {
        for (workspace, id) in self.store.read(|rows| rows.allowed_approvals())? {
            tokio::spawn(Arc::clone(self).carry_out(workspace, id));
        }
        Ok(())
    }
}
