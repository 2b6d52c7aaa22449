//! `belljar tool call`: one call in a fresh sandbox, validated before and after. A file is called
//! on this machine, a name on a server.

use super::file::ToolFile;
use super::{AnnotationArgs, EXIT_INVALID, check};
use crate::cli::engine_args::EngineArgs;
use crate::cli::one_shot::{self, OutcomeArgs, StdoutUse, print_record};
use crate::cli::remote::ServerArgs;
use crate::cli::request_args::{RequestArgs, read_bounded};
use crate::cli::resource_names::ResourceKind;
use crate::cli::{CliError, terminal};
use crate::client::{ApiClient, ApiRequest};
use engine::{Command, EntryPoint};
use serde_json::{Value, json};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use types::Error;

/// The maximum size of arguments, plus white space.
const ARGUMENTS_FILE_BYTES_MAX: u64 = 4 * contract::ARGUMENTS_BYTES_MAX as u64;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    engine: EngineArgs,

    #[command(flatten)]
    server: ServerArgs,

    #[command(flatten)]
    strictness: AnnotationArgs,

    /// Arguments of the call: a JSON object, @FILE, or - for standard input
    #[arg(long = "args", value_name = "JSON | @FILE | -", default_value = "{}")]
    arguments: String,

    #[command(flatten)]
    request: RequestArgs,

    #[command(flatten)]
    outcome: OutcomeArgs,

    /// Print the record of the call and exit without waiting for the result (tools of a server
    /// only)
    #[arg(long)]
    no_wait: bool,

    /// Python file with a function `handle`, JSON file of a tool, or name of a tool on the server
    #[arg(value_name = "FILE.py | FILE.json | NAME")]
    tool: PathBuf,
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    match args.tool.to_str() {
        Some(name) if args.tool.extension().is_none() => call_on_server(&args, name),
        _ => call_locally(&args),
    }
}

fn call_on_server(args: &Args, name: &str) -> Result<ExitCode, CliError> {
    let body = json!({
        "arguments": read_arguments(&args.arguments)?,
        "files": args.request.file_inputs_json()?,
        "limits": args.request.limits()?,
    });
    let call = async |client: &ApiClient| {
        let path = client.resolve_path(ResourceKind::Tool, name).await?;
        Ok(ApiRequest::post(format!("{path}/call")).json(&body))
    };
    if args.no_wait {
        return one_shot::start_on_server(&args.server, call, args.outcome.json);
    }
    one_shot::run_on_server(&args.server, call, &args.outcome, StdoutUse::Value)
}

fn call_locally(args: &Args) -> Result<ExitCode, CliError> {
    if args.no_wait {
        return Err(CliError::usage("--no-wait requires the name of a tool on a server"));
    }
    let file = ToolFile::read(&args.tool, args.strictness.mode())?;
    let Ok(tool) = &file.check.result else {
        check::print_report(&file, args.outcome.json)?;
        return Ok(ExitCode::from(EXIT_INVALID));
    };
    let arguments = read_arguments(&args.arguments)?;
    let call = match tool.validate_call(arguments) {
        Ok(call) => call,
        Err(error) => return print_rejection(error, args.outcome.json),
    };
    if let Some(error) = args.engine.missing_programs(tool)? {
        return print_rejection(error, args.outcome.json);
    }
    for (key, is_set) in
        [("allow_network", tool.allow_network), ("integrations", !tool.integrations.is_empty())]
    {
        if is_set {
            let why = "local tools have no network access";
            eprintln!("belljar: warning: {key} is ignored: {why}");
        }
    }
    let command = command(args, args.engine.tool_environment(tool), call)?;
    one_shot::run_local(command, &args.engine, &args.outcome, StdoutUse::Value)
}

/// Prints the error with --json also to standard output, for the program that made the call.
fn print_rejection(error: Error, json: bool) -> Result<ExitCode, CliError> {
    if json {
        let text = json!({ "error": error }).to_string();
        print_record(&terminal::for_stdout(&text))?;
    }
    Err(error.into())
}

fn command(
    args: &Args,
    environment: &str,
    call: contract::ValidatedCall,
) -> Result<Command, CliError> {
    Ok(Command {
        files: args.request.files()?,
        limits: args.request.limits()?,
        collect_files: args.outcome.file_collection(),
        ..Command::new(environment, EntryPoint::Call(Box::new(call)))
    })
}

pub(in crate::cli) fn read_arguments(argument: &str) -> Result<Value, CliError> {
    let (place, text) = match argument.strip_prefix('@') {
        Some(path) => {
            let text =
                File::open(path).and_then(|file| read_bounded(file, ARGUMENTS_FILE_BYTES_MAX));
            (format!("--args @{path}"), text)
        }
        None if argument == "-" => {
            ("--args -".to_owned(), read_bounded(io::stdin(), ARGUMENTS_FILE_BYTES_MAX))
        }
        None => ("--args".to_owned(), Ok(argument.as_bytes().to_vec())),
    };
    let failed = |reason: String| CliError::usage(format!("{place}: {reason}"));
    let text = text.map_err(|error| failed(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| match text.trim_ascii_start().first() {
        Some(b'{') => failed(format!("invalid JSON: {error}")),
        _ if place == "--args" && Path::new(argument).is_file() => {
            failed(format!("must be a JSON object; to read a file, use @{argument}"))
        }
        _ => failed(r#"must be a JSON object, such as {"text": "ho", "times": 3}"#.to_owned()),
    })
}
