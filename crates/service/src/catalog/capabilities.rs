//! What an agent consists of, and changes of one part of its specification.
//!
//! A part is added or removed by the operation that replaces the whole specification, with the same
//! checks, the same author and the same audit entry.

use crate::catalog::agent_skills::ListedSkill;
use crate::catalog::agents::{AgentRequest, read_specification};
use crate::catalog::specification::{
    self, CODE_EXECUTION, McpServerEntry, Specification, SpecificationEdit, SpecificationText,
};
use crate::catalog::tool_definition::CALL_FUNCTION;
use crate::error::{RequestError, not_found};
use crate::identity::caller::Caller;
use crate::service::Service;
use serde_json::{Map, Value, json};
use types::{Agent, AgentId, ApprovalAction, ObjectRef, Privilege, Tool, ToolBinding, ToolId};

const TOOLS: &str = "tools";
const TOOL_RESOURCES: &str = "tool_resources";
const SKILLS: &str = "skills";
const MCP_SERVERS: &str = "mcp_servers";

/// The parts of an agent that a model can use.
#[derive(Debug, Clone)]
pub struct AgentContents {
    /// Whether it may run code.
    pub runs_code: bool,
    /// Whether one of the two parts of code execution is there, or both.
    pub names_code_execution: bool,
    pub skills: Vec<ListedSkill>,
    pub tools: Vec<AgentTool>,
    /// Whether code of the agent runs, is refused, or needs an approval first.
    pub code_action: ApprovalAction,
    /// What the specification lacks for code.
    pub code_unavailable: Option<String>,
    pub mcp_servers: Vec<ListedMcpServer>,
}

/// An MCP server of an agent, and why a run would not be offered its tools.
#[derive(Debug, Clone)]
pub struct ListedMcpServer {
    pub entry: McpServerEntry,
    pub unavailable: Option<String>,
}

/// A tool of an agent.
#[derive(Debug, Clone)]
pub struct AgentTool {
    /// The attached tool; `None` for one in the specification.
    pub attached: Option<ToolId>,
    pub name: String,
    /// Empty if the caller may not see the tool.
    pub description: String,
    pub calls_function: bool,
    /// `None` for a tool that this server does not run.
    pub approval_action: Option<ApprovalAction>,
    /// Why a run is not offered the tool.
    pub unavailable: Option<String>,
}

/// A part of a specification that can be added or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpecificationPart {
    CodeExecution,
    Skill(String),
    /// An entry of `tools`, with its section of `tool_resources`. It can only be removed.
    Tool(String),
    /// An entry of `mcp_servers`. Its `name` is enough to remove it.
    McpServer(Map<String, Value>),
}

/// A change of an agent, in terms of its current state.
#[derive(Debug, Clone)]
pub(crate) enum AgentChange {
    Replace(AgentRequest),
    Add(SpecificationPart),
    Remove(SpecificationPart),
}

impl AgentChange {
    /// The complete request; `None` if there is nothing to change.
    pub(crate) async fn request(
        &self,
        service: &Service,
        caller: &Caller,
        before: &Agent,
    ) -> Result<Option<AgentRequest>, RequestError> {
        if let Self::Replace(request) = self {
            return Ok(Some(request.clone()));
        }
        let (change, text) = (self.clone(), before.specification.clone());
        let edit = move || change.edit_text(text);
        let text = service.check_slots.run_check(caller.workspace, edit).await??;
        let request = |text| {
            let specification = SpecificationText(text);
            AgentRequest { name: None, specification, run_as: None }
        };
        Ok(text.map(request))
    }

    fn edit_text(&self, text: String) -> Result<Option<String>, RequestError> {
        let specification = specification::parse_specification(&text)?;
        let edits = match self {
            Self::Replace(_) => Vec::new(),
            Self::Add(part) => part.additions(&specification),
            Self::Remove(part) => part.removals(&specification)?,
        };
        if edits.is_empty() {
            return Ok(None);
        }
        let edit = |text: String, edit| specification::edit_specification(&text, edit);
        edits.iter().try_fold(text, edit).map(Some)
    }
}

impl SpecificationPart {
    /// The changes that add what is missing of this part.
    fn additions(&self, specification: &Specification) -> Vec<SpecificationEdit> {
        match self {
            Self::CodeExecution => {
                let mut edits = Vec::new();
                if specification.code_tools.is_empty() {
                    let item =
                        json!({"tool_spec": {"type": CODE_EXECUTION, "name": CODE_EXECUTION}});
                    edits.push(SpecificationEdit::AppendItem { list: TOOLS, item });
                }
                if !specification.has_resources(CODE_EXECUTION) {
                    let (member, value) = (CODE_EXECUTION.to_owned(), json!({}));
                    let mapping = TOOL_RESOURCES;
                    edits.push(SpecificationEdit::InsertMember { mapping, member, value });
                }
                edits
            }
            Self::Skill(name) if !specification.names_skill(name) => {
                let item = Value::from(name.as_str());
                vec![SpecificationEdit::AppendItem { list: SKILLS, item }]
            }
            Self::McpServer(entry) if !specification.has_mcp_server(self.name()) => {
                let item = Value::Object(entry.clone());
                vec![SpecificationEdit::AppendItem { list: MCP_SERVERS, item }]
            }
            Self::Skill(_) | Self::Tool(_) | Self::McpServer(_) => Vec::new(),
        }
    }

    /// The changes that remove all of this part.
    fn removals(
        &self,
        specification: &Specification,
    ) -> Result<Vec<SpecificationEdit>, RequestError> {
        let edits = match self {
            Self::CodeExecution => code_execution_removals(specification),
            Self::Tool(name) => tool_removals(specification, name),
            Self::Skill(name) => {
                let skills = specification.orchestration.skills.iter().enumerate().rev();
                let listed = skills.filter(|(_, skill)| skill.name == *name);
                let removal = |(index, _)| SpecificationEdit::RemoveItem { list: SKILLS, index };
                listed.map(removal).collect()
            }
            Self::McpServer(_) => {
                let mut servers = specification.mcp_servers.iter();
                let index = servers.position(|server| server.name == self.name());
                let removal = |index| SpecificationEdit::RemoveItem { list: MCP_SERVERS, index };
                index.map(removal).into_iter().collect()
            }
        };
        if edits.is_empty() { Err(not_found("capability", self.name())) } else { Ok(edits) }
    }

    fn name(&self) -> &str {
        match self {
            Self::CodeExecution => CODE_EXECUTION,
            Self::Skill(name) | Self::Tool(name) => name,
            Self::McpServer(entry) => entry.get("name").and_then(Value::as_str).unwrap_or_default(),
        }
    }
}

/// Removes the tools that run code, under all their names, and their section.
fn code_execution_removals(specification: &Specification) -> Vec<SpecificationEdit> {
    let tools = specification.named_tools.iter().enumerate().rev();
    let code = tools.filter(|(_, tool)| specification.is_code_tool(&tool.name));
    let entries = code.map(|(index, _)| SpecificationEdit::RemoveItem { list: TOOLS, index });
    let section =
        specification.has_resources(CODE_EXECUTION).then(|| SpecificationEdit::RemoveMember {
            mapping: TOOL_RESOURCES,
            member: CODE_EXECUTION.to_owned(),
        });
    entries.chain(section).collect()
}

fn tool_removals(specification: &Specification, name: &str) -> Vec<SpecificationEdit> {
    let index = specification.named_tools.iter().position(|tool| tool.name == name);
    let entry = index.map(|index| SpecificationEdit::RemoveItem { list: TOOLS, index });
    let section = specification.has_resources(name).then(|| SpecificationEdit::RemoveMember {
        mapping: TOOL_RESOURCES,
        member: name.to_owned(),
    });
    entry.into_iter().chain(section).collect()
}

impl Service {
    /// The parts of an agent that the caller may see.
    pub async fn agent_contents(
        &self,
        caller: &Caller,
        id: AgentId,
    ) -> Result<AgentContents, RequestError> {
        let agent = self.visible_agent(caller, id)?;
        let specification = read_specification(&agent.specification).await?;
        let bindings = self.db.read(|rows| rows.tool_bindings(caller.workspace, id))?;
        let names_code_execution =
            specification.has_resources(CODE_EXECUTION) || !specification.code_tools.is_empty();
        let mut tools = self.specified_tools(caller, &agent, &specification);
        for binding in bindings {
            tools.extend(self.attached_tool(caller, &agent, &binding)?);
        }
        let skills = &specification.orchestration.skills;
        let skills = self.listed_skills(caller, &agent, skills).await;
        let code_action = agent.approval_actions.get(CODE_EXECUTION).copied();
        let code_action = code_action.unwrap_or(specification.section.approval_action);
        let missing = specification.code_execution.missing.into_iter().next();
        let servers = specification.mcp_servers;
        Ok(AgentContents {
            code_action,
            code_unavailable: missing,
            mcp_servers: self.listed_mcp_servers(caller, &agent, servers).await?,
            names_code_execution,
            runs_code: specification.code_execution.enabled,
            skills,
            tools,
        })
    }

    async fn listed_mcp_servers(
        &self,
        caller: &Caller,
        agent: &Agent,
        entries: Vec<McpServerEntry>,
    ) -> Result<Vec<ListedMcpServer>, RequestError> {
        let (workspace, who) = (caller.workspace, &caller.principal);
        let mut listed = Vec::with_capacity(entries.len());
        for entry in entries {
            let reached = match self.effective_principal(workspace, who, agent) {
                Ok(run_as) => self.reach_mcp_server(workspace, who, &run_as, agent, &entry).await,
                Err(error) => Err(error),
            };
            let refused = reached.err().map(|error| error.error.message);
            let unavailable = refused.or_else(|| denied(Some(entry.approval_action)));
            listed.push(ListedMcpServer { entry, unavailable });
        }
        Ok(listed)
    }

    /// The tools in the specification, also those that this server does not run.
    fn specified_tools(
        &self,
        caller: &Caller,
        agent: &Agent,
        specification: &Specification,
    ) -> Vec<AgentTool> {
        let named = specification.named_tools.iter();
        let named = named.filter(|tool| !specification.is_code_tool(&tool.name));
        let listed = named.map(|named| {
            let mut embedded = specification.embedded.iter();
            let embedded = embedded.find(|tool| tool.contract.name == named.name).cloned();
            let tool = embedded
                .map(|tool| self.materialize_embedded_tool(caller.workspace, agent, tool).0);
            let action = tool.as_ref().map(|tool| tool.approval_action);
            AgentTool {
                attached: None,
                name: named.name.clone(),
                description: tool.map(|tool| tool.description).unwrap_or_default(),
                calls_function: false,
                approval_action: action,
                unavailable: named.warning.clone().or_else(|| denied(action)),
            }
        });
        listed.collect()
    }

    /// An attached tool; `None` if it was deleted meanwhile.
    fn attached_tool(
        &self,
        caller: &Caller,
        agent: &Agent,
        binding: &ToolBinding,
    ) -> Result<Option<AgentTool>, RequestError> {
        let workspace = caller.workspace;
        let found = self.db.read(|rows| rows.tool(workspace, binding.tool_id))?;
        let Some((tool, _)) = found else { return Ok(None) };
        let object = ObjectRef::Tool(tool.id);
        let action = policy::effective_action(tool.approval_action, Some(binding.approval_action));
        let unavailable = match self.effective_principal(workspace, &caller.principal, agent) {
            Ok(run_as) => {
                let permit = self.permit(workspace, &run_as, Privilege::Usage, object)?;
                permit.is_none().then(|| format!("{} may not use it", run_as.name))
            }
            // No tool of the agent can be called before this is resolved.
            Err(error) => Some(error.error.message),
        };
        let is_visible = self.can_see(caller, object)?;
        Ok(Some(AgentTool {
            attached: Some(tool.id),
            calls_function: calls_function(&tool),
            name: tool.name,
            description: if is_visible { tool.description } else { String::new() },
            approval_action: Some(action),
            unavailable: unavailable.or_else(|| denied(Some(action))),
        }))
    }

    /// Adds a part to the specification of an agent. If it is there, nothing changes.
    pub async fn add_specification_part(
        &self,
        caller: &Caller,
        id: AgentId,
        part: SpecificationPart,
    ) -> Result<(), RequestError> {
        self.change_agent(caller, id, AgentChange::Add(part)).await.map(drop)
    }

    /// Removes a part of the specification of an agent.
    pub async fn remove_specification_part(
        &self,
        caller: &Caller,
        id: AgentId,
        part: SpecificationPart,
    ) -> Result<(), RequestError> {
        self.change_agent(caller, id, AgentChange::Remove(part)).await.map(drop)
    }
}

fn calls_function(tool: &Tool) -> bool {
    tool.definition.get("type").and_then(Value::as_str) == Some(CALL_FUNCTION)
}

fn denied(action: Option<ApprovalAction>) -> Option<String> {
    (action == Some(ApprovalAction::Deny)).then(|| "its approval action is deny".to_owned())
}
