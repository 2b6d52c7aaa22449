//! The Execution record: one run of code, and the one record that everything else projects.

use crate::{
    AgentId, ApprovalId, Error, ExecutionId, FunctionId, Limits, ModelUsage, NetworkAttempt,
    PrincipalId, Round, SandboxId,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionStatus {
    WaitingApproval,
    Queued,
    Running,
    Succeeded,
    Failed,
    /// Somebody who was asked has said no; nothing was run.
    Denied,
    Cancelled,
    TimedOut,
}

impl ExecutionStatus {
    pub fn name(self) -> &'static str {
        match self {
            Self::WaitingApproval => "waiting_approval",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Denied => "denied",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed_out",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    Stdout,
    Stderr,
}

/// A piece of output, at `t` milliseconds after the start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutputChunk {
    pub t: u64,
    pub stream: OutputStream,
    pub text: String,
}

/// Display data by MIME type. Binary types are base64.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DisplayData {
    pub data: BTreeMap<String, Value>,
    /// The value of the last expression, as opposed to what `display` or a chart showed.
    pub main: bool,
}

impl DisplayData {
    /// Memory that this result takes in a process.
    pub fn memory_bytes(&self) -> usize {
        self.data.iter().map(|(form, value)| form.len() + memory_bytes(value)).sum()
    }
}

/// Memory that a JSON value takes in a process: for many small values that is far more than their
/// text.
fn memory_bytes(value: &Value) -> usize {
    let within = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(memory_bytes).sum(),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| {
                size_of_val(name) + name.len() + memory_bytes(value)
            };
            fields.iter().map(field).sum()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    size_of::<Value>() + within
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    Data,
    Media,
}

/// A file that the code made or changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutputFile {
    /// Relative to the working directory.
    pub name: String,
    pub mime: String,
    pub size: u64,
    pub sha256: String,
    pub kind: FileKind,
    /// Where its bytes can be had, if they are kept.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub url: Option<String>,
}

/// Something in the working directory that is not brought out, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkippedFile {
    pub name: String,
    pub reason: String,
}

/// What was cut, in bytes; absent when nothing was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Truncation {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output_dropped_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub files: Vec<SkippedFile>,
}

impl Truncation {
    pub fn is_empty(&self) -> bool {
        self == &Self::default()
    }
}

/// What the run used, as the supervisor observed it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResourceUsage {
    pub wall_ms: u64,
    pub cpu_ms: u64,
    pub rss_peak_bytes: u64,
    pub output_bytes: u64,
}

/// The code of the warning about a tool that ran in the interpreter of a session, where earlier code can
/// have changed what it returns.
pub const TOOL_UNISOLATED: &str = "tool.unisolated";

/// Something the caller should know that did not stop the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Warning {
    pub code: String,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Execution {
    pub id: ExecutionId,
    /// Absent until there is one, as everything below that only a run has.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sandbox_id: Option<SandboxId>,
    /// Grows when the session's memory was lost, so that nobody is surprised.
    pub generation: u64,
    pub environment: String,
    pub status: ExecutionStatus,
    pub entry: String,
    /// Who asked for it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub principal: Option<PrincipalId>,
    /// With whose rights it runs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub run_as: Option<PrincipalId>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent: Option<AgentId>,
    /// The question that it waits for, or has waited for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub approval_id: Option<ApprovalId>,
    /// The execution that asked for this one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub parent: Option<ExecutionId>,
    /// The name of the tool that was called, if one was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tool: Option<String>,
    /// The function that was called, directly or by a tool.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub function_id: Option<FunctionId>,
    pub code: String,
    /// Of the tool, as they were given to it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub arguments: Option<Value>,
    pub files_in: Vec<String>,
    /// What the tool returned, or the last value of a cell when it is plain JSON.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value: Option<Value>,
    #[serde(skip_serializing_if = "Truncation::is_empty", default)]
    pub truncated: Truncation,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<Error>,
    /// As a shell would see it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub exit_code: Option<i32>,
    pub files_out: Vec<OutputFile>,
    /// Of a run of a model: the steps that it has set itself.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub plan: Vec<String>,
    /// Of a run of a model: the code that it has written, each with what came of it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub rounds: Vec<Round>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<ModelUsage>,
    pub warnings: Vec<Warning>,
    /// Whom the code has tried to reach.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub network: Vec<NetworkAttempt>,
    pub limits: Limits,
    pub usage: ResourceUsage,
    pub created_at: DateTime<Utc>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended_at: Option<DateTime<Utc>>,
    /// The two long fields come last, so that a server can write the rest and then these piece by
    /// piece.
    pub results: Vec<DisplayData>,
    pub output: Vec<OutputChunk>,
}

impl Execution {
    /// Memory that the value takes in a process.
    pub fn value_bytes(&self) -> usize {
        self.value.as_ref().map_or(0, memory_bytes)
    }

    /// One of which nothing is known yet but what it is called and may use.
    pub fn new(id: ExecutionId, limits: Limits, created_at: DateTime<Utc>) -> Self {
        Self {
            id,
            sandbox_id: None,
            generation: 1,
            environment: String::new(),
            status: ExecutionStatus::Queued,
            entry: String::new(),
            principal: None,
            run_as: None,
            agent: None,
            approval_id: None,
            parent: None,
            tool: None,
            function_id: None,
            code: String::new(),
            arguments: None,
            files_in: Vec::new(),
            value: None,
            results: Vec::new(),
            output: Vec::new(),
            truncated: Truncation::default(),
            error: None,
            exit_code: None,
            files_out: Vec::new(),
            plan: Vec::new(),
            rounds: Vec::new(),
            model: None,
            warnings: Vec::new(),
            network: Vec::new(),
            limits,
            usage: ResourceUsage::default(),
            created_at,
            started_at: None,
            ended_at: None,
        }
    }
}
