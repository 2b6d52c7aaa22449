//! Errors of a text, with their place.

/// A place in a text: line and column, in characters, counted from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    pub line: u64,
    pub column: u64,
}

impl Position {
    pub(crate) const START: Self = Self { line: 1, column: 1 };
}

/// The first error of a text. It repeats no string of the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {}, column {}: {message}", position.line, position.column)]
pub struct StatementError {
    pub position: Position,
    pub message: String,
    pub hint: Option<String>,
}

impl StatementError {
    pub(crate) fn new(position: Position, message: impl Into<String>) -> Self {
        Self { position, message: message.into(), hint: None }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}
