//! A function that is deployed apart from agents: its `handle` is given what it asks for by name.
//!
//! Unlike the `handle` of a tool it has no schema of its own: whoever calls it says what its data are.

use crate::call::{ARGUMENTS_BYTES_MAX, CallArguments, ValidatedCall, check_size};
use crate::diagnostic::{DiagnosticCollector, SourceCheck, UnlocatedDiagnostic};
use crate::handle::{HANDLE, handle_not_found};
use crate::python::{PythonModule, PythonParameter};
use crate::source::PythonSource;
use crate::tool::{ToolVariables, invalid};
use serde_json::{Map, Value, json};
use types::{Error, ErrorCode};

/// Where `handle` is.
pub const HANDLER: &str = "handler.py";

const DATA: &str = "data";
const SECRETS: &str = "secrets";
const CALL_INFO: &str = "function_call_info";
const CLIENT: &str = "client";
/// How the kernel calls a client of the platform that acts as whoever calls.
const CLIENT_PLAN: &str = "cognite_client";

/// A function whose `handle` can be called.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionContract {
    source: PythonSource,
    /// Which of the things that there are its `handle` asks for.
    parameters: Vec<String>,
    /// Of the data, as JSON.
    pub input_bytes_max: usize,
}

impl FunctionContract {
    /// The source of its `handler.py`.
    pub fn from_python(source: PythonSource) -> SourceCheck<Self> {
        let module = match PythonModule::parse(&source) {
            Ok(module) => module,
            Err(problem) => return invalid(vec![problem]),
        };
        let mut findings = DiagnosticCollector::default();
        let function = match module.function(HANDLE) {
            None => {
                findings.errors.push(handle_not_found(&module, &source));
                None
            }
            Some(handle) => {
                findings.errors.extend(handle.parameters.iter().filter_map(unknown_parameter));
                let names = handle.parameters.iter().map(|parameter| parameter.name.clone());
                let asked = names.filter(|name| is_known_parameter(name)).collect();
                let input_bytes_max = ARGUMENTS_BYTES_MAX;
                Some(Self { source: source.clone(), parameters: asked, input_bytes_max })
            }
        };
        findings.finish(&source, function)
    }

    /// `name` is what its caller knows it by, and `call_info` says which call it is.
    pub fn call(&self, name: &str, data: Value, call_info: Value) -> Result<ValidatedCall, Error> {
        check_size(&data, self.input_bytes_max)?;
        // What `client` is cannot be said in JSON: the kernel makes it of nothing.
        let given =
            [(DATA, data), (SECRETS, json!({})), (CALL_INFO, call_info), (CLIENT, json!({}))];
        let asked =
            given.into_iter().filter(|(name, _)| self.parameters.iter().any(|it| it == name));
        let keywords: Map<String, Value> =
            asked.map(|(name, value)| (name.to_owned(), value)).collect();
        Ok(ValidatedCall {
            tool: name.to_owned(),
            code: self.source.as_str().to_owned(),
            file: HANDLER.to_owned(),
            variables: ToolVariables::default(),
            wall_ms: None,
            function: HANDLE,
            arguments: CallArguments::Keywords(keywords),
            conversions: Map::from_iter([(CLIENT.to_owned(), json!(CLIENT_PLAN))]),
            output: None,
            is_deployed: true,
        })
    }
}

fn is_known_parameter(name: &str) -> bool {
    [DATA, SECRETS, CALL_INFO, CLIENT].contains(&name)
}

/// What `handle` asks for and nobody has.
fn unknown_parameter(parameter: &PythonParameter) -> Option<UnlocatedDiagnostic> {
    let name = parameter.name.as_str();
    if is_known_parameter(name) || parameter.default.is_some() {
        return None;
    }
    let message = format!("handle() asks for `{name}`, which no function is given");
    let hint =
        format!("it may ask for {DATA}, {CLIENT}, {SECRETS} and {CALL_INFO}, by these names");
    Some(
        UnlocatedDiagnostic::new(ErrorCode::CodeType, message)
            .with_span(parameter.span)
            .with_hint(hint),
    )
}
