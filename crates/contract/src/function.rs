//! A function that is deployed apart from agents: its `handle` is given what it asks for by name.
//!
//! Unlike the `handle` of a tool it has no schema of its own: whoever calls it says what its data are.

use crate::call::{ARGUMENTS_BYTES_MAX, Arguments, Call, check_size};
use crate::handle::{HANDLE, not_found};
use crate::problem::{Checked, Finding, Findings};
use crate::python::{Module, Parameter};
use crate::source::Source;
use crate::tool::{Variables, refused};
use serde_json::{Map, Value, json};
use types::{Code, Fault};

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
pub struct Function {
    source: Source,
    /// Which of the things that there are its `handle` asks for.
    asked: Vec<String>,
    /// Of the data, as JSON.
    pub input_bytes_max: usize,
}

impl Function {
    /// The source of its `handler.py`.
    pub fn from_python(source: Source) -> Checked<Self> {
        let module = match Module::parse(&source) {
            Ok(module) => module,
            Err(problem) => return refused(vec![problem]),
        };
        let mut findings = Findings::default();
        let function = match module.function(HANDLE) {
            None => {
                findings.errors.push(not_found(&module, &source));
                None
            }
            Some(handle) => {
                findings.errors.extend(handle.parameters.iter().filter_map(unknown));
                let names = handle.parameters.iter().map(|parameter| parameter.name.clone());
                let asked = names.filter(|name| is_known(name)).collect();
                let input_bytes_max = ARGUMENTS_BYTES_MAX;
                Some(Self { source: source.clone(), asked, input_bytes_max })
            }
        };
        findings.conclude(&source, function)
    }

    /// `name` is what its caller knows it by, and `call_info` says which call it is.
    pub fn call(&self, name: &str, data: Value, call_info: Value) -> Result<Call, Fault> {
        check_size(&data, self.input_bytes_max)?;
        // What `client` is cannot be said in JSON: the kernel makes it of nothing.
        let given =
            [(DATA, data), (SECRETS, json!({})), (CALL_INFO, call_info), (CLIENT, json!({}))];
        let asked = given.into_iter().filter(|(name, _)| self.asked.iter().any(|it| it == name));
        let keywords: Map<String, Value> =
            asked.map(|(name, value)| (name.to_owned(), value)).collect();
        Ok(Call {
            tool: name.to_owned(),
            code: self.source.as_str().to_owned(),
            file: HANDLER.to_owned(),
            variables: Variables::default(),
            wall_ms: None,
            function: HANDLE,
            arguments: Arguments::Keywords(keywords),
            conversions: Map::from_iter([(CLIENT.to_owned(), json!(CLIENT_PLAN))]),
            output: None,
            deployed: true,
        })
    }
}

fn is_known(name: &str) -> bool {
    [DATA, SECRETS, CALL_INFO, CLIENT].contains(&name)
}

/// What `handle` asks for and nobody has.
fn unknown(parameter: &Parameter) -> Option<Finding> {
    let name = parameter.name.as_str();
    if is_known(name) || parameter.default.is_some() {
        return None;
    }
    let message = format!("handle() asks for `{name}`, which no function is given");
    let hint =
        format!("it may ask for {DATA}, {CLIENT}, {SECRETS} and {CALL_INFO}, by these names");
    Some(Finding::new(Code::CodeType, message).at(parameter.span).hint(hint))
}
