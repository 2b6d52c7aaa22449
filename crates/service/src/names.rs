//! Checks of the names and comments of objects.

use crate::error::{RequestError, invalid_field};

const CHARS_MAX: usize = 200;
const COMMENT_CHARS_MAX: usize = 1_000;

/// Checks that a name is one line, not empty and not too long.
pub(crate) fn check_name(path: &str, name: &str) -> Result<(), RequestError> {
    let long = name.chars().count() > CHARS_MAX;
    if name.trim().is_empty() || long {
        return Err(invalid_field(path, format!("must have 1 to {CHARS_MAX} characters")));
    }
    if name.chars().any(char::is_control) {
        return Err(invalid_field(path, "must not contain control characters"));
    }
    Ok(())
}

/// Checks the length of a comment.
pub(crate) fn check_comment(comment: Option<String>) -> Result<Option<String>, RequestError> {
    match &comment {
        Some(text) if text.chars().count() > COMMENT_CHARS_MAX => Err(invalid_field(
            "/comment",
            format!("can have at most {COMMENT_CHARS_MAX} characters"),
        )),
        _ => Ok(comment),
    }
}
