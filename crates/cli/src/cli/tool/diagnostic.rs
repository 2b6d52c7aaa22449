//! Formats diagnostics like a compiler: the message, the position, the marked line, and a hint.

use super::file::ToolFile;
use contract::{Diagnostic, SourceLocation};
use std::fmt::Write;

pub(super) fn render_errors(file: &ToolFile, problems: &[Diagnostic]) -> String {
    problems.iter().map(|problem| render(file, "error", problem)).collect()
}

pub(super) fn render_warnings(file: &ToolFile) -> String {
    file.check.warnings.iter().map(|problem| render(file, "warning", problem)).collect()
}

fn render(file: &ToolFile, level: &str, problem: &Diagnostic) -> String {
    let mut text = format!("{level}[{}]: {}\n", problem.code, problem.message);
    // Writing to a string cannot fail.
    let _ = match (&problem.place, &problem.path) {
        (Some(place), _) => draw_location(&mut text, &file.source_name, place),
        (None, Some(path)) => writeln!(text, " --> {}: {path}", file.path.display()),
        (None, None) => writeln!(text, " --> {}", file.path.display()),
    };
    if let Some(hint) = &problem.hint {
        let _ = writeln!(text, "  = hint: {hint}");
    }
    text
}

fn draw_location(text: &mut String, name: &str, place: &SourceLocation) -> std::fmt::Result {
    let SourceLocation { line, column, width, text: source } = place;
    let number = line.to_string();
    let margin = " ".repeat(number.len());
    writeln!(text, "{margin}--> {name}:{line}:{column}")?;
    writeln!(text, "{margin} |")?;
    writeln!(text, "{number} | {}", source.replace('\t', " "))?;
    let length = source.chars().count();
    // A long line is truncated, and the position may be in the removed part. A missing element is
    // marked right after the end.
    if column - 1 <= length {
        let mark = "^".repeat((*width).min(length - (column - 1)).max(1));
        writeln!(text, "{margin} | {}{mark}", " ".repeat(column - 1))?;
    }
    Ok(())
}
