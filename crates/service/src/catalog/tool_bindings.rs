//! The tools that are attached to an agent, and the approval actions of their calls.
//!
//! Attaching a tool again does not change its approval action. A change of the action deletes the
//! remembered decisions.

use crate::catalog::agents::{read_specification, tool_name_taken};
use crate::catalog::specification::is_reserved_tool_name;
use crate::error::{RequestError, not_found};
use crate::identity::caller::Caller;
use crate::service::Service;
use db::{DatabaseError, NewAuditEntry, Tx};
use serde::Deserialize;
use types::{
    Agent, AgentId, ApprovalAction, Error, ErrorCode, ObjectRef, PrincipalId, Privilege,
    ToolBinding, ToolId, WorkspaceId,
};
use utoipa::ToSchema;

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalActionChange {
    pub approval_action: ApprovalAction,
}

impl Service {
    /// Attaches a tool. If it is already attached, nothing changes.
    pub async fn attach_tool(
        &self,
        caller: &Caller,
        agent: AgentId,
        tool: ToolId,
    ) -> Result<ToolBinding, RequestError> {
        let agent_row = self.modifiable_agent(caller, agent)?;
        let object = ObjectRef::Agent(agent);
        let owns =
            self.permit(caller.workspace, &caller.principal, Privilege::Ownership, object)?;
        // With code that another principal attaches, the agent has its owner's rights only after
        // the owner has confirmed it.
        let author = owns.is_none().then(|| caller.id());
        let name = self.tool(caller, tool).await?.name;
        self.require_privilege(caller, Privilege::Usage, ObjectRef::Tool(tool))?;
        check_tool_name(&agent_row, &name).await?;
        let entry = caller.audit_entry(
            "agent.attach",
            ObjectRef::Agent(agent),
            format!("tool {tool} {name}"),
        );
        let workspace = caller.workspace;
        let attached = self.db.write(move |tx| attach(tx, workspace, agent, tool, author, &entry));
        attached.await?.ok_or_else(|| not_found("tool", tool))
    }

    pub async fn detach_tool(
        &self,
        caller: &Caller,
        agent: AgentId,
        tool: ToolId,
    ) -> Result<(), RequestError> {
        self.modifiable_agent(caller, agent)?;
        let entry =
            caller.audit_entry("agent.detach", ObjectRef::Agent(agent), format!("tool {tool}"));
        let workspace = caller.workspace;
        let detached = self.db.write(move |tx| {
            let detached = tx.detach_tool(workspace, agent, tool)?;
            if detached {
                // Calls need a new approval if the tool is attached again.
                tx.delete_remembered_approvals_of_agent(workspace, agent)?;
                tx.append_audit_entry(&entry)?;
            }
            Ok(detached)
        });
        if detached.await? { Ok(()) } else { Err(not_attached(agent, tool)) }
    }

    pub(crate) async fn set_tool_action(
        &self,
        caller: &Caller,
        agent: AgentId,
        tool: ToolId,
        change: ApprovalActionChange,
    ) -> Result<ToolBinding, RequestError> {
        self.modifiable_agent(caller, agent)?;
        let action = change.approval_action;
        let detail = format!("tool {tool}: {action}");
        let entry = caller.audit_entry("agent.approval_action", ObjectRef::Agent(agent), detail);
        let workspace = caller.workspace;
        let changed = self.db.write(move |tx| {
            if !tx.set_tool_action(workspace, agent, tool, action)? {
                return Ok(None);
            }
            // Earlier decisions were made under another action.
            tx.delete_remembered_approvals_of_agent(workspace, agent)?;
            tx.append_audit_entry(&entry)?;
            binding(tx, workspace, agent, tool)
        });
        changed.await?.ok_or_else(|| not_attached(agent, tool))
    }

    /// Checks that no agent with this tool has another tool of this name.
    pub(crate) async fn check_new_tool_name(
        &self,
        workspace: WorkspaceId,
        tool: ToolId,
        name: &str,
    ) -> Result<(), RequestError> {
        let agents = self.db.read(|rows| {
            let using = rows.agents_using(workspace, tool)?;
            let agents = using.into_iter().map(|(id, _)| rows.agent(workspace, id));
            agents.collect::<Result<Vec<_>, _>>()
        })?;
        for agent in agents.into_iter().flatten() {
            check_tool_name(&agent, name).await?;
        }
        Ok(())
    }
}

/// Checks that neither the specification of the agent nor the built-in tools have a tool of this
/// name.
async fn check_tool_name(agent: &Agent, name: &str) -> Result<(), RequestError> {
    if is_reserved_tool_name(name) {
        let message = format!("{name:?} is the name of a built-in tool");
        return Err(Error::new(ErrorCode::NameTaken, message)
            .hint("give the tool another name")
            .into());
    }
    match read_specification(&agent.specification).await {
        Ok(specification) if specification.has_tool(name) => {
            Err(tool_name_taken(name, &agent.name))
        }
        _ => Ok(()),
    }
}

/// Attaches a tool; `None` if the agent or the tool no longer exists.
fn attach(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    agent: AgentId,
    tool: ToolId,
    author: Option<PrincipalId>,
    entry: &NewAuditEntry,
) -> Result<Option<ToolBinding>, DatabaseError> {
    if let Some(attached) = binding(tx, workspace, agent, tool)? {
        return Ok(Some(attached));
    }
    let (agent_row, tool_exists) =
        (tx.agent(workspace, agent)?, tx.tool(workspace, tool)?.is_some());
    let Some(agent_row) = agent_row.filter(|_| tool_exists) else { return Ok(None) };
    if let Some(author) = author {
        tx.update_agent(workspace, &Agent { author, updated_at: entry.at, ..agent_row })?;
    }
    tx.attach_tool(workspace, agent, tool, ApprovalAction::default(), entry.at)?;
    tx.append_audit_entry(entry)?;
    binding(tx, workspace, agent, tool)
}

fn binding(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    agent: AgentId,
    tool: ToolId,
) -> Result<Option<ToolBinding>, DatabaseError> {
    let bindings = tx.tool_bindings(workspace, agent)?;
    Ok(bindings.into_iter().find(|binding| binding.tool_id == tool))
}

pub(crate) fn not_attached(agent: AgentId, tool: ToolId) -> RequestError {
    let message = format!("tool {tool} is not attached to agent {agent}");
    Error::new(ErrorCode::ObjectNotFound, message)
        .hint("attach it with `belljar agent attach`")
        .into()
}
