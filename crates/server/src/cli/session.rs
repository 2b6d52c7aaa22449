//! `belljar session`: a prompt on one sandbox that remembers, or the sessions of a server.
//!
//! On a terminal there are line editing, a history and prompts; from a pipe the same lines are read
//! without any of them. What is shown, and where, is the same in both.

mod cell;
mod input;
mod remote;

use super::images::{self, Image};
use super::request::{self, RequestArgs};
use super::setup::{self, EngineArgs};
use super::terminal::{self, Screen};
use super::{Failure, progress};
use engine::{Code, Command, Config, Engine, Entry, Expiry, FileIn, NewSession};
use input::{Entered, Input};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use types::{Code as FaultCode, Event, Fault, LimitsRequest, SandboxId};

/// A prompt lasts as long as somebody keeps it open.
const NEVER: Expiry = Expiry { idle: Duration::MAX, absolute: Duration::MAX };
/// What `%save` brings out at most: as much as a working directory can hold by default, twice.
const SAVE_BYTES_MAX: u64 = 512 * 1024 * 1024;

const HELP: &str = "\
Python goes in as it is; a block ends with an empty line, Ctrl-C interrupts, Ctrl-D leaves.
  %files          what is in the working directory
  %put PATH       bring a file of yours into it
  %save NAME      bring a file of it here
  %save           bring the images that were shown last here
  %reset          start again with nothing
  %exit           leave
";

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Option<remote::Verb>,

    #[command(flatten)]
    prompt: Prompt,
}

#[derive(Debug, clap::Args)]
struct Prompt {
    #[command(flatten)]
    engine: EngineArgs,

    #[command(flatten)]
    request: RequestArgs,

    /// There is none for a prompt, which is told when somebody tries
    #[arg(long = "integration", hide = true, value_name = "NAME")]
    integrations: Vec<String>,
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    match args.verb {
        Some(verb) => remote::main(verb),
        None => prompt(&args.prompt),
    }
}

fn prompt(args: &Prompt) -> Result<ExitCode, Failure> {
    if !args.integrations.is_empty() {
        return Err(Failure::usage(
            "a prompt runs here and has no network, and integrations are of a server: open a \
             session there with `belljar session new --integration NAME`, and run code in it with \
             `belljar exec --session ID`",
        ));
    }
    let (files, limits) = (args.request.files()?, args.request.limits()?);
    let config = Config { expiry: NEVER, ..args.engine.single()? };
    let history = config.data.join("history");
    let runtime = setup::runtime()?;
    let mut session = runtime.block_on(Session::open(config, args, files, limits))?;
    let mut input = Input::open(&history)?;
    if input.is_terminal() {
        println!("A sandbox of the environment `{}`; %help says more.", session.environment);
    }
    while let Some(entered) = input.next(&runtime)? {
        match entered {
            Entered::Cell(text) => runtime.block_on(session.run(text)),
            Entered::Command(line) => {
                if runtime.block_on(session.obey(&line)) == Then::Leave {
                    break;
                }
            }
        }
    }
    runtime.block_on(session.close());
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, PartialEq, Eq)]
enum Then {
    GoOn,
    Leave,
}

#[derive(Debug)]
struct Session {
    engine: Arc<Engine>,
    id: SandboxId,
    environment: String,
    /// Of the last cell that showed any.
    images: Vec<Image>,
}

impl Session {
    async fn open(
        config: Config,
        args: &Prompt,
        files: Vec<FileIn>,
        limits: LimitsRequest,
    ) -> Result<Self, Fault> {
        let engine = Engine::start(config);
        let environment = args.engine.environment().to_owned();
        engine.prepare(&environment, progress::show()).await?;
        let request = NewSession { limits, ..NewSession::new(&environment) };
        let id = engine.open(&request).await?.id;
        for FileIn { name, content } in files {
            engine.write_file(id, name, content.into_reader()).await?;
        }
        Ok(Self { engine, id, environment, images: Vec::new() })
    }

    async fn close(&self) {
        // It may have ended by itself, which is all the same now.
        let _ = self.engine.close(self.id).await;
    }

    /// Runs a cell; whatever comes of it is shown.
    async fn run(&mut self, text: String) {
        let mut screen = Screen::new();
        match self.run_on(&mut screen, text).await {
            Ok(()) => {}
            Err(fault) => screen.note(&format!("belljar: {fault}")),
        }
        screen.end_line();
    }

    async fn run_on(&mut self, screen: &mut Screen, text: String) -> Result<(), Fault> {
        let invalid = |message: String| Fault::new(FaultCode::ArgsInvalid, message);
        let code = Code::new(text.into_bytes()).map_err(|error| invalid(error.to_string()))?;
        let command = Command {
            session: Some(self.id),
            ..Command::new(&self.environment, Entry::Cell(code))
        };
        // Made anew for each cell, so that it has not heard of what was pressed before.
        let mut interrupts =
            signal(SignalKind::interrupt()).map_err(|error| invalid(error.to_string()))?;
        let mut images = Vec::new();
        let finished = {
            let mut show = |event: &Event| {
                screen.show(event);
                images.extend(images::of(event));
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
        screen.conclude(&finished.execution);
        for image in &images {
            screen.note(&format!("belljar: {image}, kept with %save"));
        }
        if !images.is_empty() {
            self.images = images;
        }
        Ok(())
    }

    async fn obey(&mut self, line: &str) -> Then {
        let (command, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let done = match (command, argument.trim()) {
            ("%exit", "") => return Then::Leave,
            ("%help", _) => {
                print!("{HELP}");
                Ok(())
            }
            ("%files", "") => self.list_files().await,
            ("%reset", "") => self.reset().await,
            ("%save", "") => self.save_images(),
            ("%save", name) => self.save_file(name).await,
            ("%put", path) if !path.is_empty() => self.put(Path::new(path)).await,
            _ => Err(Failure::usage(format!("{line} is not known here; %help lists what is"))),
        };
        if let Err(failure) = done {
            eprintln!("belljar: {}", terminal::for_stderr(&failure.to_string()));
        }
        Then::GoOn
    }

    async fn list_files(&self) -> Result<(), Failure> {
        let listing = self.engine.list_files(self.id).await?;
        for (name, entry) in &listing.files {
            println!("{:>12}  {}", entry.size, terminal::inert(name));
        }
        for (name, reason) in &listing.skipped {
            println!("{:>12}  {}", "-", terminal::inert(&format!("{name} ({reason})")));
        }
        Ok(())
    }

    async fn reset(&mut self) -> Result<(), Failure> {
        let generation = self.engine.reset(self.id).await?;
        self.images.clear();
        eprintln!("belljar: a new interpreter, with nothing in it (generation {generation})");
        Ok(())
    }

    async fn put(&self, path: &Path) -> Result<(), Failure> {
        let FileIn { name, content } = request::input(path)?;
        let size = self.engine.write_file(self.id, name.clone(), content.into_reader()).await?;
        let shown = terminal::inert(&name);
        eprintln!("belljar: {shown} ({size} bytes) is in the working directory");
        Ok(())
    }

    async fn save_file(&self, name: &str) -> Result<(), Failure> {
        let (file, size) = self.engine.open_file(self.id, name.to_owned()).await?;
        if size > SAVE_BYTES_MAX {
            let message =
                format!("{name} has {size} bytes, more than the {SAVE_BYTES_MAX} of %save");
            return Err(Failure::usage(message));
        }
        // Checked by the engine to be a plain relative path; here only its last part counts.
        let here = Path::new(name).file_name().map(PathBuf::from).unwrap_or_default();
        save(&here, file)
    }

    fn save_images(&self) -> Result<(), Failure> {
        if self.images.is_empty() {
            return Err(Failure::usage("no image was shown yet"));
        }
        for image in &self.images {
            save(&image.free_name_in(Path::new("")), image.content.as_slice())?;
        }
        Ok(())
    }
}

/// Writes a file of its own; nothing that is there already is touched.
fn save(path: &Path, content: impl Read) -> Result<(), Failure> {
    let mut content = content.take(SAVE_BYTES_MAX);
    let written = File::create_new(path).and_then(|mut file| io::copy(&mut content, &mut file));
    let shown = terminal::inert(&path.display().to_string());
    let size =
        written.map_err(|error| Failure::usage(format!("{shown} cannot be written: {error}")))?;
    eprintln!("belljar: saved {shown} ({size} bytes)");
    Ok(())
}
