//! `create_session`: opens an interpreter that keeps its state.

use crate::arguments;
use crate::run_result::json_object;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::{Value, json};
use service::{Caller, OpenedSession, RequestError, Service, SessionRequest};
use std::sync::Arc;
use types::AgentId;

pub(crate) const CREATE: &str = "create_session";

#[derive(Debug, Deserialize)]
struct CreateSessionArguments {
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    agent_id: Option<AgentId>,
}

pub(crate) async fn create_session(
    service: &Arc<Service>,
    caller: &Caller,
    arguments: Option<JsonObject>,
) -> Result<CallToolResult, RequestError> {
    let read = |arguments| arguments::parse_arguments(arguments, input_schema());
    let CreateSessionArguments { key, agent_id } =
        arguments::read_arguments(service, caller, arguments, read).await?;
    let request = SessionRequest { key, agent_id, ..SessionRequest::default() };
    let (OpenedSession::New(session) | OpenedSession::Found(session)) =
        service.open_session(caller, request).await?;
    Ok(structured_result(json!({
        "session": session.sandbox_id,
        "generation": session.generation,
        "idle_seconds": session.idle_seconds,
    })))
}

/// A result with structured content only.
pub(crate) fn structured_result(value: Value) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(value.to_string())]);
    result.structured_content = Some(value);
    result
}

fn input_schema() -> JsonObject {
    json_object(json!({
        "type": "object",
        "properties": {
            "key": {
                "type": "string",
                "description": "A name for the conversation: as long as the session is open, the same key returns it.",
            },
            "agent_id": {
                "type": "string",
                "description": "The id of an agent: its code may use the volumes, packages and hosts of its specification.",
            },
        },
        "additionalProperties": false,
    }))
}

pub(crate) fn tool() -> Tool {
    let about = "Open a Python session whose variables, imports and files persist between calls. Pass the \
returned `session` to execute_python, list_files, read_file and write_file. `generation` increases if the state \
was lost.";
    let output = json_object(json!({
        "type": "object",
        "properties": {
            "session": {"type": "string", "description": "The handle."},
            "generation": {"type": "integer"},
            "idle_seconds": {"type": "integer", "description": "Closed after this time without use."},
        },
        "required": ["session", "generation", "idle_seconds"],
    }));
    let annotations =
        ToolAnnotations::with_title("New Python session").destructive(false).open_world(false);
    Tool::new(CREATE, about, input_schema())
        .with_raw_output_schema(output.into())
        .with_annotations(annotations)
}
