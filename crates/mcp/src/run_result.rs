//! Compact tool results of executions, for every outcome.

use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Resource};
use serde::Serialize;
use serde_json::{Value, json};
use service::{FileRef, FileUrlSigner, RequestError};
use types::{DisplayData, Error, ErrorCode, Execution, ExecutionStatus, OutputFile, OutputStream};

/// The vendor document's error type for an unavailable sandbox.
const UNREACHABLE: &str = "CodeSandboxUnreachable";
/// Limit of a text, and of all lines of a log together: more than a model reads with attention.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// The name of the environment that the code ran in, in the `_meta` of a result.
const ENVIRONMENT_META: &str = "belljar/environment";
const SHORTER: &str = "print less, or write it to a file";
const IMAGES: [&str; 3] = ["image/png", "image/jpeg", "image/svg+xml"];

/// The structured content of `execute_python`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct PythonResult {
    pub(crate) result: Value,
    pub(crate) logs: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<PythonResultError>,
}

#[derive(Debug, Serialize)]
pub(crate) struct PythonResultError {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) stack: String,
}

impl From<&Error> for PythonResultError {
    fn from(error: &Error) -> Self {
        let code = match (&error.exception, &error.code) {
            (Some(exception), _) => exception.clone(),
            (
                None,
                ErrorCode::SandboxUnreachable
                | ErrorCode::CapacityExhausted
                | ErrorCode::DatabaseUnavailable,
            ) => UNREACHABLE.to_owned(),
            (None, code) => code.to_string(),
        };
        let message = match model_hint(error) {
            Some(hint) => format!("{}; {hint}", error.message),
            None => error.message.clone(),
        };
        let stack = error.traceback.clone().unwrap_or_else(|| format!("{code}: {message}\n"));
        Self { code, message, stack }
    }
}

/// A hint for the model that mentions only tools it has here.
fn model_hint(error: &Error) -> Option<&str> {
    match error.code {
        ErrorCode::TimeExceeded => Some("do less in one call, or set a longer `timeout`"),
        ErrorCode::MemoryExceeded => Some("process the data in parts"),
        ErrorCode::SessionBusy => Some("wait a moment and call again"),
        ErrorCode::SessionNotFound | ErrorCode::SessionExpired | ErrorCode::SessionLost => {
            Some("open another one with create_session")
        }
        // Report exceptions as Python does, with a hint only where the cause is not obvious.
        _ => match error.exception.as_deref() {
            None | Some("ModuleNotFoundError") => error.hint.as_deref(),
            Some(_) => None,
        },
    }
}

impl PythonResult {
    pub(crate) fn from_error(error: &Error) -> Self {
        Self { error: Some(error.into()), ..Self::default() }
    }

    /// Builds the result with warnings, truncated to a size that a model can use.
    pub(crate) fn from_execution(record: &Execution) -> Self {
        let mut answer = Self::untruncated(record);
        if let Value::String(result) = &mut answer.result {
            truncate_middle(result);
        }
        truncate_lines(&mut answer.logs);
        let warnings =
            record.warnings.iter().map(|warning| format!("warning: {}", warning.message));
        answer.logs.extend(warnings);
        answer
    }

    /// An assigned or returned value comes before the printed output, which then becomes the log.
    fn untruncated(record: &Execution) -> Self {
        if record.status != ExecutionStatus::Succeeded {
            let missing = || Error::new(ErrorCode::Cancelled, record.status.name());
            let error = record.error.clone().unwrap_or_else(missing);
            return Self { logs: output_lines(record, None), ..Self::from_error(&error) };
        }
        if let Some(result) = execution_value(record) {
            return Self { result, logs: output_lines(record, None), error: None };
        }
        let printed = stream_text(record, OutputStream::Stdout);
        let result = if printed.is_empty() { Value::Null } else { Value::String(printed) };
        Self { result, logs: output_lines(record, Some(OutputStream::Stderr)), error: None }
    }

    pub(crate) fn into_result(self) -> CallToolResult {
        let failed = self.error.is_some();
        let structured = serde_json::to_value(&self).unwrap_or_default();
        let mut result = CallToolResult::success(vec![ContentBlock::text(structured.to_string())]);
        result.structured_content = Some(structured);
        result.is_error = Some(failed);
        result
    }

    pub(crate) fn schema() -> JsonObject {
        let text = |about: &str| json!({"type": "string", "description": about});
        json_object(json!({
            "type": "object",
            "properties": {
                "result": {"description": "What the code bound to `result`, or its last expression, or what it printed."},
                "logs": {"type": "array", "items": {"type": "string"}, "description": "Printed lines that are not the result."},
                "error": {
                    "type": "object",
                    "properties": {
                        "code": text("The exception's class, or what stopped the run."),
                        "message": text("What went wrong."),
                        "stack": text("The traceback."),
                    },
                    "required": ["code", "message", "stack"],
                },
            },
            "required": ["result", "logs"],
        }))
    }
}

/// A tool error without an execution, in the same form.
pub(crate) fn error_result(error: &RequestError) -> CallToolResult {
    PythonResult::from_error(&error.error).into_result()
}

/// The result of a call that never reached an MCP server.
pub fn undelivered_result(error: Error) -> Value {
    serde_json::to_value(error_result(&error.into())).unwrap_or_default()
}

/// Form of a tool result.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ResultFormat {
    /// The form of `execute_python`.
    Python { visuals: bool },
    /// The form of a workspace tool.
    ToolValue,
    /// The form of `code_execution`.
    Code,
}

impl ResultFormat {
    /// The form that the original call would have had.
    pub(crate) fn for_execution(record: &Execution) -> Self {
        match record.tool {
            _ if record.entry == agent::CODE_EXECUTION => Self::Code,
            Some(_) => Self::ToolValue,
            None => Self::Python { visuals: false },
        }
    }

    pub(crate) fn has_visuals(self) -> bool {
        matches!(self, Self::ToolValue | Self::Python { visuals: true })
    }

    /// The result for one caller, for whom `urls` signs the links to files.
    pub(crate) fn render(self, record: &Execution, urls: &FileUrlSigner) -> CallToolResult {
        let mut result = match self {
            Self::Python { visuals } => python_tool_result(record, visuals, urls),
            Self::ToolValue => crate::tools::tool_result(record, urls),
            Self::Code => crate::code_execution::render(record, urls),
        };
        // Beside the result, whose form is that of the vendor document or of the tool.
        if !record.environment.is_empty() {
            let environment = (ENVIRONMENT_META.to_owned(), record.environment.as_str().into());
            result.meta.get_or_insert_default().0.extend([environment]);
        }
        result
    }
}

/// The result of an execution, with links to its files and, if requested, its images.
fn python_tool_result(record: &Execution, visuals: bool, urls: &FileUrlSigner) -> CallToolResult {
    let mut result = PythonResult::from_execution(record).into_result();
    result.content.extend(file_links(record, urls));
    if visuals {
        result.content.extend(record.results.iter().filter_map(image_block));
    }
    result
}

/// Links to the files of an execution that are stored, and of those that it started.
pub(crate) fn file_links(
    record: &Execution,
    urls: &FileUrlSigner,
) -> impl Iterator<Item = ContentBlock> {
    let link = |file: &OutputFile| {
        let asset = FileRef::of_path(file.url.as_deref()?)?;
        let resource = Resource::new(super::resources::file_uri(&asset, urls)?, &file.name)
            .with_mime_type(&file.mime)
            .with_size(file.size);
        Some(ContentBlock::resource_link(resource))
    };
    record.files_out.iter().filter_map(link)
}

pub(crate) fn image_block(rich: &DisplayData) -> Option<ContentBlock> {
    IMAGES.iter().find_map(|mime| {
        let data = rich.data.get(*mime)?.as_str()?;
        match mime.starts_with("image/svg") {
            true => Some(ContentBlock::image(encoded(data), *mime)),
            false => Some(ContentBlock::image(data, *mime)),
        }
    })
}

fn encoded(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// Cuts the middle out of a text that is too long, and marks the cut.
fn truncate_middle(text: &mut String) {
    if text.len() <= TEXT_BYTES_MAX {
        return;
    }
    let head = text.floor_char_boundary(TEXT_BYTES_MAX / 2);
    let tail = text.ceil_char_boundary(text.len() - TEXT_BYTES_MAX / 2);
    let left_out = tail - head;
    text.replace_range(head..tail, &format!("\n[{left_out} bytes left out here: {SHORTER}]\n"));
}

fn truncate_lines(lines: &mut Vec<String>) {
    lines.iter_mut().for_each(truncate_middle);
    let size = |line: &String| line.len() + 1;
    if lines.iter().map(size).sum::<usize>() <= TEXT_BYTES_MAX {
        return;
    }
    let half = |lines: &mut dyn Iterator<Item = &String>| {
        let mut room = TEXT_BYTES_MAX / 2;
        let fits = |line: &&String| room.checked_sub(size(line)).map(|left| room = left).is_some();
        lines.take_while(fits).count()
    };
    let head = half(&mut lines.iter());
    let tail = half(&mut lines[head..].iter().rev());
    let (from, to) = (head, lines.len() - tail);
    let note = format!("[{} lines left out here: {SHORTER}]", to - from);
    lines.splice(from..to, [note]);
}

/// The value as JSON, or else its `repr`.
fn execution_value(record: &Execution) -> Option<Value> {
    let main_result = record.results.iter().find(|rich| rich.main);
    let main_result = main_result.and_then(|rich| rich.data.get("text/plain")).cloned();
    record.value.clone().filter(|value| !value.is_null()).or(main_result)
}

fn stream_text(record: &Execution, stream: OutputStream) -> String {
    let pieces = record.output.iter().filter(|piece| piece.stream == stream);
    let text: String = pieces.map(|piece| piece.text.as_str()).collect();
    text.strip_suffix('\n').map(str::to_owned).unwrap_or(text)
}

fn output_lines(record: &Execution, only: Option<OutputStream>) -> Vec<String> {
    let pieces = record.output.iter().filter(|piece| only.is_none_or(|one| one == piece.stream));
    let text: String = pieces.map(|piece| piece.text.as_str()).collect();
    text.lines().map(str::to_owned).collect()
}

pub(crate) fn json_object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        _ => JsonObject::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_says_how_much_of_it_is_missing_and_a_short_one_is_whole() {
        let mut short = "x".repeat(TEXT_BYTES_MAX);
        truncate_middle(&mut short);
        assert_eq!(short.len(), TEXT_BYTES_MAX);
        let mut long = format!("begin{}end", "\u{e9}".repeat(TEXT_BYTES_MAX));
        truncate_middle(&mut long);
        assert!(long.len() < TEXT_BYTES_MAX + 200);
        assert!(long.starts_with("begin") && long.ends_with("end"));
        assert!(long.contains("bytes left out here"), "{}", &long[..100]);
    }

    #[test]
    fn many_lines_keep_their_beginning_and_their_end() {
        let mut few = vec!["a".to_owned(), "b".to_owned()];
        truncate_lines(&mut few);
        assert_eq!(few, ["a", "b"]);
        let mut many: Vec<String> = (0..100_000).map(|number| number.to_string()).collect();
        truncate_lines(&mut many);
        assert_eq!((many[0].as_str(), many.last().unwrap().as_str()), ("0", "99999"));
        let note = many.iter().position(|line| line.contains("lines left out here")).unwrap();
        let left_out: usize = many[note][1..].split(' ').next().unwrap().parse().unwrap();
        assert_eq!(many.len() - 1 + left_out, 100_000);
    }
}
