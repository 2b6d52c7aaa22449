//! A command as a request to the sandbox: a cell, a script, or the call of a function.

use crate::command::{Command, EntryPoint, FileContent, InputFile};
use sandbox::{Cell, FunctionArguments, PythonCall, SandboxTask};
use std::collections::BTreeMap;
use std::path::Path;
use std::slice;

/// The working directory of code.
const WORKING_DIRECTORY: &str = "/workspace";
const UNNAMED_SCRIPT: &str = "script.py";
/// The name that code binds its result to.
const ANSWER: &str = "result";
/// Variables that tell code its session and its principal.
const SESSION_VARIABLE: &str = "BELLJAR_SESSION";
const PRINCIPAL_VARIABLE: &str = "BELLJAR_PRINCIPAL";

/// Owns the data that [`SandboxTask`] borrows.
pub(crate) struct CodeJob<'a> {
    task: CodeJobKind<'a>,
    variables: BTreeMap<String, String>,
}

enum CodeJobKind<'a> {
    Cell {
        code: &'a str,
        name: String,
        answer: Option<&'static str>,
    },
    Script {
        code: &'a str,
        name: String,
        argv: Vec<String>,
        directory: Option<&'a str>,
        last: bool,
    },
    Call(&'a contract::ValidatedCall),
}

impl<'a> CodeJob<'a> {
    /// `number` identifies it within its sandbox. Every execution there gets `variables`.
    pub(crate) fn new(
        command: &'a Command,
        number: u64,
        mut variables: BTreeMap<String, String>,
    ) -> Self {
        let code = command.entry.code();
        let task = match &command.entry {
            EntryPoint::Cell(_) => {
                CodeJobKind::Cell { code, name: format!("<cell {number}>"), answer: None }
            }
            EntryPoint::ResultCell(_) => {
                CodeJobKind::Cell { code, name: format!("<cell {number}>"), answer: Some(ANSWER) }
            }
            EntryPoint::Script { argv, .. } => {
                let script = script_name(argv);
                let name = format!("{WORKING_DIRECTORY}/{script}");
                let rest = argv.iter().skip(1).cloned();
                let argv = [script].into_iter().chain(rest).collect();
                CodeJobKind::Script {
                    code,
                    name,
                    argv,
                    directory: None,
                    last: command.session.is_none(),
                }
            }
            EntryPoint::ScriptIn { directory, argv, .. } => {
                let script = argv.first().map_or(UNNAMED_SCRIPT, String::as_str);
                let name = format!("{directory}/{script}");
                let (argv, directory) = (argv.clone(), Some(directory.as_str()));
                CodeJobKind::Script { code, name, argv, directory, last: command.session.is_none() }
            }
            EntryPoint::Call(call) => CodeJobKind::Call(call),
        };
        let told = [
            (SESSION_VARIABLE, command.session.map(|id| id.to_string())),
            (PRINCIPAL_VARIABLE, command.principal.clone()),
        ];
        let told = told.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        if let CodeJobKind::Call(call) = &task {
            // The caller of a tool cannot override the variables that its author set.
            variables.extend(call.variables().clone());
        }
        variables.extend(told);
        Self { task, variables }
    }

    pub(crate) fn task(&self) -> SandboxTask<'_> {
        let variables = &self.variables;
        match &self.task {
            CodeJobKind::Cell { code, name, answer } => SandboxTask::Cell(Cell {
                code,
                name,
                show_last: true,
                answer: *answer,
                argv: None,
                directory: None,
                variables,
                last: false,
            }),
            CodeJobKind::Script { code, name, argv, directory, last } => SandboxTask::Cell(Cell {
                code,
                name,
                show_last: false,
                answer: None,
                argv: Some(argv),
                directory: *directory,
                variables,
                last: *last,
            }),
            CodeJobKind::Call(call) => SandboxTask::Call(PythonCall {
                code: call.code(),
                name: call.file(),
                function: call.function(),
                arguments: match call.arguments() {
                    contract::CallArguments::Keywords(keywords) => {
                        FunctionArguments::Keywords(keywords)
                    }
                    contract::CallArguments::Input(input) => {
                        FunctionArguments::Positional(slice::from_ref(input))
                    }
                    contract::CallArguments::None => FunctionArguments::Positional(&[]),
                },
                conversions: call.conversions(),
                variables,
                explain_asserts: call.is_test(),
                own_modules: call.is_deployed(),
            }),
        }
    }
}

/// Takes the input files of a command, including its script: a script may open `__file__`, look for
/// data beside it, and be imported by child processes.
pub(crate) fn take_input_files(command: &mut Command) -> Vec<InputFile> {
    let mut files = std::mem::take(&mut command.files);
    if let EntryPoint::Script { code, argv } = &command.entry {
        files.push(InputFile {
            name: script_name(argv),
            content: FileContent::Bytes(code.as_str().into()),
        });
    }
    files
}

/// The path that a script seems to have been started from.
fn script_name(argv: &[String]) -> String {
    let given = argv.first().map_or(UNNAMED_SCRIPT, String::as_str);
    let name = Path::new(given).file_name().and_then(|name| name.to_str());
    name.unwrap_or(UNNAMED_SCRIPT).to_owned()
}
