//! Authorizes requests: resolves the target, decides with whose rights it runs, and whether it
//! needs an approval.
//!
//! An agent acts with the rights of its owner: a principal that may use the agent may have it call
//! exactly what its owner may call.

use crate::catalog::environments::check_not_function_environment;
use crate::catalog::tool_definition::{ToolContract, ToolRequest, code_work_kind};
use crate::data::inputs::FileInput;
use crate::error::{RequestError, invalid_field, missing_privilege, not_found};
use crate::network;
use crate::runs::call_target::{CallTarget, FunctionTool, no_test_of_function};
use crate::runs::run_request::{RunRequest, RunTarget, SubmittedCode};
use crate::service::Service;
use serde_json::Value;
use std::sync::Arc;
use types::{
    Agent, AgentId, ApprovalAction, ApprovalScope, Error, ErrorCode, LimitsRequest, ObjectRef,
    Principal, PrincipalId, Privilege, RunAs, SandboxId, Tool, ToolBinding, ToolId, WorkspaceId,
};

/// A request with an existing target that the requester may run, and the conditions of the run.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedRun {
    /// The target, with the code or the arguments of the request.
    pub(crate) target: CallTarget,
    pub(crate) session: Option<SandboxId>,
    /// Whether it runs in its own sandbox, with a copy of the files of the session.
    pub(crate) on_session_files: bool,
    pub(crate) files: Vec<FileInput>,
    /// As requested, but at most those of the target.
    pub(crate) limits: LimitsRequest,
    pub(crate) agent: Option<AgentId>,
    pub(crate) run_as: PrincipalId,
    pub(crate) action: ApprovalAction,
    /// The scope of an approval whose decision names none.
    pub(crate) default_scope: ApprovalScope,
}

/// A target and the conditions of its run.
pub(crate) struct ResolvedTarget {
    pub(crate) target: CallTarget,
    pub(crate) agent: Option<AgentId>,
    pub(crate) run_as: PrincipalId,
    pub(crate) action: ApprovalAction,
    pub(crate) default_scope: ApprovalScope,
}

impl Service {
    /// Resolves the target of a request and decides whether this principal may run it.
    #[boxed::future]
    pub(crate) async fn resolve_run(
        &self,
        workspace: WorkspaceId,
        requester: &Principal,
        request: RunRequest,
    ) -> Result<ResolvedRun, RequestError> {
        let RunRequest { target, session, files, limits } = request;
        let resolved = match target {
            RunTarget::Code(code) => {
                self.resolve_submitted(workspace, requester, code, session).await?
            }
            RunTarget::Tool { id, agent, arguments, test, over_mcp } => {
                let found = self.resolve_tool(workspace, requester, id, agent, arguments).await?;
                let target = if test { found.target.into_test()? } else { found.target };
                // A person who calls or tests a tool has confirmed that by doing so.
                let by_agent = (over_mcp || agent.is_some()) && !test;
                let action = match found.action {
                    ApprovalAction::Confirm if !by_agent => ApprovalAction::Allow,
                    action => action,
                };
                ResolvedTarget { target, action, ..found }
            }
            RunTarget::UnsavedTest(request) => {
                self.resolve_unsaved_test(workspace, requester, request).await?
            }
            target @ RunTarget::McpTool { .. } => {
                self.resolve_mcp_call(workspace, requester, target).await?
            }
            RunTarget::Function { id, arguments } => {
                let deployed = self.usable_function(workspace, requester, id).await?;
                ResolvedTarget {
                    target: CallTarget::Function { deployed, by: None, arguments },
                    agent: None,
                    run_as: requester.id,
                    action: ApprovalAction::Allow,
                    default_scope: ApprovalScope::Once,
                }
            }
        };
        let limits = resolved.target.constrain(session, &files, limits)?;
        let ResolvedTarget { target, agent, run_as, action, default_scope } = resolved;
        let on_session_files = match session {
            Some(id) => self.needs_own_sandbox(workspace, requester, id, &target).await?,
            None => false,
        };
        Ok(ResolvedRun {
            target,
            session,
            on_session_files,
            files,
            limits,
            agent,
            run_as,
            action,
            default_scope,
        })
    }

    /// Whether a target must not run in the interpreter of this session.
    async fn needs_own_sandbox(
        &self,
        workspace: WorkspaceId,
        requester: &Principal,
        session: SandboxId,
        target: &CallTarget,
    ) -> Result<bool, RequestError> {
        // Its variables are a reason in every session.
        if target.needs_own_sandbox(&target.integrations()) {
            return Ok(true);
        }
        if target.is_submitted_code() || target.integrations().is_empty() {
            return Ok(false);
        }
        let session = self.usable_session_of(workspace, requester, session)?;
        let has = self.session_integrations(workspace, requester, &session).await?;
        Ok(target.needs_own_sandbox(&has))
    }

    async fn resolve_submitted(
        &self,
        workspace: WorkspaceId,
        requester: &Principal,
        code: SubmittedCode,
        session: Option<SandboxId>,
    ) -> Result<ResolvedTarget, RequestError> {
        if session.is_some() && code.environment.is_some() {
            return Err(invalid_field(
                "/environment",
                "must be absent with sandbox_id: a session has its own environment",
            ));
        }
        if session.is_some() && !code.integrations.is_empty() {
            return Err(invalid_field(
                "/integrations",
                "must be absent with sandbox_id: a session has its own integrations",
            ));
        }
        self.check_environment(code.environment.as_deref())?;
        let session =
            session.map(|id| self.usable_session_of(workspace, requester, id)).transpose()?;
        self.resolve_code(workspace, requester, session.as_ref(), code).await
    }

    /// Checks a tool that is not saved, as a new one is checked. Who may run code may run its test.
    async fn resolve_unsaved_test(
        &self,
        workspace: WorkspaceId,
        requester: &Principal,
        request: Box<ToolRequest>,
    ) -> Result<ResolvedTarget, RequestError> {
        let permission = self.permission_for_code(workspace, requester)?;
        self.check_environment(request.environment.as_deref())?;
        let environment = self.tool_environments(request.environment.as_deref());
        let most = self.config.tool_bytes_max;
        let read = move || {
            let contract = request.check(most).into_contract()?;
            Ok::<_, RequestError>((contract.with_input_limit(most), request))
        };
        let (contract, request) = self.check_slots.run_check(workspace, read).await??;
        let ToolContract::Python(checked) = contract else { return Err(no_test_of_function()) };
        let environment = environment(code_work_kind(&checked));
        let target = CallTarget::UnsavedTest { request, checked, environment };
        let (action, default_scope) = permission;
        Ok(ResolvedTarget { target, agent: None, run_as: requester.id, action, default_scope })
    }

    /// Decides whether this principal may call this tool, with whose rights, and under which
    /// conditions.
    async fn resolve_tool(
        &self,
        workspace: WorkspaceId,
        principal: &Principal,
        id: ToolId,
        agent: Option<AgentId>,
        arguments: Value,
    ) -> Result<ResolvedTarget, RequestError> {
        let may = |requester: &Principal, object| {
            let permit = self.permit(workspace, requester, Privilege::Usage, object)?;
            permit.map(drop).ok_or_else(|| missing_privilege(Privilege::Usage, object))
        };
        let Some(agent_id) = agent else {
            let (tool, checked) = self.checked_tool(workspace, id).await?;
            may(principal, ObjectRef::Tool(id))?;
            let action = effective_action(&tool, None)?;
            let target =
                self.resolve_target(workspace, principal, tool, &checked, arguments).await?;
            let (run_as, default_scope) = (principal.id, ApprovalScope::Once);
            return Ok(ResolvedTarget { target, agent: None, run_as, action, default_scope });
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
        let target = self.resolve_target(workspace, &run_as, tool, &checked, arguments).await?;
        let (run_as, default_scope) = (run_as.id, ApprovalScope::Once);
        Ok(ResolvedTarget { target, agent: Some(agent_id), run_as, action, default_scope })
    }

    /// The code that a call of the tool runs, for the principal that it runs as.
    #[boxed::future]
    async fn resolve_target(
        &self,
        workspace: WorkspaceId,
        run_as: &Principal,
        tool: Tool,
        contract: &ToolContract,
        arguments: Value,
    ) -> Result<CallTarget, RequestError> {
        match contract {
            ToolContract::Python(checked) => {
                check_not_function_environment(&tool.environment)?;
                self.check_owner_egress(workspace, &tool, checked)?;
                let checked = self.with_variables(workspace, &tool, checked).await?;
                Ok(CallTarget::Tool { tool: Box::new(tool), checked, arguments, test: false })
            }
            ToolContract::Function(contract) => {
                let name = &contract.external_id;
                let deployed = self.function_named(workspace, run_as, name).await?;
                let by = Some(Arc::new(FunctionTool { tool, contract: (**contract).clone() }));
                Ok(CallTarget::Function { deployed, by, arguments })
            }
        }
    }

    /// The principal that the code of a tool runs as must be able to use its integrations, and so
    /// must the owner and the author of the tool: otherwise they could have others send what they
    /// may not send.
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
        self.check_integrations(workspace, (&owner, "the owner of the tool"), &needed)?;
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

    /// The principal whose rights the code of an agent has.
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
                    let message = format!("agent {:?} no longer has an owner", agent.name);
                    Error::new(ErrorCode::GrantMissing, message)
                        .hint("grant its OWNERSHIP to a principal")
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
    let action = policy::effective_action(
        tool.approval_action,
        binding.map(|binding| binding.approval_action),
    );
    if action == ApprovalAction::Deny {
        let message = format!("Tool '{}' denied by agent approval policy", tool.name);
        return Err(Error::new(ErrorCode::ApprovalDenied, message)
            .hint("continue without it; the owner of the agent decides what it may call")
            .into());
    }
    Ok(action)
}
