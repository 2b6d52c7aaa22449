//! The resolved target of a request: submitted code, a tool of the workspace, a function, or a tool of
//! an MCP server.

use crate::catalog::functions::DeployedFunction;
use crate::catalog::tool_definition::ToolRequest;
use crate::data::inputs::FileInput;
use crate::error::{RequestError, field_error, invalid_field};
use crate::network;
use crate::runs::mcp_calls::McpCall;
use crate::runs::run_request::{RunTarget, SubmittedCode};
use crate::secrets::CodeAuthor;
use contract::CallFunctionTool;
use engine::{EntryPoint, InputFile};
use serde_json::{Value, json};
use std::sync::Arc;
use types::{
    AgentId, Error, ErrorCode, ExecutionId, FunctionId, LimitsRequest, SandboxId, Tool, ToolId,
};
use uuid::Uuid;

/// The name by which models call it, over MCP and in agents.
pub const EXECUTE_PYTHON: &str = "execute_python";

#[derive(Debug, Clone)]
pub(crate) enum CallTarget {
    Code {
        source: SubmittedCode,
        environment: String,
    },
    Tool {
        tool: Box<Tool>,
        checked: Arc<contract::CodeTool>,
        arguments: Value,
        /// Whether its `test()` runs instead.
        test: bool,
    },
    /// The `test()` of a tool that is not saved, which is code of the caller.
    UnsavedTest {
        request: Box<ToolRequest>,
        checked: Arc<contract::CodeTool>,
        environment: String,
    },
    /// Called directly, or by a tool.
    Function {
        deployed: Arc<DeployedFunction>,
        by: Option<Arc<FunctionTool>>,
        arguments: Value,
    },
    /// Needs no sandbox.
    McpTool(Box<McpCall>),
}

/// A tool that calls a function, and its contract.
#[derive(Debug)]
pub(crate) struct FunctionTool {
    pub(crate) tool: Tool,
    pub(crate) contract: CallFunctionTool,
}

impl CallTarget {
    /// The id of submitted code where approvals name a tool. No tool has it.
    pub(crate) fn python_id() -> ToolId {
        ToolId::new(Uuid::nil())
    }

    pub(crate) fn id(&self) -> ToolId {
        match self {
            Self::Tool { tool, .. } => tool.id,
            Self::Code { .. } | Self::UnsavedTest { .. } => Self::python_id(),
            Self::Function { by: Some(by), .. } => by.tool.id,
            // A direct call needs no approval, so that no approval has this id.
            Self::Function { deployed, by: None, .. } => ToolId::new(deployed.id.uuid()),
            Self::McpTool(call) => call.id(),
        }
    }

    pub(crate) fn function_id(&self) -> Option<FunctionId> {
        match self {
            Self::Function { deployed, .. } => Some(deployed.id),
            Self::Tool { .. } | Self::Code { .. } | Self::UnsavedTest { .. } | Self::McpTool(_) => {
                None
            }
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Tool { tool, .. } => &tool.name,
            Self::Code { .. } => EXECUTE_PYTHON,
            Self::UnsavedTest { checked, .. } => &checked.name,
            Self::Function { by: Some(by), .. } => &by.tool.name,
            Self::Function { deployed, by: None, .. } => &deployed.name,
            Self::McpTool(call) => &call.offered,
        }
    }

    /// The environment of its sandbox; empty if it has none.
    pub(crate) fn environment(&self) -> &str {
        match self {
            Self::Tool { tool, .. } => &tool.environment,
            Self::Code { environment, .. } | Self::UnsavedTest { environment, .. } => environment,
            Self::Function { deployed, .. } => &deployed.deployment.environment,
            Self::McpTool(_) => "",
        }
    }

    /// The files that a sandbox needs to run it, before the files of the caller.
    pub(crate) fn source_files(&self) -> Vec<InputFile> {
        match self {
            Self::Function { deployed, .. } => deployed.files.to_inputs(),
            Self::Tool { .. } | Self::Code { .. } | Self::UnsavedTest { .. } | Self::McpTool(_) => {
                Vec::new()
            }
        }
    }

    /// The programs that it starts.
    pub(crate) fn required_programs(&self) -> &[String] {
        match self {
            Self::Tool { checked, .. } | Self::UnsavedTest { checked, .. } => {
                &checked.requires_binaries
            }
            Self::Code { .. } | Self::Function { .. } | Self::McpTool(_) => &[],
        }
    }

    /// The limits of a request for this target. A function has its own sandbox and limits, and a
    /// caller can only request less.
    pub(crate) fn constrain(
        &self,
        session: Option<SandboxId>,
        files: &[FileInput],
        limits: LimitsRequest,
    ) -> Result<LimitsRequest, RequestError> {
        if matches!(self, Self::McpTool(_)) && session.is_some() {
            return Err(invalid_field("/sandbox_id", "a tool of an MCP server has no session"));
        }
        let Self::Function { deployed, by, .. } = self else { return Ok(limits) };
        if session.is_some() {
            return Err(invalid_field(
                "/sandbox_id",
                "a function cannot run in a session; call it without sandbox_id",
            ));
        }
        if !files.is_empty() {
            return Err(invalid_field(
                "/files",
                "a function does not accept files, only arguments",
            ));
        }
        let seconds = by.as_ref().map_or(u64::MAX, |by| by.contract.polling_seconds);
        let seconds = seconds.min(deployed.deployment.timeout_seconds);
        let min_of =
            |requested: Option<u64>, most: u64| Some(requested.map_or(most, |it| it.min(most)));
        Ok(LimitsRequest {
            wall_ms: min_of(limits.wall_ms, seconds.saturating_mul(1000)),
            memory_bytes: min_of(limits.memory_bytes, deployed.deployment.memory_bytes),
            ..limits
        })
    }

    /// The integrations that its code needs.
    pub(crate) fn integrations(&self) -> Vec<String> {
        match self {
            Self::Code { source, .. } => source.integrations.clone(),
            Self::Tool { checked, .. } | Self::UnsavedTest { checked, .. } => {
                network::tool_integrations(checked)
            }
            Self::Function { deployed, .. } => deployed.deployment.integrations.clone(),
            Self::McpTool(call) => call.server.integrations().to_vec(),
        }
    }

    /// Whether it must not share a sandbox with the code of a session that has these integrations.
    /// Earlier code of the session could have replaced the code that reads the variables of a tool,
    /// and would have the network access that only the tool was granted. Such a tool works on a copy
    /// of the session's files.
    pub(crate) fn needs_own_sandbox(&self, of_session: &[String]) -> bool {
        match self {
            Self::Tool { checked, .. } | Self::UnsavedTest { checked, .. } => {
                let lacks = |name: &String| !of_session.contains(name);
                !checked.variables.0.is_empty()
                    || network::tool_integrations(checked).iter().any(lacks)
            }
            Self::Code { .. } | Self::Function { .. } | Self::McpTool(_) => false,
        }
    }

    pub(crate) fn author(&self) -> CodeAuthor {
        match self {
            Self::Code { .. } | Self::UnsavedTest { .. } => CodeAuthor::Caller,
            Self::Tool { tool, checked, .. } => {
                CodeAuthor::Other { by: tool.author, has_values: !checked.variables.0.is_empty() }
            }
            Self::Function { deployed, .. } => {
                CodeAuthor::Other { by: deployed.deployment.author, has_values: false }
            }
            Self::McpTool(call) => CodeAuthor::Other { by: call.author, has_values: false },
        }
    }

    /// The definition of the target by its author, without submitted code.
    pub(crate) fn definition(&self) -> String {
        match self {
            Self::Tool { tool, test: false, .. } => {
                json!([tool.name, tool.description, tool.definition]).to_string()
            }
            // An approval of calls does not cover the test.
            Self::Tool { tool, test: true, .. } => {
                json!([tool.name, tool.description, tool.definition, "test"]).to_string()
            }
            Self::Code { .. } => EXECUTE_PYTHON.to_owned(),
            Self::UnsavedTest { .. } => "test of a tool that is not saved".to_owned(),
            Self::Function { deployed, by, .. } => {
                let tool = by.as_ref().map(|by| &by.tool);
                let tool = tool.map(|tool| json!([tool.name, tool.description, tool.definition]));
                json!([tool, deployed.id, deployed.deployment.sha256, deployed.lock]).to_string()
            }
            Self::McpTool(call) => call.definition(),
        }
    }

    /// The entry point of a run. Arguments are checked against the contract.
    pub(crate) fn into_entry(self, id: ExecutionId) -> Result<EntryPoint, RequestError> {
        let call = match self {
            Self::Code { source, .. } => return source.into_entry(),
            Self::Tool { checked, test: true, .. } | Self::UnsavedTest { checked, .. } => {
                checked.test_call()?
            }
            Self::Tool { checked, arguments, .. } => checked
                .validate_call(arguments)
                .map_err(|error| field_error("/arguments", error))?,
            Self::Function { deployed, by, arguments } => {
                let info = json!({"function_id": deployed.id, "call_id": id});
                let (place, name) = match &by {
                    Some(by) => ("/arguments", &by.tool.name),
                    None => ("/data", &deployed.name),
                };
                let checked = by.as_ref().map_or(Ok(()), |by| by.contract.check(&arguments));
                checked
                    .and_then(|()| deployed.handler.call(name, arguments, info))
                    .map_err(|error| field_error(place, error))?
            }
            Self::McpTool(_) => {
                return Err(Error::server_fault("a call of an MCP server has no sandbox").into());
            }
        };
        Ok(EntryPoint::Call(Box::new(call)))
    }

    /// The same target, with its `test()` instead.
    pub(crate) fn into_test(self) -> Result<Self, RequestError> {
        match self {
            Self::Tool { tool, checked, arguments, .. } => {
                Ok(Self::Tool { tool, checked, arguments, test: true })
            }
            Self::UnsavedTest { .. } => Ok(self),
            Self::Code { .. } | Self::Function { .. } | Self::McpTool(_) => {
                Err(no_test_of_function())
            }
        }
    }

    /// Whether its code is part of the request.
    pub(crate) fn is_submitted_code(&self) -> bool {
        matches!(self, Self::Code { .. } | Self::UnsavedTest { .. })
    }

    /// Whether it has values of variables that are stored nowhere.
    pub(crate) fn has_unsaved_values(&self) -> bool {
        matches!(self, Self::UnsavedTest { checked, .. } if !checked.variables.0.is_empty())
    }

    /// The arguments of a call; submitted code has none.
    pub(crate) fn arguments(&self) -> Option<&Value> {
        match self {
            Self::Code { .. } | Self::UnsavedTest { .. } => None,
            Self::Tool { arguments, .. } | Self::Function { arguments, .. } => Some(arguments),
            Self::McpTool(call) => Some(&call.arguments),
        }
    }

    /// The whole input as text, which an approval is bound to.
    pub(crate) fn input_text(&self) -> String {
        match self {
            Self::Code { source, .. } => json!(source).to_string(),
            Self::UnsavedTest { request, .. } => json!(request).to_string(),
            Self::Tool { arguments, .. } | Self::Function { arguments, .. } => {
                arguments.to_string()
            }
            Self::McpTool(call) => call.arguments.to_string(),
        }
    }

    /// The arguments as an approver sees them, who also sees the code.
    pub(crate) fn displayed_arguments(&self) -> Value {
        match self {
            Self::Code { source, .. } => json!({"argv": source.argv}),
            Self::UnsavedTest { .. } => json!({}),
            Self::Tool { arguments, .. } | Self::Function { arguments, .. } => arguments.clone(),
            Self::McpTool(call) => call.arguments.clone(),
        }
    }

    /// The target of a request that resolves to this one, without submitted code: the record of the
    /// execution has the code, and it can be long.
    pub(crate) fn to_request(&self, agent: Option<AgentId>) -> RunTarget {
        match self {
            Self::Code { source, .. } => RunTarget::Code(SubmittedCode {
                code: String::new(),
                entry: source.entry,
                argv: source.argv.clone(),
                environment: source.environment.clone(),
                integrations: source.integrations.clone(),
            }),
            Self::UnsavedTest { request, .. } => RunTarget::UnsavedTest(request.clone()),
            Self::Function { deployed, by: None, arguments } => {
                RunTarget::Function { id: deployed.id, arguments: arguments.clone() }
            }
            Self::Tool { arguments, .. } | Self::Function { arguments, .. } => RunTarget::Tool {
                id: self.id(),
                agent,
                arguments: arguments.clone(),
                test: matches!(self, Self::Tool { test: true, .. }),
                // A stored call has been asked about, wherever it came from.
                over_mcp: false,
            },
            Self::McpTool(call) => call.to_request(),
        }
    }
}

pub(crate) fn no_test_of_function() -> RequestError {
    let message = "a tool that calls a function has no test()";
    Error::new(ErrorCode::CodeNoEntry, message)
        .hint("test the function itself before you deploy it, with `belljar tool test`")
        .into()
}
