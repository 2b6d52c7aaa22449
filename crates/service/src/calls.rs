//! Calls of tools: by whom, through which agent, with whose rights, and whether a person is asked.
//!
//! An agent lends its owner's rights: whoever may use the agent may have it call what its owner may
//! call, and nothing else. Arguments are checked before anybody is asked and before anything runs.

use crate::apart::aside;
use crate::callee::{Callee, Calling};
use crate::caller::Caller;
use crate::definition::Contract;
use crate::environments::check_not_of_functions;
use crate::executions::{Attached, Manner, Whose};
use crate::inputs::FileInput;
use crate::live::Numbered;
use crate::network;
use crate::object::{object, objects};
use crate::refused::{Refused, missing, not_found};
use crate::service::Service;
use engine::{Command, Entry, preflight};
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use types::{
    Agent, AgentId, ApprovalAction, ApprovalScope, Binding, Code, Execution, ExecutionId, Fault,
    LimitsRequest, Object, OperatorCaps, Principal, PrincipalId, Privilege, RunAs, SandboxId, Tool,
    ToolId, WorkspaceId,
};
use utoipa::ToSchema;
use uuid::Uuid;

#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CallRequest {
    /// As the tool's `input_schema` describes them.
    #[serde(default = "nothing")]
    #[schema(value_type = Object)]
    pub arguments: Value,
    /// The agent that makes the call; absent when the tool is called directly.
    pub agent_id: Option<AgentId>,
    /// In this session, whose files the tool sees; a fresh sandbox otherwise.
    pub sandbox_id: Option<SandboxId>,
    /// For the working directory, before the tool runs.
    #[serde(default, deserialize_with = "objects")]
    pub files: Vec<FileInput>,
    #[serde(default, deserialize_with = "object")]
    pub limits: LimitsRequest,
}

fn nothing() -> Value {
    Value::Object(Map::new())
}

#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TestRequest {
    pub sandbox_id: Option<SandboxId>,
    #[serde(deserialize_with = "object")]
    pub limits: LimitsRequest,
}

/// A call that has begun, or one that a person is asked about.
pub enum Asked {
    Begun(Attached),
    /// Its record so far, and its events from now to its end.
    Waiting(Box<Execution>, BoxStream<'static, Numbered>),
}

impl std::fmt::Debug for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Begun(attached) => f.debug_tuple("Begun").field(attached).finish(),
            Self::Waiting(execution, _) => f.debug_tuple("Waiting").field(&execution.id).finish(),
        }
    }
}

/// What somebody may have run, and on which terms.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) callee: Callee,
    pub(crate) agent: Option<AgentId>,
    pub(crate) run_as: PrincipalId,
    pub(crate) action: ApprovalAction,
    /// What an answer is good for, if whoever answers says nothing else.
    pub(crate) good_for: ApprovalScope,
}

impl Service {
    pub async fn call_tool(
        self: &Arc<Self>,
        caller: &Caller,
        id: ToolId,
        request: CallRequest,
        manner: Manner,
    ) -> Result<Asked, Refused> {
        let route = self.route(caller.workspace, &caller.principal, id, request.agent_id).await?;
        self.call(caller, route, request, manner).await
    }

    /// Runs what may run, or asks first.
    pub(crate) async fn call(
        self: &Arc<Self>,
        caller: &Caller,
        route: Route,
        request: CallRequest,
        manner: Manner,
    ) -> Result<Asked, Refused> {
        self.fit_session(caller, request.sandbox_id).await?;
        let request = route.callee.takes(request)?;
        request.limits.resolve(&self.caps(caller.workspace)?)?;
        let id = ExecutionId::new(Uuid::now_v7());
        let entry = route.callee.entry(&request.arguments, id)?;
        self.check_programs(&route.callee, request.sandbox_id).await?;
        let asks = route.action == ApprovalAction::Review
            && !self.was_agreed(caller, &route, &request).await?;
        if asks {
            return self.ask(caller, route, &entry, request, manner).await;
        }
        let mut files = route.callee.files();
        files.extend(self.bring_in(caller, request.files).await?);
        let command = Command {
            id,
            files,
            limits: request.limits,
            session: request.sandbox_id,
            installer: self.installer(caller.workspace, caller.id(), request.sandbox_id),
            ..self.command(
                caller.workspace,
                &caller.principal,
                route.callee.environment(),
                entry,
            )?
        };
        let needs = (route.callee.integrations(&request.arguments), route.callee.author());
        let run_as = route.run_as;
        let (command, trail) =
            self.give_way(command, caller.workspace, &caller.principal, run_as, needs).await?;
        let whose = Whose {
            run_as,
            agent: route.agent,
            function: route.callee.function_id(),
            trail,
            ..Whose::caller(caller, manner)
        };
        let admitted = self.engine.admit(command).await?;
        Ok(Asked::Begun(self.begin(admitted, whose).await?))
    }

    /// Whether the caller may use a session, if one is to be used, with all that it has.
    pub(crate) async fn fit_session(
        &self,
        caller: &Caller,
        id: Option<SandboxId>,
    ) -> Result<(), Refused> {
        let Some(id) = id else { return Ok(()) };
        let session = self.usable_session(caller, id)?;
        self.check_lent(caller.workspace, &caller.principal, &session).await
    }

    /// What a tool cannot do without must be there before it runs.
    async fn check_programs(
        &self,
        callee: &Callee,
        session: Option<SandboxId>,
    ) -> Result<(), Refused> {
        if callee.programs().is_empty() {
            return Ok(());
        }
        let environment = match session {
            Some(id) => self.engine.info(id)?.environment,
            None => callee.environment().to_owned(),
        };
        let (engine, programs) = (Arc::clone(&self.engine), callee.programs().to_vec());
        aside(move || {
            let missing = engine.contents(&environment)?.missing_programs(&programs);
            if missing.is_empty() {
                return Ok(());
            }
            Err(preflight::no_programs(&environment, &missing).into())
        })
        .await?
    }

    /// Runs the `test()` of a tool, on the same terms as a call: it is the same code, with the same
    /// variables.
    pub async fn test_tool(
        self: &Arc<Self>,
        caller: &Caller,
        id: ToolId,
        request: TestRequest,
        manner: Manner,
    ) -> Result<Asked, Refused> {
        let route = self.route(caller.workspace, &caller.principal, id, None).await?;
        let route = Route { callee: route.callee.tested()?, ..route };
        let request = CallRequest {
            arguments: nothing(),
            agent_id: None,
            sandbox_id: request.sandbox_id,
            files: Vec::new(),
            limits: request.limits,
        };
        self.call(caller, route, request, manner).await
    }

    pub(crate) fn command(
        &self,
        workspace: WorkspaceId,
        who: &Principal,
        environment: &str,
        entry: Entry,
    ) -> Result<Command, Refused> {
        Ok(Command {
            principal: Some(who.name.clone()),
            bring: self.bring(),
            caps: Some(self.caps(workspace)?),
            ..Command::new(environment, entry)
        })
    }

    /// The most that code of this workspace can ask for.
    pub(crate) fn caps(&self, workspace: WorkspaceId) -> Result<OperatorCaps, Refused> {
        let (all, of_workspaces) = (self.engine.caps(), &self.config.workspace_limits);
        if of_workspaces.is_empty() {
            return Ok(all);
        }
        let found = self.store.read(|rows| rows.workspace(workspace))?;
        let lower = found.and_then(|found| of_workspaces.get(&found.name));
        Ok(lower.map_or(all, |lower| all.lowered(lower)))
    }

    /// Whether this principal may have this tool called, with whose rights, and on which terms.
    pub(crate) async fn route(
        &self,
        workspace: WorkspaceId,
        principal: &Principal,
        id: ToolId,
        agent: Option<AgentId>,
    ) -> Result<Route, Refused> {
        let may = |who: &Principal, object| {
            let permit = self.permit(workspace, who, Privilege::Usage, object)?;
            permit.map(drop).ok_or_else(|| missing(Privilege::Usage, object))
        };
        let Some(agent_id) = agent else {
            let (tool, checked) = self.checked_tool(workspace, id).await?;
            may(principal, Object::Tool(id))?;
            let action = allowed(&tool, None)?;
            let callee = self.callee(workspace, principal, tool, &checked).await?;
            let (run_as, good_for) = (principal.id, ApprovalScope::Once);
            return Ok(Route { callee, agent: None, run_as, action, good_for });
        };
        let found = self.store.read(|rows| rows.agent(workspace, agent_id))?;
        let agent = found.ok_or_else(|| not_found("agent", agent_id))?;
        may(principal, Object::Agent(agent_id))?;
        let run_as = self.rights_of(workspace, principal, &agent)?;
        let (tool, checked, action) = match self.embedded_tool(workspace, &agent, id).await? {
            Some((tool, checked)) => {
                let action = allowed(&tool, None)?;
                (tool, checked, action)
            }
            None => {
                let (tool, checked) = self.checked_tool(workspace, id).await?;
                let binding = self.binding(workspace, &agent, &tool)?;
                may(&run_as, Object::Tool(id))?;
                let action = allowed(&tool, Some(&binding))?;
                (tool, checked, action)
            }
        };
        let callee = self.callee(workspace, &run_as, tool, &checked).await?;
        let (run_as, good_for) = (run_as.id, ApprovalScope::Once);
        Ok(Route { callee, agent: Some(agent_id), run_as, action, good_for })
    }

    /// What the tool runs, for whoever it runs as.
    async fn callee(
        &self,
        workspace: WorkspaceId,
        run_as: &Principal,
        tool: Tool,
        contract: &Contract,
    ) -> Result<Callee, Refused> {
        match contract {
            Contract::Python(checked) => {
                check_not_of_functions(&tool.environment)?;
                self.check_owner_leaves(workspace, &tool, checked)?;
                let checked = self.with_variables(workspace, &tool, checked).await?;
                Ok(Callee::Tool { tool: Box::new(tool), checked, test: false })
            }
            Contract::Function(contract) => {
                let name = &contract.external_id;
                let deployed = self.function_named(workspace, run_as, name).await?;
                let by = Some(Arc::new(Calling { tool, contract: (**contract).clone() }));
                Ok(Callee::Function { deployed, by })
            }
        }
    }

    /// Whoever the code of a tool runs as has to be able to leave by its integrations, and so have its
    /// owner and its author: others would carry out for them what they may not send themselves.
    pub(crate) fn check_owner_leaves(
        &self,
        workspace: WorkspaceId,
        tool: &Tool,
        checked: &contract::Tool,
    ) -> Result<(), Refused> {
        let needed = network::of_tool(checked);
        if needed.is_empty() {
            return Ok(());
        }
        let owner = self.known(workspace, tool.owner)?;
        self.check_integrations(workspace, (&owner, "who owns the tool"), &needed)?;
        let author = Some(tool.author).filter(|author| *author != tool.owner);
        self.check_author_leaves(workspace, author, &needed)
    }

    fn binding(
        &self,
        workspace: WorkspaceId,
        agent: &Agent,
        tool: &Tool,
    ) -> Result<Binding, Refused> {
        let bindings = self.store.read(|rows| rows.bindings_of(workspace, agent.id))?;
        bindings.into_iter().find(|binding| binding.tool_id == tool.id).ok_or_else(|| {
            let message =
                format!("Tool '{}' is not available in the current execution mode", tool.name);
            Fault::new(Code::ToolUnavailable, message)
                .hint(format!("attach it to the agent {:?} first", agent.name))
                .into()
        })
    }

    /// The one whose rights code has that an agent runs.
    pub(crate) fn rights_of(
        &self,
        workspace: WorkspaceId,
        caller: &Principal,
        agent: &Agent,
    ) -> Result<Principal, Refused> {
        match agent.run_as {
            RunAs::Caller => Ok(caller.clone()),
            RunAs::Owner => {
                self.check_confirmed(workspace, agent)?;
                let owner = self.store.read(|rows| rows.principal(workspace, agent.owner))?;
                owner.ok_or_else(|| {
                    let message = format!("the agent {:?} has no owner any more", agent.name);
                    Fault::new(Code::GrantMissing, message)
                        .hint("give its OWNERSHIP to somebody")
                        .into()
                })
            }
        }
    }
}

fn allowed(tool: &Tool, binding: Option<&Binding>) -> Result<ApprovalAction, Refused> {
    let action = policy::action(tool.approval_action, binding.map(|one| one.approval_action));
    if action == ApprovalAction::Deny {
        let message = format!("Tool '{}' denied by agent approval policy", tool.name);
        return Err(Fault::new(Code::ApprovalDenied, message)
            .hint("go on without it; the owner of the agent decides what it may call")
            .into());
    }
    Ok(action)
}
