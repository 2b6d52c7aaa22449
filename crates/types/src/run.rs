//! What a run of a language model is made of, besides the executions of the code that it writes.

use crate::{ExecutionId, ExecutionStatus};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// One time that a model wrote code and saw what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Round {
    /// From one.
    pub number: u32,
    /// The step of the plan that it is about.
    pub step: String,
    pub code: String,
    /// The run of this code. Absent if it could not be begun.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub execution_id: Option<ExecutionId>,
    pub status: ExecutionStatus,
    /// As the model saw it: the beginning and the end of what is long.
    pub stdout: String,
    pub stderr: String,
    /// The type and the message of what went wrong.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}

/// One time that a model called another tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ToolUse {
    /// As the model calls this one call.
    pub id: String,
    pub name: String,
    /// `runPythonCode`, `code_runner`, `callFunction`, `skill` or `code_execution`.
    pub kind: String,
    pub arguments: Value,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub execution_id: Option<ExecutionId>,
    /// What the model was told.
    pub result: String,
    pub failed: bool,
}

/// The model that was asked, and what it used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ModelUsage {
    /// `provider/model`.
    pub name: String,
    pub requests: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
}
