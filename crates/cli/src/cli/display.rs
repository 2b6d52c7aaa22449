//! Formats responses of a server for people: lists as tables, single objects as fields.
//!
//! The text comes from other users. It cannot start a line of its own or control the terminal.

use super::CliError;
use super::one_shot::print_record;
use super::terminal::sanitize_plain;
use serde_json::Value;

/// Title of a column, and the JSON pointer of its value.
pub(super) type Column = (&'static str, &'static str);

/// Maximum width of a cell; `show` prints longer texts.
const CELL_CHARS_MAX: usize = 60;
const MARGIN: &str = "    ";

pub(super) fn print_table(items: &[Value], columns: &[Column]) -> Result<(), CliError> {
    if items.is_empty() {
        eprintln!("belljar: no entries");
        return Ok(());
    }
    let titles = columns.iter().map(|(title, _)| title.to_uppercase()).collect();
    let rows = items.iter().map(|item| format_cells(item, columns));
    let rows: Vec<Vec<String>> = std::iter::once(titles).chain(rows).collect();
    print_record(&align_columns(&rows))
}

/// One row of a table that is printed while it grows.
pub(super) fn format_row(item: &Value, columns: &[Column]) -> String {
    format_cells(item, columns).join("  ")
}

fn format_cells(item: &Value, columns: &[Column]) -> Vec<String> {
    columns.iter().map(|(_, pointer)| format_cell(item.pointer(pointer))).collect()
}

/// Pads each column to its longest cell, and omits empty columns.
pub(super) fn align_columns(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).filter(|(_, width)| **width > 0);
        let cells = cells.map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A value on one line, shortened to a readable length.
fn format_cell(value: Option<&Value>) -> String {
    let text = match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) => {
            items.iter().map(|item| format_cell(Some(item))).collect::<Vec<_>>().join(", ")
        }
        Some(other) => other.to_string(),
    };
    let line = sanitize_plain(&text.split_whitespace().collect::<Vec<_>>().join(" "));
    if line.chars().count() <= CELL_CHARS_MAX {
        return line;
    }
    line.chars().take(CELL_CHARS_MAX - 1).chain(['…']).collect()
}

/// Prints one object: a line for each field, and longer values below the name of their field.
pub(super) fn print_fields(value: &Value) -> Result<(), CliError> {
    let mut lines = Vec::new();
    match value {
        Value::Object(_) | Value::Array(_) => push_nested(value, "", &mut lines),
        value => lines.push(format_cell(Some(value))),
    }
    print_record(&lines.join("\n"))
}

fn push_nested(value: &Value, margin: &str, lines: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| push_field(name, value, margin, lines));
        }
        Value::Array(items) => {
            let numbered = items.iter().zip(1..);
            numbered
                .for_each(|(item, number)| push_field(&format!("{number}"), item, margin, lines));
        }
        Value::String(text) => {
            lines.extend(sanitize_plain(text).lines().map(|line| format!("{margin}{line}")));
        }
        other => lines.push(format!("{margin}{other}")),
    }
}

fn push_field(name: &str, value: &Value, margin: &str, lines: &mut Vec<String>) {
    let name = sanitize_plain(&name.replace('\n', " "));
    let short = match value {
        Value::Object(fields) => fields.is_empty().then(|| "{}".to_owned()),
        Value::Array(items) => items.is_empty().then(|| "[]".to_owned()),
        Value::String(text) => (!text.contains('\n')).then(|| sanitize_plain(text)),
        other => Some(other.to_string()),
    };
    match short {
        Some(text) => lines.push(format!("{margin}{name}: {text}")),
        None => {
            lines.push(format!("{margin}{name}:"));
            push_nested(value, &format!("{margin}{MARGIN}"), lines);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn display_value(value: &Value) -> String {
        let mut lines = Vec::new();
        push_nested(value, "", &mut lines);
        lines.join("\n")
    }

    #[test]
    fn a_name_cannot_make_a_line_of_its_own() {
        assert_eq!(format_cell(Some(&json!("a\nb\x1b[2Jc"))), "a b\\x1b[2Jc");
        assert_eq!(display_value(&json!({"a\nb": "c\rd"})), "a b: c\\x0dd");
        assert_eq!(display_value(&json!({"code": "a\nname: b\n"})), "code:\n    a\n    name: b");
    }

    #[test]
    fn what_would_be_hidden_by_a_colour_is_not() {
        let code = json!({"code": "print(1)\n\x1b[8msteal()\x1b[0m\n"});
        assert_eq!(display_value(&code), "code:\n    print(1)\n    \\x1b[8msteal()\\x1b[0m");
    }

    #[test]
    fn t105_overrides_of_direction_are_written_out_in_records_and_tables() {
        let hostile = json!({"code": "check()\u{202e}\nnext()", "name\u{2066}": "a"});
        assert_eq!(
            display_value(&hostile),
            "code:\n    check()\\u202e\n    next()\nname\\u2066: a"
        );
        assert_eq!(format_cell(Some(&json!("invoice\u{202e}fdp.exe"))), "invoice\\u202efdp.exe");
        assert_eq!(
            format_cell(Some(&json!("فاتورة.pdf"))),
            "فاتورة.pdf",
            "right to left, and no trick"
        );
    }

    #[test]
    fn what_is_within_something_stands_below_it() {
        let value = json!({"id": 1, "limits": {"ms": 5}, "tools": ["a", {"b": null}], "none": []});
        assert_eq!(
            display_value(&value),
            "id: 1\nlimits:\n    ms: 5\ntools:\n    1: a\n    2:\n        b: null\nnone: []"
        );
    }

    #[test]
    fn a_long_text_is_cut_in_a_table() {
        assert_eq!(format_cell(Some(&json!("x".repeat(60)))), "x".repeat(60));
        assert_eq!(format_cell(Some(&json!("x".repeat(61)))), format!("{}…", "x".repeat(59)));
    }

    #[test]
    fn columns_stand_below_each_other() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        assert_eq!(align_columns(&[row(["ID", "NAME"]), row(["123", "é"])]), "ID   NAME\n123  é");
    }
}
