//! The request to the runner for a command: a cell, a script, or the call of a function. It borrows
//! code, arguments and variables from the command.

use crate::command::{Command, EntryPoint, FileContent, InputFile};
use sandbox::{FunctionArguments, RunnerRequest, Variables};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::slice;
use types::Limits;

/// The working directory of code.
const WORKING_DIRECTORY: &str = "/workspace";
const UNNAMED_SCRIPT: &str = "script.py";
/// The name that code binds its result to.
const ANSWER: &str = "result";
/// Variables that tell code its session and its principal.
const SESSION_VARIABLE: &str = "BELLJAR_SESSION";
const PRINCIPAL_VARIABLE: &str = "BELLJAR_PRINCIPAL";

/// The request for a command. `number` identifies the run within its sandbox, and every run there
/// gets the variables `of_sandbox`.
pub(crate) fn runner_request<'a>(
    command: &'a Command,
    number: u64,
    of_sandbox: &'a BTreeMap<String, String>,
    limits: &Limits,
) -> RunnerRequest<'a> {
    let code = command.entry.code();
    let (result_limit, value_limit) = (limits.result_bytes, limits.result_bytes);
    let variables = variables(command, of_sandbox);
    let cell = |answer| RunnerRequest::Run {
        code,
        name: format!("<cell {number}>").into(),
        show_last: true,
        answer,
        argv: None,
        directory: None,
        variables: variables.clone(),
        result_limit,
        value_limit,
        last: false,
    };
    let script = |name: String, argv, directory| RunnerRequest::Run {
        code,
        name: name.into(),
        show_last: false,
        answer: None,
        argv: Some(argv),
        directory,
        variables: variables.clone(),
        result_limit,
        value_limit,
        last: command.session.is_none(),
    };
    match &command.entry {
        EntryPoint::Cell(_) => cell(None),
        EntryPoint::ResultCell(_) => cell(Some(ANSWER)),
        EntryPoint::Script { argv, .. } => {
            let file = script_name(argv);
            let name = format!("{WORKING_DIRECTORY}/{file}");
            let rest = argv.iter().skip(1).cloned();
            script(name, Cow::Owned([file].into_iter().chain(rest).collect()), None)
        }
        EntryPoint::ScriptIn { directory, argv, .. } => {
            let file = argv.first().map_or(UNNAMED_SCRIPT, String::as_str);
            script(format!("{directory}/{file}"), Cow::Borrowed(argv), Some(directory))
        }
        EntryPoint::Call(call) => RunnerRequest::Call {
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
            result_limit,
            value_limit,
        },
    }
}

/// Environment variables of the run: those of the sandbox, of the called tool, and those that name
/// the session and the principal.
fn variables<'a>(command: &'a Command, of_sandbox: &'a BTreeMap<String, String>) -> Variables<'a> {
    let borrow =
        |(name, value): (&'a String, &'a String)| (name.as_str(), Cow::Borrowed(value.as_str()));
    let mut variables: Variables<'a> = of_sandbox.iter().map(borrow).collect();
    if let EntryPoint::Call(call) = &command.entry {
        // The caller of a tool cannot override the variables that its author set.
        variables.extend(call.variables().iter().map(borrow));
    }
    let session = command.session.or(command.session_files);
    let session = session.map(|id| (SESSION_VARIABLE, Cow::Owned(id.to_string())));
    let principal = command.principal.as_deref().map(|name| (PRINCIPAL_VARIABLE, name.into()));
    variables.extend(session.into_iter().chain(principal));
    variables
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
