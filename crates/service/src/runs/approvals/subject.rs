//! What a question is about, put together from the records as they are now.

use super::{directory_changed_error, subject_changed_error};
use crate::error::RequestError;
use crate::identity::caller::Caller;
use crate::network::{IntegrationSource, SandboxAccess};
use crate::runs::call_target::{CallTarget, ExecutePythonArgs};
use crate::runs::calls::{CallRequest, ResolvedCall};
use crate::runs::pending_call::PendingCall;
use crate::service::Service;
use chrono::{DateTime, Utc};
use policy::{BoundCall, BoundExecution, RememberedCoverage, mac_for_remembered, macs_equal};
use serde_json::Value;
use types::{
    Approval, ApprovalScope, ErrorCode, ExecutionId, Principal, PrincipalId, SandboxId, Session,
    WorkspaceId,
};

/// Everything that an approval is about, as it is now.
pub(super) struct ApprovalSubject {
    pub(super) call: ResolvedCall,
    pub(super) pending: PendingCall,
    definition: String,
    arguments: String,
    pub(super) access: SandboxAccess,
    pub(super) files: Vec<(String, String)>,
}

impl ApprovalSubject {
    pub(super) fn new(route: ResolvedCall, plan: PendingCall, reach: SandboxAccess) -> Self {
        Self {
            definition: route.target.definition(),
            arguments: plan.arguments.to_string(),
            files: plan.files.iter().map(|file| (file.name.clone(), file.sha256.clone())).collect(),
            call: route,
            pending: plan,
            access: reach,
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
            run_as: self.call.run_as,
            tool: self.call.target.id(),
            agent: self.call.agent,
            session: self.pending.sandbox_id,
            environment: self.call.target.environment(),
            network: &self.access.integrations,
            secrets: &self.access.secrets,
            reach: &self.access.digest,
            definition: &self.definition,
            limits: self.pending.limits,
        }
    }

    pub(super) fn bound_execution(
        &self,
        execution: ExecutionId,
        expires_at: DateTime<Utc>,
    ) -> BoundExecution<'_> {
        BoundExecution {
            execution,
            arguments: &self.arguments,
            files: &self.files,
            working_directory: self.pending.working_directory.as_deref(),
            expires_at,
        }
    }

    /// What an answer for further calls would cover.
    pub(super) fn coverage(&self) -> RememberedCoverage<'_> {
        if self.call.target.is_submitted_code() {
            RememberedCoverage::SentCode { arguments: &self.arguments }
        } else {
            RememberedCoverage::Definition
        }
    }
}

impl Service {
    /// Whether somebody has agreed to such calls before.
    pub(crate) async fn has_remembered_approval(
        &self,
        caller: &Caller,
        route: &ResolvedCall,
        request: &CallRequest,
    ) -> Result<bool, RequestError> {
        let (workspace, requester) = (caller.workspace, caller.id());
        let (tool, session) = (route.target.id(), request.sandbox_id);
        let mut known = self.db.read(|rows| {
            rows.remembered_approvals_for(workspace, requester, tool, route.agent, session)
        })?;
        if route.target.is_submitted_code() && !request.files.is_empty() {
            // Files that come along are part of what runs, and no answer for always is given about them.
            known.retain(|one| one.scope != ApprovalScope::Always);
        }
        if known.is_empty() {
            return Ok(false);
        }
        let plan = PendingCall {
            tool_id: tool,
            agent_id: route.agent,
            sandbox_id: session,
            // Of a tool the definition counts, and its arguments can be long.
            arguments: if route.target.is_submitted_code() {
                request.arguments.clone()
            } else {
                Value::Null
            },
            files: Vec::new(),
            limits: request.limits,
            test: route.target.is_test(),
            working_directory: None,
            parent: None,
        };
        let reach =
            self.call_access(workspace, &caller.principal, route, &request.arguments, session);
        let matter = ApprovalSubject::new(route.clone(), plan, reach.await?);
        let bound = matter.bound_call(workspace, requester);
        Ok(known.iter().any(|one| {
            mac_for_remembered(&self.approval_key, &bound, matter.coverage(), one.scope)
                .is_some_and(|seal| macs_equal(&seal, &one.mac))
        }))
    }

    /// What the code of a call could reach and use: in a session all that the session has.
    pub(super) async fn call_access(
        &self,
        workspace: WorkspaceId,
        requester: &Principal,
        route: &ResolvedCall,
        arguments: &Value,
        session: Option<SandboxId>,
    ) -> Result<SandboxAccess, RequestError> {
        if let Some(id) = session {
            let session = self.session_row(workspace, id)?;
            return self.session_access(workspace, &session).await;
        }
        let integrations = route.target.integrations(arguments);
        let (run_as, author) = (route.run_as, route.target.author());
        let grounds = IntegrationSource::Named { integrations, run_as, author };
        self.fresh_sandbox_access(workspace, requester, &grounds).await
    }

    /// What an approval is about, from the records as they are now.
    pub(super) async fn approval_subject(
        &self,
        workspace: WorkspaceId,
        approval: &Approval,
    ) -> Result<ApprovalSubject, RequestError> {
        let (plan, requester) = self.db.read(|rows| {
            let plan = rows.pending_call_json(workspace, approval.execution_id)?;
            Ok((plan, rows.principal(workspace, approval.requester)?))
        })?;
        let plan = plan.and_then(|bytes| PendingCall::from_bytes(&bytes, approval.code.clone()));
        let plan = plan.ok_or_else(subject_changed_error)?;
        let requester = requester.ok_or_else(subject_changed_error)?;
        let route = match ExecutePythonArgs::from_value(&plan.arguments) {
            Some(script) if plan.tool_id == CallTarget::python_id() => {
                let session = plan.sandbox_id.map(|id| self.session_row(workspace, id));
                let session = session.transpose()?;
                let environment = script.environment;
                self.resolve_python_call(workspace, &requester, session.as_ref(), environment)
                    .await?
            }
            _ => self.resolve_call(workspace, &requester, plan.tool_id, plan.agent_id).await?,
        };
        let route = match plan.test {
            true => ResolvedCall { target: route.target.into_test()?, ..route },
            false => route,
        };
        let reach = self
            .call_access(workspace, &requester, &route, &plan.arguments, plan.sandbox_id)
            .await?;
        Ok(ApprovalSubject::new(route, plan, reach))
    }

    /// Whether the working directory is the one that was asked about. While something runs there this
    /// cannot be told; it is told before the call begins.
    pub(super) async fn check_working_directory(
        &self,
        plan: &PendingCall,
    ) -> Result<(), RequestError> {
        let (Some(asked), Some(session)) = (&plan.working_directory, plan.sandbox_id) else {
            return Ok(());
        };
        match self.engine.directory_digest(session).await {
            Ok(now) if now == *asked => Ok(()),
            Ok(_) => Err(directory_changed_error()),
            Err(fault) if fault.code == ErrorCode::SessionBusy => Ok(()),
            Err(fault) => Err(fault.into()),
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
