//! Calls of tools: by whom, through which agent, with whose rights, and whether a person is asked.
//!
//! An agent lends its owner's rights: whoever may use the agent may have it call what its owner may
//! call, and nothing else. Arguments are checked before anybody is asked and before anything runs.

use crate::catalog::environments::check_not_function_environment;
use crate::catalog::tool_definition::ToolContract;
use crate::data::inputs::FileInput;
use crate::error::{RequestError, missing_privilege, not_found};
use crate::identity::caller::Caller;
use crate::network;
use crate::runs::call_target::{CallTarget, FunctionTool};
use crate::runs::executions::{ExecutionHandle, RunContext, SubmitOptions};
use crate::runs::live_log::NumberedEvent;
use crate::serde_helpers::{object, objects};
use crate::service::Service;
use crate::tasks::run_blocking;
use engine::{Command, EntryPoint, preflight};
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use types::{
    Agent, AgentId, ApprovalAction, ApprovalScope, Error, ErrorCode, Execution, ExecutionId,
    LimitsRequest, ObjectRef, OperatorCaps, Principal, PrincipalId, Privilege, RunAs, SandboxId,
    Tool, ToolBinding, ToolId, WorkspaceId,
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
pub enum Submitted {
    Started(ExecutionHandle),
    /// Its record so far, and its events from now to its end.
    AwaitingApproval(Box<Execution>, BoxStream<'static, NumberedEvent>),
}

impl std::fmt::Debug for Submitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Started(attached) => f.debug_tuple("Begun").field(attached).finish(),
            Self::AwaitingApproval(execution, _) => {
                f.debug_tuple("Waiting").field(&execution.id).finish()
            }
        }
    }
}

/// What somebody may have run, and on which terms.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedCall {
    pub(crate) target: CallTarget,
    pub(crate) agent: Option<AgentId>,
    pub(crate) run_as: PrincipalId,
    pub(crate) action: ApprovalAction,
    /// What an answer is good for, if whoever answers says nothing else.
    pub(crate) default_scope: ApprovalScope,
}

impl Service {
    pub async fn call_tool(
        self: &Arc<Self>,
        caller: &Caller,
        id: ToolId,
        request: CallRequest,
        manner: SubmitOptions,
    ) -> Result<Submitted, RequestError> {
        let route =
            self.resolve_call(caller.workspace, &caller.principal, id, request.agent_id).await?;
        self.submit_call(caller, route, request, manner).await
    }

    /// Runs what may run, or asks first.
    pub(crate) async fn submit_call(
        self: &Arc<Self>,
        caller: &Caller,
        route: ResolvedCall,
        request: CallRequest,
        manner: SubmitOptions,
    ) -> Result<Submitted, RequestError> {
        self.check_session_access(caller, request.sandbox_id).await?;
        let request = route.target.constrain(request)?;
        request.limits.resolve(&self.limit_caps(caller.workspace)?)?;
        let id = ExecutionId::new(Uuid::now_v7());
        let entry = route.target.entry(&request.arguments, id)?;
        self.check_programs(&route.target, request.sandbox_id).await?;
        let asks = route.action == ApprovalAction::Review
            && !self.has_remembered_approval(caller, &route, &request).await?;
        if asks {
            return self.request_approval(caller, route, &entry, request, manner).await;
        }
        let mut files = route.target.source_files();
        files.extend(self.load_inputs(caller, request.files).await?);
        let command = Command {
            id,
            files,
            limits: request.limits,
            session: request.sandbox_id,
            installer: self.installer(caller.workspace, caller.id(), request.sandbox_id),
            ..self.new_command(
                caller.workspace,
                &caller.principal,
                route.target.environment(),
                entry,
            )?
        };
        let needs = (route.target.integrations(&request.arguments), route.target.author());
        let run_as = route.run_as;
        let (command, trail) =
            self.attach_egress(command, caller.workspace, &caller.principal, run_as, needs).await?;
        let whose = RunContext {
            run_as,
            agent: route.agent,
            function: route.target.function_id(),
            egress_log: trail,
            ..RunContext::for_caller(caller, manner)
        };
        let admitted = self.engine.admit(command).await?;
        Ok(Submitted::Started(self.start_execution(admitted, whose).await?))
    }

    /// Whether the caller may use a session, if one is to be used, with all that it has.
    pub(crate) async fn check_session_access(
        &self,
        caller: &Caller,
        id: Option<SandboxId>,
    ) -> Result<(), RequestError> {
        let Some(id) = id else { return Ok(()) };
        let session = self.usable_session(caller, id)?;
        self.check_session_grants(caller.workspace, &caller.principal, &session).await
    }

    /// What a tool cannot do without must be there before it runs.
    async fn check_programs(
        &self,
        callee: &CallTarget,
        session: Option<SandboxId>,
    ) -> Result<(), RequestError> {
        if callee.required_programs().is_empty() {
            return Ok(());
        }
        let environment = match session {
            Some(id) => self.engine.info(id)?.environment,
            None => callee.environment().to_owned(),
        };
        let (engine, programs) = (Arc::clone(&self.engine), callee.required_programs().to_vec());
        run_blocking(move || {
            let missing = engine.environment_contents(&environment)?.missing_programs(&programs);
            if missing.is_empty() {
                return Ok(());
            }
            Err(preflight::missing_programs_error(&environment, &missing).into())
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
        manner: SubmitOptions,
    ) -> Result<Submitted, RequestError> {
        let route = self.resolve_call(caller.workspace, &caller.principal, id, None).await?;
        let route = ResolvedCall { target: route.target.into_test()?, ..route };
        let request = CallRequest {
            arguments: nothing(),
            agent_id: None,
            sandbox_id: request.sandbox_id,
            files: Vec::new(),
            limits: request.limits,
        };
        self.submit_call(caller, route, request, manner).await
    }

    pub(crate) fn new_command(
        &self,
        workspace: WorkspaceId,
        who: &Principal,
        environment: &str,
        entry: EntryPoint,
    ) -> Result<Command, RequestError> {
        Ok(Command {
            principal: Some(who.name.clone()),
            started_by: Some(who.id),
            collect_files: self.file_collection(),
            caps: Some(self.limit_caps(workspace)?),
            ..Command::new(environment, entry)
        })
    }

    /// The most that code of this workspace can ask for.
    pub(crate) fn limit_caps(&self, workspace: WorkspaceId) -> Result<OperatorCaps, RequestError> {
        let (all, of_workspaces) = (self.engine.caps(), &self.config.workspace_limits);
        if of_workspaces.is_empty() {
            return Ok(all);
        }
        let found = self.db.read(|rows| rows.workspace(workspace))?;
        let lower = found.and_then(|found| of_workspaces.get(&found.name));
        Ok(lower.map_or(all, |lower| all.lowered_by(lower)))
    }

    /// Whether this principal may have this tool called, with whose rights, and on which terms.
    pub(crate) async fn resolve_call(
        &self,
        workspace: WorkspaceId,
        principal: &Principal,
        id: ToolId,
        agent: Option<AgentId>,
    ) -> Result<ResolvedCall, RequestError> {
        let may = |who: &Principal, object| {
            let permit = self.permit(workspace, who, Privilege::Usage, object)?;
            permit.map(drop).ok_or_else(|| missing_privilege(Privilege::Usage, object))
        };
        let Some(agent_id) = agent else {
            let (tool, checked) = self.checked_tool(workspace, id).await?;
            may(principal, ObjectRef::Tool(id))?;
            let action = effective_action(&tool, None)?;
            let callee = self.resolve_target(workspace, principal, tool, &checked).await?;
            let (run_as, good_for) = (principal.id, ApprovalScope::Once);
            return Ok(ResolvedCall {
                target: callee,
                agent: None,
                run_as,
                action,
                default_scope: good_for,
            });
        };
        let found = self.db.read(|rows| rows.agent(workspace, agent_id))?;
        let agent = found.ok_or_else(|| not_found("agent", agent_id))?;
        may(principal, ObjectRef::Agent(agent_id))?;
        let run_as = self.effective_principal(workspace, principal, &agent)?;
        let (tool, checked, action) = match self.embedded_tool(workspace, &agent, id).await? {
            Some((tool, checked)) => {
                let action = effective_action(&tool, None)?;
                (tool, checked, action)
            }
            None => {
                let (tool, checked) = self.checked_tool(workspace, id).await?;
                let binding = self.binding(workspace, &agent, &tool)?;
                may(&run_as, ObjectRef::Tool(id))?;
                let action = effective_action(&tool, Some(&binding))?;
                (tool, checked, action)
            }
        };
        let callee = self.resolve_target(workspace, &run_as, tool, &checked).await?;
        let (run_as, good_for) = (run_as.id, ApprovalScope::Once);
        Ok(ResolvedCall {
            target: callee,
            agent: Some(agent_id),
            run_as,
            action,
            default_scope: good_for,
        })
    }

    /// What the tool runs, for whoever it runs as.
    async fn resolve_target(
        &self,
        workspace: WorkspaceId,
        run_as: &Principal,
        tool: Tool,
        contract: &ToolContract,
    ) -> Result<CallTarget, RequestError> {
        match contract {
            ToolContract::Python(checked) => {
                check_not_function_environment(&tool.environment)?;
                self.check_owner_egress(workspace, &tool, checked)?;
                let checked = self.with_variables(workspace, &tool, checked).await?;
                Ok(CallTarget::Tool { tool: Box::new(tool), checked, test: false })
            }
            ToolContract::Function(contract) => {
                let name = &contract.external_id;
                let deployed = self.function_named(workspace, run_as, name).await?;
                let by = Some(Arc::new(FunctionTool { tool, contract: (**contract).clone() }));
                Ok(CallTarget::Function { deployed, by })
            }
        }
    }

    /// Whoever the code of a tool runs as has to be able to leave by its integrations, and so have its
    /// owner and its author: others would carry out for them what they may not send themselves.
    pub(crate) fn check_owner_egress(
        &self,
        workspace: WorkspaceId,
        tool: &Tool,
        checked: &contract::CodeTool,
    ) -> Result<(), RequestError> {
        let needed = network::tool_integrations(checked);
        if needed.is_empty() {
            return Ok(());
        }
        let owner = self.find_principal(workspace, tool.owner)?;
        self.check_integrations(workspace, (&owner, "who owns the tool"), &needed)?;
        let author = Some(tool.author).filter(|author| *author != tool.owner);
        self.check_author_egress(workspace, author, &needed)
    }

    fn binding(
        &self,
        workspace: WorkspaceId,
        agent: &Agent,
        tool: &Tool,
    ) -> Result<ToolBinding, RequestError> {
        let bindings = self.db.read(|rows| rows.tool_bindings(workspace, agent.id))?;
        bindings.into_iter().find(|binding| binding.tool_id == tool.id).ok_or_else(|| {
            let message =
                format!("Tool '{}' is not available in the current execution mode", tool.name);
            Error::new(ErrorCode::ToolUnavailable, message)
                .hint(format!("attach it to the agent {:?} first", agent.name))
                .into()
        })
    }

    /// The one whose rights code has that an agent runs.
    pub(crate) fn effective_principal(
        &self,
        workspace: WorkspaceId,
        caller: &Principal,
        agent: &Agent,
    ) -> Result<Principal, RequestError> {
        match agent.run_as {
            RunAs::Caller => Ok(caller.clone()),
            RunAs::Owner => {
                self.check_specification_confirmed(workspace, agent)?;
                let owner = self.db.read(|rows| rows.principal(workspace, agent.owner))?;
                owner.ok_or_else(|| {
                    let message = format!("the agent {:?} has no owner any more", agent.name);
                    Error::new(ErrorCode::GrantMissing, message)
                        .hint("give its OWNERSHIP to somebody")
                        .into()
                })
            }
        }
    }
}

fn effective_action(
    tool: &Tool,
    binding: Option<&ToolBinding>,
) -> Result<ApprovalAction, RequestError> {
    let action =
        policy::effective_action(tool.approval_action, binding.map(|one| one.approval_action));
    if action == ApprovalAction::Deny {
        let message = format!("Tool '{}' denied by agent approval policy", tool.name);
        return Err(Error::new(ErrorCode::ApprovalDenied, message)
            .hint("go on without it; the owner of the agent decides what it may call")
            .into());
    }
    Ok(action)
}
