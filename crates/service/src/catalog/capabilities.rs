//! What an agent consists of, and changes of one part of its specification.
//!
//! A part is added or removed by the operation that replaces the whole specification, with the same
//! checks, the same author and the same audit entry.

use crate::catalog::agent_skills::ListedSkill;
use crate::catalog::agents::{AgentRequest, read_specification};
use crate::catalog::specification::{
    self, CODE_EXECUTION, CodeExecution, Specification, SpecificationEdit, SpecificationText,
};
use crate::catalog::tool_definition::CALL_FUNCTION;
use crate::error::{RequestError, not_found};
use crate::identity::caller::Caller;
use crate::service::Service;
use serde_json::{Value, json};
use types::{Agent, AgentId, ApprovalAction, ObjectRef, Privilege, Tool, ToolBinding, ToolId};

const TOOLS: &str = "tools";
const TOOL_RESOURCES: &str = "tool_resources";
const SKILLS: &str = "skills";

/// The parts of an agent that a model can use.
#[derive(Debug, Clone)]
pub struct AgentContents {
    pub code_execution: CodeExecution,
    /// Whether one of the two parts of code execution is there, or both.
    pub names_code_execution: bool,
    pub skills: Vec<ListedSkill>,
    pub tools: Vec<AgentTool>,
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
                if !specification.has_tool(CODE_EXECUTION) {
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
            Self::Skill(_) | Self::Tool(_) => Vec::new(),
        }
    }

    /// The changes that remove all of this part.
    fn removals(
        &self,
        specification: &Specification,
    ) -> Result<Vec<SpecificationEdit>, RequestError> {
        let edits = match self {
            Self::CodeExecution => tool_removals(specification, CODE_EXECUTION),
            Self::Tool(name) => tool_removals(specification, name),
            Self::Skill(name) => {
                let skills = specification.orchestration.skills.iter().enumerate().rev();
                let listed = skills.filter(|(_, skill)| skill.name == *name);
                let removal = |(index, _)| SpecificationEdit::RemoveItem { list: SKILLS, index };
                listed.map(removal).collect()
            }
        };
        if edits.is_empty() { Err(not_found("capability", self.name())) } else { Ok(edits) }
    }

    fn name(&self) -> &str {
        match self {
            Self::CodeExecution => CODE_EXECUTION,
            Self::Skill(name) | Self::Tool(name) => name,
        }
    }
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
            specification.has_resources(CODE_EXECUTION) || specification.has_tool(CODE_EXECUTION);
        let mut tools = self.specified_tools(caller, &agent, &specification);
        for binding in bindings {
            tools.extend(self.attached_tool(caller, &agent, &binding)?);
        }
        let skills = &specification.orchestration.skills;
        let skills = self.listed_skills(caller, &agent, skills).await?;
        Ok(AgentContents {
            names_code_execution,
            code_execution: specification.code_execution,
            skills,
            tools,
        })
    }

    /// The tools in the specification, also those that this server does not run.
    fn specified_tools(
        &self,
        caller: &Caller,
        agent: &Agent,
        specification: &Specification,
    ) -> Vec<AgentTool> {
        let named = specification.named_tools.iter().filter(|tool| tool.name != CODE_EXECUTION);
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
