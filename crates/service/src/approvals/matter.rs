//! What a question is about, put together from the records as they are now.

use super::{changed, directory_changed};
use crate::callee::{Callee, Script};
use crate::caller::Caller;
use crate::calls::{CallRequest, Route};
use crate::network::{Grounds, Reach};
use crate::plan::Plan;
use crate::refused::Refused;
use crate::service::Service;
use chrono::{DateTime, Utc};
use policy::{Bound, BoundOnce, Covers, seal_remembered, seals_match};
use serde_json::Value;
use types::{
    Approval, ApprovalScope, Code, ExecutionId, Principal, PrincipalId, SandboxId, Session,
    WorkspaceId,
};

/// Everything that an approval is about, as it is now.
pub(super) struct Matter {
    pub(super) route: Route,
    pub(super) plan: Plan,
    definition: String,
    arguments: String,
    pub(super) reach: Reach,
    pub(super) files: Vec<(String, String)>,
}

impl Matter {
    pub(super) fn new(route: Route, plan: Plan, reach: Reach) -> Self {
        Self {
            definition: route.callee.definition(),
            arguments: plan.arguments.to_string(),
            files: plan.files.iter().map(|file| (file.name.clone(), file.sha256.clone())).collect(),
            route,
            plan,
            reach,
        }
    }

    pub(super) fn bound(&self, workspace: WorkspaceId, requester: PrincipalId) -> Bound<'_> {
        Bound {
            workspace,
            requester,
            run_as: self.route.run_as,
            tool: self.route.callee.id(),
            agent: self.route.agent,
            session: self.plan.sandbox_id,
            environment: self.route.callee.environment(),
            network: &self.reach.integrations,
            secrets: &self.reach.secrets,
            reach: &self.reach.digest,
            definition: &self.definition,
            limits: self.plan.limits,
        }
    }

    pub(super) fn once(&self, execution: ExecutionId, expires_at: DateTime<Utc>) -> BoundOnce<'_> {
        BoundOnce {
            execution,
            arguments: &self.arguments,
            files: &self.files,
            working_directory: self.plan.working_directory.as_deref(),
            expires_at,
        }
    }

    /// What an answer for further calls would cover.
    pub(super) fn covers(&self) -> Covers<'_> {
        if self.route.callee.is_sent() {
            Covers::Sent { arguments: &self.arguments }
        } else {
            Covers::Definition
        }
    }
}

impl Service {
    /// Whether somebody has agreed to such calls before.
    pub(crate) async fn was_agreed(
        &self,
        caller: &Caller,
        route: &Route,
        request: &CallRequest,
    ) -> Result<bool, Refused> {
        let (workspace, requester) = (caller.workspace, caller.id());
        let (tool, session) = (route.callee.id(), request.sandbox_id);
        let mut known = self
            .store
            .read(|rows| rows.remembered_for(workspace, requester, tool, route.agent, session))?;
        if route.callee.is_sent() && !request.files.is_empty() {
            // Files that come along are part of what runs, and no answer for always is given about them.
            known.retain(|one| one.scope != ApprovalScope::Always);
        }
        if known.is_empty() {
            return Ok(false);
        }
        let plan = Plan {
            tool_id: tool,
            agent_id: route.agent,
            sandbox_id: session,
            // Of a tool the definition counts, and its arguments can be long.
            arguments: if route.callee.is_sent() { request.arguments.clone() } else { Value::Null },
            files: Vec::new(),
            limits: request.limits,
            test: route.callee.is_test(),
            working_directory: None,
            parent: None,
        };
        let reach =
            self.reach_of_call(workspace, &caller.principal, route, &request.arguments, session);
        let matter = Matter::new(route.clone(), plan, reach.await?);
        let bound = matter.bound(workspace, requester);
        Ok(known.iter().any(|one| {
            seal_remembered(&self.seal_key, &bound, matter.covers(), one.scope)
                .is_some_and(|seal| seals_match(&seal, &one.seal))
        }))
    }

    /// What the code of a call could reach and use: in a session all that the session has.
    pub(super) async fn reach_of_call(
        &self,
        workspace: WorkspaceId,
        requester: &Principal,
        route: &Route,
        arguments: &Value,
        session: Option<SandboxId>,
    ) -> Result<Reach, Refused> {
        if let Some(id) = session {
            let session = self.session_row(workspace, id)?;
            return self.reach_of_session(workspace, &session).await;
        }
        let integrations = route.callee.integrations(arguments);
        let (run_as, author) = (route.run_as, route.callee.author());
        let grounds = Grounds::Named { integrations, run_as, author };
        self.reach_of_fresh(workspace, requester, &grounds).await
    }

    /// What an approval is about, from the records as they are now.
    pub(super) async fn matter(
        &self,
        workspace: WorkspaceId,
        approval: &Approval,
    ) -> Result<Matter, Refused> {
        let (plan, requester) = self.store.read(|rows| {
            let plan = rows.execution_plan(workspace, approval.execution_id)?;
            Ok((plan, rows.principal(workspace, approval.requester)?))
        })?;
        let plan = plan.and_then(|bytes| Plan::from_bytes(&bytes, approval.code.clone()));
        let plan = plan.ok_or_else(changed)?;
        let requester = requester.ok_or_else(changed)?;
        let route = match Script::of(&plan.arguments) {
            Some(script) if plan.tool_id == Callee::python_id() => {
                let session = plan.sandbox_id.map(|id| self.session_row(workspace, id));
                let session = session.transpose()?;
                let environment = script.environment;
                self.python_route(workspace, &requester, session.as_ref(), environment).await?
            }
            _ => self.route(workspace, &requester, plan.tool_id, plan.agent_id).await?,
        };
        let route = match plan.test {
            true => Route { callee: route.callee.tested()?, ..route },
            false => route,
        };
        let reach = self
            .reach_of_call(workspace, &requester, &route, &plan.arguments, plan.sandbox_id)
            .await?;
        Ok(Matter::new(route, plan, reach))
    }

    /// Whether the working directory is the one that was asked about. While something runs there this
    /// cannot be told; it is told before the call begins.
    pub(super) async fn check_directory(&self, plan: &Plan) -> Result<(), Refused> {
        let (Some(asked), Some(session)) = (&plan.working_directory, plan.sandbox_id) else {
            return Ok(());
        };
        match self.engine.directory_digest(session).await {
            Ok(now) if now == *asked => Ok(()),
            Ok(_) => Err(directory_changed()),
            Err(fault) if fault.code == Code::SessionBusy => Ok(()),
            Err(fault) => Err(fault.into()),
        }
    }

    pub(crate) fn session_row(
        &self,
        workspace: WorkspaceId,
        id: SandboxId,
    ) -> Result<Session, Refused> {
        self.store.read(|rows| rows.session(workspace, id))?.ok_or_else(changed)
    }
}
