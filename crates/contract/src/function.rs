//! A function that is deployed separately from agents: its `handle` receives the parameters that it
//! names.
//!
//! Unlike the `handle` of a tool it has no schema: its caller decides about its data.

use crate::call::{ARGUMENTS_BYTES_MAX, CallArguments, ValidatedCall, check_size};
use crate::diagnostic::{DiagnosticCollector, SourceCheck, UnlocatedDiagnostic};
use crate::handle::{HANDLE, handle_not_found};
use crate::python::{PythonModule, PythonParameter};
use crate::source::PythonSource;
use crate::tool::{ToolVariables, invalid};
use serde_json::{Map, Value, json};
use types::{Error, ErrorCode};

/// The file that contains `handle`.
pub const HANDLER: &str = "handler.py";

const DATA: &str = "data";
const SECRETS: &str = "secrets";
const CALL_INFO: &str = "function_call_info";
const CLIENT: &str = "client";
/// The runner's name for a client of the platform that acts as the caller.
const CLIENT_PLAN: &str = "cognite_client";

/// A function whose `handle` can be called.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionContract {
    source: PythonSource,
    /// The available parameters that its `handle` names.
    parameters: Vec<String>,
    /// Limit of the data, as JSON.
    pub input_bytes_max: usize,
}

impl FunctionContract {
    /// Parses the source of its `handler.py`.
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
                let requested = names.filter(|name| is_known_parameter(name)).collect();
                let input_bytes_max = ARGUMENTS_BYTES_MAX;
                Some(Self { source: source.clone(), parameters: requested, input_bytes_max })
            }
        };
        findings.finish(&source, function)
    }

    /// `name` is the caller's name for it, and `call_info` identifies the call.
    pub fn call(&self, name: &str, data: Value, call_info: Value) -> Result<ValidatedCall, Error> {
        check_size(&data, self.input_bytes_max)?;
        // `client` has no JSON form: the runner creates it.
        let given =
            [(DATA, data), (SECRETS, json!({})), (CALL_INFO, call_info), (CLIENT, json!({}))];
        let requested =
            given.into_iter().filter(|(name, _)| self.parameters.iter().any(|it| it == name));
        let keywords: Map<String, Value> =
            requested.map(|(name, value)| (name.to_owned(), value)).collect();
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

/// A parameter of `handle` that does not exist.
fn unknown_parameter(parameter: &PythonParameter) -> Option<UnlocatedDiagnostic> {
    let name = parameter.name.as_str();
    if is_known_parameter(name) || parameter.default.is_some() {
        return None;
    }
    let message = format!("handle() has the unknown parameter `{name}`");
    let hint = format!("allowed parameters are {DATA}, {CLIENT}, {SECRETS} and {CALL_INFO}");
    Some(
        UnlocatedDiagnostic::new(ErrorCode::CodeType, message)
            .with_span(parameter.span)
            .with_hint(hint),
    )
}
