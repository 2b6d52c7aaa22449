//! Executions that outlast a request. A task is an execution, found by its id in the records, even
//! after a restart.

use crate::run_result::ResultFormat;
use rmcp::ErrorData;
use rmcp::model::{CreateTaskResult, DetailedTask, JsonObject, Task, TaskPayload, TaskStatus};
use serde_json::{Value, json};
use service::FileUrlSigner;
use types::{Execution, ExecutionId, ExecutionStatus};

/// Short enough that a waiting person does not notice.
const POLL_MILLISECONDS: u64 = 1_000;

pub(crate) fn create_task_result(execution: &Execution) -> CreateTaskResult {
    CreateTaskResult::new(task(execution, TaskStatus::Working))
}

pub(crate) fn detailed_task(execution: &Execution, urls: &FileUrlSigner) -> DetailedTask {
    let payload = match execution.status {
        ExecutionStatus::Queued | ExecutionStatus::Running | ExecutionStatus::WaitingApproval => {
            TaskPayload::Working
        }
        ExecutionStatus::Cancelled => TaskPayload::Cancelled,
        ExecutionStatus::Succeeded
        | ExecutionStatus::Failed
        | ExecutionStatus::Denied
        | ExecutionStatus::TimedOut => {
            TaskPayload::Completed { result: completed_result(execution, urls) }
        }
    };
    DetailedTask::new(task(execution, payload.status()), payload)
}

/// The result that the original call would have had.
fn completed_result(execution: &Execution, urls: &FileUrlSigner) -> JsonObject {
    match serde_json::to_value(ResultFormat::for_execution(execution).render(execution, urls)) {
        Ok(Value::Object(result)) => result,
        _ => JsonObject::default(),
    }
}

fn task(execution: &Execution, status: TaskStatus) -> Task {
    let updated = execution.ended_at.or(execution.started_at).unwrap_or(execution.created_at);
    let mut task = Task::new(
        execution.id.to_string(),
        status,
        execution.created_at.to_rfc3339(),
        updated.to_rfc3339(),
    );
    if execution.ended_at.is_none() {
        task = task.with_poll_interval_ms(POLL_MILLISECONDS);
    }
    task
}

pub(crate) fn parse_task_id(task: &str) -> Result<ExecutionId, ErrorData> {
    task.parse().map_err(|_| task_not_found(task))
}

pub(crate) fn task_not_found(task: &str) -> ErrorData {
    ErrorData::invalid_params("task not found", Some(json!({"taskId": task})))
}
