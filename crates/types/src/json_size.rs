//! Upper bounds of the memory and depth that JSON text would have as a tree, computed before it is
//! parsed.
//!
//! A tree takes up to two hundred times the memory of its text. One pass over the bytes, which allocates
//! nothing, computes what parsing would take.

use serde_json::Value;

/// Memory of an entry of an object: its value, its name and its hash.
const ENTRY_BYTES: usize = size_of::<Value>() + size_of::<String>() + size_of::<u64>();
/// Elements that the first allocation of a list or an object has room for.
const FIRST_ROOM: usize = 4;
/// Memory of the hash table of a small object, as an upper bound.
const TABLE_BYTES: usize = 64;
/// Memory that a text has besides its bytes: the bookkeeping of the allocator.
const TEXT_BYTES: usize = 32;

/// Depth and memory of a JSON text as a tree, both as upper bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonSize {
    pub depth: usize,
    pub memory_bytes: usize,
}

impl JsonSize {
    /// Measures a text that is valid JSON. For any other text the result has no meaning.
    pub fn measure(json: &str) -> Self {
        let mut depth = 0_usize;
        // The open lists and objects, the innermost in the lowest bit: 1 for an object. Nesting deeper
        // than 128 bits is too deep in any case.
        let mut open = 0_u128;
        let mut size = Self { depth: 0, memory_bytes: size_of::<Value>() + json.len() };
        let mut bytes = json.bytes();
        while let Some(byte) = bytes.next() {
            let takes = match byte {
                b'"' => {
                    skip_text(&mut bytes);
                    TEXT_BYTES
                }
                b'[' | b'{' => {
                    depth += 1;
                    size.depth = size.depth.max(depth);
                    open = open << 1 | u128::from(byte == b'{');
                    if byte == b'[' {
                        FIRST_ROOM * size_of::<Value>()
                    } else {
                        FIRST_ROOM * ENTRY_BYTES + TABLE_BYTES
                    }
                }
                b']' | b'}' => {
                    depth = depth.saturating_sub(1);
                    open >>= 1;
                    0
                }
                // Room grows by doubling, so that up to half of it is empty.
                b',' if open & 1 == 0 => 2 * size_of::<Value>(),
                b',' => 2 * ENTRY_BYTES,
                _ => 0,
            };
            size.memory_bytes = size.memory_bytes.saturating_add(takes);
        }
        size
    }
}

/// Skips to the end of a string whose opening quote was read.
fn skip_text(bytes: &mut std::str::Bytes<'_>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory that a value takes here, as it was allocated.
    fn taken(value: &Value) -> usize {
        let content = match value {
            Value::String(text) => text.capacity(),
            Value::Array(items) => {
                let spare = items.capacity() - items.len();
                spare * size_of::<Value>() + items.iter().map(taken).sum::<usize>()
            }
            Value::Object(fields) => {
                let field = |(name, value): (&String, &Value)| {
                    size_of::<String>() + size_of::<u64>() + name.capacity() + taken(value)
                };
                fields.iter().map(field).sum()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        };
        size_of::<Value>() + content
    }

    #[test]
    fn a_measured_size_is_never_less_than_the_tree_takes() {
        let rows = |row: &str| format!("[{}]", vec![row; 1_000].join(","));
        for json in [
            "1".to_owned(),
            "\"a\\\"[[[{,,\"".to_owned(),
            rows("1"),
            rows("[]"),
            rows("[1]"),
            rows("{}"),
            rows(r#"{"a":1}"#),
            rows(r#"{"a":"b","c":[1,2,3,4,5]}"#),
            rows(r#""text with [ and { and , in it""#),
        ] {
            let value: Value = serde_json::from_str(&json).unwrap();
            let size = JsonSize::measure(&json);
            let begins: String = json.chars().take(40).collect();
            assert!(size.memory_bytes >= taken(&value), "{begins}: {size:?}");
            assert!(size.memory_bytes <= 16 * taken(&value), "{begins}: {size:?}");
        }
    }

    #[test]
    fn depth_counts_lists_and_objects_and_nothing_in_texts() {
        assert_eq!(JsonSize::measure("1").depth, 0);
        assert_eq!(JsonSize::measure(r#"{"a":[{"[[[":"{\"{"}],"b":[]}"#).depth, 3);
        let deep = "[".repeat(5_000) + &"]".repeat(5_000);
        assert_eq!(JsonSize::measure(&deep).depth, 5_000);
        // Not JSON, and still an answer.
        assert_eq!(JsonSize::measure("]]]\"\\").depth, 0);
    }
}
