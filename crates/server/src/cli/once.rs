//! One execution in a fresh sandbox: shown while it runs, its files and images kept or named.

use super::images::{self, Image};
use super::setup::{self, EngineArgs};
use super::terminal::{self, Screen};
use super::{Failure, progress};
use engine::{Command, Engine, Finished};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use types::{Event, Execution};

#[derive(Debug, Clone, clap::Args)]
pub(super) struct OutcomeArgs {
    /// Write the files and the images that the code makes into this directory
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,

    /// Print one Execution record as JSON, and nothing else
    #[arg(long)]
    pub(super) json: bool,
}

/// What standard output is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stdout {
    /// What the code prints and shows, as if it ran here.
    Output,
    /// The value alone; what the code prints is a log.
    Value,
}

pub(super) fn run(
    command: Command,
    engine: &EngineArgs,
    outcome: &OutcomeArgs,
    stdout: Stdout,
) -> Result<ExitCode, Failure> {
    if let Some(out) = &outcome.out {
        fs::create_dir_all(out)
            .map_err(|error| Failure::usage(format!("--out {}: {error}", out.display())))?;
    }
    let mut screen = Screen::new();
    let mut shown = Vec::new();
    let config = engine.single()?;
    let finished = setup::runtime()?.block_on(async {
        let engine = Engine::start(config);
        engine.prepare(&command.environment, progress::show()).await?;
        let mut hear = |event: &Event| {
            shown.extend(images::of(event));
            match stdout {
                _ if outcome.json => {}
                Stdout::Output => screen.show(event),
                Stdout::Value => screen.log(event),
            }
        };
        engine.run(command, &mut hear).await
    })?;
    if let Some(out) = &outcome.out {
        write_out(out, &finished)?;
        write_images(out, &shown)?;
    }
    let execution = &finished.execution;
    if outcome.json {
        let record = serde_json::to_string(execution).unwrap_or_default();
        print_record(&terminal::for_stdout(&record))?;
    } else {
        conclude(&mut screen, execution, &shown, outcome.out.is_some());
        if let Some(value) = execution.value.as_ref().filter(|_| stdout == Stdout::Value) {
            print_record(&terminal::for_stdout(&value.to_string()))?;
        }
    }
    if let Some(error) = screen.lost() {
        return Err(failed(format!("a part of the output could not be written: {error}")));
    }
    Ok(ExitCode::from(u8::try_from(execution.exit_code).unwrap_or(1)))
}

fn failed(message: String) -> Failure {
    Failure { message, exit: super::EXIT_BELLJAR }
}

/// A record or a value, on standard output.
pub(super) fn print_record(record: &str) -> Result<(), Failure> {
    match writeln!(io::stdout(), "{record}") {
        // Whoever read us has gone away, which says nothing about the execution.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(failed(format!("the record could not be printed: {error}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn conclude(screen: &mut Screen, execution: &Execution, images: &[Image], written: bool) {
    screen.conclude(execution);
    for file in &execution.files_out {
        let hint = if written { "" } else { ", kept with --out DIR" };
        screen.note(&format!("belljar: file {} ({} bytes{hint})", file.name, file.size));
    }
    for file in &execution.truncated.files {
        screen.note(&format!("belljar: left out {}: {}", file.name, file.reason));
    }
    for image in images.iter().filter(|_| !written) {
        screen.note(&format!("belljar: {image}, kept with --out DIR"));
    }
}

/// Charts that were shown and not saved have no name of their own.
fn write_images(out: &Path, images: &[Image]) -> Result<(), Failure> {
    for image in images {
        let path = image.free_name_in(out);
        fs::write(&path, &image.content)
            .map_err(|error| failed(format!("{} could not be written: {error}", path.display())))?;
    }
    Ok(())
}

/// Names come from the sandbox, where they were checked to be plain relative paths. A link that
/// stands in the place of a file is replaced, not followed.
fn write_out(out: &Path, finished: &Finished) -> Result<(), Failure> {
    for (name, content) in &finished.files {
        let path = out.join(name);
        let failed =
            |error: io::Error| failed(format!("{} could not be written: {error}", path.display()));
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
