//! What the contract crate promises, line by line of the spec.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up has to fail")]
#![allow(clippy::panic, reason = "as above")]

mod arguments;
mod attacks;
mod extended;
mod fields;
mod functions;
mod handle;
mod hostile;
mod imports;
mod json_schema;
mod tools;

use belljar_contract::{AnnotationMode, CodeTool, Diagnostic, PythonSource, SourceCheck};
use serde_json::Value;

fn check_as(code: &str, annotations: AnnotationMode) -> SourceCheck<CodeTool> {
    match PythonSource::new(code) {
        Ok(source) => CodeTool::from_python("tool", source, annotations),
        Err(problem) => SourceCheck { result: Err(vec![problem]), warnings: Vec::new() },
    }
}

fn check(code: &str) -> SourceCheck<CodeTool> {
    check_as(code, AnnotationMode::Strict)
}

fn tool(code: &str) -> CodeTool {
    check(code).result.unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn schema(code: &str) -> Value {
    tool(code).descriptor()
}

fn problems(code: &str) -> Vec<Diagnostic> {
    check(code).result.unwrap_err()
}

/// The code, message and line of each error.
fn errors(code: &str) -> Vec<(String, String)> {
    let problems = problems(code);
    problems.into_iter().map(|problem| (problem.code.to_string(), problem.message)).collect()
}

/// The one error that there is.
fn error(code: &str) -> (String, String) {
    let errors = errors(code);
    assert_eq!(errors.len(), 1, "{errors:#?}");
    errors.into_iter().next().unwrap()
}
