//! A command as the sandbox is asked to do it: a cell, a script, or the call of a function.

use crate::command::{Command, Entry, FileIn, ToolCall};
use crate::run::{Lease, place};
use sandbox::{Arguments, Call, Cell, Sandbox, Work};
use std::collections::BTreeMap;
use std::path::Path;
use types::Fault;

/// Where code finds itself.
const WORKING_DIRECTORY: &str = "/workspace";
const UNNAMED_SCRIPT: &str = "script.py";
/// Tells a tool in which session it runs.
const SESSION_VARIABLE: &str = "BELLJAR_SESSION";

/// Owns what [`Work`] only borrows.
pub(crate) enum Job<'a> {
    Cell {
        code: &'a str,
        name: String,
    },
    Script {
        code: &'a str,
        name: String,
        argv: Vec<String>,
        last: bool,
    },
    Call {
        code: &'a str,
        tool: &'a ToolCall,
        arguments: Arguments,
        variables: BTreeMap<String, String>,
    },
}

impl<'a> Job<'a> {
    pub(crate) fn new(command: &'a Command, lease: &mut Lease) -> Result<Self, Fault> {
        let code = command.code.as_str();
        Ok(match &command.entry {
            Entry::Cell => Self::Cell { code, name: format!("<cell {}>", lease.cell) },
            Entry::Script { argv } => {
                let argv = place_script(&mut lease.sandbox, code, argv)?;
                let script = argv.first().map_or(UNNAMED_SCRIPT, String::as_str);
                let name = format!("{WORKING_DIRECTORY}/{script}");
                Self::Script { code, name, argv, last: command.session.is_none() }
            }
            Entry::Call(tool) => {
                let mut variables = tool.variables.clone();
                variables.insert(SESSION_VARIABLE.to_owned(), lease.sandbox_id.to_string());
                Self::Call { code, tool, arguments: arguments(&tool.call), variables }
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
            Self::Call { code, tool, arguments, variables } => Work::Call(Call {
                code,
                name: &tool.file,
                function: tool.call.function(),
                arguments,
                conversions: tool.call.conversions(),
                variables,
                explain_asserts: tool.call.is_test(),
            }),
        }
    }
}

fn arguments(call: &contract::Call) -> Arguments {
    match call.arguments() {
        contract::Arguments::Keywords(keywords) => Arguments::Keywords(keywords.clone()),
        contract::Arguments::Input(input) => Arguments::Positional(vec![input.clone()]),
        contract::Arguments::None => Arguments::Positional(Vec::new()),
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
