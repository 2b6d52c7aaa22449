//! `code_execution`: a request in natural language, solved with code that a model of this server
//! writes. Offered only if the server has a model.

use crate::arguments;
use crate::run_result::json_object;
use agent::{CODE_EXECUTION, CODE_INTERPRETER, CodeRequest, code_result};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Resource, Tool, ToolAnnotations};
use serde_json::json;
use types::{Error, Execution, ExecutionId, ExecutionStatus, OutputFile};

/// Matches the published name and its alias.
pub(crate) fn is_code_execution(name: &str) -> bool {
    name == CODE_EXECUTION || name == CODE_INTERPRETER
}

pub(crate) fn parse_request(arguments: Option<JsonObject>) -> Result<CodeRequest, Error> {
    arguments::parse_arguments(arguments, &input_schema())
}

/// Renders the result: the answer as text, and everything as structured content.
pub(crate) fn render(record: &Execution) -> CallToolResult {
    let Some(result) = code_result(record.clone()) else {
        return CallToolResult::error(vec![ContentBlock::text(record.status.name())]);
    };
    let mut tool_result = CallToolResult::success(vec![ContentBlock::text(result.answer.clone())]);
    // Some clients show their model only the text.
    let session = result.sandbox_id.map(|id| ContentBlock::text(format!("sandbox_id: {id}")));
    tool_result.content.extend(session);
    tool_result.content.extend(record.files_out.iter().filter_map(file_link));
    tool_result.structured_content = serde_json::to_value(&result).ok();
    tool_result.is_error = Some(record.status != ExecutionStatus::Succeeded);
    tool_result
}

/// Links a file of the execution that produced it.
fn file_link(file: &OutputFile) -> Option<ContentBlock> {
    let path = file.url.as_deref()?.strip_prefix("/v1/assets/")?;
    let id: ExecutionId = path.split('/').next()?.parse().ok()?;
    let resource = Resource::new(crate::resources::file_uri(id, &file.name), &file.name)
        .with_mime_type(&file.mime)
        .with_size(file.size);
    Some(ContentBlock::resource_link(resource))
}

fn input_schema() -> JsonObject {
    let text = |about: &str| json!({"type": "string", "description": about});
    json_object(json!({
        "type": "object",
        "properties": {
            "request": text("What the code should do, in natural language."),
            "document_ids": {
                "type": "array",
                "items": {"type": "string", "format": "uuid"},
                "description": "Documents that the code needs; they are in /home/uploaded_files/.",
            },
            "context": text("Additional context, such as \"Use a dark theme for the plot\"."),
            "sandbox_id": text("The session to continue in, from the result of an earlier call."),
            "max_rounds": {"type": "integer", "minimum": 1, "maximum": 100},
        },
        "required": ["request"],
        "additionalProperties": false,
    }))
}

pub(crate) fn tool() -> Tool {
    let about = "Carry out a request in natural language with Python: plan it, write and run code step by step, \
correct errors, and return the answer with computed numbers, charts and files. Pass the returned `sandbox_id` \
to continue with the same variables and files.";
    let annotations =
        ToolAnnotations::with_title("Run a request with code").destructive(false).open_world(false);
    let output = json_object(json!({
        "type": "object",
        "properties": {
            "sandbox_id": {"type": "string"},
            "execution_id": {"type": "string"},
            "answer": {"type": "string"},
            "complete": {"type": "boolean"},
            "logs": {"type": "string"},
            "plan": {"type": "array", "items": {"type": "string"}},
            "total_rounds": {"type": "integer"},
            "artifacts": {"type": "array", "items": {"type": "object"}},
            "generated_files": {"type": "array", "items": {"type": "object"}},
        },
        "required": ["execution_id", "answer", "complete", "logs", "plan", "total_rounds", "artifacts", "generated_files"],
    }));
    Tool::new(CODE_EXECUTION, about, input_schema())
        .with_raw_output_schema(output.into())
        .with_annotations(annotations)
}
