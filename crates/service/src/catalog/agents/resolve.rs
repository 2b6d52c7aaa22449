//! Resolves an agent for a run: the instructions of its model and the tools that it may call.

use crate::catalog::agents::read_specification;
use crate::catalog::specification::{CodeExecution, CodeToolName, McpServerEntry, Orchestration};
use crate::error::{RequestError, missing_privilege, not_found};
use crate::identity::caller::Caller;
use crate::service::Service;
use serde_json::Value;
use types::{Agent, AgentId, ApprovalAction, ObjectRef, Privilege, Tool, ToolBinding, ToolId};

#[derive(Debug, Clone)]
pub struct ResolvedAgent {
    pub agent: Agent,
    pub orchestration: Orchestration,
    pub code_execution: CodeExecution,
    /// The tools with which its model runs code, if it may run any.
    pub code_tools: Vec<CodeToolName>,
    /// Whether its code can read the conversation.
    pub shows_conversation: bool,
    pub tools: Vec<OfferedTool>,
    /// The names of tools that the agent has and may not call.
    pub denied_tools: Vec<String>,
    /// The servers whose tools are offered besides.
    pub mcp_servers: Vec<McpServerEntry>,
    /// Parts of the specification that are not available to the run, in sentences.
    pub warnings: Vec<String>,
}

/// A tool that the model of an agent may call.
#[derive(Debug, Clone)]
pub struct OfferedTool {
    pub id: ToolId,
    pub name: String,
    pub description: String,
    pub input_schema: Value,
    /// `runPythonCode`, `code_runner`, `callFunction` or `mcp`.
    pub kind: String,
    /// Whether it sees the files of the session of the conversation.
    pub in_session: bool,
    /// For a tool of an MCP server.
    pub remote: Option<RemoteToolRef>,
}

/// A tool of an MCP server of the agent.
#[derive(Debug, Clone)]
pub struct RemoteToolRef {
    /// The name of the server in the specification.
    pub server: String,
    /// The name by which the server knows the tool.
    pub tool: String,
    pub read_only: bool,
}

impl Service {
    /// The agent with this external id, which is its name.
    pub fn agent_by_external_id(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<AgentId, RequestError> {
        let found = self.db.read(|rows| rows.agent_by_name(caller.workspace, name))?;
        let agent = found.ok_or_else(|| not_found("agent", name))?;
        // A caller that may not see the agent does not learn that it exists.
        match self.can_see(caller, ObjectRef::Agent(agent.id))? {
            true => Ok(agent.id),
            false => Err(not_found("agent", name)),
        }
    }

    /// Resolves an agent that the caller may run.
    pub async fn resolve_agent(
        &self,
        caller: &Caller,
        id: AgentId,
    ) -> Result<ResolvedAgent, RequestError> {
        let (workspace, object) = (caller.workspace, ObjectRef::Agent(id));
        let found = self.db.read(|rows| rows.agent(workspace, id))?;
        let agent = found.ok_or_else(|| not_found("agent", id))?;
        if self.permit(workspace, &caller.principal, Privilege::Usage, object)?.is_none() {
            // A caller that may see the agent gets the missing privilege.
            self.visible_agent(caller, id)?;
            return Err(missing_privilege(Privilege::Usage, object));
        }
        let specification = read_specification(&agent.specification).await?;
        let bindings = self.db.read(|rows| rows.tool_bindings(workspace, id))?;
        let names: Vec<&str> = bindings.iter().map(|binding| &*binding.tool_name).collect();
        let mut warnings = specification.warnings(&names);
        let attached = self.attached_tools(caller, &agent, &bindings, &mut warnings)?;
        let embedded = specification.embedded.into_iter();
        let embedded =
            embedded.map(|tool| self.materialize_embedded_tool(workspace, &agent, tool).0);
        let embedded = embedded.map(|tool| (tool.approval_action, tool));
        let is_denied = |(action, _): &(ApprovalAction, Tool)| *action == ApprovalAction::Deny;
        let (denied, offered): (Vec<_>, Vec<_>) = embedded.chain(attached).partition(is_denied);
        Ok(ResolvedAgent {
            tools: offered.into_iter().map(|(_, tool)| to_offered_tool(tool)).collect(),
            denied_tools: denied.into_iter().map(|(_, tool)| tool.name).collect(),
            mcp_servers: specification.mcp_servers,
            orchestration: specification.orchestration,
            code_execution: specification.code_execution,
            code_tools: specification.code_tools,
            shows_conversation: !specification.section.hides_conversation,
            agent,
            warnings,
        })
    }

    /// The attached tools that the agent's code may use, with the effective action of each. Every other
    /// one becomes a warning with the reason.
    fn attached_tools(
        &self,
        caller: &Caller,
        agent: &Agent,
        bindings: &[ToolBinding],
        warnings: &mut Vec<String>,
    ) -> Result<Vec<(ApprovalAction, Tool)>, RequestError> {
        let workspace = caller.workspace;
        let run_as = self.effective_principal(workspace, &caller.principal, agent)?;
        let mut tools = Vec::new();
        for binding in bindings {
            let found = self.db.read(|rows| rows.tool(workspace, binding.tool_id))?;
            let Some((tool, _)) = found else { continue };
            let object = ObjectRef::Tool(tool.id);
            let action =
                policy::effective_action(tool.approval_action, Some(binding.approval_action));
            if self.permit(workspace, &run_as, Privilege::Usage, object)?.is_none() {
                let (tool, owner) = (&tool.name, &run_as.name);
                warnings.push(format!("tool {tool:?} is not available: {owner} may not use it"));
            } else {
                tools.push((action, tool));
            }
        }
        Ok(tools)
    }
}

fn to_offered_tool(tool: Tool) -> OfferedTool {
    let field = |key: &str| tool.definition.get(key).and_then(Value::as_str).map(str::to_owned);
    OfferedTool {
        id: tool.id,
        kind: field("type").or_else(|| field("tool_type")).unwrap_or_default(),
        in_session: tool.entry == "run",
        name: tool.name,
        description: tool.description,
        input_schema: tool.input_schema,
        remote: None,
    }
}
