//! Test outcomes as JUnit XML, which every CI reads.

use super::test::{TestReport, error_text};
use types::TestOutcome;

pub(super) fn render(reports: &[TestReport]) -> String {
    let failures = reports.iter().filter(|report| report.outcome != TestOutcome::Passed).count();
    let total: u64 = reports.iter().map(|report| report.duration_ms).sum();
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    xml += &format!(
        "<testsuites><testsuite name=\"belljar\" tests=\"{}\" failures=\"{failures}\" errors=\"0\" \
         time=\"{}\">\n",
        reports.len(),
        format_seconds(total)
    );
    xml.extend(reports.iter().map(test_case));
    xml + "</testsuite></testsuites>\n"
}

fn test_case(report: &TestReport) -> String {
    let mut case = format!(
        "<testcase classname=\"{}\" name=\"test\" time=\"{}\">",
        escape_xml(&report.file),
        format_seconds(report.duration_ms)
    );
    if report.outcome != TestOutcome::Passed {
        let (kind, message, text) = match &report.error {
            Some(error) => (error.code.to_string(), error.message.clone(), error_text(error)),
            None => {
                let message = "invalid tool".to_owned();
                ("invalid".to_owned(), message, report.diagnostics.clone())
            }
        };
        case += &format!(
            "<failure type=\"{}\" message=\"{}\">{}</failure>",
            escape_xml(&kind),
            escape_xml(&message),
            escape_xml(&text)
        );
    }
    let printed: String = report.output.iter().map(|piece| piece.text.as_str()).collect();
    if !printed.is_empty() {
        case += &format!("<system-out>{}</system-out>", escape_xml(&printed));
    }
    case + "</testcase>\n"
}

fn format_seconds(milliseconds: u64) -> String {
    format!("{}.{:03}", milliseconds / 1000, milliseconds % 1000)
}

/// Replaces control characters that XML cannot contain, not even escaped.
fn escape_xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(character),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            _ if character.is_control() => escaped.push('\u{fffd}'),
            _ => escaped.push(character),
        }
    }
    escaped
}
