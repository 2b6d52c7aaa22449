//! Parameter descriptions in a Google-style docstring. A model sees no other part of it.

use crate::python::Docstring;
use crate::source::{PythonSource, Span};
use pydocstring::model::SectionKind;
use pydocstring::parse::{Document, Style, detect_style, parse_google};
use std::collections::BTreeMap;

/// The style of a docstring that is not Google's.
pub(crate) fn non_google_style(docstring: &Docstring) -> Option<&'static str> {
    let text = dedent(&docstring.text);
    if detect_style(&text) == Style::NumPy {
        Some("NumPy's")
    } else if text.lines().any(|line| line.trim_start().starts_with(":param ")) {
        Some("Sphinx's")
    } else {
        None
    }
}

/// The descriptions of the `Args:` section, by parameter name.
pub(crate) fn parameter_descriptions(docstring: &Docstring) -> BTreeMap<String, String> {
    let text = dedent(&docstring.text);
    if detect_style(&text) == Style::NumPy {
        return BTreeMap::new();
    }
    let parsed = parse_google(&text);
    let document = Document::new(&parsed);
    let arguments = document.sections().filter(|section| section.kind() == SectionKind::Parameters);
    let mut found = BTreeMap::new();
    for entry in arguments.flat_map(|section| section.entries().collect::<Vec<_>>()) {
        let description = entry.description().map_or("", |description| description.text());
        let description = description.split_whitespace().collect::<Vec<_>>().join(" ");
        for name in entry.names() {
            found.insert(name.text().trim_start_matches('*').to_owned(), description.clone());
        }
    }
    found
}

/// The line of the docstring that describes `name`, or all of it.
pub(crate) fn parameter_span(name: &str, docstring: &Docstring, source: &PythonSource) -> Span {
    let mut start = docstring.span.start;
    for line in source.slice(docstring.span).split_inclusive('\n') {
        let text = line.trim_start();
        if text.strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with([':', '('])) {
            let start = start + line.len() - text.len();
            return Span { start, end: start + name.len() };
        }
        start += line.len();
    }
    docstring.span
}

/// Like `inspect.cleandoc`: removes the indentation that all lines but the first share.
fn dedent(text: &str) -> String {
    let text = text.replace('\t', "        ");
    let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let rest = text.lines().skip(1).filter(|line| !line.trim().is_empty());
    let shared = rest.map(indent).min().unwrap_or(0);
    let lines = text.lines().enumerate().map(|(at, line)| match at {
        0 => line.trim_start(),
        _ => line.get(shared.min(indent(line))..).unwrap_or_default(),
    });
    lines.collect::<Vec<_>>().join("\n")
}
