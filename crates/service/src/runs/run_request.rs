//! Requests to run something. [`RunRequest`] is the one form of all of them: the bodies of REST
//! requests (`ExecuteRequest`, `CallRequest`, `TestRequest`) become one, MCP and agents make one, and a
//! call that waits for an approval is stored as one.

use crate::catalog::tool_definition::{PythonToolQuery, ToolRequest};
use crate::data::inputs::FileInput;
use crate::error::{RequestError, invalid_field};
use crate::network;
use crate::runs::tool_result::ResultForm;
use crate::serde_helpers::{object, objects};
use engine::{Code as SourceCode, EntryPoint};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use types::{AgentId, ApprovalAction, FunctionId, LimitsRequest, SandboxId, ToolId};
use utoipa::ToSchema;

/// What to run, where, with which files and limits.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    pub target: RunTarget,
    /// The session to run in; a fresh sandbox otherwise.
    pub session: Option<SandboxId>,
    /// For the working directory.
    pub files: Vec<FileInput>,
    pub limits: LimitsRequest,
}

/// What to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RunTarget {
    Code(SubmittedCode),
    Tool {
        id: ToolId,
        /// The agent that makes the call; absent when the tool is called directly.
        agent: Option<AgentId>,
        arguments: Value,
        /// Whether the tool's `test()` runs instead of the tool.
        test: bool,
        /// Whether the call comes from an MCP client, and so from a model.
        #[serde(default)]
        over_mcp: bool,
    },
    /// The `test()` of a tool that is not saved.
    UnsavedTest(Box<ToolRequest>),
    Function {
        id: FunctionId,
        arguments: Value,
    },
    /// A tool of an MCP server of an agent.
    McpTool {
        agent: AgentId,
        /// The name of the server in the specification.
        server: String,
        /// The name by which the server knows the tool.
        tool: String,
        /// Whether the server says that the tool only reads.
        read_only: bool,
        arguments: Value,
    },
}

/// Code that a request contains, and how it is started.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubmittedCode {
    pub code: String,
    pub entry: EntryKind,
    pub argv: Vec<String>,
    /// Environment of a fresh sandbox; a session has its own.
    pub environment: Option<String>,
    /// Integrations of a fresh sandbox; a session has its own.
    pub integrations: Vec<String>,
}

impl SubmittedCode {
    pub(crate) fn into_entry(self) -> Result<EntryPoint, RequestError> {
        let code = SourceCode::new(self.code.into_bytes())
            .map_err(|error| invalid_field("/code", error.to_string()))?;
        match self.entry {
            EntryKind::Script => Ok(EntryPoint::Script { code, argv: self.argv }),
            _ if !self.argv.is_empty() => {
                Err(invalid_field("/argv", "is only allowed for a script"))
            }
            EntryKind::Cell => Ok(EntryPoint::Cell(code)),
            EntryKind::Answer => Ok(EntryPoint::ResultCell(code)),
        }
    }
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecuteRequest {
    /// Python, up to 4 MiB.
    pub code: String,
    #[serde(default)]
    pub entry: EntryKind,
    /// For a script: the elements of `sys.argv`.
    #[serde(default)]
    pub argv: Vec<String>,
    /// Files for the working directory, before the code runs.
    #[serde(default, deserialize_with = "objects")]
    pub files: Vec<FileInput>,
    #[serde(default, deserialize_with = "object")]
    pub limits: LimitsRequest,
    /// Environment of a fresh sandbox; a session has its own.
    pub environment: Option<String>,
    /// Names of the integrations that the code of a fresh sandbox may use; a session has its own.
    #[serde(default)]
    pub integrations: Vec<String>,
    /// The same as the integration `internet`.
    #[serde(default)]
    pub allow_network: bool,
}

impl ExecuteRequest {
    /// The request for a session, or for a fresh sandbox.
    pub fn into_run(self, session: Option<SandboxId>) -> RunRequest {
        let Self { code, entry, argv, files, limits, environment, integrations, allow_network } =
            self;
        let integrations = network::requested_integrations(integrations, allow_network);
        let code = SubmittedCode { code, entry, argv, environment, integrations };
        RunRequest { target: RunTarget::Code(code), session, files, limits }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// Like a notebook cell: the value of a last expression is a result.
    #[default]
    Cell,
    /// Like a cell, whose value is what it binds to the name `result`, if any.
    Answer,
    /// Like `python3 FILE ARGS`.
    Script,
}

#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CallRequest {
    /// Arguments that match the `input_schema` of the tool.
    #[serde(default = "no_arguments")]
    #[schema(value_type = Object)]
    pub arguments: Value,
    /// The agent that makes the call; absent when the tool is called directly.
    pub agent_id: Option<AgentId>,
    /// The session to run in, whose files the tool sees; a fresh sandbox otherwise.
    pub sandbox_id: Option<SandboxId>,
    /// Files for the working directory, before the tool runs.
    #[serde(default, deserialize_with = "objects")]
    pub files: Vec<FileInput>,
    #[serde(default, deserialize_with = "object")]
    pub limits: LimitsRequest,
    /// The form of the response to a call that has ended.
    #[serde(default)]
    pub result: ResultForm,
}

impl CallRequest {
    pub fn into_run(self, id: ToolId) -> RunRequest {
        let Self { arguments, agent_id: agent, sandbox_id: session, files, limits, result: _ } =
            self;
        let target = RunTarget::Tool { id, agent, arguments, test: false, over_mcp: false };
        RunRequest { target, session, files, limits }
    }
}

#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TestRequest {
    pub sandbox_id: Option<SandboxId>,
    #[serde(deserialize_with = "object")]
    pub limits: LimitsRequest,
}

impl TestRequest {
    /// `agent` is the agent whose tool it is, if it is tested as that agent calls it.
    pub fn into_run(self, id: ToolId, agent: Option<AgentId>) -> RunRequest {
        let Self { sandbox_id: session, limits } = self;
        let arguments = no_arguments();
        let target = RunTarget::Tool { id, agent, arguments, test: true, over_mcp: false };
        RunRequest { target, session, files: Vec::new(), limits }
    }
}

/// The name of a tool that is tested before it has one.
const UNSAVED_NAME: &str = "unsaved";
const UNSAVED_DESCRIPTION: &str = "A tool that is being written";

/// A tool that is being written, to run its `test()`. It has the fields of a tool; the name and the
/// description may be absent.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UnsavedTestRequest {
    pub name: Option<String>,
    pub description: Option<String>,
    /// As for a new tool.
    pub tool_type: Option<String>,
    /// As for a new tool.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub configuration: Option<Map<String, Value>>,
    /// As for a new tool.
    pub environment: Option<String>,
    /// Has no effect on a test.
    pub approval_action: Option<ApprovalAction>,
    pub extended_annotations: Option<bool>,
    #[serde(default, deserialize_with = "object")]
    pub limits: LimitsRequest,
}

impl UnsavedTestRequest {
    /// The test of a Python file with a function `handle`.
    pub fn from_python(tool: PythonToolQuery, source: Vec<u8>) -> Result<Self, RequestError> {
        let name = tool.name.or_else(|| Some(UNSAVED_NAME.to_owned()));
        let tool = ToolRequest::from_python(PythonToolQuery { name, ..tool }, source)?;
        let ToolRequest { name, description, tool_type, kind, configuration, .. } = tool;
        let ToolRequest { environment, approval_action, extended_annotations, .. } = tool;
        Ok(Self {
            name,
            description,
            tool_type,
            kind,
            configuration,
            environment,
            approval_action,
            extended_annotations,
            ..Self::default()
        })
    }

    pub fn into_run(self) -> RunRequest {
        let tool = ToolRequest {
            name: Some(self.name.unwrap_or_else(|| UNSAVED_NAME.to_owned())),
            description: Some(self.description.unwrap_or_else(|| UNSAVED_DESCRIPTION.to_owned())),
            tool_type: self.tool_type,
            kind: self.kind,
            configuration: self.configuration,
            environment: self.environment,
            approval_action: self.approval_action,
            extended_annotations: self.extended_annotations,
            ..ToolRequest::default()
        };
        let target = RunTarget::UnsavedTest(Box::new(tool));
        RunRequest { target, session: None, files: Vec::new(), limits: self.limits }
    }
}

pub(crate) fn no_arguments() -> Value {
    Value::Object(Map::new())
}
