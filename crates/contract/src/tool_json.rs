//! The JSON of a tool, as the vendor documents define it.

use crate::annotation::AnnotationMode;
use crate::code_runner::parse_code_runner;
use crate::diagnostic::{Diagnostic, SourceCheck};
use crate::source::PythonSource;
use crate::tool::{CodeTool, invalid};
use serde_json::{Map, Value};
use types::ErrorCode;

/// From the published form of a Run Python code tool.
const NAME_CHARS_MAX: usize = 64;
pub(crate) const BINARIES: &str = "requires_binaries";
/// Each is searched for before every call.
const BINARIES_MAX: usize = 32;
pub(crate) const INTEGRATIONS: &str = "integrations";
/// Each is checked before every call.
const INTEGRATIONS_MAX: usize = 16;
const DESCRIPTION_CHARS: std::ops::RangeInclusive<usize> = 10..=1024;

/// Parses `code_runner` (vendor document 003) or `runPythonCode` (000).
pub(crate) fn parse_tool(text: &str, annotations: AnnotationMode) -> SourceCheck<CodeTool> {
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) => {
            let message = format!("tool is not valid JSON: {error}");
            return invalid(vec![Diagnostic::new(ErrorCode::ArgsInvalid, message)]);
        }
    };
    let Value::Object(tool) = value else {
        let message = "a tool must be a JSON object";
        return invalid(vec![Diagnostic::new(ErrorCode::ArgsInvalid, message).with_json_path("$")]);
    };
    match tool.get("type").and_then(Value::as_str) {
        Some("runPythonCode") => parse_run_python_code(&tool, annotations),
        Some("callFunction") => {
            let message = "a callFunction tool has no code to run locally";
            let problem = Diagnostic::new(ErrorCode::ArgsInvalid, message).with_json_path("$.type");
            invalid(vec![
                problem.with_hint("add it to a server with functions: `belljar tool add`"),
            ])
        }
        _ => parse_code_runner(&tool),
    }
}

/// Reads one JSON object of a tool, and collects its errors.
pub(crate) struct JsonReader<'a> {
    pub(crate) object: &'a Map<String, Value>,
    pub(crate) path: &'static str,
    pub(crate) problems: Vec<Diagnostic>,
}

impl JsonReader<'_> {
    pub(crate) fn add_problem(&mut self, key: &str, message: impl Into<String>) {
        let path = format!("{}.{key}", self.path);
        self.problems.push(Diagnostic::new(ErrorCode::ArgsInvalid, message).with_json_path(path));
    }

    pub(crate) fn get_non_null(&self, key: &str) -> Option<&Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn read_text(&mut self, key: &str) -> Option<String> {
        match self.get_non_null(key)? {
            Value::String(text) => Some(text.clone()),
            _ => {
                self.add_problem(key, format!("'{key}' must be a string"));
                None
            }
        }
    }

    pub(crate) fn check_known_keys(&mut self, keys: &[&str]) {
        let unknown: Vec<String> =
            self.object.keys().filter(|key| !keys.contains(&key.as_str())).cloned().collect();
        for key in unknown {
            self.add_problem(
                &key,
                format!("unknown property '{key}'; use one of {}", keys.join(", ")),
            );
        }
    }
}

/// Reads the name and the description of a tool of vendor document 000.
pub(crate) fn read_name_and_description(reader: &mut JsonReader<'_>) -> (String, String) {
    let name = reader.read_text("name").unwrap_or_default();
    if name.is_empty() || name.chars().count() > NAME_CHARS_MAX || name.contains('\0') {
        reader.add_problem(
            "name",
            format!("'name' must have 1 to {NAME_CHARS_MAX} characters, none of them NUL"),
        );
    }
    let description = reader.read_text("description").unwrap_or_default();
    if !DESCRIPTION_CHARS.contains(&description.chars().count()) {
        let (least, most) = (DESCRIPTION_CHARS.start(), DESCRIPTION_CHARS.end());
        reader.add_problem(
            "description",
            format!("'description' must have {least} to {most} characters"),
        );
    }
    (name, description)
}

/// Reads the programs that the code starts, by their file names.
pub(crate) fn read_binaries(reader: &mut JsonReader<'_>) -> Vec<String> {
    let names: Vec<String> = match reader.get_non_null(BINARIES) {
        None => return Vec::new(),
        Some(Value::Array(names)) => {
            names.iter().map(|name| name.as_str().unwrap_or_default().to_owned()).collect()
        }
        Some(_) => vec![String::new()],
    };
    let is_name = |name: &String| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
        name.chars().all(fits) && name.starts_with(|c: char| c.is_ascii_alphanumeric())
    };
    if names.len() > BINARIES_MAX || !names.iter().all(is_name) {
        let message =
            format!("'{BINARIES}' must be a list of at most {BINARIES_MAX} names of programs");
        reader.add_problem(BINARIES, message);
        return Vec::new();
    }
    names
}

/// Reads the names of integrations that the code uses for network access.
pub(crate) fn read_integrations(reader: &mut JsonReader<'_>) -> Vec<String> {
    let names: Option<Vec<String>> = match reader.get_non_null(INTEGRATIONS) {
        None => Some(Vec::new()),
        Some(Value::Array(names)) => {
            names.iter().map(|name| name.as_str().map(str::to_owned)).collect()
        }
        Some(_) => None,
    };
    names.filter(|names| names.len() <= INTEGRATIONS_MAX).unwrap_or_else(|| {
        let message =
            format!("'{INTEGRATIONS}' must be a list of at most {INTEGRATIONS_MAX} names");
        reader.add_problem(INTEGRATIONS, message);
        Vec::new()
    })
}

/// Parses `{"type":"runPythonCode","name","description","configuration":{"pythonCode"}}`.
fn parse_run_python_code(
    tool: &Map<String, Value>,
    annotations: AnnotationMode,
) -> SourceCheck<CodeTool> {
    let mut reader = JsonReader { object: tool, path: "$", problems: Vec::new() };
    reader.check_known_keys(&["type", "name", "description", "configuration"]);
    let (name, description) = read_name_and_description(&mut reader);
    let configuration = tool.get("configuration").and_then(Value::as_object);
    let empty = Map::new();
    let mut inner = JsonReader {
        object: configuration.unwrap_or(&empty),
        path: "$.configuration",
        problems: std::mem::take(&mut reader.problems),
    };
    inner.check_known_keys(&["pythonCode", BINARIES, INTEGRATIONS]);
    let (requires_binaries, integrations) =
        (read_binaries(&mut inner), read_integrations(&mut inner));
    let Some(code) = inner.object.get("pythonCode").and_then(Value::as_str) else {
        inner.add_problem("pythonCode", "'pythonCode' must be the source of the tool");
        return invalid(inner.problems);
    };
    let checked = match PythonSource::new(code) {
        Ok(source) => CodeTool::from_python(&name, source, annotations),
        Err(problem) => invalid(vec![problem]),
    };
    build_tool(
        inner.problems,
        checked.warnings,
        checked.result,
        "$.configuration.pythonCode",
        |tool| CodeTool { description: Some(description), requires_binaries, integrations, ..tool },
    )
}

/// The tool, if neither its JSON nor its source has errors.
pub(crate) fn build_tool<T>(
    mut problems: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
    outcome: Result<T, Vec<Diagnostic>>,
    code_path: &str,
    tool: impl FnOnce(T) -> CodeTool,
) -> SourceCheck<CodeTool> {
    let in_code = |problem: Diagnostic| problem.with_json_path(code_path);
    let warnings = warnings.into_iter().map(in_code).collect();
    let outcome = match outcome {
        Ok(made) if problems.is_empty() => return SourceCheck { result: Ok(tool(made)), warnings },
        Ok(_) => Vec::new(),
        Err(of_source) => of_source,
    };
    problems.extend(outcome.into_iter().map(in_code));
    SourceCheck { warnings, ..invalid(problems) }
}
