//! `belljar session`: a prompt in one sandbox, or the sessions of a server.
//!
//! A terminal has line editing, a history and prompts; a pipe has none of them. The output is the
//! same in both.

mod cell;
mod input;
mod remote;

use super::engine_args::{self, EngineArgs};
use super::images::{self, Image};
use super::request_args::{self, RequestArgs};
use super::terminal::{self, TerminalOutput};
use super::{CliError, local_engine};
use engine::{Code, Command, Config, Engine, EntryPoint, Expiry, InputFile, NewSession};
use input::{CellSource, PromptInput};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use types::{Error, ErrorCode, Event, LimitsRequest, SandboxId};

/// A prompt does not expire.
const NO_EXPIRY: Expiry = Expiry { idle: Duration::MAX, absolute: Duration::MAX };
/// Maximum size of `%save`: twice the default disk limit of a working directory.
const SAVE_BYTES_MAX: u64 = 512 * 1024 * 1024;

const HELP: &str = "Enter Python code. An empty line ends a block, Ctrl-C interrupts, Ctrl-D exits.
  %files          list the files in the working directory
  %put PATH       copy a local file into the working directory
  %save NAME      copy a file from the working directory to this machine
  %save           save the images that were displayed last
  %reset          restart the interpreter with an empty state
  %exit           exit
";

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Option<remote::Command>,

    #[command(flatten)]
    prompt: PromptArgs,
}

#[derive(Debug, clap::Args)]
struct PromptArgs {
    #[command(flatten)]
    engine: EngineArgs,

    #[command(flatten)]
    request: RequestArgs,

    /// Rejected with an explanation: a local prompt has no network access
    #[arg(long = "integration", hide = true, value_name = "NAME")]
    integrations: Vec<String>,
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    match args.verb {
        Some(verb) => remote::main(verb),
        None => run_prompt(&args.prompt),
    }
}

fn run_prompt(args: &PromptArgs) -> Result<ExitCode, CliError> {
    if !args.integrations.is_empty() {
        return Err(CliError::usage(
            "a local prompt has no network access: open a session on a server with `belljar session new --integration NAME`, and run code in it with `belljar exec --session ID`",
        ));
    }
    let (files, limits) = (args.request.files()?, args.request.limits()?);
    let config = Config { expiry: NO_EXPIRY, ..args.engine.single_config()? };
    let history = config.data.join("history");
    let runtime = engine_args::build_runtime()?;
    let mut session = runtime.block_on(PromptSession::open(config, args, files, limits))?;
    let mut input = CellSource::open(&history)?;
    if input.is_terminal() {
        println!(
            "Python prompt in a sandbox (environment `{}`). Type %help for help.",
            session.environment
        );
    }
    while let Some(entered) = input.next_input(&runtime)? {
        match entered {
            PromptInput::Cell(text) => runtime.block_on(session.run_cell(text)),
            PromptInput::Command(line) => {
                if runtime.block_on(session.run_command(&line)) == PromptAction::Exit {
                    break;
                }
            }
        }
    }
    runtime.block_on(session.close());
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, PartialEq, Eq)]
enum PromptAction {
    Continue,
    Exit,
}

#[derive(Debug)]
struct PromptSession {
    engine: Arc<Engine>,
    id: SandboxId,
    environment: String,
    /// The images of the last cell that displayed any.
    images: Vec<Image>,
}

impl PromptSession {
    async fn open(
        config: Config,
        args: &PromptArgs,
        files: Vec<InputFile>,
        limits: LimitsRequest,
    ) -> Result<Self, Error> {
        let environment = args.engine.environment().to_owned();
        let (engine, _) = local_engine::start(config, &environment).await?;
        let request = NewSession { limits, ..NewSession::new(&environment) };
        let id = engine.open(request).await?.id;
        for InputFile { name, content } in files {
            engine.write_file(id, name, content.into_reader()).await?;
        }
        Ok(Self { engine, id, environment, images: Vec::new() })
    }

    async fn close(&self) {
        // The session may have ended already.
        let _ = self.engine.close(self.id).await;
    }

    /// Runs a cell and displays the result.
    async fn run_cell(&mut self, text: String) {
        let mut terminal = TerminalOutput::new();
        match self.run_cell_on(&mut terminal, text).await {
            Ok(()) => {}
            Err(error) => terminal.print_note(&format!("belljar: {error}")),
        }
        terminal.end_line();
    }

    async fn run_cell_on(
        &mut self,
        terminal: &mut TerminalOutput,
        text: String,
    ) -> Result<(), Error> {
        let invalid = |message: String| Error::new(ErrorCode::ArgsInvalid, message);
        let code = Code::new(text.into_bytes()).map_err(|error| invalid(error.to_string()))?;
        let command = Command {
            session: Some(self.id),
            ..Command::new(&self.environment, EntryPoint::Cell(code))
        };
        // Created for each cell, so that it does not receive earlier interrupts.
        let mut interrupts =
            signal(SignalKind::interrupt()).map_err(|error| invalid(error.to_string()))?;
        let mut images = Vec::new();
        let finished = {
            let mut show = |event: &Event| {
                terminal.show_event(event);
                images.extend(images::image_of(event));
            };
            let mut running = std::pin::pin!(self.engine.run(command, &mut show));
            loop {
                tokio::select! {
                    finished = &mut running => break finished,
                    Some(()) = interrupts.recv() => {
                        self.engine.interrupt(self.id)?;
                    }
                }
            }
        }?;
        terminal.show_outcome(&finished.execution);
        for image in &images {
            terminal.print_note(&format!("belljar: {image}; save it with %save"));
        }
        if !images.is_empty() {
            self.images = images;
        }
        Ok(())
    }

    async fn run_command(&mut self, line: &str) -> PromptAction {
        let (command, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let done = match (command, argument.trim()) {
            ("%exit", "") => return PromptAction::Exit,
            ("%help", _) => {
                print!("{HELP}");
                Ok(())
            }
            ("%files", "") => self.list_files().await,
            ("%reset", "") => self.reset().await,
            ("%save", "") => self.save_images(),
            ("%save", name) => self.save_file(name).await,
            ("%put", path) if !path.is_empty() => self.upload_file(Path::new(path)).await,
            _ => Err(CliError::usage(format!("unknown command {line}; type %help for the list"))),
        };
        if let Err(failure) = done {
            eprintln!("belljar: {}", terminal::for_stderr(&failure.to_string()));
        }
        PromptAction::Continue
    }

    async fn list_files(&self) -> Result<(), CliError> {
        let listing = self.engine.list_files(self.id).await?;
        for (name, entry) in &listing.files {
            println!("{:>12}  {}", entry.size, terminal::sanitize_plain(name));
        }
        for (name, reason) in &listing.skipped {
            println!("{:>12}  {}", "-", terminal::sanitize_plain(&format!("{name} ({reason})")));
        }
        Ok(())
    }

    async fn reset(&mut self) -> Result<(), CliError> {
        let generation = self.engine.reset(self.id).await?;
        self.images.clear();
        eprintln!("belljar: restarted with an empty state (generation {generation})");
        Ok(())
    }

    async fn upload_file(&self, path: &Path) -> Result<(), CliError> {
        let InputFile { name, content } = request_args::read_input(path)?;
        let size = self.engine.write_file(self.id, name.clone(), content.into_reader()).await?;
        let display_name = terminal::sanitize_plain(&name);
        eprintln!("belljar: copied {display_name} ({size} bytes) into the working directory");
        Ok(())
    }

    async fn save_file(&self, name: &str) -> Result<(), CliError> {
        let (file, size) = self.engine.open_file(self.id, name.to_owned()).await?;
        if size > SAVE_BYTES_MAX {
            let message =
                format!("{name} has {size} bytes; the maximum of %save is {SAVE_BYTES_MAX}");
            return Err(CliError::usage(message));
        }
        // Checked by the engine to be a plain relative path; here only its last part counts.
        let here = Path::new(name).file_name().map(PathBuf::from).unwrap_or_default();
        write_new_file(&here, file)
    }

    fn save_images(&self) -> Result<(), CliError> {
        if self.images.is_empty() {
            return Err(CliError::usage("no image was displayed yet"));
        }
        for image in &self.images {
            write_new_file(&image.free_name_in(Path::new("")), image.content.as_slice())?;
        }
        Ok(())
    }
}

/// Writes a new file and never overwrites an existing one.
fn write_new_file(path: &Path, content: impl Read) -> Result<(), CliError> {
    let mut content = content.take(SAVE_BYTES_MAX);
    let result = File::create_new(path).and_then(|mut file| io::copy(&mut content, &mut file));
    let display_name = terminal::sanitize_plain(&path.display().to_string());
    let size =
        result.map_err(|error| CliError::usage(format!("cannot write {display_name}: {error}")))?;
    eprintln!("belljar: saved {display_name} ({size} bytes)");
    Ok(())
}
