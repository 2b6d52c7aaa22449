//! The JSON of a tool, as the seeds publish it.

use crate::annotation::Annotations;
use crate::code_runner::code_runner;
use crate::problem::{Checked, Problem};
use crate::source::Source;
use crate::tool::{Tool, refused};
use serde_json::{Map, Value};
use types::Code;

/// Of the published form of a Run Python code tool.
const NAME_CHARS_MAX: usize = 64;
pub(crate) const BINARIES: &str = "requires_binaries";
/// Each is looked for before every call.
const BINARIES_MAX: usize = 32;
pub(crate) const INTEGRATIONS: &str = "integrations";
/// Each is looked at before every call.
const INTEGRATIONS_MAX: usize = 16;
const DESCRIPTION_CHARS: std::ops::RangeInclusive<usize> = 10..=1024;

/// Seed 003's `code_runner`, or seed 000's `runPythonCode`.
pub(crate) fn read(text: &str, annotations: Annotations) -> Checked<Tool> {
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) => {
            let message = format!("the tool is not JSON: {error}");
            return refused(vec![Problem::new(Code::ArgsInvalid, message)]);
        }
    };
    let Value::Object(tool) = value else {
        let message = "the JSON of a tool must be an object";
        return refused(vec![Problem::new(Code::ArgsInvalid, message).in_json("$")]);
    };
    match tool.get("type").and_then(Value::as_str) {
        Some("runPythonCode") => run_python_code(&tool, annotations),
        Some("callFunction") => {
            let message = "a callFunction tool has no code that could run here";
            let problem = Problem::new(Code::ArgsInvalid, message).in_json("$.type");
            refused(vec![
                problem.hint("`belljar tool add` brings it to a server, which has functions"),
            ])
        }
        _ => code_runner(&tool),
    }
}

/// Reads one JSON object of a tool, and keeps what is wrong with it.
pub(crate) struct JsonReader<'a> {
    pub(crate) object: &'a Map<String, Value>,
    pub(crate) path: &'static str,
    pub(crate) problems: Vec<Problem>,
}

impl JsonReader<'_> {
    pub(crate) fn wrong(&mut self, key: &str, message: impl Into<String>) {
        let path = format!("{}.{key}", self.path);
        self.problems.push(Problem::new(Code::ArgsInvalid, message).in_json(path));
    }

    pub(crate) fn given(&self, key: &str) -> Option<&Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn text(&mut self, key: &str) -> Option<String> {
        match self.given(key)? {
            Value::String(text) => Some(text.clone()),
            _ => {
                self.wrong(key, format!("'{key}' must be text"));
                None
            }
        }
    }

    pub(crate) fn known(&mut self, keys: &[&str]) {
        let unknown: Vec<String> =
            self.object.keys().filter(|key| !keys.contains(&key.as_str())).cloned().collect();
        for key in unknown {
            self.wrong(&key, format!("there is no '{key}' here; known are {}", keys.join(", ")));
        }
    }
}

/// The name and the description of a tool of seed 000.
pub(crate) fn named(reader: &mut JsonReader<'_>) -> (String, String) {
    let name = reader.text("name").unwrap_or_default();
    if name.is_empty() || name.chars().count() > NAME_CHARS_MAX || name.contains('\0') {
        reader.wrong(
            "name",
            format!("'name' must have 1 to {NAME_CHARS_MAX} characters, none of them NUL"),
        );
    }
    let description = reader.text("description").unwrap_or_default();
    if !DESCRIPTION_CHARS.contains(&description.chars().count()) {
        let (least, most) = (DESCRIPTION_CHARS.start(), DESCRIPTION_CHARS.end());
        reader
            .wrong("description", format!("'description' must have {least} to {most} characters"));
    }
    (name, description)
}

/// Programs that the code starts, by their file names.
pub(crate) fn binaries(reader: &mut JsonReader<'_>) -> Vec<String> {
    let names: Vec<String> = match reader.given(BINARIES) {
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
        reader.wrong(BINARIES, message);
        return Vec::new();
    }
    names
}

/// The names of integrations that the code leaves its sandbox by.
pub(crate) fn integrations(reader: &mut JsonReader<'_>) -> Vec<String> {
    let names: Option<Vec<String>> = match reader.given(INTEGRATIONS) {
        None => Some(Vec::new()),
        Some(Value::Array(names)) => {
            names.iter().map(|name| name.as_str().map(str::to_owned)).collect()
        }
        Some(_) => None,
    };
    names.filter(|names| names.len() <= INTEGRATIONS_MAX).unwrap_or_else(|| {
        let message =
            format!("'{INTEGRATIONS}' must be a list of at most {INTEGRATIONS_MAX} names");
        reader.wrong(INTEGRATIONS, message);
        Vec::new()
    })
}

/// Seed 000: `{"type":"runPythonCode","name","description","configuration":{"pythonCode"}}`.
fn run_python_code(tool: &Map<String, Value>, annotations: Annotations) -> Checked<Tool> {
    let mut reader = JsonReader { object: tool, path: "$", problems: Vec::new() };
    reader.known(&["type", "name", "description", "configuration"]);
    let (name, description) = named(&mut reader);
    let configuration = tool.get("configuration").and_then(Value::as_object);
    let empty = Map::new();
    let mut inner = JsonReader {
        object: configuration.unwrap_or(&empty),
        path: "$.configuration",
        problems: std::mem::take(&mut reader.problems),
    };
    inner.known(&["pythonCode", BINARIES, INTEGRATIONS]);
    let (requires_binaries, integrations) = (binaries(&mut inner), integrations(&mut inner));
    let Some(code) = inner.object.get("pythonCode").and_then(Value::as_str) else {
        inner.wrong("pythonCode", "'pythonCode' must be the source of the tool");
        return refused(inner.problems);
    };
    let checked = match Source::new(code) {
        Ok(source) => Tool::from_python(&name, source, annotations),
        Err(problem) => refused(vec![problem]),
    };
    finish(
        inner.problems,
        checked.warnings,
        checked.outcome,
        "$.configuration.pythonCode",
        |tool| Tool { description: Some(description), requires_binaries, integrations, ..tool },
    )
}

/// The tool if neither its JSON nor its source has anything wrong.
pub(crate) fn finish<T>(
    mut problems: Vec<Problem>,
    warnings: Vec<Problem>,
    outcome: Result<T, Vec<Problem>>,
    code_path: &str,
    tool: impl FnOnce(T) -> Tool,
) -> Checked<Tool> {
    let in_code = |problem: Problem| problem.in_json(code_path);
    let warnings = warnings.into_iter().map(in_code).collect();
    let outcome = match outcome {
        Ok(made) if problems.is_empty() => return Checked { outcome: Ok(tool(made)), warnings },
        Ok(_) => Vec::new(),
        Err(of_source) => of_source,
    };
    problems.extend(outcome.into_iter().map(in_code));
    Checked { warnings, ..refused(problems) }
}
