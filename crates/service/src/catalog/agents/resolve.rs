//! Resolves an agent for a run: the instructions of its model and the tools that it may call.

use crate::catalog::agents::read_specification;
use crate::catalog::specification::{CodeExecution, CodeToolName, Orchestration};
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
    /// `runPythonCode`, `code_runner` or `callFunction`.
    pub kind: String,
    /// Whether it runs in the session of the conversation and sees its files.
    pub in_session: bool,
}

impl Service {
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
        let tools = self.attached_tools(caller, &agent, &bindings, &mut warnings)?;
        let embedded = specification.embedded.into_iter();
        let embedded =
            embedded.map(|tool| self.materialize_embedded_tool(workspace, &agent, tool).0);
        let offered =
            embedded.chain(tools).filter(|tool| tool.approval_action != ApprovalAction::Deny);
        Ok(ResolvedAgent {
            tools: offered.map(to_offered_tool).collect(),
            orchestration: specification.orchestration,
            code_execution: specification.code_execution,
            code_tools: specification.code_tools,
            shows_conversation: !specification.section.hides_conversation,
            agent,
            warnings,
        })
    }

    /// The attached tools that may be called. Every other one becomes a warning with the reason.
    fn attached_tools(
        &self,
        caller: &Caller,
        agent: &Agent,
        bindings: &[ToolBinding],
        warnings: &mut Vec<String>,
    ) -> Result<Vec<Tool>, RequestError> {
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
            } else if action != ApprovalAction::Deny {
                tools.push(tool);
            }
        }
        Ok(tools)
    }
}

fn to_offered_tool(tool: Tool) -> OfferedTool {
    let field = |key: &str| tool.definition.get(key).and_then(Value::as_str).map(str::to_owned);
    let variables = tool.definition.get("configuration").and_then(|it| it.get("env_variables"));
    let has_variables = match variables {
        Some(Value::Object(variables)) => !variables.is_empty(),
        Some(Value::Array(variables)) => !variables.is_empty(),
        _ => false,
    };
    OfferedTool {
        id: tool.id,
        kind: field("type").or_else(|| field("tool_type")).unwrap_or_default(),
        // A tool with secrets of its own never runs in a session.
        in_session: tool.entry == "run" && !has_variables,
        name: tool.name,
        description: tool.description,
        input_schema: tool.input_schema,
    }
}
