//! A command as the sandbox is asked to do it: a cell, a script, or the call of a function.

use crate::command::{Command, Entry, FileIn};
use crate::run::{Lease, place};
use sandbox::{Arguments, Call, Cell, Sandbox, Work};
use std::collections::BTreeMap;
use std::path::Path;
use std::slice;
use types::Fault;

/// Where code finds itself.
const WORKING_DIRECTORY: &str = "/workspace";
const UNNAMED_SCRIPT: &str = "script.py";
/// Tells a tool in which session it runs.
const SESSION_VARIABLE: &str = "BELLJAR_SESSION";

/// Owns what [`Work`] only borrows.
pub(crate) enum Job<'a> {
    Cell { code: &'a str, name: String },
    Script { code: &'a str, name: String, argv: Vec<String>, last: bool },
    Call { call: &'a contract::Call, variables: BTreeMap<String, String> },
}

impl<'a> Job<'a> {
    pub(crate) fn new(command: &'a Command, lease: &mut Lease) -> Result<Self, Fault> {
        let code = command.entry.code();
        Ok(match &command.entry {
            Entry::Cell(_) => Self::Cell { code, name: format!("<cell {}>", lease.cell) },
            Entry::Script { argv, .. } => {
                let argv = place_script(&mut lease.sandbox, code, argv)?;
                let script = argv.first().map_or(UNNAMED_SCRIPT, String::as_str);
                let name = format!("{WORKING_DIRECTORY}/{script}");
                Self::Script { code, name, argv, last: command.session.is_none() }
            }
            Entry::Call(call) => {
                let mut variables = call.variables().clone();
                let session =
                    command.session.map(|id| (SESSION_VARIABLE.to_owned(), id.to_string()));
                variables.extend(session);
                Self::Call { call, variables }
            }
        })
    }

    pub(crate) fn work(&self) -> Work<'_> {
        match self {
            Self::Cell { code, name } => {
                Work::Cell(Cell { code, name, show_last: true, argv: None, last: false })
            }
            Self::Script { code, name, argv, last } => {
                Work::Cell(Cell { code, name, show_last: false, argv: Some(argv), last: *last })
            }
            Self::Call { call, variables } => Work::Call(Call {
                code: call.code(),
                name: call.file(),
                function: call.function(),
                arguments: match call.arguments() {
                    contract::Arguments::Keywords(keywords) => Arguments::Keywords(keywords),
                    contract::Arguments::Input(input) => {
                        Arguments::Positional(slice::from_ref(input))
                    }
                    contract::Arguments::None => Arguments::Positional(&[]),
                },
                conversions: call.conversions(),
                variables,
                explain_asserts: call.is_test(),
            }),
        }
    }
}

/// Puts a script where it will seem to have been started from, and returns its arguments: it may
/// open `__file__`, look for its data beside it, and be imported by the children it spawns.
fn place_script(sandbox: &mut Sandbox, code: &str, argv: &[String]) -> Result<Vec<String>, Fault> {
    let given = argv.first().map_or(UNNAMED_SCRIPT, String::as_str);
    let name = Path::new(given).file_name().and_then(|name| name.to_str());
    let name = name.unwrap_or(UNNAMED_SCRIPT).to_owned();
    place(sandbox, &[FileIn { name: name.clone(), content: code.as_bytes().to_vec() }])?;
    Ok([name].into_iter().chain(argv.iter().skip(1).cloned()).collect())
}
