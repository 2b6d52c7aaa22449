//! What a run is answered with: a compact result, whatever became of it.

use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Resource};
use serde::Serialize;
use serde_json::{Value, json};
use service::Refused;
use types::{Code, Execution, Fault, FileOut, Rich, Status, Stream};

/// What the seed calls a sandbox that cannot be had.
const UNREACHABLE: &str = "CodeSandboxUnreachable";
const IMAGES: [&str; 3] = ["image/png", "image/jpeg", "image/svg+xml"];

/// The structured content of `execute_python`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Answer {
    pub(crate) result: Value,
    pub(crate) logs: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Failure>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Failure {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) stack: String,
}

impl From<&Fault> for Failure {
    fn from(fault: &Fault) -> Self {
        let code = match (&fault.exception, &fault.code) {
            (Some(exception), _) => exception.clone(),
            (
                None,
                Code::SandboxUnreachable
                | Code::SandboxCrashed
                | Code::CapacityExhausted
                | Code::StoreUnavailable,
            ) => UNREACHABLE.to_owned(),
            (None, code) => code.to_string(),
        };
        // An exception is told as Python tells it.
        let message = match (&fault.exception, &fault.hint) {
            (None, Some(hint)) => format!("{}; {hint}", fault.message),
            _ => fault.message.clone(),
        };
        let stack = fault.traceback.clone().unwrap_or_else(|| format!("{code}: {message}\n"));
        Self { code, message, stack }
    }
}

impl Answer {
    pub(crate) fn failed(fault: &Fault) -> Self {
        Self { error: Some(fault.into()), ..Self::default() }
    }

    /// What was assigned or returned goes before what was printed, which is a log then.
    pub(crate) fn of(record: &Execution) -> Self {
        if record.status != Status::Succeeded {
            let missing = || Fault::new(Code::Cancelled, record.status.name());
            let fault = record.error.clone().unwrap_or_else(missing);
            return Self { logs: lines(record, None), ..Self::failed(&fault) };
        }
        if let Some(result) = value(record) {
            return Self { result, logs: lines(record, None), error: None };
        }
        let printed = text(record, Stream::Stdout);
        let result = if printed.is_empty() { Value::Null } else { Value::String(printed) };
        Self { result, logs: lines(record, Some(Stream::Stderr)), error: None }
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
        object(json!({
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

/// A tool error that is no run: it is told in the same form.
pub(crate) fn refused(refused: &Refused) -> CallToolResult {
    Answer::failed(&refused.fault).into_result()
}

/// How a record is told to whoever has called.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shown {
    /// As `execute_python` does.
    Answer { visuals: bool },
    /// As a tool of the workspace does.
    Value,
}

impl Shown {
    pub(crate) fn show(self, record: &Execution) -> CallToolResult {
        match self {
            Self::Answer { visuals } => answered(record, visuals),
            Self::Value => crate::tools::returned(record),
        }
    }
}

/// The answer to a run, with links to its files and, if they were asked for, its images.
fn answered(record: &Execution, visuals: bool) -> CallToolResult {
    let mut result = Answer::of(record).into_result();
    result.content.extend(files(record));
    if visuals {
        result.content.extend(record.results.iter().filter_map(image));
    }
    result
}

pub(crate) fn files(record: &Execution) -> impl Iterator<Item = ContentBlock> {
    let link = |file: &FileOut| {
        let resource = Resource::new(super::resources::uri(record.id, &file.name), &file.name)
            .with_mime_type(&file.mime)
            .with_size(file.size);
        ContentBlock::resource_link(resource)
    };
    // A file without an address was not kept.
    record.files_out.iter().filter(|file| file.url.is_some()).map(link)
}

pub(crate) fn image(rich: &Rich) -> Option<ContentBlock> {
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

/// The value as JSON, or else as Python shows it.
fn value(record: &Execution) -> Option<Value> {
    let shown = record.results.iter().find(|rich| rich.main);
    let shown = shown.and_then(|rich| rich.data.get("text/plain")).cloned();
    record.value.clone().filter(|value| !value.is_null()).or(shown)
}

fn text(record: &Execution, stream: Stream) -> String {
    let pieces = record.output.iter().filter(|piece| piece.stream == stream);
    let text: String = pieces.map(|piece| piece.text.as_str()).collect();
    text.strip_suffix('\n').map(str::to_owned).unwrap_or(text)
}

fn lines(record: &Execution, only: Option<Stream>) -> Vec<String> {
    let pieces = record.output.iter().filter(|piece| only.is_none_or(|one| one == piece.stream));
    let text: String = pieces.map(|piece| piece.text.as_str()).collect();
    text.lines().map(str::to_owned).collect()
}

pub(crate) fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        _ => JsonObject::default(),
    }
}
