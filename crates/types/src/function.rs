//! Functions: code that is deployed separately from agents, with its own environment and limits,
//! and its calls.

use crate::{
    ApprovalId, Error, Execution, ExecutionId, ExecutionStatus, FunctionId, OutputStream,
    PrincipalId,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Function {
    pub id: FunctionId,
    /// The `externalId` in a tool that calls it.
    pub name: String,
    pub owner: PrincipalId,
    pub status: FunctionStatus,
    /// The deployment that calls use; absent until the first one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub deployed: Option<Deployment>,
    /// The environment that is being built for the next deployment.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub preparing: Option<String>,
    /// The integrations of the deployment in progress: none of them can be deleted meanwhile.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub preparing_integrations: Vec<String>,
    /// The current step of a deployment in progress.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub progress: Option<String>,
    /// Why the last deployment failed. The previous deployment stays in use.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<Error>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FunctionStatus {
    /// The environment is being built; the previous deployment stays in use meanwhile.
    Deploying,
    Ready,
    /// The last deployment has failed.
    Failed,
}

/// Code that can be called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Deployment {
    pub description: String,
    pub files: Vec<FunctionFile>,
    /// Hash of the names and bytes of all files.
    pub sha256: String,
    pub environment: String,
    /// The requested version of Python.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub python: Option<String>,
    pub memory_bytes: u64,
    pub timeout_seconds: u64,
    /// The integrations through which its code can reach the network.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub integrations: Vec<String>,
    /// The principal who deployed or confirmed it. The code can use only what its author may use.
    pub author: PrincipalId,
    pub deployed_at: DateTime<Utc>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FunctionFile {
    pub name: String,
    pub size: u64,
}

/// One call of a function; the execution of the same id has the whole record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FunctionCall {
    pub id: ExecutionId,
    pub function_id: FunctionId,
    pub status: FunctionCallStatus,
    /// The approval that it waits for, or has waited for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub approval_id: Option<ApprovalId>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<Error>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum FunctionCallStatus {
    Running,
    Completed,
    Failed,
    Timeout,
}

impl FunctionCall {
    /// `None` if the execution is no call of a function.
    pub fn from_execution(execution: &Execution) -> Option<Self> {
        let status = match execution.status {
            ExecutionStatus::WaitingApproval
            | ExecutionStatus::Queued
            | ExecutionStatus::Running => FunctionCallStatus::Running,
            ExecutionStatus::Succeeded => FunctionCallStatus::Completed,
            ExecutionStatus::Failed | ExecutionStatus::Denied | ExecutionStatus::Cancelled => {
                FunctionCallStatus::Failed
            }
            ExecutionStatus::TimedOut => FunctionCallStatus::Timeout,
        };
        Some(Self {
            id: execution.id,
            function_id: execution.function_id?,
            status,
            approval_id: execution.approval_id,
            started_at: execution.started_at,
            ended_at: execution.ended_at,
            error: execution.error.clone(),
        })
    }
}

/// The return value of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FunctionResponse {
    pub call_id: ExecutionId,
    pub function_id: FunctionId,
    pub response: Value,
}

/// A line of output of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    pub time: DateTime<Utc>,
    pub stream: OutputStream,
    pub message: String,
}
