//! Tasks that request input while they run, and one that fails.

use super::input::InputKind;
use super::python_tools;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ContentBlock, InputResponses, Task,
};
use rmcp::service::RequestContext;
use rmcp::task_manager::{TaskContext, TaskExit, TaskManager, TaskOptions};
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

pub(super) const ELICITS_THEN_TASK: &str = "test_tool_with_task";
const PROTOCOL_ERROR: &str = "protocol_error_job";
const CONFIRM_DELETE: &str = "confirm_delete";
const MULTI_INPUT: &str = "multi_input";
pub(super) const NAMES: &[&str] = &[ELICITS_THEN_TASK, PROTOCOL_ERROR, CONFIRM_DELETE, MULTI_INPUT];

/// Tools that work only with clients that support tasks.
pub(super) const NEED_TASKS: &[&str] =
    &[python_tools::FAILING, ELICITS_THEN_TASK, PROTOCOL_ERROR, CONFIRM_DELETE, MULTI_INPUT];

pub(super) fn require_task_support(context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    let can = context.client_capabilities().is_some_and(|can| can.supports_tasks());
    let needed = || ClientCapabilities::builder().enable_tasks().build();
    can.then_some(()).ok_or_else(|| ErrorData::missing_required_client_capability(needed()))
}

pub(super) fn start_task(tasks: &TaskManager, name: &str) -> Option<Task> {
    let keys: &[&str] = match name {
        PROTOCOL_ERROR => &[],
        CONFIRM_DELETE => &["confirm"],
        MULTI_INPUT => &["first", "second"],
        _ => return None,
    };
    let task = |context| -> rmcp::task_manager::TaskFuture { Box::pin(run_task(context, keys)) };
    Some(tasks.spawn(TaskOptions::default(), task))
}

/// Succeeds when it has all answers; fails if it requests none.
async fn run_task(
    context: TaskContext,
    keys: &'static [&'static str],
) -> Result<CallToolResult, TaskExit> {
    if keys.is_empty() {
        return Err(ErrorData::internal_error("it was bound to break", None).into());
    }
    let question = InputKind::Form("Go on?", "confirm").request()?;
    let ask = |key: &&'static str| context.request_input(*key, question.clone());
    let answers = futures_util::future::try_join_all(keys.iter().map(ask)).await?;
    Ok(CallToolResult::success(vec![ContentBlock::text(json!(answers).to_string())]))
}

/// The tool call that follows the answer with the name; it runs Python again.
pub(super) fn greeting_call(answers: &InputResponses) -> CallToolRequestParams {
    let name = answers.get("user_name").and_then(|answer| answer["content"]["name"].as_str());
    let arguments = json!({"seconds": 0.2, "label": name.unwrap_or_default()});
    let Value::Object(arguments) = arguments else {
        return CallToolRequestParams::new(python_tools::SLOW);
    };
    CallToolRequestParams::new(python_tools::SLOW).with_arguments(arguments)
}
