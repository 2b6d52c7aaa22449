//! Diagnostics of a tool, in the style of a compiler: what is wrong, where, and how to fix it.

use crate::source::{PythonSource, Span};
use serde::Serialize;
use types::ErrorCode;

/// More would not be read, and a source of a megabyte can have a hundred thousand.
const DIAGNOSTICS_MAX: usize = 100;

/// One error or warning of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    pub code: ErrorCode,
    pub message: String,
    /// In the Python source.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub place: Option<SourceLocation>,
    /// In the JSON of the tool, as `$.configuration.input_schema[0].field_type`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// A position in source text, counted from one, in lines and characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceLocation {
    pub line: usize,
    pub column: usize,
    /// In characters, on this line.
    pub width: usize,
    /// The source line.
    #[serde(rename = "source_line")]
    pub text: String,
}

impl Diagnostic {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), place: None, path: None, hint: None }
    }

    pub(crate) fn with_location(mut self, place: SourceLocation) -> Self {
        self.place = Some(place);
        self
    }

    pub(crate) fn with_json_path(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Either the parsed value or all errors, and in both cases the warnings.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceCheck<T> {
    pub result: Result<T, Vec<Diagnostic>>,
    pub warnings: Vec<Diagnostic>,
}

/// An error or a warning before its position is computed.
#[derive(Debug)]
pub(crate) struct UnlocatedDiagnostic {
    code: ErrorCode,
    message: String,
    span: Option<Span>,
    hint: Option<String>,
}

impl UnlocatedDiagnostic {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), span: None, hint: None }
    }

    pub(crate) fn with_span(mut self, span: Span) -> Self {
        self.span = Some(span);
        self
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    fn locate(self, source: &PythonSource) -> Diagnostic {
        let place = self.span.map(|span| source.location(span));
        Diagnostic { code: self.code, message: self.message, place, path: None, hint: self.hint }
    }
}

/// Collects errors and warnings of a source.
#[derive(Debug, Default)]
pub(crate) struct DiagnosticCollector {
    pub(crate) errors: Vec<UnlocatedDiagnostic>,
    pub(crate) warnings: Vec<UnlocatedDiagnostic>,
}

impl DiagnosticCollector {
    /// Returns the value only if there are no errors.
    pub(crate) fn finish<T>(self, source: &PythonSource, value: Option<T>) -> SourceCheck<T> {
        let warnings = locate_all(self.warnings, source);
        let outcome = match value {
            Some(value) if self.errors.is_empty() => Ok(value),
            _ => Err(locate_all(self.errors, source)),
        };
        SourceCheck { result: outcome, warnings }
    }
}

fn locate_all(mut findings: Vec<UnlocatedDiagnostic>, source: &PythonSource) -> Vec<Diagnostic> {
    findings.sort_by_key(|finding| finding.span);
    truncate_diagnostics(findings, |finding| finding.locate(source))
}

/// Limits the number of diagnostics, and reports how many are omitted.
pub(crate) fn truncate_diagnostics<T>(
    all: Vec<T>,
    problem: impl Fn(T) -> Diagnostic,
) -> Vec<Diagnostic> {
    let more = all.len().saturating_sub(DIAGNOSTICS_MAX);
    let mut all = all.into_iter().map(problem);
    let mut shown: Vec<Diagnostic> = all.by_ref().take(DIAGNOSTICS_MAX).collect();
    shown.extend(
        all.next().map(|next| Diagnostic::new(next.code, format!("{more} more are not shown"))),
    );
    shown
}
