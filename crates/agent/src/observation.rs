//! The observation of an execution for a model: enough to continue, and never more than it can read.

use crate::numeric_grounding::has_number;
use types::{Error, ErrorCode, Execution, ExecutionStatus, OutputStream};

/// Limit of each stream. The start shows what it is, the end how it ended.
const STREAM_BYTES_MAX: usize = 16 * 1024;
/// Limit of a value, an error or a traceback.
const TEXT_BYTES_MAX: usize = 8 * 1024;

const FILES_MAX: usize = 50;
const NAME_BYTES_MAX: usize = 200;

/// The result of a call as the model sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolOutcome {
    pub(crate) text: String,
    pub(crate) failed: bool,
    /// The error, if the call should have computed something.
    pub(crate) error: Option<Error>,
    /// Whether it returned a number.
    pub(crate) computed: bool,
}

impl ToolOutcome {
    /// A text that needed no execution.
    pub(crate) fn from_text(text: String) -> Self {
        Self { text, failed: false, error: None, computed: false }
    }

    /// A text that says why nothing was run.
    pub(crate) fn invalid_call(code: ErrorCode, text: String) -> Self {
        let error = Some(Error::new(code, text.clone()));
        Self { text, failed: true, error, computed: false }
    }

    /// The failure in one line.
    pub(crate) fn failure_line(&self) -> String {
        match &self.error {
            Some(Error { exception: Some(exception), message, .. }) => {
                format!("{exception}: {message}")
            }
            Some(error) => error.message.clone(),
            None => self.text.clone(),
        }
    }
}

/// The error of an execution. A record without one still has a status.
pub(crate) fn error_of(execution: &Execution) -> Option<Error> {
    let unknown_error = || Error::new(ErrorCode::ExecutionInterrupted, execution.status.name());
    is_failed(execution.status).then(|| execution.error.clone().unwrap_or_else(unknown_error))
}

/// The parts of an execution that the model sees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ExecutionObservation {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Type and message.
    pub(crate) error: Option<String>,
    traceback: Option<String>,
    hint: Option<String>,
    files: Vec<String>,
    value: Option<String>,
}

impl ExecutionObservation {
    pub(crate) fn from_execution(execution: &Execution) -> Self {
        let stream = |stream: OutputStream| -> String {
            let pieces = execution.output.iter().filter(|piece| piece.stream == stream);
            pieces.map(|piece| piece.text.as_str()).collect()
        };
        let mut stdout = stream(OutputStream::Stdout);
        let main_results = execution.results.iter().filter(|result| result.main);
        for text in main_results.filter_map(|result| result.data.get("text/plain")?.as_str()) {
            if !stdout.is_empty() && !stdout.ends_with('\n') {
                stdout.push('\n');
            }
            stdout.push_str(text);
            stdout.push('\n');
        }
        let error = execution.error.as_ref();
        Self {
            stdout: truncate_middle(&stdout, STREAM_BYTES_MAX),
            stderr: truncate_middle(&stream(OutputStream::Stderr), STREAM_BYTES_MAX),
            error: error.map(|error| truncate_middle(&error_line(error), TEXT_BYTES_MAX)),
            traceback: error
                .and_then(|error| error.traceback.as_ref())
                .map(|traceback| truncate_middle(traceback, TEXT_BYTES_MAX)),
            hint: error.and_then(|error| error.hint.clone()),
            files: file_names(execution),
            value: execution
                .value
                .as_ref()
                .map(|value| truncate_middle(&value.to_string(), TEXT_BYTES_MAX)),
        }
    }

    pub(crate) fn from_error(error: &Error) -> Self {
        let (error, hint) =
            (Some(truncate_middle(&error_line(error), TEXT_BYTES_MAX)), error.hint.clone());
        Self { error, hint, ..Self::default() }
    }

    /// Whether the output contains a number.
    pub(crate) fn has_number(&self) -> bool {
        let value = self.value.as_deref().unwrap_or_default();
        self.error.is_none() && (has_number(&self.stdout) || has_number(value))
    }

    /// For code that the model wrote.
    pub(crate) fn text_for_code(&self) -> String {
        let mut parts = String::new();
        let mut part = |name: &str, text: &str| {
            if !text.is_empty() {
                parts.push_str(&format!("{name}:\n{}\n", text.trim_end()));
            }
        };
        part("stdout", &self.stdout);
        part("stderr", &self.stderr);
        match (&self.traceback, &self.error) {
            (Some(traceback), _) => part("error", traceback),
            (None, Some(error)) => part("error", error),
            (None, None) => {}
        }
        part("hint", self.hint.as_deref().unwrap_or_default());
        part("files", &self.files.join(", "));
        if parts.is_empty() { "It ran, and printed nothing.".to_owned() } else { parts }
    }

    /// For a tool, of which only the value counts.
    pub(crate) fn text_for_tool(&self) -> String {
        match (&self.error, &self.value) {
            (None, Some(value)) if self.stdout.is_empty() => value.clone(),
            (None, Some(value)) => format!("{value}\n\nprinted:\n{}", self.stdout.trim_end()),
            _ => self.text_for_code(),
        }
    }

    /// For a tool of an MCP server, whose text and value count both.
    pub(crate) fn text_for_remote_tool(&self) -> String {
        let mut parts = vec![self.stdout.trim_end().to_owned()];
        parts.extend(self.value.clone());
        if !self.files.is_empty() {
            parts.push(format!("files: {}", self.files.join(", ")));
        }
        parts.extend(self.error.clone());
        parts.extend(self.hint.clone());
        parts.retain(|part| !part.is_empty());
        if parts.is_empty() { "It returned nothing.".to_owned() } else { parts.join("\n\n") }
    }
}

/// The result of a CodeRunner tool in the form of a CodeRunner.
pub(crate) fn code_runner_text(execution: &Execution) -> String {
    truncate_middle(&service::code_runner_result(execution).to_string(), TEXT_BYTES_MAX)
}

/// Names of its files. Code chooses their length, so they are limited.
fn file_names(execution: &Execution) -> Vec<String> {
    let files = execution.files_out.iter();
    let mut names: Vec<String> =
        files.take(FILES_MAX).map(|file| truncate_middle(&file.name, NAME_BYTES_MAX)).collect();
    let more = execution.files_out.len().saturating_sub(FILES_MAX);
    names.extend((more > 0).then(|| format!("and {more} more")));
    names
}

fn error_line(error: &Error) -> String {
    match &error.exception {
        Some(exception) => format!("{exception}: {}", error.message),
        None => format!("{}: {}", error.code, error.message),
    }
}

pub(crate) fn is_failed(status: ExecutionStatus) -> bool {
    status != ExecutionStatus::Succeeded
}

/// Keeps the start and the end of a long text.
pub(crate) fn truncate_middle(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(most / 2);
    let tail = text.ceil_char_boundary(text.len() - most / 2);
    let left_out = tail - head;
    format!("{}\n[{left_out} bytes are left out here]\n{}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_long_keeps_its_beginning_and_its_end() {
        let text = format!("first{}last", "é".repeat(10_000));
        let truncated = truncate_middle(&text, 100);
        assert!(truncated.starts_with("first") && truncated.ends_with("last"), "{truncated}");
        assert!(truncated.contains("bytes are left out") && truncated.len() < 200);
        assert_eq!(truncate_middle("as it is", 100), "as it is");
    }
}
