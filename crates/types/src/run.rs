//! The parts of a model run, besides the executions of the code that it writes.

use crate::{ExecutionId, ExecutionStatus};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// One round in which a model wrote code and read its result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Round {
    /// Counted from one.
    pub number: u32,
    /// The step of the plan that it belongs to.
    pub step: String,
    pub code: String,
    /// The execution of this code. Absent if it could not be started.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub execution_id: Option<ExecutionId>,
    pub status: ExecutionStatus,
    /// The output as the model saw it: the beginning and the end of long output.
    pub stdout: String,
    pub stderr: String,
    /// The type and the message of the error.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}

/// One call of another tool by a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ToolUse {
    /// The model's id of this call.
    pub id: String,
    pub name: String,
    /// `runPythonCode`, `code_runner`, `callFunction`, `skill` or `code_execution`.
    pub kind: String,
    pub arguments: Value,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub execution_id: Option<ExecutionId>,
    /// The result that the model received.
    pub result: String,
    pub failed: bool,
}

/// The model, and its token usage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ModelUsage {
    /// `provider/model`.
    pub name: String,
    pub requests: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
}
