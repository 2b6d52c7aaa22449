//! The result of a call in the form of a CodeRunner: `success`, `tool`, `runtime` and `output`, or the
//! text of its failure.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use types::{Execution, ExecutionStatus};
use utoipa::ToSchema;

/// The exit code of a failure that ended no process with a code of its own, as of a Python program
/// that an exception has ended.
const EXIT_FAILURE: i32 = 1;

/// The form of the result of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResultForm {
    /// The record of the execution; a model reads the value.
    #[default]
    Record,
    /// `{"success": true, "tool": …, "runtime": "python", "output": …}`
    CodeRunner,
}

/// The result of an ended call in the form [`ResultForm::CodeRunner`].
pub fn code_runner_result(execution: &Execution) -> Value {
    let tool = execution.tool.as_deref().unwrap_or(&execution.entry);
    if execution.status == ExecutionStatus::Succeeded {
        let output = execution.value.clone().unwrap_or_default();
        return json!({"success": true, "tool": tool, "runtime": "python", "output": output});
    }
    let error = failure_text(tool, execution);
    json!({"success": false, "tool": tool, "runtime": "python", "error": error})
}

fn failure_text(tool: &str, execution: &Execution) -> String {
    let code = execution.exit_code.filter(|code| *code != 0).unwrap_or(EXIT_FAILURE);
    let error = execution.error.as_ref();
    let line = error.map_or_else(
        || execution.status.name().to_owned(),
        |error| match &error.exception {
            Some(exception) => format!("{exception}: {}", error.message),
            None => error.message.clone(),
        },
    );
    let traceback = error.and_then(|error| error.traceback.as_deref()).unwrap_or_default();
    let details = json!({"error": line, "traceback": traceback});
    format!("Code runner '{tool}' failed with exit code {code}: {details}")
}
