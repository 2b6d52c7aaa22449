//! The promises of the crate `contract`, line by line of the spec.

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
mod json_schema_test_suite;
mod tools;

use belljar_contract::{
    AnnotationMode, CodeTool, Diagnostic, JsonSchema, JsonSchemaError, PythonSource, SourceCheck,
};
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

/// CPU time of this thread, which other work of the machine does not lengthen.
fn cpu_time() -> Duration {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

/// Does the work, which must take at most this CPU time.
fn within<T>(time_max: Duration, what: &str, work: impl FnOnce() -> T) -> T {
    let before = cpu_time();
    let done = work();
    let taken = cpu_time() - before;
    assert!(taken < time_max, "{what} took {taken:?}");
    done
}

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

/// A schema as draft 7, which descriptors are written in.
fn draft_7(schema: &Value) -> Result<JsonSchema, JsonSchemaError> {
    let mut schema = schema.clone();
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    JsonSchema::new(&schema)
}

/// One that is too large is valid as far as it was read.
fn is_draft_7(schema: &Value) -> bool {
    matches!(draft_7(schema), Ok(_) | Err(JsonSchemaError::TooLarge))
}
