//! Names that people give, and what they say of a thing.

use crate::refused::{Refused, invalid};

const CHARS_MAX: usize = 200;
const COMMENT_CHARS_MAX: usize = 1_000;

/// One line of text, not empty and not too long.
pub(crate) fn check(path: &str, name: &str) -> Result<(), Refused> {
    let long = name.chars().count() > CHARS_MAX;
    if name.trim().is_empty() || long {
        return Err(invalid(path, format!("has from 1 to {CHARS_MAX} characters")));
    }
    if name.chars().any(char::is_control) {
        return Err(invalid(path, "has a control character"));
    }
    Ok(())
}

/// The comment, if it is not too long.
pub(crate) fn comment(comment: Option<String>) -> Result<Option<String>, Refused> {
    match &comment {
        Some(text) if text.chars().count() > COMMENT_CHARS_MAX => {
            Err(invalid("/comment", format!("has at most {COMMENT_CHARS_MAX} characters")))
        }
        _ => Ok(comment),
    }
}
