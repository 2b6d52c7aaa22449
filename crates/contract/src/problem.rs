//! What is wrong with a tool, told in the manner of a good compiler: what, where, and what to do.

use crate::source::{Source, Span};
use serde::Serialize;
use types::Code;

/// Nobody reads more, and a source of a megabyte can have a hundred thousand.
const SHOWN_MAX: usize = 100;

/// One error or warning of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub code: Code,
    pub message: String,
    /// In the Python source.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// In the JSON of the tool, as `$.configuration.input_schema[0].field_type`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// A place in source text, counted from one, in lines and characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    pub line: usize,
    pub column: usize,
    /// In characters, on this line.
    pub width: usize,
    /// The line itself.
    #[serde(rename = "source_line")]
    pub text: String,
}

impl Problem {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), place: None, path: None, hint: None }
    }

    pub(crate) fn at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    pub(crate) fn in_json(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Either what was read or everything that is wrong with it, and in both cases what is odd about
/// it.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked<T> {
    pub outcome: Result<T, Vec<Problem>>,
    pub warnings: Vec<Problem>,
}

/// An error or a warning before its place is looked up.
#[derive(Debug)]
pub(crate) struct Finding {
    code: Code,
    message: String,
    span: Option<Span>,
    hint: Option<String>,
}

impl Finding {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), span: None, hint: None }
    }

    pub(crate) fn at(mut self, span: Span) -> Self {
        self.span = Some(span);
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    fn placed(self, source: &Source) -> Problem {
        let place = self.span.map(|span| source.place(span));
        Problem { code: self.code, message: self.message, place, path: None, hint: self.hint }
    }
}

/// Errors and warnings of a source, as they are found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) errors: Vec<Finding>,
    pub(crate) warnings: Vec<Finding>,
}

impl Findings {
    /// The value stands only if nothing was wrong.
    pub(crate) fn conclude<T>(self, source: &Source, value: Option<T>) -> Checked<T> {
        let warnings = placed(self.warnings, source);
        let outcome = match value {
            Some(value) if self.errors.is_empty() => Ok(value),
            _ => Err(placed(self.errors, source)),
        };
        Checked { outcome, warnings }
    }
}

fn placed(mut findings: Vec<Finding>, source: &Source) -> Vec<Problem> {
    findings.sort_by_key(|finding| finding.span);
    shown(findings, |finding| finding.placed(source))
}

/// As many as anybody reads, and how many are left.
pub(crate) fn shown<T>(all: Vec<T>, problem: impl Fn(T) -> Problem) -> Vec<Problem> {
    let more = all.len().saturating_sub(SHOWN_MAX);
    let mut all = all.into_iter().map(problem);
    let mut shown: Vec<Problem> = all.by_ref().take(SHOWN_MAX).collect();
    shown.extend(
        all.next().map(|next| Problem::new(next.code, format!("{more} more are not shown"))),
    );
    shown
}
