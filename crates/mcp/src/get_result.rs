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
    arguments: Option<JsonObject>,
) -> Result<CallToolResult, RequestError> {
    let read = |arguments| arguments::parse_arguments(arguments, input_schema());
    let GetResultArguments { execution } =
        arguments::read_arguments(service, caller, arguments, read).await?;
    let id: ExecutionId = execution.parse().map_err(|_| {
        let message = format!("argument \"execution\" is not an id: {execution:?}");
        Error::new(ErrorCode::ArgsInvalid, message)
    })?;
    let record = service.execution(caller, id).await?;
    let waits = match record.execution.status {
        ExecutionStatus::WaitingApproval => {
            "it is still waiting for an approval; call again when it is decided"
        }
        ExecutionStatus::Queued | ExecutionStatus::Running => {
            "it is still running; call again later"
        }
        _ => {
            let format = ResultFormat::for_execution(&record.execution);
            return Ok(format.render(&record.execution, &service.file_urls(caller)));
        }
    };
    Ok(CallToolResult::success(vec![ContentBlock::text(waits)]))
}

fn input_schema() -> JsonObject {
    json_object(json!({
        "type": "object",
        "properties": {
            "execution": {"type": "string", "description": "The id of the execution that the call \
                                                            returned."},
        },
        "required": ["execution"],
        "additionalProperties": false,
    }))
}

pub(crate) fn tool() -> Tool {
    let about = "Get the result of a call that returned the id of an execution instead of a \
                 result, because it required an approval.";
    let annotations =
        ToolAnnotations::with_title("Result of a call").read_only(true).open_world(false);
    Tool::new(GET, about, input_schema()).with_annotations(annotations)
}
