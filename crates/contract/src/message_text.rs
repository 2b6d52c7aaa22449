//! Texts of values, names and lists in messages, which are short however large the values are.

use serde_json::Value;
use std::fmt::{self, Display, Write};

/// Maximum length of a found value in a message: the error shows in its beginning.
const FOUND_CHARS_MAX: usize = 60;
/// Maximum length of a name, or of a constant of a schema, in a message.
const SHOWN_CHARS_MAX: usize = 200;
/// Maximum number of choices and names in a message; a reader finds the right one in the schema.
const LISTED_MAX: usize = 50;
/// A model reads the message and pays for it; argument names can be as long as the arguments.
const MESSAGE_CHARS_MAX: usize = 4000;

/// Keeps the beginning of what is written, and stops the writer there.
struct TextStart {
    text: String,
    chars_left: usize,
}

impl Write for TextStart {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        match part.char_indices().nth(self.chars_left) {
            None => {
                self.chars_left -= part.chars().count();
                self.text.push_str(part);
                Ok(())
            }
            Some((at, _)) => {
                self.text.push_str(part.get(..at).unwrap_or_default());
                self.text.push('…');
                Err(fmt::Error)
            }
        }
    }
}

fn truncate_text(shown: impl Display, chars_max: usize) -> String {
    let mut start = TextStart { text: String::new(), chars_left: chars_max };
    // An error says that the text is complete.
    let _ = write!(start, "{shown}");
    start.text
}

/// Truncates a message to a readable length.
pub(crate) fn truncate_message(text: &str) -> String {
    truncate_text(text, MESSAGE_CHARS_MAX)
}

/// Truncates a name, or a constant of a schema, without writing the rest of it.
pub(crate) fn truncate_shown(shown: impl Display) -> String {
    truncate_text(shown, SHOWN_CHARS_MAX)
}

/// Joins the first names or constants of a list.
pub(crate) fn join_shown<T: Display>(shown: impl IntoIterator<Item = T>) -> String {
    let mut shown = shown.into_iter();
    let mut texts: Vec<String> = shown.by_ref().take(LISTED_MAX).map(truncate_shown).collect();
    texts.extend(shown.next().map(|_| "…".to_owned()));
    texts.join(", ")
}

pub(crate) fn json_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The type of a value, and the beginning of a scalar.
pub(crate) fn describe_value(value: &Value) -> String {
    if matches!(value, Value::Null | Value::Array(_) | Value::Object(_)) {
        return json_type_name(value).to_owned();
    }
    format!("{} {}", json_type_name(value), truncate_text(value, FOUND_CHARS_MAX))
}
