//! CodeRunner tools (vendor document 003): their schemas are beside their code.

use crate::call::ARGUMENTS_BYTES_MAX;
use crate::diagnostic::{Diagnostic, DiagnosticCollector, SourceCheck, UnlocatedDiagnostic};
use crate::handle::HANDLE;
use crate::python::{PythonFunction, PythonModule};
use crate::schema::ObjectSchema;
use crate::schema_field_list;
use crate::source::{PythonSource, SOURCE_BYTES_MAX};
use crate::tool::{
    CodeTool, NO_RUN, RUN_FUNCTION, TestFunction, ToolEntryPoint, ToolVariables, default_file_name,
    find_test, invalid,
};
use crate::tool_json::{
    BINARIES, INTEGRATIONS, JsonReader, build_tool, read_binaries, read_integrations,
};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use types::{ClientKind, ErrorCode};

/// The vendor's default.
const TIMEOUT_SECONDS: u64 = 30;
/// They hold the sandbox's configuration and identity, which a tool must not change.
const RESERVED_VARIABLES: [&str; 6] =
    ["PATH", "LANG", "LC_ALL", "HOME", "TMPDIR", "BELLJAR_SESSION"];
/// The deployment holds the keys of these providers.
const MODEL_PROVIDERS: [ClientKind; 3] =
    [ClientKind::Openai, ClientKind::Anthropic, ClientKind::Gemini];

/// Parses `{"name","description","tool_type":"code_runner","configuration":{…}}`.
pub(crate) fn parse_code_runner(tool: &Map<String, Value>) -> SourceCheck<CodeTool> {
    let mut reader = JsonReader { object: tool, path: "$", problems: Vec::new() };
    let name = reader.read_text("name").unwrap_or_default().trim().to_owned();
    if name.is_empty() {
        reader.add_problem("name", "Tool name is required");
    }
    let description = reader.read_text("description");
    match reader.read_text("tool_type").as_deref() {
        Some("code_runner") => {}
        Some(other) => {
            let message = format!("tool_type '{other}' is not supported; use 'code_runner'");
            reader.add_problem("tool_type", message);
        }
        None => reader.add_problem("tool_type", "tool_type must be 'code_runner'"),
    }
    let mut problems = std::mem::take(&mut reader.problems);
    let empty = Map::new();
    let configuration = tool.get("configuration").and_then(Value::as_object);
    if configuration.is_none() {
        reader.add_problem("configuration", "a tool needs its configuration, an object");
        problems.append(&mut reader.problems);
    }
    let mut settings =
        CodeRunnerConfiguration::read(configuration.unwrap_or(&empty), &name, &mut problems);
    let Some(source) = settings.source.take() else {
        return invalid(problems);
    };
    let checked = check_run(source);
    build_tool(
        problems,
        checked.warnings,
        checked.result,
        "$.configuration.code",
        |(source, test)| CodeTool {
            file: default_file_name(&name),
            name,
            description,
            source,
            entry: ToolEntryPoint::Run { input: settings.input, output: settings.output },
            test,
            timeout_seconds: Some(settings.timeout_seconds),
            allow_network: settings.allow_network,
            integrations: settings.integrations,
            variables: settings.variables,
            requires_binaries: settings.requires_binaries,
            input_bytes_max: ARGUMENTS_BYTES_MAX,
        },
    )
}

fn check_run(source: PythonSource) -> SourceCheck<(PythonSource, TestFunction)> {
    let module = match PythonModule::parse(&source) {
        Ok(module) => module,
        Err(problem) => return invalid(vec![problem]),
    };
    let mut findings = DiagnosticCollector::default();
    let test = find_test(&module, &mut findings);
    match module.function(RUN_FUNCTION) {
        Some(run) if takes_one_argument(run) => {}
        Some(run) => {
            let finding =
                UnlocatedDiagnostic::new(ErrorCode::CodeNoEntry, NO_RUN).with_span(run.span);
            findings.errors.push(finding.with_hint("run() takes one argument, the input"));
        }
        // Whether the bound value is callable is known only when it is called.
        None if module.bound_names.contains(RUN_FUNCTION) => {}
        None => {
            let finding = UnlocatedDiagnostic::new(ErrorCode::CodeNoEntry, NO_RUN);
            let alike = module.function(HANDLE).or(module.functions.first());
            findings.errors.push(match alike {
                Some(function) => finding.with_span(function.span).with_hint("name it `run`"),
                None => finding.with_hint("def run(input): return {\"ok\": True}"),
            });
        }
    }
    findings.finish(&source, Some((source.clone(), test)))
}

/// Whether it can be called with a single argument.
fn takes_one_argument(run: &PythonFunction) -> bool {
    let needed = |keyword_only: bool| {
        let parameters = run.parameters.iter();
        parameters.filter(move |it| it.keyword_only == keyword_only && it.default.is_none()).count()
    };
    let positional = run.parameters.iter().filter(|parameter| !parameter.keyword_only).count();
    let collects = run.variadic.iter().any(|(name, _)| !name.starts_with("**"));
    needed(true) == 0 && needed(false) <= 1 && (positional > 0 || collects)
}

/// The `configuration` of a CodeRunner tool.
struct CodeRunnerConfiguration {
    source: Option<PythonSource>,
    input: Option<ObjectSchema>,
    output: Option<ObjectSchema>,
    timeout_seconds: u64,
    allow_network: bool,
    integrations: Vec<String>,
    variables: ToolVariables,
    requires_binaries: Vec<String>,
}

impl CodeRunnerConfiguration {
    fn read(
        configuration: &Map<String, Value>,
        name: &str,
        problems: &mut Vec<Diagnostic>,
    ) -> Self {
        let path = "$.configuration";
        let mut reader = JsonReader { object: configuration, path, problems: Vec::new() };
        reader.check_known_keys(&[
            "type",
            "runtime",
            "code",
            "input_schema",
            "output_schema",
            "env_variables",
            "timeout_seconds",
            "allow_network",
            BINARIES,
            INTEGRATIONS,
        ]);
        match reader.read_text("type").as_deref() {
            Some("CodeRunner") | None => {}
            Some(other) => {
                reader.add_problem("type", format!("'{other}' must be written 'CodeRunner'"))
            }
        }
        if let Some(other) = reader.read_text("runtime").filter(|runtime| runtime != "python") {
            reader.add_problem(
                "runtime",
                format!("runtime '{other}' is not supported; use 'python'"),
            );
        }
        let timeout_seconds = match reader.get_non_null("timeout_seconds").map(Value::as_u64) {
            None => TIMEOUT_SECONDS,
            Some(Some(seconds @ 1..)) => seconds,
            Some(_) => {
                reader.add_problem(
                    "timeout_seconds",
                    "'timeout_seconds' must be an integer of at least 1",
                );
                TIMEOUT_SECONDS
            }
        };
        let allow_network = match reader.get_non_null("allow_network").map(Value::as_bool) {
            None => false,
            Some(Some(allowed)) => allowed,
            Some(None) => {
                reader.add_problem("allow_network", "'allow_network' must be true or false");
                false
            }
        };
        let source = read_source(&mut reader, name);
        let variables = read_variables(&mut reader);
        let (requires_binaries, integrations) =
            (read_binaries(&mut reader), read_integrations(&mut reader));
        let mut schema = |key: &str| {
            let list = configuration.get(key).filter(|value| !value.is_null())?;
            let path = format!("{path}.{key}");
            let object = schema_field_list::import_schema_fields(list, &path, &mut reader.problems);
            // An empty list of fields means the same as no list.
            (!object.properties.is_empty()).then_some(object)
        };
        let (input, output) = (schema("input_schema"), schema("output_schema"));
        problems.append(&mut reader.problems);
        Self {
            source,
            input,
            output,
            timeout_seconds,
            allow_network,
            integrations,
            variables,
            requires_binaries,
        }
    }
}

fn read_source(reader: &mut JsonReader<'_>, name: &str) -> Option<PythonSource> {
    let code = reader.read_text("code").unwrap_or_default();
    if code.trim().is_empty() {
        reader.add_problem("code", "Code runner source is required");
        return None;
    }
    if code.len() > SOURCE_BYTES_MAX {
        let message = format!("Code runner '{name}' source exceeds {SOURCE_BYTES_MAX} bytes");
        reader.add_problem("code", message);
        return None;
    }
    PythonSource::new(&code)
        .map_err(|problem| reader.problems.push(problem.with_json_path("$.configuration.code")))
        .ok()
}

fn read_variables(reader: &mut JsonReader<'_>) -> ToolVariables {
    let list = match reader.get_non_null("env_variables") {
        None => return ToolVariables::default(),
        Some(Value::Array(list)) => list.clone(),
        Some(_) => {
            reader.add_problem("env_variables", "'env_variables' must be a list of {name, value}");
            return ToolVariables::default();
        }
    };
    let mut names = BTreeSet::new();
    let mut variables = ToolVariables::default();
    for (at, variable) in list.iter().enumerate() {
        let text = |key: &str| variable.get(key).and_then(Value::as_str);
        let name = text("name").unwrap_or_default().trim();
        let problem = if name.is_empty() {
            Some("Code runner environment variable name is required".to_owned())
        } else if !is_variable_name(name) {
            Some(format!("Invalid code runner environment variable name '{name}'"))
        } else if is_reserved_variable(name) {
            Some(format!("Environment variable '{name}' is reserved and cannot be overridden"))
        } else if !names.insert(name) {
            Some(format!("Duplicate code runner environment variable '{name}'"))
        } else if text("value").is_none_or(|value| value.contains('\0')) {
            Some(format!("the value of '{name}' must be a string without NUL"))
        } else {
            None
        };
        match problem {
            Some(problem) => reader.add_problem(&format!("env_variables[{at}]"), problem),
            None => {
                let value = text("value").unwrap_or_default().to_owned();
                variables.0.insert(name.to_owned(), value);
            }
        }
    }
    variables
}

/// Whether the sandbox itself sets this variable, so that no one else may.
pub fn is_reserved_variable(name: &str) -> bool {
    RESERVED_VARIABLES.contains(&name)
        || MODEL_PROVIDERS.iter().any(|provider| provider.key_variable() == name)
}

pub fn is_variable_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
