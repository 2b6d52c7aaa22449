//! A tool: a function of a source, and what it takes and gives.

use crate::annotation::AnnotationMode;
use crate::call::ARGUMENTS_BYTES_MAX;
use crate::diagnostic::{
    Diagnostic, DiagnosticCollector, SourceCheck, UnlocatedDiagnostic, truncate_diagnostics,
};
use crate::python::PythonModule;
use crate::schema::ObjectSchema;
use crate::source::PythonSource;
use crate::{handle, tool_json};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use types::ErrorCode;

pub(crate) const RUN_FUNCTION: &str = "run";
pub(crate) const TEST_FUNCTION: &str = "test";
pub(crate) const NO_RUN: &str = "CodeRunner script must define a callable run(input) function";

/// A tool whose source and schemas were found to be right.
#[derive(Debug, Clone, PartialEq)]
pub struct CodeTool {
    pub name: String,
    /// What it is for, in the words of its author to the model.
    pub description: Option<String>,
    pub source: PythonSource,
    /// What the source is called in tracebacks.
    pub file: String,
    pub entry: ToolEntryPoint,
    pub test: TestFunction,
    pub timeout_seconds: Option<u64>,
    pub allow_network: bool,
    /// The names of integrations that its code leaves by.
    pub integrations: Vec<String>,
    pub variables: ToolVariables,
    /// Programs that its code starts, by their file names.
    pub requires_binaries: Vec<String>,
    /// Of the arguments, as JSON.
    pub input_bytes_max: usize,
}

/// Environment variables of a tool. Their values are nobody's business but the tool's.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ToolVariables(pub BTreeMap<String, String>);

impl fmt::Debug for ToolVariables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// How the tool is entered, and with what.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolEntryPoint {
    /// `handle(**arguments)`
    Handle { input: ObjectSchema },
    /// `run(input)`; without a schema of its input, any object will do.
    Run { input: Option<ObjectSchema>, output: Option<ObjectSchema> },
}

/// Whether there is a `test()` to be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestFunction {
    Absent,
    Present,
    /// It asks for arguments, and nobody has any.
    WithParameters,
}

impl CodeTool {
    /// A Python file with a function `handle`.
    pub fn from_python(
        name: &str,
        source: PythonSource,
        annotations: AnnotationMode,
    ) -> SourceCheck<Self> {
        let module = match PythonModule::parse(&source) {
            Ok(module) => module,
            Err(problem) => return invalid(vec![problem]),
        };
        let mut findings = DiagnosticCollector::default();
        let input = handle::import_handle(&module, &source, annotations, &mut findings);
        let test = find_test(&module, &mut findings);
        let tool = input.map(|input| Self {
            name: name.to_owned(),
            description: None,
            source: source.clone(),
            file: default_file_name(name),
            entry: ToolEntryPoint::Handle { input },
            test,
            timeout_seconds: None,
            allow_network: false,
            integrations: Vec::new(),
            variables: ToolVariables::default(),
            requires_binaries: Vec::new(),
            input_bytes_max: ARGUMENTS_BYTES_MAX,
        });
        findings.finish(&source, tool)
    }

    /// The JSON of a tool: seed 003's `code_runner`, or seed 000's `runPythonCode`.
    pub fn from_json(text: &str, annotations: AnnotationMode) -> SourceCheck<Self> {
        tool_json::parse_tool(text, annotations)
    }

    /// What a model is told about the arguments.
    pub fn descriptor(&self) -> Value {
        match &self.entry {
            ToolEntryPoint::Handle { input } | ToolEntryPoint::Run { input: Some(input), .. } => {
                input.descriptor()
            }
            ToolEntryPoint::Run { input: None, .. } => ObjectSchema::default().descriptor(),
        }
    }

    /// What the value of the tool is like, if its author has said so.
    pub fn output_descriptor(&self) -> Option<Value> {
        match &self.entry {
            ToolEntryPoint::Run { output, .. } => output.as_ref().map(ObjectSchema::descriptor),
            ToolEntryPoint::Handle { .. } => None,
        }
    }

    pub fn input(&self) -> Option<&ObjectSchema> {
        match &self.entry {
            ToolEntryPoint::Handle { input } => Some(input),
            ToolEntryPoint::Run { input, .. } => input.as_ref(),
        }
    }
}

pub(crate) fn invalid<T>(problems: Vec<Diagnostic>) -> SourceCheck<T> {
    SourceCheck {
        result: Err(truncate_diagnostics(problems, |problem| problem)),
        warnings: Vec::new(),
    }
}

pub(crate) fn find_test(module: &PythonModule, findings: &mut DiagnosticCollector) -> TestFunction {
    match module.function(TEST_FUNCTION) {
        None => TestFunction::Absent,
        Some(test) if test.parameters.is_empty() && test.variadic.is_empty() => {
            TestFunction::Present
        }
        Some(test) => {
            let message = "test() has parameters, and no parameters are allowed";
            findings
                .warnings
                .push(UnlocatedDiagnostic::new(ErrorCode::CodeType, message).with_span(test.span));
            TestFunction::WithParameters
        }
    }
}

/// What the source of a tool is called where nothing else is known.
pub(crate) fn default_file_name(name: &str) -> String {
    format!("{name}.py")
}
