//! `belljar tool call`: one call in a fresh sandbox, checked before and after.

use super::file::ToolFile;
use super::{EXIT_WRONG, Strictness, diagnostic};
use crate::cli::exec::{self, print_record};
use crate::cli::setup::{self, EngineArgs};
use crate::cli::terminal::{self, Screen};
use crate::cli::{Failure, progress};
use contract::Tool;
use engine::{Command, Engine, Entry};
use serde_json::Value;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use types::LimitsRequest;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    engine: EngineArgs,

    #[command(flatten)]
    strictness: Strictness,

    /// The arguments: a JSON object, @FILE that has it, or - for standard input
    #[arg(long = "args", value_name = "JSON | @FILE | -", default_value = "{}")]
    arguments: String,

    /// A file for the working directory; may be repeated
    #[arg(long = "file", value_name = "PATH")]
    files: Vec<PathBuf>,

    /// Write the files that the tool makes into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Wall time in seconds [default: what the tool says, or 30]
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    #[arg(value_parser = exec::parse_seconds)]
    timeout: Option<u64>,

    /// Print one Execution record as JSON, and nothing else
    #[arg(long)]
    json: bool,

    /// Python with a function `handle`, or the JSON of a tool
    #[arg(value_name = "FILE.py | FILE.json")]
    tool: PathBuf,
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    let file = ToolFile::read(&args.tool, args.strictness.annotations())?;
    let tool = match &file.checked.outcome {
        Ok(tool) => tool,
        Err(problems) => {
            eprint!("{}", terminal::for_stderr(&diagnostic::errors(&file, problems)));
            return Ok(ExitCode::from(EXIT_WRONG));
        }
    };
    let command = command(&args, &file, tool)?;
    if let Some(out) = &args.out {
        exec::make_out(out)?;
    }
    let mut screen = Screen::new();
    if tool.allow_network {
        screen.note("belljar: warning: allow_network is set, and sandboxes have no network yet");
    }
    let config = args.engine.single()?;
    let finished = setup::runtime()?.block_on(async {
        let engine = Engine::start(config);
        engine.prepare(&command.environment, progress::show()).await?;
        let live = !args.json;
        engine
            .run(command, &mut |event| {
                if live {
                    screen.log(event);
                }
            })
            .await
    })?;
    if let Some(out) = &args.out {
        exec::write_out(out, &finished)?;
    }
    let execution = &finished.execution;
    if args.json {
        let record = serde_json::to_string(execution).unwrap_or_default();
        print_record(&terminal::for_stdout(&record))?;
    } else {
        screen.conclude(execution);
        if let Some(value) = &execution.value {
            print_record(&terminal::for_stdout(&value.to_string()))?;
        }
    }
    Ok(ExitCode::from(u8::try_from(execution.exit_code).unwrap_or(1)))
}

/// Everything that can be wrong with the request is found here, before anything is started.
fn command(args: &Args, file: &ToolFile, tool: &Tool) -> Result<Command, Failure> {
    let call = tool.call(arguments(&args.arguments)?)?;
    let (code, call) = file.command(tool, call)?;
    let files = args.files.iter().map(|path| exec::input(path)).collect::<Result<_, _>>()?;
    let limits = limits(tool, args.timeout);
    exec::check_limits(&limits)?;
    Ok(Command {
        session: None,
        environment: args.engine.environment.clone(),
        entry: Entry::Call(Box::new(call)),
        code,
        files,
        limits,
        bring_files: args.out.is_some(),
    })
}

/// What was asked for, or else what the tool asks for.
pub(super) fn limits(tool: &Tool, timeout_ms: Option<u64>) -> LimitsRequest {
    let of_tool = tool.timeout_seconds.map(|seconds| seconds.saturating_mul(1000));
    LimitsRequest { wall_ms: timeout_ms.or(of_tool), ..LimitsRequest::default() }
}

fn arguments(given: &str) -> Result<Value, Failure> {
    let (place, text) = match given.strip_prefix('@') {
        Some(path) => (format!("--args @{path}"), std::fs::read(path)),
        None if given == "-" => {
            let mut text = Vec::new();
            let most = contract::ARGUMENTS_BYTES_MAX as u64 + 1;
            let read = std::io::stdin().take(most).read_to_end(&mut text);
            ("--args -".to_owned(), read.map(|_| text))
        }
        None => ("--args".to_owned(), Ok(given.as_bytes().to_vec())),
    };
    let failed = |reason: String| Failure::usage(format!("{place}: {reason}"));
    let text = text.map_err(|error| failed(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| failed(format!("this is not JSON: {error}")))
}
