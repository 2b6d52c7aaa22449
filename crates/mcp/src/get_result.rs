//! `get_result`: returns the result of an earlier execution, such as one that was approved later.

use crate::arguments;
use crate::run_result::{ResultFormat, json_object};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::json;
use service::{Caller, RequestError, Service};
use types::{Error, ErrorCode, ExecutionId, ExecutionStatus};

pub(crate) const GET: &str = "get_result";

#[derive(Debug, Deserialize)]
struct GetResultArguments {
    execution: String,
}

pub(crate) async fn get_result(
    service: &Service,
    caller: &Caller,
    given: Option<JsonObject>,
) -> Result<CallToolResult, RequestError> {
    let GetResultArguments { execution } = arguments::parse_arguments(given, &input_schema())?;
    let id: ExecutionId = execution.parse().map_err(|_| {
        let message = format!("the argument \"execution\" is no id: {execution:?}");
        Error::new(ErrorCode::ArgsInvalid, message)
    })?;
    let record = service.execution(caller, id).await?;
    let waits = match record.status {
        ExecutionStatus::WaitingApproval => {
            "it still waits for a person; ask again when they have answered"
        }
        ExecutionStatus::Queued | ExecutionStatus::Running => {
            "it is still running; ask again in a while"
        }
        _ => return Ok(ResultFormat::for_execution(&record).render(&record)),
    };
    Ok(CallToolResult::success(vec![ContentBlock::text(waits)]))
}

fn input_schema() -> JsonObject {
    json_object(json!({
        "type": "object",
        "properties": {
            "execution": {"type": "string", "description": "The id that the call was answered with."},
        },
        "required": ["execution"],
        "additionalProperties": false,
    }))
}

pub(crate) fn tool() -> Tool {
    let about = "Get what came of a call that was answered with the id of an execution instead of a \
result, because a person had to be asked first.";
    let annotations =
        ToolAnnotations::with_title("Result of a call").read_only(true).open_world(false);
    Tool::new(GET, about, input_schema()).with_annotations(annotations)
}
