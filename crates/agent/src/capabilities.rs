//! The capabilities of an agent: everything that its model can use, as one list.
//!
//! The list is a view. A capability is stored in the specification of its agent, or is the attachment
//! of a tool; adding and removing one are the operations of `service` on these.

use crate::runs::Agents;
use crate::skills::Skills;
use crate::toolbox::CODE_EXECUTION;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use service::{
    AgentTool, Caller, ListedMcpServer, ListedSkill, McpServerAddress, RequestError,
    SpecificationPart,
};
use skill::Skill;
use types::{AgentId, ApprovalAction, Error, ErrorCode, ToolId};
use utoipa::ToSchema;

/// The published name of the tool that runs code.
pub const CODE_INTERPRETER_TITLE: &str = "Code Interpreter";
/// What the tool is for and when to use it.
pub const CODE_INTERPRETER_DESCRIPTION: &str = "Runs Python in an isolated sandbox, and returns its \
                                                result, its logs, and on failure an error with its \
                                                traceback.";

/// A capability of an agent
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Capability {
    pub kind: CapabilityKind,
    /// Identifies the capability among those of its kind
    pub name: String,
    /// Display name
    #[schema(example = "Code Interpreter")]
    pub title: String,
    /// What it is for and when to use it; empty for a tool that you may not see
    pub description: String,
    pub category: CapabilityCategory,
    pub state: CapabilityState,
    /// Why it is unavailable, or what it lacks
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether a call runs, is refused, or needs an approval first; absent for skills
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_action: Option<ApprovalAction>,
    pub source: CapabilitySource,
    /// Attached tools only
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_id: Option<ToolId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CapabilityKind {
    CodeExecution,
    /// A tool, attached or in the specification
    Tool,
    /// A tool that calls a deployed function
    Function,
    Skill,
    /// A server whose tools the model may call
    McpServer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub enum CapabilityCategory {
    /// Ships with Belljar
    Data,
    /// Made in the workspace, or by the operator
    Custom,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CapabilityState {
    /// The model of the agent can use it
    Ready,
    /// Runs do not have it; `reason` says why
    Unavailable,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CapabilitySource {
    /// A part of the specification
    Specification,
    /// A tool of the workspace that is attached to the agent
    #[serde(rename = "attached")]
    Binding,
}

/// A capability to add to an agent
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum NewCapability {
    /// The Code Interpreter
    CodeExecution {},
    /// A tool of the workspace, also one that calls a function
    Tool { tool_id: ToolId },
    /// A skill that ships with Belljar, one of the operator's, or an uploaded one
    Skill { name: String },
    /// An MCP server that the operator allows
    McpServer {
        /// An entry of `mcp_servers`, as in a specification
        server: Map<String, Value>,
    },
}

impl Agents {
    /// The capabilities of an agent: code execution, tools and skills.
    pub async fn capabilities(
        &self,
        caller: &Caller,
        id: AgentId,
    ) -> Result<Vec<Capability>, RequestError> {
        let contents = self.service.agent_contents(caller, id).await?;
        let runs_code = contents.runs_code;
        let code = contents.names_code_execution;
        let code = code
            .then(|| code_execution_capability(contents.code_unavailable, contents.code_action));
        let tools = contents.tools.into_iter().map(tool_capability);
        let skills = contents.skills.into_iter();
        let skills = skills.map(|skill| skill_capability(skill, runs_code));
        let servers = contents.mcp_servers.into_iter().map(mcp_server_capability);
        Ok(code.into_iter().chain(tools).chain(skills).chain(servers).collect())
    }

    /// Adds a capability, and returns it as it is listed. If the agent has it, nothing changes.
    pub async fn add_capability(
        &self,
        caller: &Caller,
        id: AgentId,
        new: NewCapability,
    ) -> Result<Capability, RequestError> {
        let (kind, name) = match new {
            NewCapability::CodeExecution {} => {
                let part = SpecificationPart::CodeExecution;
                self.service.add_specification_part(caller, id, part).await?;
                (CapabilityKind::CodeExecution, CODE_EXECUTION.to_owned())
            }
            NewCapability::Tool { tool_id } => {
                let binding = self.service.attach_tool(caller, id, tool_id).await?;
                (CapabilityKind::Tool, binding.tool_name)
            }
            NewCapability::Skill { name } => {
                // The agent first: an error about it must not depend on whether there is the skill.
                self.service.agent(caller, id).await?;
                self.service.find_usable_skill(caller, &name).await?;
                let part = SpecificationPart::Skill(name.clone());
                self.service.add_specification_part(caller, id, part).await?;
                (CapabilityKind::Skill, name)
            }
            NewCapability::McpServer { server } => {
                let name = server.get("name").and_then(Value::as_str).unwrap_or_default();
                let name = name.to_owned();
                let part = SpecificationPart::McpServer(server);
                self.service.add_specification_part(caller, id, part).await?;
                (CapabilityKind::McpServer, name)
            }
        };
        self.find_capability(caller, id, kind, &name).await
    }

    /// Removes a capability from the specification, or detaches its tool.
    pub async fn remove_capability(
        &self,
        caller: &Caller,
        id: AgentId,
        kind: CapabilityKind,
        name: &str,
    ) -> Result<(), RequestError> {
        let found = self.find_capability(caller, id, kind, name).await?;
        let part = match (found.kind, found.tool_id) {
            (_, Some(tool)) => return self.service.detach_tool(caller, id, tool).await,
            (CapabilityKind::CodeExecution, None) => SpecificationPart::CodeExecution,
            (CapabilityKind::Skill, None) => SpecificationPart::Skill(found.name),
            (CapabilityKind::McpServer, None) => SpecificationPart::McpServer(Map::from_iter([(
                "name".to_owned(),
                found.name.into(),
            )])),
            (CapabilityKind::Tool | CapabilityKind::Function, None) => {
                SpecificationPart::Tool(found.name)
            }
        };
        self.service.remove_specification_part(caller, id, part).await
    }

    async fn find_capability(
        &self,
        caller: &Caller,
        id: AgentId,
        kind: CapabilityKind,
        name: &str,
    ) -> Result<Capability, RequestError> {
        let is_tool = |kind| matches!(kind, CapabilityKind::Tool | CapabilityKind::Function);
        // An attached tool is found as either, since names of tools are unique in an agent.
        let is_same = |found: &Capability| {
            found.name == name && (found.kind == kind || is_tool(found.kind) && is_tool(kind))
        };
        let found = self.capabilities(caller, id).await?.into_iter().find(is_same);
        found.ok_or_else(|| {
            let message = format!("the agent has no such capability: {name:?}");
            Error::new(ErrorCode::ObjectNotFound, message)
                .hint("list them with `belljar agent capability ls AGENT`")
                .into()
        })
    }
}

/// The display name of a skill, such as `Code Interpreter (skill)`.
pub fn skill_title(name: &str) -> String {
    let capitalized = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    };
    let words: Vec<String> = name.split('-').map(capitalized).collect();
    format!("{} (skill)", words.join(" "))
}

fn state_of(reason: Option<&String>) -> CapabilityState {
    if reason.is_some() { CapabilityState::Unavailable } else { CapabilityState::Ready }
}

fn code_execution_capability(reason: Option<String>, action: ApprovalAction) -> Capability {
    Capability {
        kind: CapabilityKind::CodeExecution,
        name: CODE_EXECUTION.to_owned(),
        title: CODE_INTERPRETER_TITLE.to_owned(),
        description: CODE_INTERPRETER_DESCRIPTION.to_owned(),
        category: CapabilityCategory::Data,
        state: state_of(reason.as_ref()),
        reason,
        approval_action: Some(action),
        source: CapabilitySource::Specification,
        tool_id: None,
    }
}

fn tool_capability(tool: AgentTool) -> Capability {
    let source = match tool.attached {
        Some(_) => CapabilitySource::Binding,
        None => CapabilitySource::Specification,
    };
    let kind = if tool.calls_function { CapabilityKind::Function } else { CapabilityKind::Tool };
    Capability {
        kind,
        title: tool.name.clone(),
        name: tool.name,
        description: tool.description,
        category: CapabilityCategory::Custom,
        state: state_of(tool.unavailable.as_ref()),
        reason: tool.unavailable,
        approval_action: tool.approval_action,
        source,
        tool_id: tool.attached,
    }
}

fn skill_capability(ListedSkill { name, found }: ListedSkill, runs_code: bool) -> Capability {
    let known = found.as_ref().ok();
    let description = known.map(|found| found.skill.summary.description.clone());
    let usable = found.and_then(|found| Skills::new(vec![found], runs_code));
    let reason = usable.err().map(|error| error.message);
    let is_built_in = Skill::built_in_names().any(|known| known == name);
    Capability {
        kind: CapabilityKind::Skill,
        title: skill_title(&name),
        description: description.unwrap_or_default(),
        category: if is_built_in { CapabilityCategory::Data } else { CapabilityCategory::Custom },
        state: state_of(reason.as_ref()),
        reason,
        approval_action: None,
        source: CapabilitySource::Specification,
        tool_id: None,
        name,
    }
}

fn mcp_server_capability(ListedMcpServer { entry, unavailable }: ListedMcpServer) -> Capability {
    let description = match &entry.address {
        McpServerAddress::Url { url, .. } => format!("Tools of the MCP server at {url}"),
        McpServerAddress::Command(command) => format!("Tools of the MCP server {command:?}"),
    };
    Capability {
        kind: CapabilityKind::McpServer,
        title: entry.name.clone(),
        name: entry.name,
        description,
        category: CapabilityCategory::Custom,
        state: state_of(unavailable.as_ref()),
        reason: unavailable,
        approval_action: Some(entry.approval_action),
        source: CapabilitySource::Specification,
        tool_id: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skills_have_the_published_titles() {
        assert_eq!(skill_title("code-interpreter"), "Code Interpreter (skill)");
        assert_eq!(skill_title("dataviz"), "Dataviz (skill)");
        assert_eq!(skill_title(""), " (skill)");
        assert_eq!(skill_title("é-x"), "é X (skill)");
    }
}
