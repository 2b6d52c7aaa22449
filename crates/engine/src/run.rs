//! The walk. `Engine::run` is the whole of it on one screen: each stage takes what the stage
//! before has produced, so that none can be left out.

use crate::capacity::{Capacity, Slot};
use crate::collect::{Collected, collect};
use crate::command::{Command, Entry, FileIn, NewSession};
use crate::config::Config;
use crate::environments::{Outside, Ready, Shelf};
use crate::outcome::{self, Outcome};
use crate::session::{Inside, Session, SessionInfo};
use crate::walls;
use chrono::{DateTime, Utc};
use environment::Progress;
use sandbox::{Cell, Ending, FileError, Listing, Sandbox};
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use types::{
    Code, Event, Execution, ExecutionId, Fault, Limits, LimitsRequest, Output, Rich, SandboxId,
    Truncated, Warning,
};
use uuid::Uuid;

/// How often expired sessions are looked for.
const EXPIRY_CHECK: Duration = Duration::from_millis(500);
/// Enough that whoever comes back to a session the next day is still told what became of it.
const EXPIRED_REMEMBERED: usize = 1024;
/// Pieces of output that follow each other on one stream are one piece up to this size, so that
/// a program that writes single bytes does not make a record of single bytes.
const OUTPUT_PIECE_BYTES: usize = 8 * 1024;
/// Where code finds itself.
const WORKING_DIRECTORY: &str = "/workspace";
const UNNAMED_SCRIPT: &str = "script.py";

#[derive(Debug)]
pub struct Engine {
    config: Config,
    shelf: Shelf,
    capacity: Capacity,
    sessions: Mutex<HashMap<SandboxId, Arc<Session>>>,
    /// The last ones that were closed because nobody used them, for a better answer.
    expired: Mutex<VecDeque<SandboxId>>,
}

/// The record of an execution, with the content of its files if that was asked for.
#[derive(Debug)]
pub struct Finished {
    pub execution: Execution,
    pub files: Vec<(String, Vec<u8>)>,
}

/// A sandbox of one's own for one execution. Dropping it on any path ends the sandbox.
struct Lease {
    ready: Arc<Ready>,
    sandbox: Sandbox,
    sandbox_id: SandboxId,
    generation: u64,
    cell: u64,
    _slot: Option<Slot>,
}

impl Engine {
    /// Must be called inside a tokio runtime, which also closes expired sessions.
    pub fn start(config: Config) -> Arc<Self> {
        let engine = Arc::new(Self {
            capacity: Capacity::new(config.sandboxes_max),
            shelf: Shelf::new(),
            sessions: Mutex::default(),
            expired: Mutex::default(),
            config,
        });
        let watched = Arc::downgrade(&engine);
        tokio::spawn(async move {
            while let Some(engine) = watched.upgrade() {
                engine.close_expired();
                drop(engine);
                tokio::time::sleep(EXPIRY_CHECK).await;
            }
        });
        engine
    }

    /// Builds the environment and starts its Python, unless that was done before.
    pub async fn prepare(
        &self,
        environment: &str,
        progress: impl FnMut(Progress) + Send + 'static,
    ) -> Result<crate::Packages, Fault> {
        let ready = self.shelf.get(&self.config, environment, progress).await?;
        Ok(ready.environment.packages.clone())
    }

    /// How the same Python is started without walls, for those who measure what walls cost.
    pub async fn outside(&self, environment: &str) -> Result<Outside, Fault> {
        self.shelf.get(&self.config, environment, |_| {}).await?.outside(&self.config)
    }

    /// How many warmed sandboxes of an environment wait now.
    pub async fn waiting(&self, environment: &str) -> Result<usize, Fault> {
        Ok(self.shelf.get(&self.config, environment, |_| {}).await?.pool.ready())
    }

    /// Memory that the session alone uses: what ending it would give back.
    pub async fn memory_of(&self, id: SandboxId) -> Result<u64, Fault> {
        let session = self.session(id)?;
        let inside = session.inside.try_lock().map_err(|_| session.busy())?;
        Ok(inside.sandbox.as_ref().map_or(0, Sandbox::private_bytes))
    }

    /// Runs one command from its request to its record.
    pub async fn run(
        &self,
        command: Command,
        sink: &mut (dyn FnMut(&Event) + Send),
    ) -> Result<Finished, Fault> {
        let created = Utc::now();
        match command.session {
            None => {
                let limits = self.admit(&command.limits)?;
                let slot = self.capacity.take()?;
                let mut lease = self.lease(&command.environment, &limits, slot).await?;
                let finished = self.walk(&command, &limits, &mut lease, created, sink).await?.0;
                lease.sandbox.end().await;
                Ok(finished)
            }
            Some(id) => {
                let session = self.session(id)?;
                let limits = self.admit_in(&session, &command.limits)?;
                let mut inside = session.inside.try_lock().map_err(|_| session.busy())?;
                let mut lease = self.resume(&session, &mut inside).await?;
                let running = session.begin(lease.sandbox.stopper());
                let walked = self.walk(&command, &limits, &mut lease, created, sink).await;
                drop(running);
                inside.lent = false;
                let (mut finished, alive) = match walked {
                    Ok(walked) => walked,
                    Err(fault) => {
                        // Nothing was run, and the session is as it was.
                        inside.sandbox = Some(lease.sandbox);
                        return Err(fault);
                    }
                };
                let mut lost = std::mem::take(&mut inside.loss_untold);
                if alive {
                    inside.sandbox = Some(lease.sandbox);
                } else {
                    finished.execution.generation = session.lose_memory();
                    lost = true;
                }
                if lost {
                    tell_loss(&mut finished.execution);
                }
                Ok(finished)
            }
        }
    }

    /// Places files, runs, collects and records, in a sandbox that is ours.
    async fn walk(
        &self,
        command: &Command,
        limits: &Limits,
        lease: &mut Lease,
        created: DateTime<Utc>,
        sink: &mut (dyn FnMut(&Event) + Send),
    ) -> Result<(Finished, bool), Fault> {
        place(&mut lease.sandbox, &command.files)?;
        let argv = place_script(&mut lease.sandbox, command)?;
        lease.sandbox.allow(limits).map_err(|error| unreachable_sandbox(&error))?;
        let mut record = Record::new(created);
        let name = cell_name(argv.as_deref(), lease.cell);
        let cell = Cell {
            code: command.code.as_str(),
            name: &name,
            show_last: command.entry == Entry::Cell,
            argv: argv.as_deref(),
        };
        let ending = lease
            .sandbox
            .run(&cell, limits, &mut |event| {
                sink(&event);
                record.hear(event);
            })
            .await;
        let alive = ending.alive;
        let collected = collect(&mut lease.sandbox, command.bring_files).await;
        let environment = lease.ready.environment.name.as_str();
        let outcome = outcome::judge(&ending, limits, environment);
        let warnings = walls::warnings(&self.config.without);
        let execution =
            record.close(command, lease, limits, &ending, outcome, &collected, warnings);
        Ok((Finished { execution, files: collected.contents }, alive))
    }

    fn admit(&self, request: &LimitsRequest) -> Result<Limits, Fault> {
        request
            .resolve(&self.config.caps)
            .map_err(|error| Fault::new(Code::ArgsInvalid, error.to_string()))
    }

    /// The limits of an execution in a session: what was fixed when its sandbox was made stays.
    fn admit_in(&self, session: &Session, request: &LimitsRequest) -> Result<Limits, Fault> {
        let asked = self.admit(request)?;
        let fixed = session.limits;
        let changed = request.disk_bytes.is_some_and(|asked| asked != fixed.disk_bytes)
            || request.disk_inodes.is_some_and(|asked| asked != fixed.disk_inodes)
            || request.open_files.is_some_and(|asked| asked != fixed.open_files)
            || request.processes.is_some_and(|asked| asked > fixed.processes);
        if changed {
            let message = "disk_bytes, disk_inodes and open_files of a session are fixed at its \
                           start, and processes cannot grow";
            return Err(Fault::new(Code::ArgsInvalid, message)
                .hint("open another session with the limits that are wanted"));
        }
        let given = |asked: Option<u64>, resolved: u64, of_session: u64| {
            if asked.is_some() { resolved } else { of_session }
        };
        Ok(Limits {
            wall_ms: given(request.wall_ms, asked.wall_ms, fixed.wall_ms),
            cpu_ms: given(request.wall_ms.or(request.cpu_ms), asked.cpu_ms, fixed.cpu_ms),
            cpu_percent: given(request.cpu_percent, asked.cpu_percent, fixed.cpu_percent),
            memory_bytes: given(request.memory_bytes, asked.memory_bytes, fixed.memory_bytes),
            processes: given(request.processes, asked.processes, fixed.processes),
            output_bytes: given(request.output_bytes, asked.output_bytes, fixed.output_bytes),
            result_bytes: given(request.result_bytes, asked.result_bytes, fixed.result_bytes),
            ..fixed
        })
    }

    async fn lease(&self, environment: &str, limits: &Limits, slot: Slot) -> Result<Lease, Fault> {
        let ready = self.shelf.get(&self.config, environment, |_| {}).await?;
        let sandbox =
            ready.pool.lease(limits).await.map_err(|error| outcome::birth_fault(&error))?;
        let sandbox_id = SandboxId::new(Uuid::now_v7());
        Ok(Lease { ready, sandbox, sandbox_id, generation: 1, cell: 1, _slot: Some(slot) })
    }

    /// The session's own sandbox, or a new one in the place of one that died.
    async fn resume(&self, session: &Session, inside: &mut Inside) -> Result<Lease, Fault> {
        let sandbox = match inside.sandbox.take() {
            Some(sandbox) => sandbox,
            None => {
                let born = session.ready.pool.lease(&session.limits).await;
                born.map_err(|error| outcome::birth_fault(&error))?
            }
        };
        if std::mem::replace(&mut inside.lent, true) {
            session.lose_memory();
            inside.loss_untold = true;
        }
        inside.cells += 1;
        Ok(Lease {
            ready: Arc::clone(&session.ready),
            sandbox,
            sandbox_id: session.id,
            generation: session.generation(),
            cell: inside.cells,
            _slot: None,
        })
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn session(&self, id: SandboxId) -> Result<Arc<Session>, Fault> {
        self.sessions().get(&id).cloned().ok_or_else(|| {
            let (code, state) = if self.expired().contains(&id) {
                (Code::SessionExpired, "has expired")
            } else {
                (Code::SessionNotFound, "is not there, or not any more")
            };
            Fault::new(code, format!("session {id} {state}")).hint("open a new one")
        })
    }

    fn expired(&self) -> MutexGuard<'_, VecDeque<SandboxId>> {
        self.expired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub async fn open(&self, request: &NewSession) -> Result<SandboxId, Fault> {
        let limits = self.admit(&request.limits)?;
        let slot = self.capacity.take()?;
        let Lease { ready, sandbox, sandbox_id, _slot: slot, .. } =
            self.lease(&request.environment, &limits, slot).await?;
        let Some(slot) = slot else {
            return Err(Fault::new(Code::CapacityExhausted, "no room for the session"));
        };
        let session = Session::new(sandbox_id, ready, limits, sandbox, slot, Utc::now());
        self.sessions().insert(sandbox_id, Arc::new(session));
        Ok(sandbox_id)
    }

    pub fn list(&self) -> Vec<SessionInfo> {
        self.sessions().values().map(|session| session.info()).collect()
    }

    /// Asks what the session is running to end; its state is kept if the code lets itself be
    /// interrupted. Says whether anything was running.
    pub fn interrupt(&self, id: SandboxId) -> Result<bool, Fault> {
        Ok(self.session(id)?.interrupt())
    }

    /// A new interpreter and an empty working directory for the session.
    pub async fn reset(&self, id: SandboxId) -> Result<u64, Fault> {
        let session = self.session(id)?;
        let mut inside = session.inside.try_lock().map_err(|_| session.busy())?;
        if let Some(sandbox) = inside.sandbox.take() {
            sandbox.end().await;
        }
        Ok(session.lose_memory())
    }

    /// Ends the session; nothing of it is left when this returns.
    pub async fn close(&self, id: SandboxId) -> Result<(), Fault> {
        let session = self.session(id)?;
        self.sessions().remove(&id);
        session.interrupt();
        if let Some(sandbox) = session.inside.lock().await.sandbox.take() {
            sandbox.end().await;
        }
        Ok(())
    }

    pub async fn list_files(&self, id: SandboxId) -> Result<Listing, Fault> {
        self.with_sandbox(id, |sandbox| Ok(sandbox.list_files())).await
    }

    pub async fn read_file(&self, id: SandboxId, name: &str, most: u64) -> Result<Vec<u8>, Fault> {
        self.with_sandbox(id, |sandbox| sandbox.read_file(name, most)).await
    }

    pub async fn write_file(&self, id: SandboxId, file: &FileIn) -> Result<u64, Fault> {
        self.with_sandbox(id, |sandbox| sandbox.write_file(&file.name, &mut &*file.content)).await
    }

    async fn with_sandbox<T>(
        &self,
        id: SandboxId,
        work: impl FnOnce(&mut Sandbox) -> Result<T, FileError>,
    ) -> Result<T, Fault> {
        let session = self.session(id)?;
        let mut inside = session.inside.try_lock().map_err(|_| session.busy())?;
        let mut lease = self.resume(&session, &mut inside).await?;
        let result = work(&mut lease.sandbox).map_err(|error| file_fault(&error));
        inside.sandbox = Some(lease.sandbox);
        inside.lent = false;
        inside.cells -= 1;
        result
    }

    fn close_expired(&self) {
        let expiry = self.config.expiry;
        let now = Instant::now();
        let over = |session: &Arc<Session>| {
            let unused = now.saturating_duration_since(session.idle_since()) > expiry.idle;
            let old = now.saturating_duration_since(session.opened()) > expiry.absolute;
            // One that is running something is not idle, however long that takes.
            (unused && session.inside.try_lock().is_ok()) || old
        };
        let expired: Vec<Arc<Session>> = {
            let mut sessions = self.sessions();
            let ids: Vec<SandboxId> =
                sessions.values().filter(|session| over(session)).map(|s| s.id).collect();
            ids.iter().filter_map(|id| sessions.remove(id)).collect()
        };
        for session in expired {
            let mut remembered = self.expired();
            remembered.push_back(session.id);
            if remembered.len() > EXPIRED_REMEMBERED {
                remembered.pop_front();
            }
            session.interrupt();
        }
    }
}

fn cell_name(argv: Option<&[String]>, cell: u64) -> String {
    match argv.and_then(<[String]>::first) {
        Some(script) => format!("{WORKING_DIRECTORY}/{script}"),
        None => format!("<cell {cell}>"),
    }
}

/// Puts a script where it will seem to have been started from, and returns its arguments: it may
/// open `__file__`, look for its data beside it, and be imported by the children it spawns.
fn place_script(sandbox: &mut Sandbox, command: &Command) -> Result<Option<Vec<String>>, Fault> {
    let Entry::Script { argv } = &command.entry else {
        return Ok(None);
    };
    let given = argv.first().map_or(UNNAMED_SCRIPT, String::as_str);
    let name = Path::new(given).file_name().and_then(|name| name.to_str());
    let name = name.unwrap_or(UNNAMED_SCRIPT).to_owned();
    let content = command.code.as_str().as_bytes().to_vec();
    place(sandbox, &[FileIn { name: name.clone(), content }])?;
    Ok(Some([name].into_iter().chain(argv.iter().skip(1).cloned()).collect()))
}

fn place(sandbox: &mut Sandbox, files: &[FileIn]) -> Result<(), Fault> {
    for file in files {
        sandbox
            .write_file(&file.name, &mut file.content.as_slice())
            .map_err(|error| file_fault(&error))?;
    }
    Ok(())
}

fn file_fault(error: &FileError) -> Fault {
    let code = match error {
        FileError::NotFound { .. } => Code::FileNotFound,
        FileError::Full { .. } => Code::DiskExceeded,
        FileError::Name(_)
        | FileError::NotRegular { .. }
        | FileError::TooLarge { .. }
        | FileError::Io { .. } => Code::FileUnsupported,
    };
    Fault::new(code, error.to_string())
}

fn unreachable_sandbox(error: &std::io::Error) -> Fault {
    Fault::new(Code::SandboxUnreachable, format!("its limits could not be set: {error}"))
}

/// Records that the memory of a session is gone, where the caller will see it.
fn tell_loss(execution: &mut Execution) {
    execution.warnings.push(Warning {
        code: Code::SessionLost.to_string(),
        message: format!(
            "the interpreter has ended: variables and files of the session are gone, and its \
             generation is now {}",
            execution.generation
        ),
    });
}

/// The record while it is being written.
struct Record {
    created: DateTime<Utc>,
    started: DateTime<Utc>,
    output: Vec<Output>,
    results: Vec<Rich>,
}

impl Record {
    fn new(created: DateTime<Utc>) -> Self {
        Self { created, started: Utc::now(), output: Vec::new(), results: Vec::new() }
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Result(result) => self.results.push(result),
            Event::Output(piece) => match self.output.last_mut() {
                Some(last)
                    if last.stream == piece.stream
                        && last.text.len() + piece.text.len() <= OUTPUT_PIECE_BYTES =>
                {
                    last.text.push_str(&piece.text);
                }
                _ => self.output.push(piece),
            },
        }
    }

    #[expect(clippy::too_many_arguments, reason = "each is one part of the record, used once")]
    fn close(
        self,
        command: &Command,
        lease: &Lease,
        limits: &Limits,
        ending: &Ending,
        outcome: Outcome,
        collected: &Collected,
        mut warnings: Vec<Warning>,
    ) -> Execution {
        warnings.extend(notices(ending));
        let value = match &ending.cause {
            sandbox::Cause::Done(done) => done.value.clone(),
            _ => None,
        };
        Execution {
            id: ExecutionId::new(Uuid::now_v7()),
            sandbox_id: lease.sandbox_id,
            generation: lease.generation,
            environment: lease.ready.environment.name.as_str().to_owned(),
            status: outcome.status,
            entry: match command.entry {
                Entry::Cell => "cell".into(),
                Entry::Script { .. } => "script".into(),
            },
            code: command.code.as_str().to_owned(),
            files_in: command.files.iter().map(|file| file.name.clone()).collect(),
            value,
            results: self.results,
            output: self.output,
            truncated: Truncated {
                output_dropped_bytes: Some(ending.output_dropped_bytes).filter(|bytes| *bytes > 0),
                files: collected.skipped.clone(),
            },
            error: outcome.error,
            exit_code: outcome.exit_code,
            files_out: collected.files.clone(),
            warnings,
            limits: *limits,
            usage: ending.usage,
            created_at: self.created,
            started_at: self.started,
            ended_at: Utc::now(),
        }
    }
}

/// What did not stop the run, and should be known all the same.
fn notices(ending: &Ending) -> Vec<Warning> {
    let mut notices = Vec::new();
    let mut notice = |code: Code, message: String| {
        notices.push(Warning { code: code.to_string(), message });
    };
    if ending.output_dropped_bytes > 0 {
        let message = format!("{} bytes of output were dropped", ending.output_dropped_bytes);
        notice(Code::OutputTooLarge, message);
    }
    if ending.results_dropped > 0 {
        let message = format!("{} results were too large and were cut", ending.results_dropped);
        notice(Code::OutputTooLarge, message);
    }
    if ending.alive && ending.oom_kills > 0 {
        let message = "a process of the code was killed for lack of memory".to_owned();
        notice(Code::MemoryExceeded, message);
    }
    notices
}
