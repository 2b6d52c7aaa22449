//! What a call runs: a tool of the workspace, a function, or code that somebody sends along.

use crate::catalog::functions::DeployedFunction;
use crate::error::{RequestError, field_error, invalid_field};
use crate::network;
use crate::runs::calls::CallRequest;
use crate::runs::executions::EntryKind;
use crate::secrets::CodeAuthor;
use contract::CallFunctionTool;
use engine::{Code as SourceCode, EntryPoint, InputFile};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use types::{Error, ErrorCode, ExecutionId, FunctionId, LimitsRequest, Tool, ToolId};
use uuid::Uuid;

/// As a model calls it, in whichever door.
pub const EXECUTE_PYTHON: &str = "execute_python";

#[derive(Debug, Clone)]
pub(crate) enum CallTarget {
    Tool {
        tool: Box<Tool>,
        checked: Arc<contract::CodeTool>,
        /// Whether its `test()` runs in its place.
        test: bool,
    },
    /// Its code is one of the arguments.
    Python { environment: String },
    /// Called directly, or by a tool.
    Function { deployed: Arc<DeployedFunction>, by: Option<Arc<FunctionTool>> },
}

/// A tool that calls a function, and what it takes.
#[derive(Debug)]
pub(crate) struct FunctionTool {
    pub(crate) tool: Tool,
    pub(crate) contract: CallFunctionTool,
}

/// The arguments of `execute_python`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExecutePythonArgs {
    pub(crate) code: String,
    pub(crate) entry: EntryKind,
    pub(crate) argv: Vec<String>,
    /// Of a fresh sandbox.
    pub(crate) environment: Option<String>,
    /// Likewise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) integrations: Vec<String>,
}

impl ExecutePythonArgs {
    /// None if they are no arguments of `execute_python`.
    pub(crate) fn from_value(arguments: &Value) -> Option<Self> {
        Self::deserialize(arguments).ok()
    }

    pub(crate) fn to_value(&self) -> Value {
        json!(self)
    }

    pub(crate) fn into_entry(self) -> Result<EntryPoint, RequestError> {
        let code = SourceCode::new(self.code.into_bytes())
            .map_err(|error| invalid_field("/code", error.to_string()))?;
        match self.entry {
            EntryKind::Script => Ok(EntryPoint::Script { code, argv: self.argv }),
            _ if !self.argv.is_empty() => {
                Err(invalid_field("/argv", "only a script has arguments"))
            }
            EntryKind::Cell => Ok(EntryPoint::Cell(code)),
            EntryKind::Answer => Ok(EntryPoint::ResultCell(code)),
        }
    }
}

impl CallTarget {
    /// Of no tool that anybody has made.
    pub(crate) fn python_id() -> ToolId {
        ToolId::new(Uuid::nil())
    }

    pub(crate) fn id(&self) -> ToolId {
        match self {
            Self::Tool { tool, .. } => tool.id,
            Self::Python { .. } => Self::python_id(),
            Self::Function { by: Some(by), .. } => by.tool.id,
            // Nobody is asked about a direct call, so that this is the id of no question.
            Self::Function { deployed, by: None } => ToolId::new(deployed.id.uuid()),
        }
    }

    pub(crate) fn function_id(&self) -> Option<FunctionId> {
        match self {
            Self::Function { deployed, .. } => Some(deployed.id),
            Self::Tool { .. } | Self::Python { .. } => None,
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Tool { tool, .. } => &tool.name,
            Self::Python { .. } => EXECUTE_PYTHON,
            Self::Function { by: Some(by), .. } => &by.tool.name,
            Self::Function { deployed, by: None } => &deployed.name,
        }
    }

    pub(crate) fn environment(&self) -> &str {
        match self {
            Self::Tool { tool, .. } => &tool.environment,
            Self::Python { environment } => environment,
            Self::Function { deployed, .. } => &deployed.deployment.environment,
        }
    }

    /// What a sandbox has to have that runs it, before what the caller brings.
    pub(crate) fn source_files(&self) -> Vec<InputFile> {
        match self {
            Self::Function { deployed, .. } => deployed.files.to_inputs(),
            Self::Tool { .. } | Self::Python { .. } => Vec::new(),
        }
    }

    /// Programs that it starts.
    pub(crate) fn required_programs(&self) -> &[String] {
        match self {
            Self::Tool { checked, .. } => &checked.requires_binaries,
            Self::Python { .. } | Self::Function { .. } => &[],
        }
    }

    /// The request as this takes it: a function has a sandbox and limits of its own, and a caller can
    /// only ask for less.
    pub(crate) fn constrain(&self, request: CallRequest) -> Result<CallRequest, RequestError> {
        let has_values = matches!(self.author(), CodeAuthor::Other { has_values: true, .. });
        if has_values && request.sandbox_id.is_some() {
            // Whoever has the session could have changed what reads them.
            let message = "a tool with variables of its own runs in a sandbox of its own";
            return Err(invalid_field("/sandbox_id", message));
        }
        let Self::Function { deployed, by } = self else { return Ok(request) };
        if request.sandbox_id.is_some() {
            return Err(invalid_field("/sandbox_id", "a function runs in a sandbox of its own"));
        }
        if !request.files.is_empty() {
            return Err(invalid_field("/files", "a function takes its arguments and no files"));
        }
        let seconds = by.as_ref().map_or(u64::MAX, |by| by.contract.polling_seconds);
        let seconds = seconds.min(deployed.deployment.timeout_seconds);
        let least = |asked: Option<u64>, most: u64| Some(asked.map_or(most, |it| it.min(most)));
        let limits = LimitsRequest {
            wall_ms: least(request.limits.wall_ms, seconds.saturating_mul(1000)),
            memory_bytes: least(request.limits.memory_bytes, deployed.deployment.memory_bytes),
            ..request.limits
        };
        Ok(CallRequest { limits, ..request })
    }

    /// The integrations that its code needs to leave by.
    pub(crate) fn integrations(&self, arguments: &Value) -> Vec<String> {
        match self {
            Self::Tool { checked, .. } => network::tool_integrations(checked),
            Self::Python { .. } => {
                ExecutePythonArgs::from_value(arguments).map_or(Vec::new(), |it| it.integrations)
            }
            Self::Function { deployed, .. } => deployed.deployment.integrations.clone(),
        }
    }

    pub(crate) fn author(&self) -> CodeAuthor {
        match self {
            Self::Python { .. } => CodeAuthor::Caller,
            Self::Tool { tool, checked, .. } => {
                CodeAuthor::Other { by: tool.author, has_values: !checked.variables.0.is_empty() }
            }
            Self::Function { deployed, .. } => {
                CodeAuthor::Other { by: deployed.deployment.author, has_values: false }
            }
        }
    }

    /// As its author wrote it; code that is sent along is no part of it.
    pub(crate) fn definition(&self) -> String {
        match self {
            Self::Tool { tool, test: false, .. } => {
                json!([tool.name, tool.description, tool.definition]).to_string()
            }
            // An answer about calls is none about the test.
            Self::Tool { tool, test: true, .. } => {
                json!([tool.name, tool.description, tool.definition, "test"]).to_string()
            }
            Self::Python { .. } => EXECUTE_PYTHON.to_owned(),
            Self::Function { deployed, by } => {
                let tool = by.as_ref().map(|by| &by.tool);
                let tool = tool.map(|tool| json!([tool.name, tool.description, tool.definition]));
                json!([tool, deployed.id, deployed.deployment.sha256, deployed.lock]).to_string()
            }
        }
    }

    /// What would run with these arguments, which are held against the contract.
    pub(crate) fn entry(
        &self,
        arguments: &Value,
        id: ExecutionId,
    ) -> Result<EntryPoint, RequestError> {
        match self {
            Self::Tool { checked, test: true, .. } => {
                Ok(EntryPoint::Call(Box::new(checked.test_call()?)))
            }
            Self::Tool { checked, .. } => {
                let call = checked.validate_call(arguments.clone());
                Ok(EntryPoint::Call(Box::new(
                    call.map_err(|fault| field_error("/arguments", fault))?,
                )))
            }
            Self::Python { .. } => {
                let script = ExecutePythonArgs::from_value(arguments);
                script.ok_or_else(|| invalid_field("/code", "cannot be read"))?.into_entry()
            }
            Self::Function { deployed, by } => {
                let place = if by.is_some() { "/arguments" } else { "/data" };
                let checked = by.as_ref().map_or(Ok(()), |by| by.contract.check(arguments));
                let info = json!({"function_id": deployed.id, "call_id": id});
                let call = checked
                    .and_then(|()| deployed.handler.call(self.name(), arguments.clone(), info));
                Ok(EntryPoint::Call(Box::new(call.map_err(|fault| field_error(place, fault))?)))
            }
        }
    }

    /// The same with its `test()` in its place.
    pub(crate) fn into_test(self) -> Result<Self, RequestError> {
        match self {
            Self::Tool { tool, checked, .. } => Ok(Self::Tool { tool, checked, test: true }),
            Self::Python { .. } | Self::Function { .. } => {
                let message = "a tool that calls a function has no test()";
                Err(Error::new(ErrorCode::CodeNoEntry, message).into())
            }
        }
    }

    pub(crate) fn is_test(&self) -> bool {
        matches!(self, Self::Tool { test: true, .. })
    }

    /// Whether its code is sent along and stands in its arguments.
    pub(crate) fn is_submitted_code(&self) -> bool {
        matches!(self, Self::Python { .. })
    }

    /// The arguments as they are shown to a person, who is shown the code besides.
    pub(crate) fn displayed_arguments(&self, arguments: &Value) -> Value {
        match self {
            Self::Tool { .. } | Self::Function { .. } => arguments.clone(),
            Self::Python { .. } => json!({"argv": arguments["argv"]}),
        }
    }
}
