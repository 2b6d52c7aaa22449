//! The size of a JSON value in memory, which is many times that of its text.

use serde_json::Value;
use std::mem::size_of;

/// An entry of a map beside its name and its value: the hash, the header of the name, the index.
const ENTRY_BYTES: usize = 48;

/// The number of values in a value, with itself.
pub(crate) fn count_values(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count_values).sum(),
        Value::Object(members) => members.values().map(count_values).sum(),
        _ => 0,
    }
}

/// Estimates the memory of a value in bytes.
pub(crate) fn value_memory(value: &Value) -> usize {
    let inner: usize = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(value_memory).sum(),
        Value::Object(members) => {
            let entry =
                |(name, value): (&String, &Value)| ENTRY_BYTES + name.len() + value_memory(value);
            members.iter().map(entry).sum()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    size_of::<Value>() + inner
}
