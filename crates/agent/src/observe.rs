//! What a model is told of an execution: enough to go on with, and never more than it can read.

use crate::ground::has_number;
use types::{Code, Execution, Fault, Status, Stream};

/// Of each stream. The beginning tells what it is, the end how it ended.
const STREAM_BYTES_MAX: usize = 16 * 1024;
/// Of a value, an error or a traceback.
const TEXT_BYTES_MAX: usize = 8 * 1024;

const FILES_MAX: usize = 50;
const NAME_BYTES_MAX: usize = 200;

/// What a model is told of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) text: String,
    pub(crate) failed: bool,
    /// What it failed with, if it should have computed something.
    pub(crate) fault: Option<Fault>,
    /// Whether it gave a number.
    pub(crate) computed: bool,
}

impl Told {
    /// Words that nothing had to be run for.
    pub(crate) fn words(text: String) -> Self {
        Self { text, failed: false, fault: None, computed: false }
    }

    /// Words that say why nothing was run.
    pub(crate) fn wrong(code: Code, text: String) -> Self {
        let fault = Some(Fault::new(code, text.clone()));
        Self { text, failed: true, fault, computed: false }
    }

    /// How it failed, in one line.
    pub(crate) fn failure(&self) -> String {
        match &self.fault {
            Some(Fault { exception: Some(exception), message, .. }) => {
                format!("{exception}: {message}")
            }
            Some(fault) => fault.message.clone(),
            None => self.text.clone(),
        }
    }
}

/// What it failed with. A record that does not say so has a status all the same.
pub(crate) fn fault_of(execution: &Execution) -> Option<Fault> {
    let unsaid = || Fault::new(Code::ExecutionInterrupted, execution.status.name());
    failed(execution.status).then(|| execution.error.clone().unwrap_or_else(unsaid))
}

/// The parts of an execution that are shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// The type and the message.
    pub(crate) error: Option<String>,
    traceback: Option<String>,
    hint: Option<String>,
    files: Vec<String>,
    value: Option<String>,
}

impl Observed {
    pub(crate) fn of(execution: &Execution) -> Self {
        let stream = |stream: Stream| -> String {
            let pieces = execution.output.iter().filter(|piece| piece.stream == stream);
            pieces.map(|piece| piece.text.as_str()).collect()
        };
        let mut stdout = stream(Stream::Stdout);
        let shown = execution.results.iter().filter(|result| result.main);
        for text in shown.filter_map(|result| result.data.get("text/plain")?.as_str()) {
            if !stdout.is_empty() && !stdout.ends_with('\n') {
                stdout.push('\n');
            }
            stdout.push_str(text);
            stdout.push('\n');
        }
        let error = execution.error.as_ref();
        Self {
            stdout: short(&stdout, STREAM_BYTES_MAX),
            stderr: short(&stream(Stream::Stderr), STREAM_BYTES_MAX),
            error: error.map(|fault| short(&named(fault), TEXT_BYTES_MAX)),
            traceback: error
                .and_then(|fault| fault.traceback.as_ref())
                .map(|traceback| short(traceback, TEXT_BYTES_MAX)),
            hint: error.and_then(|fault| fault.hint.clone()),
            files: names(execution),
            value: execution.value.as_ref().map(|value| short(&value.to_string(), TEXT_BYTES_MAX)),
        }
    }

    pub(crate) fn refused(fault: &Fault) -> Self {
        let (error, hint) = (Some(short(&named(fault), TEXT_BYTES_MAX)), fault.hint.clone());
        Self { error, hint, ..Self::default() }
    }

    /// Whether something came back that a number can be read from.
    pub(crate) fn has_number(&self) -> bool {
        let value = self.value.as_deref().unwrap_or_default();
        self.error.is_none() && (has_number(&self.stdout) || has_number(value))
    }

    /// For code that the model wrote itself.
    pub(crate) fn of_code(&self) -> String {
        let mut said = String::new();
        let mut part = |name: &str, text: &str| {
            if !text.is_empty() {
                said.push_str(&format!("{name}:\n{}\n", text.trim_end()));
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
        if said.is_empty() { "It ran, and printed nothing.".to_owned() } else { said }
    }

    /// For a tool, whose value is what counts.
    pub(crate) fn of_tool(&self) -> String {
        match (&self.error, &self.value) {
            (None, Some(value)) if self.stdout.is_empty() => value.clone(),
            (None, Some(value)) => format!("{value}\n\nprinted:\n{}", self.stdout.trim_end()),
            _ => self.of_code(),
        }
    }
}

/// Of the files that it made; a name is as long as code wants it to be.
fn names(execution: &Execution) -> Vec<String> {
    let files = execution.files_out.iter();
    let mut names: Vec<String> =
        files.take(FILES_MAX).map(|file| short(&file.name, NAME_BYTES_MAX)).collect();
    let more = execution.files_out.len().saturating_sub(FILES_MAX);
    names.extend((more > 0).then(|| format!("and {more} more")));
    names
}

fn named(fault: &Fault) -> String {
    match &fault.exception {
        Some(exception) => format!("{exception}: {}", fault.message),
        None => format!("{}: {}", fault.code, fault.message),
    }
}

pub(crate) fn failed(status: Status) -> bool {
    status != Status::Succeeded
}

/// The beginning and the end of what is long.
fn short(text: &str, most: usize) -> String {
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
        let told = short(&text, 100);
        assert!(told.starts_with("first") && told.ends_with("last"), "{told}");
        assert!(told.contains("bytes are left out") && told.len() < 200);
        assert_eq!(short("as it is", 100), "as it is");
    }
}
