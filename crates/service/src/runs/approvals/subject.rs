//! The subject of an approval, built from the current records.

use super::{directory_changed_error, subject_changed_error};
use crate::error::RequestError;
use crate::identity::caller::Caller;
use crate::network::{IntegrationSource, SandboxAccess};
use crate::runs::calls::ResolvedRun;
use crate::runs::launch::EntryRecord;
use crate::runs::pending_call::{PendingCall, StoredInput, StoredInputs};
use crate::runs::run_request::RunRequest;
use crate::service::Service;
use chrono::{DateTime, Utc};
use policy::{BoundCall, BoundExecution, RememberedCoverage, mac_for_remembered, macs_equal};
use types::{
    Approval, ApprovalScope, ErrorCode, Execution, ExecutionId, ExecutionStatus, Limits, Principal,
    PrincipalId, SandboxId, Session, WorkspaceId,
};

/// Everything that an approval covers, at this moment.
pub(super) struct ApprovalSubject {
    pub(super) run: ResolvedRun,
    pub(super) inputs: StoredInputs,
    pub(super) parent: Option<ExecutionId>,
    definition: String,
    /// The code or the arguments, as text.
    input: String,
    pub(super) access: SandboxAccess,
    /// Names and digests of the input files.
    pub(super) files: Vec<(String, String)>,
}

impl ApprovalSubject {
    pub(super) fn new(
        run: ResolvedRun,
        inputs: StoredInputs,
        parent: Option<ExecutionId>,
        access: SandboxAccess,
    ) -> Self {
        let name_and_digest = |file: &StoredInput| (file.name.clone(), file.sha256.clone());
        Self {
            definition: run.target.definition(),
            input: run.target.input_text(),
            files: inputs.files.iter().map(name_and_digest).collect(),
            run,
            inputs,
            parent,
            access,
        }
    }

    /// The call as it is stored until the approval is decided.
    pub(super) fn to_pending(&self) -> PendingCall {
        let ResolvedRun { target, session, limits, agent, .. } = &self.run;
        let target = target.to_request(*agent);
        PendingCall {
            request: RunRequest { target, session: *session, files: Vec::new(), limits: *limits },
            inputs: self.inputs.clone(),
            parent: self.parent,
        }
    }

    /// The record of a call that waits for an approval.
    pub(super) fn waiting_record(
        &self,
        approval: &Approval,
        entry: &EntryRecord,
        limits: Limits,
    ) -> Execution {
        let target = &self.run.target;
        Execution {
            sandbox_id: self.run.session,
            environment: approval.environment.clone(),
            status: ExecutionStatus::WaitingApproval,
            entry: entry.name.clone(),
            principal: Some(approval.requester),
            run_as: Some(approval.run_as),
            agent: self.run.agent,
            function_id: target.function_id(),
            approval_id: Some(approval.id),
            parent: self.parent,
            tool: entry.tool.clone(),
            code: approval.code.clone(),
            arguments: target.arguments().cloned(),
            files_in: self.inputs.files.iter().map(|file| file.name.clone()).collect(),
            warnings: self.inputs.warnings.clone(),
            ..Execution::new(approval.execution_id, limits, approval.created_at)
        }
    }

    pub(super) fn bound_call(
        &self,
        workspace: WorkspaceId,
        requester: PrincipalId,
    ) -> BoundCall<'_> {
        BoundCall {
            workspace,
            requester,
            run_as: self.run.run_as,
            tool: self.run.target.id(),
            agent: self.run.agent,
            session: self.run.session,
            environment: self.run.target.environment(),
            network: &self.access.integrations,
            secrets: &self.access.secrets,
            reach: &self.access.digest,
            definition: &self.definition,
            limits: self.run.limits,
        }
    }

    pub(super) fn bound_execution(
        &self,
        execution: ExecutionId,
        expires_at: DateTime<Utc>,
    ) -> BoundExecution<'_> {
        BoundExecution {
            execution,
            arguments: &self.input,
            files: &self.files,
            working_directory: self.inputs.working_directory.as_deref(),
            expires_at,
        }
    }

    /// The part of the subject that a remembered decision covers.
    pub(super) fn coverage(&self) -> RememberedCoverage<'_> {
        if self.run.target.is_submitted_code() {
            RememberedCoverage::SentCode { arguments: &self.input }
        } else {
            RememberedCoverage::Definition
        }
    }
}

impl Service {
    /// Whether a remembered decision covers this call.
    pub(crate) async fn has_remembered_approval(
        &self,
        caller: &Caller,
        run: &ResolvedRun,
    ) -> Result<bool, RequestError> {
        let (workspace, requester) = (caller.workspace, caller.id());
        let (tool, session) = (run.target.id(), run.session);
        let mut remembered = self.db.read(|rows| {
            rows.remembered_approvals_for(workspace, requester, tool, run.agent, session)
        })?;
        if run.target.is_submitted_code() && !run.files.is_empty() {
            // A remembered decision for all sessions does not cover input files.
            remembered.retain(|one| one.scope != ApprovalScope::Always);
        }
        if remembered.is_empty() {
            return Ok(false);
        }
        let access = self.run_access(workspace, &caller.principal, run).await?;
        let inputs =
            StoredInputs { files: Vec::new(), working_directory: None, warnings: Vec::new() };
        let subject = ApprovalSubject::new(run.clone(), inputs, None, access);
        let bound = subject.bound_call(workspace, requester);
        Ok(remembered.iter().any(|one| {
            mac_for_remembered(&self.approval_key, &bound, subject.coverage(), one.scope)
                .is_some_and(|mac| macs_equal(&mac, &one.mac))
        }))
    }

    /// The hosts and secrets that the code of a run could use; in a session, all that the session
    /// has.
    #[boxed::future]
    pub(super) async fn run_access(
        &self,
        workspace: WorkspaceId,
        requester: &Principal,
        run: &ResolvedRun,
    ) -> Result<SandboxAccess, RequestError> {
        if let Some(id) = run.session.filter(|_| !run.on_session_files) {
            let session = self.session_row(workspace, id)?;
            return self.session_access(workspace, &session).await;
        }
        let (integrations, author) = (run.target.integrations(), run.target.author());
        let source = IntegrationSource::Named { integrations, run_as: run.run_as, author };
        self.fresh_sandbox_access(workspace, requester, &source).await
    }

    /// The subject of an approval, from the current records.
    #[boxed::future]
    pub(super) async fn approval_subject(
        &self,
        workspace: WorkspaceId,
        approval: &Approval,
    ) -> Result<(ApprovalSubject, Principal), RequestError> {
        let (pending, requester) = self.db.read(|rows| {
            let pending = rows.pending_call_json(workspace, approval.execution_id)?;
            Ok((pending, rows.principal(workspace, approval.requester)?))
        })?;
        let pending =
            pending.and_then(|bytes| PendingCall::from_bytes(&bytes, approval.code.clone()));
        let PendingCall { request, inputs, parent } = pending.ok_or_else(subject_changed_error)?;
        let requester = requester.ok_or_else(subject_changed_error)?;
        let run = self.resolve_run(workspace, &requester, request).await?;
        let access = self.run_access(workspace, &requester, &run).await?;
        Ok((ApprovalSubject::new(run, inputs, parent, access), requester))
    }

    /// Whether the working directory is the one that was submitted for approval. It cannot be
    /// checked while the session runs something; then the check before the start of the call
    /// detects a change.
    pub(super) async fn check_working_directory(
        &self,
        subject: &ApprovalSubject,
    ) -> Result<(), RequestError> {
        let approved = &subject.inputs.working_directory;
        let (Some(approved), Some(session)) = (approved, subject.run.session) else {
            return Ok(());
        };
        match self.engine.directory_digest(session).await {
            Ok(now) if now == *approved => Ok(()),
            Ok(_) => Err(directory_changed_error()),
            Err(error) if error.code == ErrorCode::SessionBusy => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn session_row(
        &self,
        workspace: WorkspaceId,
        id: SandboxId,
    ) -> Result<Session, RequestError> {
        self.db.read(|rows| rows.session(workspace, id))?.ok_or_else(subject_changed_error)
    }
}
