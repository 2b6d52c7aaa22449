//! `belljar exec`: one execution in a fresh sandbox.

use super::images::{self, Image};
use super::setup::{self, EngineArgs};
use super::terminal::{self, Screen};
use super::{Failure, progress};
use engine::{Code, Command, Engine, Entry, FileIn, Finished};
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use types::{Execution, Fault, LimitsRequest, OperatorCaps};

/// Read from a terminal or a pipe: more than the engine accepts, so that it can say so.
const STDIN_BYTES_MAX: u64 = 64 * 1024 * 1024;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    engine: EngineArgs,

    /// A file for the working directory; may be repeated
    #[arg(long = "file", value_name = "PATH")]
    files: Vec<PathBuf>,

    /// Wall time in seconds
    #[arg(long, value_name = "S", default_value = "30", allow_negative_numbers = true)]
    #[arg(value_parser = parse_seconds)]
    timeout: u64,

    /// Memory in MiB
    #[arg(long, value_name = "MIB", default_value = "512", allow_negative_numbers = true)]
    #[arg(value_parser = parse_mib)]
    memory: u64,

    /// Write the files that the code makes into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print one Execution record as JSON, and nothing else
    #[arg(long)]
    json: bool,

    /// Code, the path of a script that ends in .py, or - for standard input
    #[arg(value_name = "CODE | SCRIPT.py | -")]
    code: String,

    /// Arguments for a script; `--` before them keeps their options apart from ours
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

pub(super) fn parse_seconds(text: &str) -> Result<u64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    let millis = (seconds * 1000.0).round();
    if (1.0..=1e15).contains(&millis) {
        Ok(millis as u64)
    } else {
        Err("must be more than zero".to_owned())
    }
}

pub(super) fn parse_mib(text: &str) -> Result<u64, String> {
    let mib: u64 = text.parse().map_err(|_| "not a whole number of MiB above zero".to_owned())?;
    mib.checked_mul(1024 * 1024).filter(|bytes| *bytes > 0).ok_or("must be more than zero".into())
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    let command = command(&args)?;
    if let Some(out) = &args.out {
        make_out(out)?;
    }
    let config = args.engine.single()?;
    let mut screen = Screen::new();
    let mut shown = Vec::new();
    let finished = setup::runtime()?.block_on(async {
        let engine = Engine::start(config);
        engine.prepare(&command.environment, progress::show()).await?;
        let live = !args.json;
        engine
            .run(command, &mut |event| {
                shown.extend(images::of(event));
                if live {
                    screen.show(event);
                }
            })
            .await
    })?;
    if let Some(out) = &args.out {
        write_out(out, &finished)?;
        write_images(out, &shown)?;
    }
    let execution = &finished.execution;
    if args.json {
        let record = serde_json::to_string(execution).unwrap_or_default();
        print_record(&terminal::for_stdout(&record))?;
    } else {
        screen.conclude(execution);
        list_files(&mut screen, execution, args.out.is_some());
        for image in shown.iter().filter(|_| args.out.is_none()) {
            screen.note(&format!("belljar: {image}, kept with --out DIR"));
        }
    }
    if let Some(error) = screen.lost() {
        return Err(Failure {
            message: format!("a part of the output could not be written: {error}"),
            exit: super::EXIT_BELLJAR,
        });
    }
    Ok(ExitCode::from(u8::try_from(execution.exit_code).unwrap_or(1)))
}

pub(super) fn make_out(out: &Path) -> Result<(), Failure> {
    fs::create_dir_all(out)
        .map_err(|error| Failure::usage(format!("--out {}: {error}", out.display())))
}

/// Limits that no sandbox can have are refused before one is started.
pub(super) fn check_limits(limits: &LimitsRequest) -> Result<(), Failure> {
    limits
        .resolve(&OperatorCaps::default())
        .map_err(|error| Fault::new(types::Code::ArgsInvalid, error.to_string()))?;
    Ok(())
}

/// A record or a value, on standard output.
pub(super) fn print_record(record: &str) -> Result<(), Failure> {
    match writeln!(io::stdout(), "{record}") {
        // Whoever read us has gone away, which says nothing about the execution.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure {
            message: format!("the record could not be printed: {error}"),
            exit: super::EXIT_BELLJAR,
        }),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Everything that can be wrong with the request is found here, before anything is started.
fn command(args: &Args) -> Result<Command, Failure> {
    let (entry, code) = source(args)?;
    let code = Code::new(code).map_err(|error| Failure::usage(error.to_string()))?;
    let files = args.files.iter().map(|path| input(path)).collect::<Result<_, _>>()?;
    let limits = LimitsRequest {
        wall_ms: Some(args.timeout),
        memory_bytes: Some(args.memory),
        ..LimitsRequest::default()
    };
    check_limits(&limits)?;
    Ok(Command {
        session: None,
        environment: args.engine.environment.clone(),
        entry,
        code,
        files,
        limits,
        bring_files: args.out.is_some(),
    })
}

fn source(args: &Args) -> Result<(Entry, Vec<u8>), Failure> {
    let is_script = args.code.ends_with(".py") && !args.code.contains('\n');
    if !is_script && !args.args.is_empty() {
        return Err(Failure::usage(format!(
            "{:?} comes after the code: options go before it, arguments are for scripts, and code \
             with spaces needs quotes",
            args.args.join(" ")
        )));
    }
    if args.code == "-" {
        let mut code = Vec::new();
        let read = io::stdin().take(STDIN_BYTES_MAX).read_to_end(&mut code);
        read.map_err(|error| Failure::usage(format!("standard input: {error}")))?;
        return Ok((Entry::Cell, code));
    }
    if !is_script {
        return Ok((Entry::Cell, args.code.clone().into_bytes()));
    }
    let failed = |reason: &str| Failure::usage(format!("{}: {reason}", args.code));
    let name = Path::new(&args.code).file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| failed("has no name that can be used"))?.to_owned();
    let code = fs::read(&args.code).map_err(|error| failed(&error.to_string()))?;
    let argv = [&[name], args.args.as_slice()].concat();
    Ok((Entry::Script { argv }, code))
}

pub(super) fn input(path: &Path) -> Result<FileIn, Failure> {
    let failed = |reason: &str| Failure::usage(format!("--file {}: {reason}", path.display()));
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| failed("has no name that can be used"))?.to_owned();
    let content = fs::read(path).map_err(|error| failed(&error.to_string()))?;
    Ok(FileIn { name, content })
}

fn list_files(screen: &mut Screen, execution: &Execution, written: bool) {
    for file in &execution.files_out {
        let hint = if written { "" } else { ", kept with --out DIR" };
        screen.note(&format!("belljar: file {} ({} bytes{hint})", file.name, file.size));
    }
    for file in &execution.truncated.files {
        screen.note(&format!("belljar: left out {}: {}", file.name, file.reason));
    }
}

/// Charts that were shown and not saved have no name of their own.
fn write_images(out: &Path, images: &[Image]) -> Result<(), Failure> {
    for image in images {
        let path = image.free_name_in(out);
        fs::write(&path, &image.content).map_err(|error| Failure {
            message: format!("{} could not be written: {error}", path.display()),
            exit: super::EXIT_BELLJAR,
        })?;
    }
    Ok(())
}

/// Names come from the sandbox, where they were checked to be plain relative paths. A link that
/// stands in the place of a file is replaced, not followed.
pub(super) fn write_out(out: &Path, finished: &Finished) -> Result<(), Failure> {
    for (name, content) in &finished.files {
        let path = out.join(name);
        let failed = |error: io::Error| Failure {
            message: format!("{} could not be written: {error}", path.display()),
            exit: super::EXIT_BELLJAR,
        };
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        if path.is_symlink() {
            fs::remove_file(&path).map_err(failed)?;
        }
        fs::write(&path, content).map_err(failed)?;
    }
    Ok(())
}
