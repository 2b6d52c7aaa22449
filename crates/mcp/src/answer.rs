//! What a run is answered with: a compact result, whatever became of it.

use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Resource};
use serde::Serialize;
use serde_json::{Value, json};
use service::Refused;
use types::{Code, Execution, Fault, FileOut, Rich, Status, Stream};

/// What the seed calls a sandbox that cannot be had.
const UNREACHABLE: &str = "CodeSandboxUnreachable";
/// Of a text, and of all lines of a log together: more than a model reads with attention.
const TEXT_BYTES_MAX: usize = 64 * 1024;
const SHORTER: &str = "print less, or write it to a file";
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
            (None, Code::SandboxUnreachable | Code::CapacityExhausted | Code::StoreUnavailable) => {
                UNREACHABLE.to_owned()
            }
            (None, code) => code.to_string(),
        };
        let message = match hint(fault) {
            Some(hint) => format!("{}; {hint}", fault.message),
            None => fault.message.clone(),
        };
        let stack = fault.traceback.clone().unwrap_or_else(|| format!("{code}: {message}\n"));
        Self { code, message, stack }
    }
}

/// What a model can do about it with the tools that it has here.
fn hint(fault: &Fault) -> Option<&str> {
    match fault.code {
        Code::TimeExceeded => Some("do less at once, or give more seconds in `timeout`"),
        Code::MemoryExceeded => Some("use less memory: read and work through the data in parts"),
        Code::SessionBusy => Some("wait a moment, and call again"),
        Code::SessionNotFound | Code::SessionExpired | Code::SessionLost => {
            Some("open another one with create_session")
        }
        // An exception is told as Python tells it, but for what nobody could guess.
        _ => match fault.exception.as_deref() {
            None | Some("ModuleNotFoundError") => fault.hint.as_deref(),
            Some(_) => None,
        },
    }
}

impl Answer {
    pub(crate) fn failed(fault: &Fault) -> Self {
        Self { error: Some(fault.into()), ..Self::default() }
    }

    /// With what should be known besides, and no longer than a model can use.
    pub(crate) fn of(record: &Execution) -> Self {
        let mut answer = Self::whole(record);
        if let Value::String(result) = &mut answer.result {
            shorten(result);
        }
        shorten_lines(&mut answer.logs);
        let warnings =
            record.warnings.iter().map(|warning| format!("warning: {}", warning.message));
        answer.logs.extend(warnings);
        answer
    }

    /// What was assigned or returned goes before what was printed, which is a log then.
    fn whole(record: &Execution) -> Self {
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

/// The result of a call that never came to a door.
pub fn undelivered(fault: Fault) -> Value {
    serde_json::to_value(refused(&fault.into())).unwrap_or_default()
}

/// How a record is told to whoever has called.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shown {
    /// As `execute_python` does.
    Answer { visuals: bool },
    /// As a tool of the workspace does.
    Value,
    /// As `code_execution` does.
    Code,
}

impl Shown {
    /// As the call would have been answered.
    pub(crate) fn of(record: &Execution) -> Self {
        match record.tool {
            _ if record.entry == agent::CODE_EXECUTION => Self::Code,
            Some(_) => Self::Value,
            None => Self::Answer { visuals: false },
        }
    }

    pub(crate) fn has_visuals(self) -> bool {
        matches!(self, Self::Value | Self::Answer { visuals: true })
    }

    pub(crate) fn show(self, record: &Execution) -> CallToolResult {
        match self {
            Self::Answer { visuals } => answered(record, visuals),
            Self::Value => crate::tools::returned(record),
            Self::Code => crate::code::show(record),
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

/// Takes the middle out of a text that is too long, and says so.
fn shorten(text: &mut String) {
    if text.len() <= TEXT_BYTES_MAX {
        return;
    }
    let head = text.floor_char_boundary(TEXT_BYTES_MAX / 2);
    let tail = text.ceil_char_boundary(text.len() - TEXT_BYTES_MAX / 2);
    let left_out = tail - head;
    text.replace_range(head..tail, &format!("\n[{left_out} bytes left out here: {SHORTER}]\n"));
}

fn shorten_lines(lines: &mut Vec<String>) {
    lines.iter_mut().for_each(shorten);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_says_how_much_of_it_is_missing_and_a_short_one_is_whole() {
        let mut short = "x".repeat(TEXT_BYTES_MAX);
        shorten(&mut short);
        assert_eq!(short.len(), TEXT_BYTES_MAX);
        let mut long = format!("begin{}end", "\u{e9}".repeat(TEXT_BYTES_MAX));
        shorten(&mut long);
        assert!(long.len() < TEXT_BYTES_MAX + 200);
        assert!(long.starts_with("begin") && long.ends_with("end"));
        assert!(long.contains("bytes left out here"), "{}", &long[..100]);
    }

    #[test]
    fn many_lines_keep_their_beginning_and_their_end() {
        let mut few = vec!["a".to_owned(), "b".to_owned()];
        shorten_lines(&mut few);
        assert_eq!(few, ["a", "b"]);
        let mut many: Vec<String> = (0..100_000).map(|number| number.to_string()).collect();
        shorten_lines(&mut many);
        assert_eq!((many[0].as_str(), many.last().unwrap().as_str()), ("0", "99999"));
        let note = many.iter().position(|line| line.contains("lines left out here")).unwrap();
        let left_out: usize = many[note][1..].split(' ').next().unwrap().parse().unwrap();
        assert_eq!(many.len() - 1 + left_out, 100_000);
    }
}
