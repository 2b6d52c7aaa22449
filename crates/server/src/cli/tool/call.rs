//! `belljar tool call`: one call in a fresh sandbox, checked before and after.

use super::file::ToolFile;
use super::{EXIT_WRONG, Strictness, check};
use crate::cli::once::{self, OutcomeArgs, Stdout, print_record};
use crate::cli::request::RequestArgs;
use crate::cli::setup::EngineArgs;
use crate::cli::{Failure, terminal};
use contract::Tool;
use engine::{Command, Entry};
use serde_json::{Value, json};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use types::Fault;

/// More than is taken, so that whoever sends it can be told.
const STDIN_BYTES_MAX: u64 = 64 * 1024 * 1024;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    engine: EngineArgs,

    #[command(flatten)]
    strictness: Strictness,

    /// The arguments: a JSON object, @FILE that has it, or - for standard input
    #[arg(long = "args", value_name = "JSON | @FILE | -", default_value = "{}")]
    arguments: String,

    #[command(flatten)]
    request: RequestArgs,

    #[command(flatten)]
    outcome: OutcomeArgs,

    /// Python with a function `handle`, or the JSON of a tool
    #[arg(value_name = "FILE.py | FILE.json")]
    tool: PathBuf,
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    let file = ToolFile::read(&args.tool, args.strictness.annotations())?;
    let Ok(tool) = &file.checked.outcome else {
        check::tell(&file, args.outcome.json)?;
        return Ok(ExitCode::from(EXIT_WRONG));
    };
    let arguments = arguments(&args.arguments)?;
    let call = match tool.call(arguments) {
        Ok(call) => call,
        Err(fault) => return refused(fault, args.outcome.json),
    };
    if tool.allow_network {
        let warning = "allow_network is set, and sandboxes have no network yet";
        eprintln!("belljar: warning: {warning}");
    }
    let command = command(&args, &file, tool, call)?;
    once::run(command, &args.engine, &args.outcome, Stdout::Value)
}

/// For a machine on standard output as well, since it is the machine that has to call again.
fn refused(fault: Fault, json: bool) -> Result<ExitCode, Failure> {
    if json {
        let text = json!({ "error": fault }).to_string();
        print_record(&terminal::for_stdout(&text))?;
    }
    Err(fault.into())
}

fn command(
    args: &Args,
    file: &ToolFile,
    tool: &Tool,
    call: contract::Call,
) -> Result<Command, Failure> {
    let (code, call) = file.command(tool, call)?;
    Ok(Command {
        session: None,
        environment: args.engine.environment.clone(),
        entry: Entry::Call(Box::new(call)),
        code,
        files: args.request.files()?,
        limits: args.request.limits(tool.wall_ms())?,
        bring_files: args.outcome.out.is_some(),
    })
}

fn arguments(given: &str) -> Result<Value, Failure> {
    let (place, text) = match given.strip_prefix('@') {
        Some(path) => (format!("--args @{path}"), std::fs::read(path)),
        None if given == "-" => {
            let mut text = Vec::new();
            let read = std::io::stdin().take(STDIN_BYTES_MAX).read_to_end(&mut text);
            ("--args -".to_owned(), read.map(|_| text))
        }
        None => ("--args".to_owned(), Ok(given.as_bytes().to_vec())),
    };
    let failed = |reason: String| Failure::usage(format!("{place}: {reason}"));
    let text = text.map_err(|error| failed(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| {
        let is_file = place == "--args" && Path::new(given).is_file();
        let hint = if is_file { format!("; the file is named by @{given}") } else { String::new() };
        failed(format!("this is not JSON: {error}{hint}"))
    })
}
