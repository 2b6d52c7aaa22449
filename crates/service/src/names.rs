//! Names that people give.

use crate::refused::{Refused, invalid};

const CHARS_MAX: usize = 200;

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
