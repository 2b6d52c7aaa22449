//! A tool: a function of a source, with its input and output.

use crate::annotation::AnnotationMode;
use crate::call::ARGUMENTS_BYTES_MAX;
use crate::diagnostic::{
    Diagnostic, DiagnosticCollector, SourceCheck, UnlocatedDiagnostic, truncate_diagnostics,
};
use crate::python::PythonModule;
use crate::schema::ObjectSchema;
use crate::source::PythonSource;
use crate::value_memory::value_memory;
use crate::{handle, tool_json};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use types::ErrorCode;

pub(crate) const RUN_FUNCTION: &str = "run";
pub(crate) const TEST_FUNCTION: &str = "test";
pub(crate) const NO_RUN: &str = "CodeRunner script must define a callable run(input) function";

/// A tool whose source and schemas are valid.
#[derive(Debug, Clone, PartialEq)]
pub struct CodeTool {
    pub name: String,
    /// Its purpose, in its author's words to the model.
    pub description: Option<String>,
    pub source: PythonSource,
    /// The file name of the source in tracebacks.
    pub file: String,
    pub entry: ToolEntryPoint,
    pub test: TestFunction,
    pub timeout_seconds: Option<u64>,
    pub allow_network: bool,
    /// The names of integrations that its code uses for network access.
    pub integrations: Vec<String>,
    pub variables: ToolVariables,
    /// Programs that its code starts, by their file names.
    pub requires_binaries: Vec<String>,
    /// Limit of the arguments, as JSON.
    pub input_bytes_max: usize,
}

/// Environment variables of a tool. `Debug` does not show their values.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ToolVariables(pub BTreeMap<String, String>);

impl fmt::Debug for ToolVariables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// How the tool is called, and with which schemas.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolEntryPoint {
    /// `handle(**arguments)`
    Handle { input: ObjectSchema },
    /// `run(input)`; without an input schema any object is valid.
    Run { input: Option<ObjectSchema>, output: Option<ObjectSchema> },
}

/// Whether there is a `test()` to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestFunction {
    Absent,
    Present,
    /// It has parameters, for which there are no arguments.
    WithParameters,
}

impl CodeTool {
    /// Parses a Python file with a function `handle`.
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

    /// Parses the JSON of a tool: `code_runner` (vendor document 003) or `runPythonCode` (000).
    pub fn from_json(text: &str, annotations: AnnotationMode) -> SourceCheck<Self> {
        tool_json::parse_tool(text, annotations)
    }

    /// The schema of the arguments, as a model sees it.
    pub fn descriptor(&self) -> Value {
        match &self.entry {
            ToolEntryPoint::Handle { input } | ToolEntryPoint::Run { input: Some(input), .. } => {
                input.descriptor()
            }
            ToolEntryPoint::Run { input: None, .. } => ObjectSchema::default().descriptor(),
        }
    }

    /// The schema of the tool's value, if its author has specified one.
    pub fn output_descriptor(&self) -> Option<Value> {
        match &self.entry {
            ToolEntryPoint::Run { output, .. } => output.as_ref().map(ObjectSchema::descriptor),
            ToolEntryPoint::Handle { .. } => None,
        }
    }

    /// Estimates its memory. Schemas have about the size of their descriptors, and an index.
    pub fn memory_bytes(&self) -> usize {
        let output = self.output_descriptor().map_or(0, |output| value_memory(&output));
        2 * (self.source.as_str().len() + value_memory(&self.descriptor()) + output)
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

/// The default file name of a tool's source.
pub(crate) fn default_file_name(name: &str) -> String {
    format!("{name}.py")
}
