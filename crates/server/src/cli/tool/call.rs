//! `belljar tool call`: one call in a fresh sandbox, checked before and after; of a tool in a file
//! here, of a tool with a name on a server.

use super::file::ToolFile;
use super::{EXIT_WRONG, Strictness, check};
use crate::cli::named::Noun;
use crate::cli::once::{self, OutcomeArgs, Stdout, print_record};
use crate::cli::remote::ServerArgs;
use crate::cli::request::{RequestArgs, read_bounded};
use crate::cli::setup::EngineArgs;
use crate::cli::{Failure, terminal};
use crate::client::{Call, Client};
use engine::{Command, Entry};
use serde_json::{Value, json};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use types::Fault;

/// What the arguments may have, written with all the white space that people like.
const ARGUMENTS_FILE_BYTES_MAX: u64 = 4 * contract::ARGUMENTS_BYTES_MAX as u64;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    engine: EngineArgs,

    #[command(flatten)]
    server: ServerArgs,

    #[command(flatten)]
    strictness: Strictness,

    /// The arguments: a JSON object, @FILE that has it, or - for standard input
    #[arg(long = "args", value_name = "JSON | @FILE | -", default_value = "{}")]
    arguments: String,

    #[command(flatten)]
    request: RequestArgs,

    #[command(flatten)]
    outcome: OutcomeArgs,

    /// Print the record of the call as it is now, and leave; for a tool of a server
    #[arg(long)]
    no_wait: bool,

    /// Python with a function `handle`, or the JSON of a tool; or the name of a tool on the server
    #[arg(value_name = "FILE.py | FILE.json | NAME")]
    tool: PathBuf,
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    match args.tool.to_str() {
        Some(name) if args.tool.extension().is_none() => on_server(&args, name),
        _ => here(&args),
    }
}

fn on_server(args: &Args, name: &str) -> Result<ExitCode, Failure> {
    let body = json!({
        "arguments": arguments(&args.arguments)?,
        "files": args.request.inputs()?,
        "limits": args.request.limits()?,
    });
    let call = async |client: &Client| {
        let path = client.path(Noun::Tool, name).await?;
        Ok(Call::post(format!("{path}/call")).json(&body))
    };
    if args.no_wait {
        return once::begin_at(&args.server, call, args.outcome.json);
    }
    once::run_at(&args.server, call, &args.outcome, Stdout::Value)
}

fn here(args: &Args) -> Result<ExitCode, Failure> {
    if args.no_wait {
        return Err(Failure::usage("--no-wait is for a tool of a server, which goes on there"));
    }
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
    if let Some(fault) = args.engine.missing_programs(&tool.requires_binaries)? {
        return refused(fault, args.outcome.json);
    }
    for (key, asks) in
        [("allow_network", tool.allow_network), ("integrations", !tool.integrations.is_empty())]
    {
        if asks {
            let why = "a tool that runs here, without a server, has no network";
            eprintln!("belljar: warning: {key} is set, and {why}");
        }
    }
    let command = command(args, call)?;
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

fn command(args: &Args, call: contract::Call) -> Result<Command, Failure> {
    Ok(Command {
        files: args.request.files()?,
        limits: args.request.limits()?,
        bring: args.outcome.bring(),
        ..Command::new(args.engine.environment(), Entry::Call(Box::new(call)))
    })
}

pub(in crate::cli) fn arguments(given: &str) -> Result<Value, Failure> {
    let (place, text) = match given.strip_prefix('@') {
        Some(path) => {
            let text =
                File::open(path).and_then(|file| read_bounded(file, ARGUMENTS_FILE_BYTES_MAX));
            (format!("--args @{path}"), text)
        }
        None if given == "-" => {
            ("--args -".to_owned(), read_bounded(io::stdin(), ARGUMENTS_FILE_BYTES_MAX))
        }
        None => ("--args".to_owned(), Ok(given.as_bytes().to_vec())),
    };
    let failed = |reason: String| Failure::usage(format!("{place}: {reason}"));
    let text = text.map_err(|error| failed(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| match text.trim_ascii_start().first() {
        Some(b'{') => failed(format!("this is not JSON: {error}")),
        _ if place == "--args" && Path::new(given).is_file() => {
            failed(format!("must be a JSON object; the file is named by @{given}"))
        }
        _ => failed(r#"must be a JSON object, such as {"text": "ho", "times": 3}"#.to_owned()),
    })
}
