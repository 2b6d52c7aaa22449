//! `belljar exec`: runs code in a fresh sandbox, on this machine or on a server.

use super::CliError;
use super::engine_args::EngineArgs;
use super::one_shot::{self, OutcomeArgs, StdoutUse};
use super::remote::ServerArgs;
use super::request_args::RequestArgs;
use super::resource_names::ResourceKind;
use crate::client::{ApiClient, ApiRequest};
use engine::{Code, Command, EntryPoint};
use serde_json::{Value, json};
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

/// Maximum size of standard input: more than the engine accepts, so that the engine reports the error.
const STDIN_BYTES_MAX: u64 = 64 * 1024 * 1024;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    engine: EngineArgs,

    #[command(flatten)]
    server: ServerArgs,

    #[command(flatten)]
    request: RequestArgs,

    #[command(flatten)]
    outcome: OutcomeArgs,

    /// Allow network access through this integration (requires --server); repeatable
    #[arg(long = "integration", value_name = "NAME", conflicts_with = "session")]
    integrations: Vec<String>,

    /// Run the code in this session of the server, with its variables and files
    #[arg(long, value_name = "KEY | ID")]
    session: Option<String>,

    /// Code, path of a script that ends in .py, or - for standard input. Everything after a script is
    /// passed to the script, also options
    #[arg(
        value_name = "CODE | SCRIPT.py | - [ARGS]",
        required = true,
        num_args = 1..,
        trailing_var_arg = true
    )]
    code_and_args: Vec<String>,
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    let entry = entry(&args)?;
    let stdout = match entry {
        EntryPoint::Script { .. } => StdoutUse::Script,
        _ => StdoutUse::Output,
    };
    if args.server.is_named() {
        let body = body(&args, &entry)?;
        let call = async |client: &ApiClient| {
            let path = match &args.session {
                Some(session) => {
                    client.resolve_path(ResourceKind::Session, session).await? + "/execute"
                }
                None => "/v1/execute".to_owned(),
            };
            Ok(ApiRequest::post(path).json(&body))
        };
        return one_shot::run_on_server(&args.server, call, &args.outcome, stdout);
    }
    for (option, is_set) in
        [("--integration", !args.integrations.is_empty()), ("--session", args.session.is_some())]
    {
        if is_set {
            return Err(server_only_error(option));
        }
    }
    let command = command(&args, entry)?;
    one_shot::run_local(command, &args.engine, &args.outcome, stdout)
}

fn server_only_error(option: &str) -> CliError {
    CliError::usage(format!(
        "{option} requires a server: set --server or BELLJAR_URL (local code has no network access and keeps no state)"
    ))
}

/// The body of the same request to a server.
fn body(args: &Args, entry: &EntryPoint) -> Result<Value, CliError> {
    let (kind, code, argv) = match entry {
        EntryPoint::Script { code, argv } => ("script", code.as_str(), argv.as_slice()),
        EntryPoint::Cell(code) => ("cell", code.as_str(), &[][..]),
        EntryPoint::ResultCell(code) => ("answer", code.as_str(), &[][..]),
        EntryPoint::ScriptIn { .. } | EntryPoint::Call(_) => {
            return Err(CliError::usage("`belljar exec` runs only cells and scripts"));
        }
    };
    Ok(json!({
        "code": code,
        "entry": kind,
        "argv": argv,
        "files": args.request.file_inputs_json()?,
        "limits": args.request.limits()?,
        "environment": args.engine.environment_name.as_ref().filter(|_| args.session.is_none()),
        "integrations": args.integrations,
    }))
}

/// Validates the whole request before anything is started.
fn command(args: &Args, entry: EntryPoint) -> Result<Command, CliError> {
    Ok(Command {
        files: args.request.files()?,
        limits: args.request.limits()?,
        collect_files: args.outcome.file_collection(),
        ..Command::new(args.engine.environment(), entry)
    })
}

fn entry(args: &Args) -> Result<EntryPoint, CliError> {
    let checked =
        |code: Vec<u8>| Code::new(code).map_err(|error| CliError::usage(error.to_string()));
    let (source, arguments) = args
        .code_and_args
        .split_first()
        .ok_or_else(|| CliError::usage("pass code, the path of a script, or -"))?;
    let is_script = source.ends_with(".py") && !source.contains('\n');
    if !is_script && !arguments.is_empty() {
        return Err(CliError::usage(format!(
            "unexpected arguments {:?} after the code: put options before the code, and quote code that contains spaces",
            arguments.join(" ")
        )));
    }
    if source == "-" {
        let mut code = Vec::new();
        let read = io::stdin().take(STDIN_BYTES_MAX).read_to_end(&mut code);
        read.map_err(|error| CliError::usage(format!("standard input: {error}")))?;
        return Ok(EntryPoint::Cell(checked(code)?));
    }
    if !is_script {
        return Ok(EntryPoint::Cell(checked(source.clone().into_bytes())?));
    }
    let failed = |reason: &str| CliError::usage(format!("{source}: {reason}"));
    let name = Path::new(source).file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| failed("the file name is not UTF-8 text"))?.to_owned();
    let code = fs::read(source).map_err(|error| failed(&error.to_string()))?;
    let argv = [&[name], arguments].concat();
    Ok(EntryPoint::Script { code: checked(code)?, argv })
}
