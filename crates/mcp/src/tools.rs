//! Tools of the workspace, each with its own schema. Only tools that the caller may use are listed.

use crate::run_result::{PythonResult, file_links, image_block, json_object};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};
use service::FileUrlSigner;
use types::Execution;

/// The definition of a workspace tool for a model.
pub(crate) fn tool_definition(tool: types::Tool) -> Tool {
    let annotations = ToolAnnotations::with_title(tool.name.clone()).open_world(false);
    let definition = Tool::new(tool.name, tool.description, json_object(tool.input_schema));
    let definition = definition.with_annotations(annotations);
    match tool.output_schema {
        Some(schema) => definition.with_raw_output_schema(wrap_schema(schema).into()),
        None => definition,
    }
}

/// Clients of the legacy revision accept only objects, so every value is wrapped in one.
fn wrap_schema(mut schema: Value) -> JsonObject {
    // References are relative to the root of the schema, which moves down two levels.
    let definitions = schema.as_object_mut().and_then(|schema| schema.remove("$defs"));
    let mut wrapped = json_object(json!({
        "type": "object",
        "properties": {"result": schema},
        "required": ["result"],
    }));
    wrapped.extend(definitions.map(|definitions| ("$defs".to_owned(), definitions)));
    wrapped
}

/// The return value of a tool, with links to its files, and its charts, which may be the tool's
/// whole purpose.
pub(crate) fn tool_result(record: &Execution, urls: &FileUrlSigner) -> CallToolResult {
    let answer = PythonResult::from_execution(record);
    if answer.error.is_some() {
        // The output schema describes values only.
        let mut result = answer.into_result();
        result.structured_content = None;
        return result;
    }
    let value = record.value.clone().unwrap_or_default();
    // The model reads the text, which needs no quotes.
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(json!({"result": value}));
    result.content.extend(file_links(record, urls));
    result.content.extend(record.results.iter().filter_map(image_block));
    result
}
