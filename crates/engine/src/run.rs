//! The walk, in two steps that whoever keeps records can stand between: a command is let in, then it
//! is run. Each stage takes what the stage before has produced, so that none can be left out.

use crate::capacity::Slot;
use crate::collect::{Collected, collect};
use crate::command::{Command, FileIn};
use crate::digest;
use crate::engine::Engine;
use crate::environments::Ready;
use crate::files::{no_directory, place};
use crate::installs::{self, Desk};
use crate::job::{Job, take_files};
use crate::outcome::birth_fault;
use crate::outlet::proxy_variables;
use crate::record::{Order, redactor_of, tell_loss};
use crate::redact::{Redactor, Screen};
use crate::running::Ticket;
use crate::session::{Home, Turn};
use crate::stores::Held;
use crate::{limits, walls};
use chrono::Utc;
use sandbox::{Ending, Sandbox, Stopper, ValueRoom};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::task::spawn_blocking;
use types::{Code, Event, Execution, Fault, Limits, NetworkAttempt, SandboxId, Status, Transcript};
use uuid::Uuid;

/// Records with a larger value are made on a thread that serves nobody else.
const CLOSED_HERE_BYTES_MAX: usize = 16 * 1024;

/// Takes the events of an execution while they happen.
type Sink<'a> = &'a mut (dyn FnMut(Event) + Send);

/// The record of an execution, with what was to be brought of its files.
#[derive(Debug)]
pub struct Finished {
    pub execution: Execution,
    pub contents: Vec<(String, Vec<u8>)>,
    /// The copy of each file by its name.
    pub copies: Vec<(String, PathBuf)>,
    redactor: Redactor,
}

impl Finished {
    /// Attempts to reach somebody that others have seen. What its code was given stands in none.
    pub fn add_attempts(&mut self, mut attempts: Vec<NetworkAttempt>) {
        self.redactor.attempts(&mut attempts);
        self.execution.network.append(&mut attempts);
    }
}

/// A command that was let in: it has its room, and nothing of it has run. Dropping it gives
/// everything back.
#[derive(Debug)]
pub struct Admitted {
    engine: Arc<Engine>,
    order: Order,
    room: Room,
    ticket: Ticket,
}

/// Where it will run.
#[derive(Debug)]
enum Room {
    Fresh(Slot),
    Session(Turn),
}

impl Engine {
    /// Runs one command from its request to its record.
    pub async fn run(
        self: &Arc<Self>,
        command: Command,
        sink: &mut (dyn FnMut(&Event) + Send),
    ) -> Result<Finished, Fault> {
        self.admit(command).await?.run(sink).await
    }

    /// Finds limits and room for a command. From here on it can be cancelled by its id.
    pub async fn admit(self: &Arc<Self>, command: Command) -> Result<Admitted, Fault> {
        let created = Utc::now();
        self.capacity.check_open()?;
        let ticket = self.running.enter(command.id)?;
        let redactor = redactor_of(&command).await?;
        let (caps, asked) = (command.caps.unwrap_or(self.config.caps), command.limits());
        let (limits, sandbox_id, room) = match command.session {
            None => {
                self.shelf.find(&self.config, &command.environment)?;
                let limits = limits::of_fresh(&caps, &asked)?;
                let slot = self.wait_for_room(&ticket.stopper).await?;
                (limits, SandboxId::new(Uuid::now_v7()), Room::Fresh(slot))
            }
            Some(id) => {
                let session = self.session(id)?;
                let limits = limits::of_session(&caps, &session, &asked)?;
                (limits, id, Room::Session(session.turn(ticket.stopper.clone())?))
            }
        };
        let order = Order {
            files_in: command.files.iter().map(|file| file.name.clone()).collect(),
            limits,
            sandbox_id,
            generation: room.generation(),
            environment: room.environment().unwrap_or(&command.environment).to_owned(),
            warnings: walls::warnings(&self.config.without),
            created,
            redactor,
            command,
        };
        Ok(Admitted { engine: Arc::clone(self), order, room, ticket })
    }

    async fn wait_for_room(&self, stopper: &Stopper) -> Result<Slot, Fault> {
        tokio::select! {
            biased;
            slot = self.capacity.take() => slot,
            () = stopper.asked() => {
                Err(Fault::new(Code::Cancelled, "the execution was cancelled while it waited"))
            }
        }
    }

    /// Where the packages of a session go, if they can go anywhere.
    fn desk(&self, turn: &Turn, home: &Home) -> Option<Desk> {
        Some(Desk {
            environments: self.shelf.environments(&self.config).ok()?,
            ready: Arc::clone(&turn.session.ready),
            house: Arc::clone(self.config.house.as_ref()?),
            packages: Arc::clone(&home.packages),
            places: Arc::clone(&self.installs),
        })
    }

    pub(crate) async fn lease(
        &self,
        environment: &str,
        limits: &Limits,
    ) -> Result<(Arc<Ready>, Sandbox), Fault> {
        let ready = self.shelf.get(&self.config, environment, |_| {}).await?;
        let sandbox = ready.pool.lease(limits).await.map_err(|error| birth_fault(&error))?;
        Ok((ready, sandbox))
    }
}

impl Room {
    fn generation(&self) -> u64 {
        match self {
            Self::Fresh(_) => 1,
            Self::Session(turn) => turn.generation(),
        }
    }

    /// That of the session, if it is one.
    fn environment(&self) -> Option<&str> {
        match self {
            Self::Fresh(_) => None,
            Self::Session(turn) => Some(turn.session.ready.environment.name.as_str()),
        }
    }
}

impl Admitted {
    /// The record as far as it is known: everything but what only running it can tell.
    pub fn record(&self) -> Execution {
        self.order.draft()
    }

    /// Takes out of texts what its code is given, besides what its session was given before.
    pub fn redactor(&self) -> Redactor {
        self.order.redactor.clone()
    }

    /// With files that nobody wanted to open before there was room.
    pub fn with_files(mut self, files: Vec<FileIn>) -> Self {
        self.order.files_in = files.iter().map(|file| file.name.clone()).collect();
        self.order.command.files = files;
        self
    }

    /// Of the names and contents in the working directory of its session, which nobody else uses from
    /// now on. Absent for a sandbox of its own.
    pub async fn directory_digest(&mut self) -> Result<Option<String>, Fault> {
        let Room::Session(turn) = &mut self.room else { return Ok(None) };
        let home = turn.borrow(&self.engine).await?;
        let files = home.sandbox.files();
        turn.give_back(home);
        let files = files.map_err(|error| no_directory(&error))?;
        let read = spawn_blocking(move || digest::of(&files)).await;
        read.unwrap_or_else(|error| Err(no_directory(&error.into()))).map(Some)
    }

    /// Runs it, shows each event while it happens, and gives the whole record.
    pub async fn run(self, sink: &mut (dyn FnMut(&Event) + Send)) -> Result<Finished, Fault> {
        let mut transcript = Transcript::default();
        let mut tell = |event: Event| {
            sink(&event);
            transcript.hear(event);
        };
        let mut finished = self.stream(&mut tell, &ValueRoom::default()).await?;
        let Transcript { output, results } = transcript;
        finished.execution = Execution { output, results, ..finished.execution };
        Ok(finished)
    }

    /// Runs it and gives its events away. The record is without output and results: those are in
    /// the events, and nobody needs them twice. A value is left out unless `value_room` has memory for it.
    pub async fn stream(self, sink: Sink<'_>, value_room: &ValueRoom) -> Result<Finished, Fault> {
        let Self { engine, mut order, room, ticket } = self;
        let stopper = &ticket.stopper;
        match room {
            Room::Fresh(_slot) => {
                let leased = tokio::select! {
                    biased;
                    // An environment may be built first, which takes minutes.
                    () = stopper.asked() => return Ok(withdraw(&order, sink).finished),
                    leased = engine.lease(&order.environment, &order.limits) => leased,
                };
                let (_ready, sandbox) = leased?;
                let outlet = order.command.outlet.take();
                let variables = if outlet.is_some() { proxy_variables() } else { BTreeMap::new() };
                let (held, redactor) = (Held::default(), Redactor::default());
                let mut home = Home::new(sandbox, held, outlet.as_ref(), redactor);
                let place = Place { number: 1, variables: &variables, desk: None, value_room };
                let walked = walk(order, &mut home, place, stopper, sink).await?;
                home.sandbox.end().await;
                Ok(walked.finished)
            }
            Room::Session(mut turn) => {
                let mut home = turn.borrow(&engine).await?;
                let variables = turn.session.variables();
                let place = Place {
                    number: turn.count_execution(),
                    variables: &variables,
                    desk: engine.desk(&turn, &home),
                    value_room,
                };
                let walked = walk(order, &mut home, place, stopper, sink).await;
                let Ok(Walked { mut finished, alive }) = walked else {
                    // Nothing was run, and the session is as it was.
                    turn.give_back(home);
                    return walked.map(|walked| walked.finished);
                };
                let mut lost = turn.take_untold_loss();
                if alive {
                    turn.give_back(home);
                } else {
                    finished.execution.generation = turn.lose_memory();
                    lost = true;
                }
                if lost {
                    tell_loss(&mut finished.execution);
                }
                Ok(finished)
            }
        }
    }
}

struct Walked {
    finished: Finished,
    /// Whether the interpreter is still there, with its state.
    alive: bool,
}

/// What a run finds besides its sandbox.
struct Place<'a> {
    /// Tells it from the others there.
    number: u64,
    /// What everything there is told.
    variables: &'a BTreeMap<String, String>,
    /// Where packages go, if they can go anywhere.
    desk: Option<Desk>,
    /// Asked for the memory of its value.
    value_room: &'a ValueRoom,
}

/// Places files, runs, collects and records, in a sandbox that is ours.
async fn walk(
    mut order: Order,
    Home { sandbox, held, redactor, .. }: &mut Home,
    Place { number, variables, desk, value_room }: Place<'_>,
    stopper: &Stopper,
    sink: Sink<'_>,
) -> Result<Walked, Fault> {
    held.refresh().await?;
    place(sandbox, take_files(&mut order.command)).await?;
    sandbox.allow(&order.limits).map_err(|error| unlimited(&error))?;
    if stopper.was_asked() {
        return Ok(withdraw(&order, sink));
    }
    *redactor = redactor.merge(&order.redactor).await?;
    let mut screen = Screen::new(redactor);
    let job = Job::new(&order.command, number, variables);
    let started = Utc::now();
    sink(Event::Status { status: Status::Running });
    let hear = &mut |event: Event| screen.pass(event, &mut *sink);
    let installer = order.command.installer.as_ref();
    let install = |wanted: Vec<String>| installs::answer(&wanted, installer, desk.as_ref());
    let ending = sandbox.run(&job.work(), &order.limits, stopper, hear, value_room, &install).await;
    screen.finish(&mut *sink);
    let collected = collect(sandbox, &order.command.bring, redactor).await;
    let unkept = held.keep().await;
    let (alive, bytes, redactor) = (ending.alive, ending.returned_bytes(), redactor.clone());
    let close = move || {
        let mut execution = order.close(Some(started), ending, &collected);
        unkept.tell(&mut execution);
        redactor.record(&mut execution);
        (execution, collected, redactor)
    };
    let (execution, collected, redactor) = on_its_thread(bytes, close).await;
    Ok(conclude(execution, collected, redactor, alive, sink))
}

/// Does work on a value of so many bytes where nobody waits for it but the caller: schemas are checked
/// and secrets looked for in every part of it.
async fn on_its_thread<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes <= CLOSED_HERE_BYTES_MAX {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is at its end, and with it whoever waits.
            Err(_) => std::future::pending().await,
        },
    }
}

/// The record of what was cancelled before any of it ran.
fn withdraw(order: &Order, sink: Sink<'_>) -> Walked {
    let (ending, nothing) = (Ending::withdrawn(), Collected::default());
    let alive = ending.alive;
    let execution = order.close(None, ending, &nothing);
    conclude(execution, nothing, Redactor::default(), alive, sink)
}

/// Tells what is known only now. That it is over is told by whoever keeps the record.
fn conclude(
    execution: Execution,
    collected: Collected,
    redactor: Redactor,
    alive: bool,
    sink: Sink<'_>,
) -> Walked {
    execution.files_out.iter().for_each(|file| sink(Event::File(file.clone())));
    execution.error.iter().for_each(|error| sink(Event::Error(error.clone())));
    let Collected { contents, copies, .. } = collected;
    Walked { finished: Finished { execution, contents, copies, redactor }, alive }
}

fn unlimited(error: &std::io::Error) -> Fault {
    Fault::new(Code::SandboxUnreachable, format!("its limits could not be set: {error}"))
}
