//! A tool: a function of a source, and what it takes and gives.

use crate::annotation::Annotations;
use crate::call::ARGUMENTS_BYTES_MAX;
use crate::problem::{Checked, Finding, Findings, Problem, shown};
use crate::python::Module;
use crate::schema::Object;
use crate::source::Source;
use crate::{handle, tool_json};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use types::Code;

pub(crate) const RUN: &str = "run";
pub(crate) const TEST: &str = "test";
pub(crate) const NO_RUN: &str = "CodeRunner script must define a callable run(input) function";

/// A tool whose source and schemas were found to be right.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    pub name: String,
    /// What it is for, in the words of its author to the model.
    pub description: Option<String>,
    pub source: Source,
    /// What the source is called in tracebacks.
    pub file: String,
    pub entry: Entry,
    pub test: Test,
    pub timeout_seconds: Option<u64>,
    pub allow_network: bool,
    /// The names of integrations that its code leaves by.
    pub integrations: Vec<String>,
    pub variables: Variables,
    /// Programs that its code starts, by their file names.
    pub requires_binaries: Vec<String>,
    /// Of the arguments, as JSON.
    pub input_bytes_max: usize,
}

/// Environment variables of a tool. Their values are nobody's business but the tool's.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Variables(pub BTreeMap<String, String>);

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
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
            file: file_of(name),
            entry: Entry::Handle { input },
            test,
            timeout_seconds: None,
            allow_network: false,
            integrations: Vec::new(),
            variables: Variables::default(),
            requires_binaries: Vec::new(),
            input_bytes_max: ARGUMENTS_BYTES_MAX,
        });
        findings.conclude(&source, tool)
    }

    /// The JSON of a tool: seed 003's `code_runner`, or seed 000's `runPythonCode`.
    pub fn from_json(text: &str, annotations: Annotations) -> Checked<Self> {
        tool_json::read(text, annotations)
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

    pub fn input(&self) -> Option<&Object> {
        match &self.entry {
            Entry::Handle { input } => Some(input),
            Entry::Run { input, .. } => input.as_ref(),
        }
    }
}

pub(crate) fn refused<T>(problems: Vec<Problem>) -> Checked<T> {
    Checked { outcome: Err(shown(problems, |problem| problem)), warnings: Vec::new() }
}

pub(crate) fn find_test(module: &Module, findings: &mut Findings) -> Test {
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

/// What the source of a tool is called where nothing else is known.
pub(crate) fn file_of(name: &str) -> String {
    format!("{name}.py")
}
