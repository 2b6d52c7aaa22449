//! The Execution record: one run of code, from which all other views derive.

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
    /// An approver has denied it; nothing was run.
    Denied,
    Cancelled,
    TimedOut,
}

impl ExecutionStatus {
    /// Whether its record does not change any more.
    pub fn has_ended(self) -> bool {
        match self {
            Self::WaitingApproval | Self::Queued | Self::Running => false,
            Self::Succeeded | Self::Failed | Self::TimedOut | Self::Cancelled | Self::Denied => {
                true
            }
        }
    }

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

/// How the `test()` of a tool ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TestOutcome {
    Passed,
    Failed,
    TimedOut,
}

impl TestOutcome {
    /// The outcome of a test that has ended with this status.
    pub fn from_status(status: ExecutionStatus) -> Self {
        match status {
            ExecutionStatus::Succeeded => Self::Passed,
            ExecutionStatus::TimedOut => Self::TimedOut,
            ExecutionStatus::WaitingApproval
            | ExecutionStatus::Queued
            | ExecutionStatus::Running
            | ExecutionStatus::Failed
            | ExecutionStatus::Denied
            | ExecutionStatus::Cancelled => Self::Failed,
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
    /// The value of the last expression, as opposed to the output of `display` or a chart.
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
pub(crate) fn memory_bytes(value: &Value) -> usize {
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

/// A file that the code created or changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutputFile {
    /// Relative to the working directory.
    pub name: String,
    pub mime: String,
    pub size: u64,
    pub sha256: String,
    pub kind: FileKind,
    /// URL of its content, if that is stored: absolute, signed, and valid for a limited time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub url: Option<String>,
}

/// An entry of the working directory that is not collected, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkippedFile {
    pub name: String,
    pub reason: String,
}

/// The number of truncated bytes; absent if nothing was truncated.
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

/// Resource usage of the run, as the supervisor observed it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResourceUsage {
    pub wall_ms: u64,
    pub cpu_ms: u64,
    pub rss_peak_bytes: u64,
    pub output_bytes: u64,
}

/// The code of the warning about a tool that ran in the interpreter of a session, where earlier
/// code can have changed what it returns.
pub const TOOL_UNISOLATED: &str = "tool.unisolated";

/// A problem that the caller should know about, but that did not stop the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Warning {
    pub code: String,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Execution {
    pub id: ExecutionId,
    /// Id of the session or sandbox. Absent until the execution has started, like `generation`,
    /// `started_at` and the results.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sandbox_id: Option<SandboxId>,
    /// Increases when the session's state was lost.
    pub generation: u64,
    pub environment: String,
    pub status: ExecutionStatus,
    pub entry: String,
    /// The principal who requested it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub principal: Option<PrincipalId>,
    /// The principal whose rights it runs with.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub run_as: Option<PrincipalId>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent: Option<AgentId>,
    /// The approval that it waits for, or has waited for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub approval_id: Option<ApprovalId>,
    /// The execution that started this one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub parent: Option<ExecutionId>,
    /// The name of the called tool, if any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tool: Option<String>,
    /// The function that was called, directly or by a tool.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub function_id: Option<FunctionId>,
    /// How the `test()` of a tool ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub test_outcome: Option<TestOutcome>,
    pub code: String,
    /// Arguments of the tool, unchanged.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub arguments: Option<Value>,
    pub files_in: Vec<String>,
    /// The return value of the tool, or the last value of a cell if it is plain JSON.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value: Option<Value>,
    #[serde(skip_serializing_if = "Truncation::is_empty", default)]
    pub truncated: Truncation,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<Error>,
    /// Exit code by the conventions of a shell.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub exit_code: Option<i32>,
    pub files_out: Vec<OutputFile>,
    /// For a model run: the steps of its plan.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub plan: Vec<String>,
    /// For a model run: the code that it wrote, with the results.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub rounds: Vec<Round>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<ModelUsage>,
    pub warnings: Vec<Warning>,
    /// The hosts that the code has tried to reach.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub network: Vec<NetworkAttempt>,
    pub limits: Limits,
    pub usage: ResourceUsage,
    pub created_at: DateTime<Utc>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended_at: Option<DateTime<Utc>>,
    // The two long fields come last, so that a server can write the others first and then these in parts.
    /// Displayed results, in order.
    pub results: Vec<DisplayData>,
    pub output: Vec<OutputChunk>,
}

impl Execution {
    /// Memory that the value takes in a process.
    pub fn value_bytes(&self) -> usize {
        self.value.as_ref().map_or(0, memory_bytes)
    }

    /// A record with only an id and limits.
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
            test_outcome: None,
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
