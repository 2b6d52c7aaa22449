//! Carrying out what was agreed to, once, or saying why it cannot be.

use super::ending::Ending;
use super::matter::Matter;
use super::{changed, directory_changed, over};
use crate::executions::{Manner, Whose};
use crate::network::Trail;
use crate::origins::Asker;
use crate::refused::{Refused, not_found};
use crate::service::Service;
use chrono::Utc;
use engine::{Admitted, Command};
use policy::{Stage, seal_once, seals_match};
use std::sync::Arc;
use std::time::Duration;
use store::{Question, StoreError, Tx};
use tokio::time::sleep;
use types::{Approval, ApprovalId, ApprovalState, Code, ExecutionId, Fault, KeyId, WorkspaceId};

/// Between two tries to find room for what was agreed to.
const ROOM_AGAIN: Duration = Duration::from_millis(500);
/// Between two tries while the store is in trouble, which takes longer to pass.
const STORE_AGAIN: Duration = Duration::from_secs(5);

impl Service {
    /// Begins what was agreed to, as soon as there is room for it, or says why it cannot be.
    pub(super) async fn carry_out(
        self: Arc<Self>,
        workspace: WorkspaceId,
        id: ApprovalId,
        execution: ExecutionId,
    ) {
        loop {
            match self.carry_out_once(workspace, id).await {
                Ok(()) => return,
                Err(refused) if refused.fault.retryable => sleep(pause(&refused.fault)).await,
                Err(refused) => {
                    return self.give_up(workspace, id, execution, *refused.fault).await;
                }
            }
        }
    }

    async fn carry_out_once(
        self: &Arc<Self>,
        workspace: WorkspaceId,
        id: ApprovalId,
    ) -> Result<(), Refused> {
        let (approval, matter, key) = self.agreed(workspace, id).await?;
        let (mut admitted, trail) = self.admit_agreed(workspace, &approval, &matter).await?;
        // Nobody else can change the files from here on: the session is ours until it has run.
        if let Some(asked) = &matter.plan.working_directory
            && admitted.directory_digest().await?.as_ref() != Some(asked)
        {
            return Err(directory_changed());
        }
        // So that it is stopped when the right of whoever asked is taken away.
        let asker = Asker { workspace, principal: approval.requester, key };
        self.follow(approval.execution_id).asked_by(asker);
        let whose = Whose {
            workspace,
            principal: approval.requester,
            key: None,
            run_as: matter.route.run_as,
            agent: matter.route.agent,
            function: matter.route.callee.function_id(),
            approval: Some(approval.id),
            asked_at: Some(approval.created_at),
            trail,
            manner: Manner { parent: matter.plan.parent, ..Manner::default() },
        };
        // All their bytes are read to know them again, so not at every look for room.
        let mut files = matter.route.callee.files();
        files.extend(self.open_kept(workspace, &matter.plan.files).await?);
        self.begin(admitted.with_files(files), whose).await?.let_go();
        Ok(())
    }

    /// What somebody has agreed to, if it is still that.
    async fn agreed(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
    ) -> Result<(Approval, Matter, Option<KeyId>), Refused> {
        let found = self.store.read(|rows| rows.approval(workspace, id))?;
        let (approval, seal) = found.ok_or_else(|| not_found("approval", id))?;
        if approval.state != ApprovalState::Allowed {
            return Err(over(&approval));
        }
        if approval.expires_at <= Utc::now() {
            return Err(over(&Approval { state: ApprovalState::Expired, ..approval }));
        }
        let key = self.check_requester(workspace, &approval)?;
        let matter = self.matter(workspace, &approval).await?;
        let by = approval.decided_by.ok_or_else(changed)?;
        let bound = matter.bound(workspace, approval.requester);
        let once = matter.once(approval.execution_id, approval.expires_at);
        if !seals_match(&seal, &seal_once(&self.seal_key, Stage::AllowedBy(by), &bound, &once)) {
            return Err(changed());
        }
        Ok((approval, matter, key))
    }

    async fn admit_agreed(
        self: &Arc<Self>,
        workspace: WorkspaceId,
        approval: &Approval,
        matter: &Matter,
    ) -> Result<(Admitted, Option<Arc<Trail>>), Refused> {
        let requester = self.store.read(|rows| rows.principal(workspace, approval.requester))?;
        let requester = requester.ok_or_else(changed)?;
        if let Some(id) = matter.plan.sandbox_id {
            let session = self.session_row(workspace, id)?;
            self.check_lent(workspace, &requester, &session).await?;
        }
        let callee = &matter.route.callee;
        let entry = callee.entry(&matter.plan.arguments, approval.execution_id)?;
        let command = Command {
            id: approval.execution_id,
            limits: matter.plan.limits,
            session: matter.plan.sandbox_id,
            installer: self.installer(workspace, requester.id, matter.plan.sandbox_id),
            ..self.command(workspace, &requester, callee.environment(), entry)?
        };
        let needs = (callee.integrations(&matter.plan.arguments), callee.author());
        let run_as = matter.route.run_as;
        let (command, trail) = self.give_way(command, workspace, &requester, run_as, needs).await?;
        Ok((self.engine.admit(command).await?, trail))
    }

    /// That it cannot be is tried until it is written.
    async fn give_up(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
        execution: ExecutionId,
        fault: Fault,
    ) {
        let ended = loop {
            let ending = Ending::failed(fault.clone());
            let void = (fault.code == Code::ApprovalInvalid).then(|| fault.message.clone());
            let written = move |tx: &Tx<'_>| {
                if let Some(reason) = void {
                    tx.void_approval(workspace, id, Utc::now(), reason)?;
                }
                ending.write(tx, workspace, execution)
            };
            match self.store.write(written).await {
                Ok(ended) => break ended,
                Err(error) => {
                    tracing::error!(%execution, %error, "its end could not be kept");
                    sleep(STORE_AGAIN).await;
                }
            }
        };
        ended.into_iter().for_each(|ended| self.tell_end(ended));
    }

    /// What waited at the last stop waits on, or begins. Must come before anything else can end
    /// a question.
    pub(crate) async fn take_up_questions(self: &Arc<Self>) -> Result<(), StoreError> {
        for question in self.store.read(|rows| rows.questions())? {
            let Question { workspace, id, execution, state } = question;
            match state {
                ApprovalState::Pending => drop(self.hear(execution, id)),
                ApprovalState::Allowed => {
                    self.hear(execution, id);
                    tokio::spawn(Arc::clone(self).carry_out(workspace, id, execution));
                }
                ApprovalState::Used
                | ApprovalState::Denied
                | ApprovalState::Expired
                | ApprovalState::Void => {
                    self.make_up_end(workspace, id).await?;
                }
            }
        }
        Ok(())
    }

    async fn make_up_end(&self, workspace: WorkspaceId, id: ApprovalId) -> Result<(), StoreError> {
        let written = self.store.write(move |tx| match tx.approval(workspace, id)? {
            Some((approval, _)) => {
                Ending::of(&approval).write(tx, workspace, approval.execution_id)
            }
            None => Ok(None),
        });
        written.await?.into_iter().for_each(|ended| self.tell_end(ended));
        Ok(())
    }
}

fn pause(fault: &Fault) -> Duration {
    match fault.code {
        Code::StoreUnavailable => STORE_AGAIN,
        _ => ROOM_AGAIN,
    }
}
