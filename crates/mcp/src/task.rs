//! Runs that outlast a request: a task is an execution, found by its id in the records, also after
//! a restart.

use crate::answer::Shown;
use rmcp::ErrorData;
use rmcp::model::{CreateTaskResult, DetailedTask, JsonObject, Task, TaskPayload, TaskStatus};
use serde_json::{Value, json};
use types::{Execution, ExecutionId, Status};

/// Short enough that a person who waits does not notice.
const POLL_MILLISECONDS: u64 = 1_000;

pub(crate) fn begun(execution: &Execution) -> CreateTaskResult {
    CreateTaskResult::new(task(execution, TaskStatus::Working))
}

pub(crate) fn detailed(execution: &Execution) -> DetailedTask {
    let payload = match execution.status {
        Status::Queued | Status::Running | Status::WaitingApproval => TaskPayload::Working,
        Status::Cancelled => TaskPayload::Cancelled,
        Status::Succeeded | Status::Failed | Status::Denied | Status::TimedOut => {
            TaskPayload::Completed { result: completed(execution) }
        }
    };
    DetailedTask::new(task(execution, payload.status()), payload)
}

/// As the call would have been answered.
fn completed(execution: &Execution) -> JsonObject {
    match serde_json::to_value(Shown::of(execution).show(execution)) {
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

pub(crate) fn id(task: &str) -> Result<ExecutionId, ErrorData> {
    task.parse().map_err(|_| missing(task))
}

pub(crate) fn missing(task: &str) -> ErrorData {
    ErrorData::invalid_params("there is no such task", Some(json!({"taskId": task})))
}
