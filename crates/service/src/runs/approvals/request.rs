//! Requests an approval: stores it with everything that is needed to run the call after the
//! decision.

use super::subject::ApprovalSubject;
use crate::error::RequestError;
use crate::identity::caller::Caller;
use crate::origins::{credential_revoked_error, is_revoked};
use crate::runs::calls::ResolvedRun;
use crate::runs::executions::SubmitOptions;
use crate::runs::launch::{EntryRecord, Submitted};
use crate::runs::pending_call::StoredInputs;
use crate::service::Service;
use crate::tasks::run_to_completion;
use chrono::{DateTime, TimeDelta, Utc};
use db::{IdempotencyKey, NewApproval, Tx};
use policy::{ApprovalStage, MacTag, mac_for_execution};
use std::sync::Arc;
use types::{Approval, ApprovalId, ApprovalState, Error, ErrorCode, Execution, ExecutionId};
use uuid::Uuid;

/// Maximum number of pending approvals of one principal. Each is stored with its code and files
/// until it is decided.
const PENDING_APPROVALS_MAX: u64 = 1_000;

impl Service {
    /// Stores the approval with everything that is needed to run the call after the decision. A
    /// call that cannot start is refused now, before an approver sees it.
    #[boxed::future]
    pub(crate) async fn request_approval(
        self: &Arc<Self>,
        caller: &Caller,
        mut run: ResolvedRun,
        options: SubmitOptions,
    ) -> Result<Submitted, RequestError> {
        let (workspace, who) = (caller.workspace, &caller.principal);
        let id = ExecutionId::new(Uuid::now_v7());
        self.check_run(workspace, who, &run).await?;
        let limits = run.limits.resolve(&self.limit_caps(workspace)?)?;
        let entry = self.entry_record(workspace, &run.target, id).await?;
        let (files, warnings) = self.persist_inputs(caller, std::mem::take(&mut run.files)).await?;
        let working_directory = match run.session {
            Some(session) if run.target.is_submitted_code() => {
                Some(self.engine.directory_digest(session).await?)
            }
            _ => None,
        };
        let access = self.run_access(workspace, who, &run).await?;
        let inputs = StoredInputs { files, working_directory, warnings };
        let subject = ApprovalSubject::new(run, inputs, options.parent, access);
        let approval = self.new_approval(caller, id, &subject, &entry, self.now());
        let record = Arc::new(subject.waiting_record(&approval, &entry, limits));
        let bound = subject.bound_call(workspace, caller.id());
        let once = subject.bound_execution(id, approval.expires_at);
        let seal = mac_for_execution(&self.approval_key, ApprovalStage::Requested, &bound, &once);
        let plan = subject.to_pending().to_bytes();
        let (service, caller) = (Arc::clone(self), caller.clone());
        run_to_completion(async move {
            let running = service.register_waiting(record.id, approval.id);
            running.set_parent(record.parent);
            let written = service.write_approval(
                &caller,
                &record,
                &approval,
                plan,
                seal,
                options.idempotency_key,
            );
            if let Err(refused) = written.await {
                service.active_executions().remove(&record.id);
                return Err(refused);
            }
            service.publish_approval(caller.workspace, &approval);
            let handle = service.waiting_handle(&running, record, caller.workspace);
            Ok(Submitted::AwaitingApproval(handle))
        })
        .await
    }

    fn new_approval(
        &self,
        caller: &Caller,
        execution_id: ExecutionId,
        subject: &ApprovalSubject,
        entry: &EntryRecord,
        now: DateTime<Utc>,
    ) -> Approval {
        let time = TimeDelta::from_std(self.config.approval_timeout).unwrap_or(TimeDelta::MAX);
        Approval {
            id: ApprovalId::new(Uuid::now_v7()),
            state: ApprovalState::Pending,
            execution_id,
            requester: caller.id(),
            run_as: subject.run.run_as,
            tool_id: subject.run.target.id(),
            tool_name: subject.run.target.name().to_owned(),
            agent_id: subject.run.agent,
            sandbox_id: subject.run.session,
            code: entry.code.clone(),
            arguments: subject.run.target.displayed_arguments(),
            files: subject.files.clone(),
            environment: subject.run.target.environment().to_owned(),
            network: subject.access.integrations.clone(),
            secrets: subject.access.secrets.clone(),
            working_directory: subject.inputs.working_directory.clone(),
            created_at: now,
            // As precise as the MAC is.
            expires_at: truncate_to_micros(
                now.checked_add_signed(time).unwrap_or(DateTime::<Utc>::MAX_UTC),
            ),
            decided_by: None,
            decided_at: None,
            reason: None,
            scope: subject.run.default_scope,
        }
    }

    async fn write_approval(
        &self,
        caller: &Caller,
        record: &Arc<Execution>,
        approval: &Approval,
        plan: Vec<u8>,
        seal: MacTag,
        claim: Option<String>,
    ) -> Result<(), RequestError> {
        let workspace = caller.workspace;
        let entry = caller.audit_entry("approval.ask", approval.id, &approval.tool_name);
        let claim = claim.map(|key| IdempotencyKey { workspace, principal: caller.id(), key });
        let (record, approval) = (Arc::clone(record), approval.clone());
        let most = self.config.workspace_bytes_max;
        let (requester, clock) = (caller.requester(), self.config.clock.clone());
        let written = move |tx: &Tx<'_>| {
            if is_revoked(tx, requester, clock.now())? {
                return Ok(Err(credential_revoked_error()));
            }
            if tx.count_pending_approvals(workspace, approval.requester)? >= PENDING_APPROVALS_MAX {
                return Ok(Err(too_many()));
            }
            tx.insert_waiting_execution(workspace, &record, &plan)?;
            let beside = (plan.len() + record.code.len()) as u64;
            let (approval, seal, key) = (&approval, &seal, requester.key);
            tx.insert_approval(
                workspace,
                &NewApproval { approval, mac: seal, key, extra_bytes: beside },
                most,
            )?;
            if let Some(claim) = &claim {
                tx.link_request(claim, record.id)?;
            }
            tx.append_audit_entry(&entry)?;
            Ok(Ok(()))
        };
        self.db.write(written).await?
    }
}

fn truncate_to_micros(moment: DateTime<Utc>) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(moment.timestamp_micros()).unwrap_or(moment)
}

fn too_many() -> RequestError {
    let message = format!("you already have {PENDING_APPROVALS_MAX} pending approvals");
    Error::new(ErrorCode::CapacityExhausted, message)
        .hint("have some of them decided, or withdraw them, before you request more")
        .into()
}
