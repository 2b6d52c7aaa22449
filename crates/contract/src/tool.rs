//! A tool: a function of a source and what it takes and gives, read from a Python file or from
//! the JSON of either seed.

use crate::annotation::Annotations;
use crate::fields;
use crate::handle::{self, HANDLE};
use crate::problem::{Checked, Finding, Findings, Problem, shown};
use crate::python::{Function, Module};
use crate::schema::Object;
use crate::source::{SOURCE_BYTES_MAX, Source};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use types::Code;

pub(crate) const RUN: &str = "run";
pub(crate) const TEST: &str = "test";
pub(crate) const NO_RUN: &str = "CodeRunner script must define a callable run(input) function";
/// As the seed has it when nothing is said.
const TIMEOUT_SECONDS: u64 = 30;
/// Of the published form of a Run Python code tool.
const NAME_CHARS_MAX: usize = 64;
const DESCRIPTION_CHARS: std::ops::RangeInclusive<usize> = 10..=1024;
/// They say where the sandbox is and as whom it acts, which is not for a tool to change.
const RESERVED_VARIABLES: [&str; 8] = [
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "GEMINI_API_KEY",
    "PATH",
    "LANG",
    "LC_ALL",
    "HOME",
    "TMPDIR",
];

/// A tool whose source and schemas were found to be right.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    pub name: String,
    /// What it is for, in the words of its author to the model.
    pub description: Option<String>,
    pub source: Source,
    pub entry: Entry,
    pub test: Test,
    pub timeout_seconds: Option<u64>,
    pub allow_network: bool,
    pub variables: Vec<(String, String)>,
}

/// How the tool is entered, and with what.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// `handle(**arguments)`
    Handle { input: Object },
    /// `run(input)`; without a schema of its input, any object will do.
    Run { input: Option<Object>, output: Option<Object> },
}

/// Whether there is a `test()` to be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    Absent,
    Present,
    /// It asks for arguments, and nobody has any.
    WithParameters,
}

impl Tool {
    /// A Python file with a function `handle`.
    pub fn from_python(name: &str, source: Source, annotations: Annotations) -> Checked<Self> {
        let module = match Module::parse(&source) {
            Ok(module) => module,
            Err(problem) => return refused(vec![problem]),
        };
        let mut findings = Findings::default();
        let input = handle::import(&module, &source, annotations, &mut findings);
        let test = find_test(&module, &mut findings);
        let tool = input.map(|input| Self {
            name: name.to_owned(),
            description: None,
            source: source.clone(),
            entry: Entry::Handle { input },
            test,
            timeout_seconds: None,
            allow_network: false,
            variables: Vec::new(),
        });
        findings.conclude(&source, tool)
    }

    /// The JSON of a tool: seed 003's `code_runner`, or seed 000's `runPythonCode`.
    pub fn from_json(text: &str, annotations: Annotations) -> Checked<Self> {
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
        if tool.get("type").and_then(Value::as_str) == Some("runPythonCode") {
            run_python_code(&tool, annotations)
        } else {
            code_runner(&tool)
        }
    }

    /// What a model is told about the arguments.
    pub fn descriptor(&self) -> Value {
        match &self.entry {
            Entry::Handle { input } | Entry::Run { input: Some(input), .. } => input.descriptor(),
            Entry::Run { input: None, .. } => Object::default().descriptor(),
        }
    }

    /// What the value of the tool is like, if its author has said so.
    pub fn output_descriptor(&self) -> Option<Value> {
        match &self.entry {
            Entry::Run { output, .. } => output.as_ref().map(Object::descriptor),
            Entry::Handle { .. } => None,
        }
    }

    /// The wall time that its author has asked for.
    pub fn wall_ms(&self) -> Option<u64> {
        self.timeout_seconds.map(|seconds| seconds.saturating_mul(1000))
    }

    pub fn input(&self) -> Option<&Object> {
        match &self.entry {
            Entry::Handle { input } => Some(input),
            Entry::Run { input, .. } => input.as_ref(),
        }
    }
}

fn refused<T>(problems: Vec<Problem>) -> Checked<T> {
    Checked { outcome: Err(shown(problems, |problem| problem)), warnings: Vec::new() }
}

fn find_test(module: &Module, findings: &mut Findings) -> Test {
    match module.function(TEST) {
        None => Test::Absent,
        Some(test) if test.parameters.is_empty() && test.variadic.is_empty() => Test::Present,
        Some(test) => {
            let message = "test() has parameters, and no parameters are allowed";
            findings.warnings.push(Finding::new(Code::CodeType, message).at(test.span));
            Test::WithParameters
        }
    }
}

/// Reads one JSON object of a tool, and keeps what is wrong with it.
struct Reader<'a> {
    object: &'a Map<String, Value>,
    path: &'static str,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn wrong(&mut self, key: &str, message: impl Into<String>) {
        let path = format!("{}.{key}", self.path);
        self.problems.push(Problem::new(Code::ArgsInvalid, message).in_json(path));
    }

    fn given(&self, key: &str) -> Option<&Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    fn text(&mut self, key: &str) -> Option<String> {
        match self.given(key)? {
            Value::String(text) => Some(text.clone()),
            _ => {
                self.wrong(key, format!("'{key}' must be text"));
                None
            }
        }
    }

    fn known(&mut self, keys: &[&str]) {
        let unknown: Vec<String> =
            self.object.keys().filter(|key| !keys.contains(&key.as_str())).cloned().collect();
        for key in unknown {
            self.wrong(&key, format!("there is no '{key}' here; known are {}", keys.join(", ")));
        }
    }
}

/// Seed 000: `{"type":"runPythonCode","name","description","configuration":{"pythonCode"}}`.
fn run_python_code(tool: &Map<String, Value>, annotations: Annotations) -> Checked<Tool> {
    let mut reader = Reader { object: tool, path: "$", problems: Vec::new() };
    reader.known(&["type", "name", "description", "configuration"]);
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
    let configuration = tool.get("configuration").and_then(Value::as_object);
    let empty = Map::new();
    let mut inner = Reader {
        object: configuration.unwrap_or(&empty),
        path: "$.configuration",
        problems: std::mem::take(&mut reader.problems),
    };
    inner.known(&["pythonCode"]);
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
        |tool| Tool { description: Some(description), ..tool },
    )
}

/// Seed 003: `{"name","description","tool_type":"code_runner","configuration":{…}}`.
fn code_runner(tool: &Map<String, Value>) -> Checked<Tool> {
    let mut reader = Reader { object: tool, path: "$", problems: Vec::new() };
    let name = reader.text("name").unwrap_or_default().trim().to_owned();
    if name.is_empty() {
        reader.wrong("name", "Tool name is required");
    }
    let description = reader.text("description");
    match reader.text("tool_type").as_deref() {
        Some("code_runner") => {}
        Some(other) => {
            let message = format!("tool_type '{other}' is not supported; use 'code_runner'");
            reader.wrong("tool_type", message);
        }
        None => reader.wrong("tool_type", "tool_type must be 'code_runner'"),
    }
    let mut problems = std::mem::take(&mut reader.problems);
    let empty = Map::new();
    let configuration = tool.get("configuration").and_then(Value::as_object);
    if configuration.is_none() {
        reader.wrong("configuration", "a tool needs its configuration, an object");
        problems.append(&mut reader.problems);
    }
    let mut settings = Settings::read(configuration.unwrap_or(&empty), &name, &mut problems);
    let Some(source) = settings.source.take() else {
        return refused(problems);
    };
    let checked = check_run(source);
    finish(problems, checked.warnings, checked.outcome, "$.configuration.code", |(source, test)| {
        Tool {
            name,
            description,
            source,
            entry: Entry::Run { input: settings.input, output: settings.output },
            test,
            timeout_seconds: Some(settings.timeout_seconds),
            allow_network: settings.allow_network,
            variables: settings.variables,
        }
    })
}

/// The tool if neither its JSON nor its source has anything wrong.
fn finish<T>(
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

fn check_run(source: Source) -> Checked<(Source, Test)> {
    let module = match Module::parse(&source) {
        Ok(module) => module,
        Err(problem) => return refused(vec![problem]),
    };
    let mut findings = Findings::default();
    let test = find_test(&module, &mut findings);
    match module.function(RUN) {
        Some(run) if takes_one(run) => {}
        Some(run) => {
            let finding = Finding::new(Code::CodeNoEntry, NO_RUN).at(run.span);
            findings.errors.push(finding.hint("run() takes one argument, the input"));
        }
        // Whether that is callable is known when it is called.
        None if module.bound.contains(RUN) => {}
        None => {
            let finding = Finding::new(Code::CodeNoEntry, NO_RUN);
            let alike = module.function(HANDLE).or(module.functions.first());
            findings.errors.push(match alike {
                Some(function) => finding.at(function.span).hint("name it `run`"),
                None => finding.hint("def run(input): return {\"ok\": True}"),
            });
        }
    }
    findings.conclude(&source, Some((source.clone(), test)))
}

/// Whether it can be called with one argument and nothing else.
fn takes_one(run: &Function) -> bool {
    let needed = |keyword_only: bool| {
        let parameters = run.parameters.iter();
        parameters.filter(move |it| it.keyword_only == keyword_only && it.default.is_none()).count()
    };
    let positional = run.parameters.iter().filter(|parameter| !parameter.keyword_only).count();
    let collects = run.variadic.iter().any(|(name, _)| !name.starts_with("**"));
    needed(true) == 0 && needed(false) <= 1 && (positional > 0 || collects)
}

/// The `configuration` of a CodeRunner tool.
struct Settings {
    source: Option<Source>,
    input: Option<Object>,
    output: Option<Object>,
    timeout_seconds: u64,
    allow_network: bool,
    variables: Vec<(String, String)>,
}

impl Settings {
    fn read(configuration: &Map<String, Value>, name: &str, problems: &mut Vec<Problem>) -> Self {
        let path = "$.configuration";
        let mut reader = Reader { object: configuration, path, problems: Vec::new() };
        reader.known(&[
            "type",
            "runtime",
            "code",
            "input_schema",
            "output_schema",
            "env_variables",
            "timeout_seconds",
            "allow_network",
        ]);
        match reader.text("type").as_deref() {
            Some("CodeRunner") | None => {}
            Some(other) => reader.wrong("type", format!("'{other}' must be written 'CodeRunner'")),
        }
        if let Some(other) = reader.text("runtime").filter(|runtime| runtime != "python") {
            reader.wrong("runtime", format!("runtime '{other}' is not supported; use 'python'"));
        }
        let timeout_seconds = match reader.given("timeout_seconds").map(Value::as_u64) {
            None => TIMEOUT_SECONDS,
            Some(Some(seconds @ 1..)) => seconds,
            Some(_) => {
                reader.wrong("timeout_seconds", "'timeout_seconds' must be a whole number from 1");
                TIMEOUT_SECONDS
            }
        };
        let allow_network = match reader.given("allow_network").map(Value::as_bool) {
            None => false,
            Some(Some(allowed)) => allowed,
            Some(None) => {
                reader.wrong("allow_network", "'allow_network' must be true or false");
                false
            }
        };
        let source = source_of(&mut reader, name);
        let variables = variables(&mut reader);
        let mut schema = |key: &str| {
            let list = configuration.get(key).filter(|value| !value.is_null())?;
            let path = format!("{path}.{key}");
            let object = fields::import(list, &path, &mut reader.problems);
            // A list without fields says as little as none.
            (!object.properties.is_empty()).then_some(object)
        };
        let (input, output) = (schema("input_schema"), schema("output_schema"));
        problems.append(&mut reader.problems);
        Self { source, input, output, timeout_seconds, allow_network, variables }
    }
}

fn source_of(reader: &mut Reader<'_>, name: &str) -> Option<Source> {
    let code = reader.text("code").unwrap_or_default();
    if code.trim().is_empty() {
        reader.wrong("code", "Code runner source is required");
        return None;
    }
    if code.len() > SOURCE_BYTES_MAX {
        let message = format!("Code runner '{name}' source exceeds {SOURCE_BYTES_MAX} bytes");
        reader.wrong("code", message);
        return None;
    }
    Source::new(&code)
        .map_err(|problem| reader.problems.push(problem.in_json("$.configuration.code")))
        .ok()
}

fn variables(reader: &mut Reader<'_>) -> Vec<(String, String)> {
    let list = match reader.given("env_variables") {
        None => return Vec::new(),
        Some(Value::Array(list)) => list.clone(),
        Some(_) => {
            reader.wrong("env_variables", "'env_variables' must be a list of {name, value}");
            return Vec::new();
        }
    };
    let mut names = BTreeSet::new();
    let mut variables = Vec::new();
    for (at, variable) in list.iter().enumerate() {
        let text = |key: &str| variable.get(key).and_then(Value::as_str);
        let name = text("name").unwrap_or_default().trim();
        let problem = if name.is_empty() {
            Some("Code runner environment variable name is required".to_owned())
        } else if !is_variable_name(name) {
            Some(format!("Invalid code runner environment variable name '{name}'"))
        } else if RESERVED_VARIABLES.contains(&name) {
            Some(format!("Environment variable '{name}' is reserved and cannot be overridden"))
        } else if !names.insert(name) {
            Some(format!("Duplicate code runner environment variable '{name}'"))
        } else if text("value").is_none_or(|value| value.contains('\0')) {
            Some(format!("the value of '{name}' must be text without NUL"))
        } else {
            None
        };
        match problem {
            Some(problem) => reader.wrong(&format!("env_variables[{at}]"), problem),
            None => {
                variables.push((name.to_owned(), text("value").unwrap_or_default().to_owned()));
            }
        }
    }
    variables
}

fn is_variable_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
