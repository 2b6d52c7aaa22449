//! Runs one execution in a fresh sandbox, displays it, and saves or lists its files and images.

mod remote;

pub(super) use remote::{follow_execution, run_on_server, start_on_server};

use super::engine_args::{self, EngineArgs};
use super::images::{self, Image};
use super::terminal::{self, TerminalOutput};
use super::{CliError, local_engine, progress};
use engine::{
    Command, Config, Engine, FileCollection, FinishedExecution, InstalledVersions, ValueBudget,
};
use std::fs;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use types::{Event, Execution};

/// Maximum output of local code that is displayed while it runs and not kept: about as much as the rate of
/// output ([0056](../../../../docs/decisions/0056-what-executions-of-a-caller-share.md)) lets code print
/// within the default time limit.
const STREAMED_BYTES_MAX: u64 = 1024 * 1024 * 1024;

#[derive(Debug, Clone, clap::Args)]
pub(super) struct OutcomeArgs {
    /// Write the files and images that the code creates into this directory
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,

    /// Print only the execution record, as JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl OutcomeArgs {
    pub(super) fn file_collection(&self) -> FileCollection {
        if self.out.is_some() { FileCollection::Contents } else { FileCollection::Nothing }
    }
}

/// The content of standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StdoutUse {
    /// Output and results of the code.
    Output,
    /// Only what the code writes there, as of a program; results that it displays go to standard error.
    Script,
    /// Only the value; output of the code goes to standard error.
    Value,
}

pub(super) fn run_local(
    command: Command,
    engine: &EngineArgs,
    outcome: &OutcomeArgs,
    stdout: StdoutUse,
) -> Result<ExitCode, CliError> {
    run_with_config(command, engine.single_config()?, outcome, stdout, async |_, _| Ok(None))
}

/// Runs a command on an engine with this configuration. `replace_environment` sees what the requested
/// environment contains, and may return the name of another one to run in.
pub(super) fn run_with_config(
    mut command: Command,
    mut config: Config,
    outcome: &OutcomeArgs,
    stdout: StdoutUse,
    replace_environment: impl AsyncFnOnce(
        &Arc<Engine>,
        &InstalledVersions,
    ) -> Result<Option<String>, CliError>,
) -> Result<ExitCode, CliError> {
    let mut display = ExecutionDisplay::new(outcome, stdout)?;
    let mut images = Vec::new();
    if !outcome.json {
        config.caps.0.output_bytes = STREAMED_BYTES_MAX;
        command.limits.output_bytes = Some(STREAMED_BYTES_MAX);
    }
    let FinishedExecution { execution, contents, .. } =
        engine_args::build_runtime()?.block_on(async {
            let (engine, installed) = local_engine::start(config, &command.environment).await?;
            if let Some(other) = replace_environment(&engine, &installed).await? {
                engine.prepare(&other, progress::progress_printer()).await?;
                command.environment = other;
            }
            let mut show = |event: &Event| {
                images.extend(images::image_of(event));
                display.show_event(event);
            };
            let admitted = engine.admit(command).await?;
            if outcome.json {
                return admitted.run(&mut show).await.map_err(CliError::from);
            }
            let mut stream = |event: Event| show(&event);
            admitted.stream(&mut stream, &ValueBudget::default()).await.map_err(CliError::from)
        })?;
    if let Some(out) = &outcome.out {
        contents.iter().try_for_each(|(name, content)| write_output_file(out, name, content))?;
        write_images(out, &images)?;
    }
    display.finish(&execution, &images)
}

/// Displays one execution, local or remote.
pub(super) struct ExecutionDisplay<'a> {
    pub(super) terminal: TerminalOutput,
    pub(super) outcome: &'a OutcomeArgs,
    stdout: StdoutUse,
    /// Whether the caller reports the pending approvals at the end.
    pub(super) reports_approvals_at_end: bool,
}

impl<'a> ExecutionDisplay<'a> {
    /// Creates the output directory before anything runs.
    pub(super) fn new(outcome: &'a OutcomeArgs, stdout: StdoutUse) -> Result<Self, CliError> {
        if let Some(out) = &outcome.out {
            fs::create_dir_all(out)
                .map_err(|error| CliError::usage(format!("--out {}: {error}", out.display())))?;
        }
        Ok(Self {
            terminal: TerminalOutput::new(),
            outcome,
            stdout,
            reports_approvals_at_end: false,
        })
    }

    pub(super) fn show_event(&mut self, event: &Event) {
        match self.stdout {
            _ if self.outcome.json => {}
            StdoutUse::Script if matches!(event, Event::Result(_)) => {
                self.terminal.show_result_as_note(event);
            }
            StdoutUse::Output | StdoutUse::Script => self.terminal.show_event(event),
            StdoutUse::Value => self.terminal.show_log_event(event),
        }
    }

    /// Displays how the execution ended; `images` are those that are not saved as files.
    pub(super) fn finish(
        mut self,
        execution: &Execution,
        images: &[Image],
    ) -> Result<ExitCode, CliError> {
        if self.outcome.json {
            let record = serde_json::to_string(execution).unwrap_or_default();
            print_record(&terminal::for_stdout(&record))?;
        } else {
            print_outcome(&mut self.terminal, execution, images, self.outcome.out.is_some());
            let value = execution.value.as_ref().filter(|_| self.stdout == StdoutUse::Value);
            if let Some(value) = value {
                print_record(&terminal::for_stdout(&value.to_string()))?;
            }
        }
        if let Some(error) = self.terminal.write_error() {
            return Err(internal_error(format!("cannot write a part of the output: {error}")));
        }
        let exit = execution.exit_code.and_then(|code| u8::try_from(code).ok());
        Ok(ExitCode::from(exit.unwrap_or(1)))
    }
}

fn internal_error(message: String) -> CliError {
    CliError::internal(message)
}

/// Prints a record or a value to standard output.
pub(super) fn print_record(record: &str) -> Result<(), CliError> {
    match writeln!(io::stdout(), "{record}") {
        // A closed pipe says nothing about the execution.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(internal_error(format!("cannot print the record: {error}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes the bytes of a file unchanged to standard output.
pub(super) fn print_bytes(bytes: &[u8]) -> Result<(), CliError> {
    let mut stdout = io::stdout();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(internal_error(format!("cannot write the file: {error}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn print_outcome(
    terminal: &mut TerminalOutput,
    execution: &Execution,
    images: &[Image],
    is_saved: bool,
) {
    terminal.show_outcome(execution);
    for file in &execution.files_out {
        let hint = if is_saved { "" } else { "; save it with --out DIR" };
        let name = terminal::sanitize_plain(&file.name);
        terminal.print_note(&format!("belljar: file {name} ({} bytes{hint})", file.size));
    }
    for file in &execution.truncated.files {
        let (name, reason) =
            (terminal::sanitize_plain(&file.name), terminal::sanitize_plain(&file.reason));
        terminal.print_note(&format!("belljar: skipped {name}: {reason}"));
    }
    for image in images.iter().filter(|_| !is_saved) {
        terminal.print_note(&format!("belljar: {image}; save it with --out DIR"));
    }
}

/// Writes images that the code displayed but did not save, which have no name.
fn write_images(out: &Path, images: &[Image]) -> Result<(), CliError> {
    for image in images {
        let path = image.free_name_in(out);
        fs::write(&path, &image.content)
            .map_err(|error| internal_error(format!("cannot write {}: {error}", path.display())))?;
    }
    Ok(())
}

/// Writes an output file. The name must be a plain relative path: the engine has checked names of a
/// sandbox, but a server may send any text. An existing symbolic link is replaced, not followed.
pub(super) fn write_output_file(out: &Path, name: &str, content: &[u8]) -> Result<(), CliError> {
    let path = out.join(name);
    let failed =
        |reason: String| internal_error(format!("cannot write {}: {reason}", path.display()));
    let is_normal = |part: Component<'_>| matches!(part, Component::Normal(_));
    if name.is_empty() || !Path::new(name).components().all(is_normal) {
        return Err(failed("the path is outside of --out".to_owned()));
    }
    let result = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| {
        if path.is_symlink() {
            fs::remove_file(&path)?;
        }
        fs::write(&path, content)
    });
    result.map_err(|error| failed(error.to_string()))
}
