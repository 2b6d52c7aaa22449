//! What a sandbox can be asked to do, and how a kernel is told.

use crate::frames::{FunctionArguments, RunnerRequest};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use types::Limits;

/// What a sandbox can be asked to do.
#[derive(Debug, Clone, Copy)]
pub enum SandboxTask<'a> {
    Cell(Cell<'a>),
    Call(PythonCall<'a>),
}

/// A function of a source to be called.
#[derive(Debug, Clone, Copy)]
pub struct PythonCall<'a> {
    pub code: &'a str,
    /// Stands in tracebacks for a file name.
    pub name: &'a str,
    pub function: &'a str,
    pub arguments: FunctionArguments<'a>,
    /// By parameter, what its argument becomes before it is passed.
    pub conversions: &'a Map<String, Value>,
    /// Environment variables for this call alone.
    pub variables: &'a BTreeMap<String, String>,
    /// Whether a failed `assert` is told with the values in it.
    pub explain_asserts: bool,
    /// Whether modules in the working directory are its own, and not what a caller has put there.
    pub own_modules: bool,
}

/// Code to be run.
#[derive(Debug, Clone, Copy)]
pub struct Cell<'a> {
    pub code: &'a str,
    /// Stands in tracebacks for a file name.
    pub name: &'a str,
    /// Whether the value of a last expression is a result.
    pub show_last: bool,
    /// A name that is the result instead, if the code binds it.
    pub answer: Option<&'a str>,
    /// Makes it a script: `sys.argv`.
    pub argv: Option<&'a [String]>,
    /// Where a script is started, if not in the working directory.
    pub directory: Option<&'a str>,
    /// Environment variables, until other ones are told.
    pub variables: &'a BTreeMap<String, String>,
    /// The last code in this interpreter: threads are waited for and exit handlers run, as at the
    /// end of any program, and then it ends.
    pub last: bool,
}

impl<'a> SandboxTask<'a> {
    pub(crate) fn to_runner_request(self, limits: &Limits) -> RunnerRequest<'a> {
        let (result_limit, value_limit) = (limits.result_bytes, limits.result_bytes);
        match self {
            Self::Cell(Cell {
                code, name, show_last, answer, argv, directory, variables, ..
            }) => RunnerRequest::Run {
                code,
                name,
                show_last,
                answer,
                argv,
                directory,
                variables,
                result_limit,
                value_limit,
            },
            Self::Call(PythonCall {
                code,
                name,
                function,
                arguments,
                conversions,
                variables,
                explain_asserts,
                own_modules,
            }) => RunnerRequest::Call {
                code,
                name,
                function,
                arguments,
                conversions,
                variables,
                explain_asserts,
                own_modules,
                result_limit,
                value_limit,
            },
        }
    }

    pub(crate) fn is_last(&self) -> bool {
        matches!(self, Self::Cell(Cell { last: true, .. }))
    }
}
