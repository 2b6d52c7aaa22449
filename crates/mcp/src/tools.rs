//! Tools of the workspace, each with its own schema. Only those that the key may use are shown.

use crate::run_result::{PythonResult, file_links, image_block, json_object};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};
use types::Execution;

/// How a tool of the workspace is shown to a model.
pub(crate) fn tool_definition(tool: types::Tool) -> Tool {
    let annotations = ToolAnnotations::with_title(tool.name.clone()).open_world(false);
    let shown = Tool::new(tool.name, tool.description, json_object(tool.input_schema));
    let shown = shown.with_annotations(annotations);
    match tool.output_schema {
        Some(schema) => shown.with_raw_output_schema(wrap_schema(schema).into()),
        None => shown,
    }
}

/// Clients of the older era take nothing but an object, so every value is in one.
fn wrap_schema(mut schema: Value) -> JsonObject {
    // References of a schema are from its root, which moves down by two.
    let definitions = schema.as_object_mut().and_then(|schema| schema.remove("$defs"));
    let mut wrapped = json_object(json!({
        "type": "object",
        "properties": {"result": schema},
        "required": ["result"],
    }));
    wrapped.extend(definitions.map(|definitions| ("$defs".to_owned(), definitions)));
    wrapped
}

/// The value that a tool has returned, with links to its files and, as it may be all that a tool
/// is for, its charts.
pub(crate) fn tool_result(record: &Execution) -> CallToolResult {
    let answer = PythonResult::from_execution(record);
    if answer.error.is_some() {
        // Its schema speaks of values only.
        let mut result = answer.into_result();
        result.structured_content = None;
        return result;
    }
    let value = record.value.clone().unwrap_or_default();
    // Text is read by a model, which needs no quotes around it.
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(json!({"result": value}));
    result.content.extend(file_links(record));
    result.content.extend(record.results.iter().filter_map(image_block));
    result
}
