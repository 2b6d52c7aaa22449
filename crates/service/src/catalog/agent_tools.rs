//! The tools of an agent by name: attached ones, those of its specification, and its code.
//!
//! The specification is stored as its author wrote it, so that an approval action that is set apart
//! from it is stored beside it. It remains when the specification is replaced, as long as the tool is
//! in it.

use crate::catalog::agents::read_specification;
use crate::catalog::embedded_tools::embedded_tool_id;
use crate::catalog::specification::{CODE_EXECUTION, Specification};
use crate::catalog::tool_bindings::{ApprovalActionChange, not_attached};
use crate::error::{RequestError, not_found};
use crate::identity::caller::Caller;
use crate::runs::call_target::CallTarget;
use crate::runs::run_request::{RunRequest, TestRequest};
use crate::service::Service;
use std::collections::BTreeMap;
use types::{
    Agent, AgentId, ApprovalAction, Error, ErrorCode, ObjectRef, Privilege, ToolBinding, ToolId,
};

/// A tool of an agent, as a request names it.
enum NamedTool {
    /// Attached to the agent.
    Bound(ToolId),
    /// By its name in the specification; `code_execution` is the code of the agent.
    Specified(String),
}

impl Service {
    /// Sets the approval action for an agent's calls of one of its tools, by name or id. A looser one
    /// requires OWNERSHIP: an editor must not remove the approval that protects the owner's rights.
    pub async fn set_agent_tool_action(
        &self,
        caller: &Caller,
        agent: AgentId,
        tool: &str,
        change: ApprovalActionChange,
    ) -> Result<ToolBinding, RequestError> {
        self.modifiable_agent(caller, agent)?;
        let (tool, current) = self.agent_tool(caller, agent, tool).await?;
        if change.approval_action < current {
            self.require_privilege(caller, Privilege::Ownership, ObjectRef::Agent(agent))?;
        }
        match tool {
            NamedTool::Bound(id) => self.set_tool_action(caller, agent, id, change).await,
            NamedTool::Specified(name) => {
                self.set_specified_action(caller, agent, name, change.approval_action).await
            }
        }
    }

    /// The test of a tool of an agent, by name or id, as the agent calls it. It requires MODIFY: who
    /// may only use an agent does not choose what it runs.
    pub async fn agent_tool_test(
        &self,
        caller: &Caller,
        agent: AgentId,
        tool: &str,
        request: TestRequest,
    ) -> Result<RunRequest, RequestError> {
        self.modifiable_agent(caller, agent)?;
        let id = match self.agent_tool(caller, agent, tool).await?.0 {
            NamedTool::Bound(id) => id,
            NamedTool::Specified(name) if name == CODE_EXECUTION => {
                let message = format!("{CODE_EXECUTION} has no test()");
                return Err(Error::new(ErrorCode::CodeNoEntry, message)
                    .hint("test a tool of the agent")
                    .into());
            }
            NamedTool::Specified(name) => embedded_tool_id(agent, &name),
        };
        Ok(request.into_run(id, Some(agent)))
    }

    /// A tool of an agent, with its approval action.
    async fn agent_tool(
        &self,
        caller: &Caller,
        agent: AgentId,
        tool: &str,
    ) -> Result<(NamedTool, ApprovalAction), RequestError> {
        let row = self.visible_agent(caller, agent)?;
        let bindings = self.db.read(|rows| rows.tool_bindings(caller.workspace, agent))?;
        let id: Option<ToolId> = tool.parse().ok();
        let is_named = |it: &&ToolBinding| it.tool_name == tool || Some(it.tool_id) == id;
        if let Some(binding) = bindings.iter().find(is_named) {
            return Ok((NamedTool::Bound(binding.tool_id), binding.approval_action));
        }
        let specified = specified_tools(&row, &read_specification(&row.specification).await?);
        if let Some(specified) = specified.iter().find(is_named) {
            let tool = NamedTool::Specified(specified.tool_name.clone());
            return Ok((tool, specified.approval_action));
        }
        if let Some(id) = id {
            return Err(not_attached(agent, id));
        }
        let names = bindings.into_iter().chain(specified).map(|binding| binding.tool_name);
        Err(no_such_tool(&row, tool, &names.collect::<Vec<_>>()))
    }

    async fn set_specified_action(
        &self,
        caller: &Caller,
        id: AgentId,
        name: String,
        action: ApprovalAction,
    ) -> Result<ToolBinding, RequestError> {
        let detail = format!("tool {name}: {action}");
        let entry = caller.audit_entry("agent.approval_action", ObjectRef::Agent(id), detail);
        let (workspace, tool, now) = (caller.workspace, name.clone(), self.now());
        let changed = self.db.write(move |tx| {
            let Some(mut agent) = tx.agent(workspace, id)? else { return Ok(None) };
            agent.approval_actions.insert(tool, action);
            agent.updated_at = now;
            tx.update_agent(workspace, &agent)?;
            // Earlier decisions were made under another action.
            tx.delete_remembered_approvals_of_agent(workspace, id)?;
            tx.append_audit_entry(&entry)?;
            Ok(Some(agent))
        });
        let agent = changed.await?.ok_or_else(|| not_found("agent", id))?;
        Ok(binding(&agent, name, action))
    }
}

/// The tools of a specification with their approval actions, among them the agent's code.
pub(crate) fn specified_tools(agent: &Agent, specification: &Specification) -> Vec<ToolBinding> {
    let embedded = specification.embedded.iter();
    let embedded = embedded.map(|tool| (tool.contract.name.clone(), tool.approval_action));
    let code = specification.code_execution.enabled;
    let code = code.then(|| (CODE_EXECUTION.to_owned(), specification.section.approval_action));
    let set_apart = |name: &str| agent.approval_actions.get(name).copied();
    embedded
        .chain(code)
        .map(|(name, action)| {
            let action = set_apart(&name).unwrap_or(action);
            binding(agent, name, action)
        })
        .collect()
}

/// The actions that were set apart, for the tools that a new specification still has.
pub(crate) fn kept_actions(
    agent: &Agent,
    specification: &Specification,
) -> BTreeMap<String, ApprovalAction> {
    let specified = specified_tools(agent, specification);
    let has = |name: &String| specified.iter().any(|binding| binding.tool_name == *name);
    let kept = agent.approval_actions.iter().filter(|(name, _)| has(name));
    kept.map(|(name, action)| (name.clone(), *action)).collect()
}

fn binding(agent: &Agent, tool_name: String, approval_action: ApprovalAction) -> ToolBinding {
    let tool_id = match tool_name == CODE_EXECUTION {
        true => CallTarget::python_id(),
        false => embedded_tool_id(agent.id, &tool_name),
    };
    ToolBinding {
        agent_id: agent.id,
        tool_id,
        tool_name,
        approval_action,
        created_at: agent.created_at,
    }
}

fn no_such_tool(agent: &Agent, tool: &str, names: &[String]) -> RequestError {
    let message = format!("agent {:?} has no tool {tool:?}", agent.name);
    let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let hint = format!("attach it with `belljar agent attach`; the agent has: {has}");
    Error::new(ErrorCode::ObjectNotFound, message).hint(hint).into()
}
