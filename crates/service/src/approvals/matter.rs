//! What a question is about, put together from the records as they are now.

use super::changed;
use crate::callee::{Callee, Script};
use crate::calls::{CallRequest, Route};
use crate::plan::Plan;
use crate::refused::Refused;
use crate::service::Service;
use chrono::{DateTime, Utc};
use policy::{Bound, BoundOnce, seal_remembered, seals_match};
use types::{Approval, ExecutionId, PrincipalId, SandboxId, Session, WorkspaceId};

/// Everything that an approval is about, as it is now.
pub(super) struct Matter {
    pub(super) route: Route,
    pub(super) plan: Plan,
    definition: String,
    arguments: String,
    pub(super) network: Vec<String>,
    pub(super) files: Vec<(String, String)>,
}

impl Matter {
    pub(super) fn new(route: Route, plan: Plan) -> Self {
        Self {
            definition: route.callee.definition(),
            arguments: plan.arguments.to_string(),
            network: route.callee.integrations(&plan.arguments),
            files: plan.files.iter().map(|file| (file.name.clone(), file.sha256.clone())).collect(),
            route,
            plan,
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
            network: &self.network,
            definition: &self.definition,
            limits: self.plan.limits,
        }
    }

    pub(super) fn once(&self, execution: ExecutionId, expires_at: DateTime<Utc>) -> BoundOnce<'_> {
        BoundOnce { execution, arguments: &self.arguments, files: &self.files, expires_at }
    }
}

impl Service {
    /// Whether somebody has agreed to such calls before.
    pub(crate) fn was_agreed(
        &self,
        workspace: WorkspaceId,
        requester: PrincipalId,
        route: &Route,
        request: &CallRequest,
    ) -> Result<bool, Refused> {
        let plan = Plan {
            tool_id: route.callee.id(),
            agent_id: route.agent,
            sandbox_id: request.sandbox_id,
            arguments: serde_json::Value::Null,
            files: Vec::new(),
            limits: request.limits,
            parent: None,
        };
        let matter = Matter::new(route.clone(), plan);
        let bound = matter.bound(workspace, requester);
        let known = self.store.read(|rows| {
            rows.remembered_for(workspace, requester, bound.tool, bound.agent, bound.session)
        })?;
        Ok(known.iter().any(|one| {
            seal_remembered(&self.seal_key, &bound, one.scope)
                .is_some_and(|seal| seals_match(&seal, &one.seal))
        }))
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
        let plan = plan.and_then(|bytes| Plan::from_bytes(&bytes)).ok_or_else(changed)?;
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
        Ok(Matter::new(route, plan))
    }

    pub(crate) fn session_row(
        &self,
        workspace: WorkspaceId,
        id: SandboxId,
    ) -> Result<Session, Refused> {
        self.store.read(|rows| rows.session(workspace, id))?.ok_or_else(changed)
    }
}
