//! The path of a command, in two steps, so that a caller can write a record in between: a command
//! is admitted, then it is run. Each stage takes the result of the previous stage, so that none can
//! be skipped.

use crate::capacity::CapacityPermit;
use crate::clock::Clock;
use crate::collect::{CollectedFiles, collect_files};
use crate::command::{Command, EntryPoint, InputFile};
use crate::directory_digest;
use crate::engine::Engine;
use crate::event_redactor::{EventRedactor, EventSink};
use crate::files::{directory_error, write_input_files};
use crate::off_thread::run_off_thread;
use crate::package_installer::{self, PackageInstaller};
use crate::record::{add_loss_warning, finish_record, initial_record, redactor_for};
use crate::runner_request::{runner_request, take_input_files};
use crate::running_executions::RunningExecution;
use crate::sandbox_grants::ReservedGrants;
use crate::session::{SandboxHandle, SessionLease};
use crate::session_files::SessionFiles;
use crate::start_queue::CountedExecution;
use crate::volumes::UnsavedFiles;
use crate::{host_support, limits};
use redact::OutputRedactor;
use sandbox::{ExitReport, StopHandle, ValueBudget};
use std::mem::take;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use tokio::task::spawn_blocking;
use types::{Error, ErrorCode, Event, Execution, ExecutionStatus, SandboxId, Transcript};
use uuid::Uuid;

/// The record of an execution, with the requested contents of its files.
#[derive(Debug)]
pub struct FinishedExecution {
    pub execution: Execution,
    pub contents: Vec<(String, Vec<u8>)>,
    /// The copy of each file by its name.
    pub copies: Vec<(String, PathBuf)>,
}

/// An admitted command: it has its capacity, and nothing of it has run. Dropping it releases
/// everything.
#[derive(Debug)]
pub struct Admitted {
    engine: Arc<Engine>,
    command: AdmittedCommand,
    target: ExecutionTarget,
    running: RunningExecution,
}

/// A command, and the record that it becomes.
#[derive(Debug)]
struct AdmittedCommand {
    command: Command,
    /// What is known so far, with the limits and the sandbox.
    record: Execution,
    /// For the secrets that its code has.
    redactor: OutputRedactor,
    clock: Clock,
}

/// The sandbox that a command runs in.
#[derive(Debug)]
enum ExecutionTarget {
    /// A sandbox of its own, with a copy of the files of a session if it works on some.
    Fresh {
        grants: ReservedGrants,
        permit: CapacityPermit,
        files: Option<SessionFiles>,
    },
    Session(SessionLease),
}

impl Engine {
    /// Runs one command from its request to its record.
    pub async fn run(
        self: &Arc<Self>,
        command: Command,
        sink: &mut (dyn FnMut(&Event) + Send),
    ) -> Result<FinishedExecution, Error> {
        self.admit(command).await?.run(sink).await
    }

    /// Resolves the limits of a command and reserves capacity.
    #[boxed::future]
    pub async fn admit(self: &Arc<Self>, mut command: Command) -> Result<Admitted, Error> {
        let created = self.config.clock.now();
        self.capacity.check_open()?;
        let running = self.executions.start();
        let redactor = redactor_for(&command).await?;
        let (caps, requested) = (command.caps.unwrap_or(self.config.caps), command.limits());
        let (limits, sandbox_id, target) = match command.session {
            None => {
                self.environment_cache.find(&self.config, &command.environment)?;
                let source = command.session_files.map(|id| self.session(id)).transpose()?;
                let requested = match &source {
                    Some(session) => limits::with_disk_of_session(requested, session),
                    None => requested,
                };
                let limits = limits::resolve_for_sandbox(&caps, &requested)?;
                let permit = self.wait_for_capacity(&command).await?;
                let grants = self.reserve_grants(take(&mut command.grants))?;
                let leased = source.map(|session| session.lease_session(command.stop.clone()));
                let files = leased.transpose()?.map(SessionFiles::new);
                let target = ExecutionTarget::Fresh { grants, permit, files };
                let id = command.session_files.unwrap_or_else(|| SandboxId::new(Uuid::now_v7()));
                (limits, id, target)
            }
            Some(id) => {
                if !command.grants.is_empty() {
                    return Err(session_grants_error(id));
                }
                let session = self.session(id)?;
                let limits = limits::resolve_for_session(&caps, &session, &requested)?;
                let lease = session.lease_session(command.stop.clone())?;
                (limits, id, self.target_in_session(&command, lease).await?)
            }
        };
        let record = Execution {
            sandbox_id: Some(sandbox_id),
            generation: target.generation(),
            environment: target.environment().unwrap_or(&command.environment).to_owned(),
            ..Execution::new(command.id, limits, created)
        };
        let warnings = host_support::missing_layer_warnings(&self.config.allowed_missing_layers);
        let record = initial_record(&command, record, warnings, target.shares_interpreter());
        let command =
            AdmittedCommand { command, record, redactor, clock: self.config.clock.clone() };
        Ok(Admitted { engine: Arc::clone(self), command, target, running })
    }

    /// A tool keeps its own environment in a session of another one: it runs in a sandbox of its own,
    /// with the grants and a copy of the files of the session.
    async fn target_in_session(
        &self,
        command: &Command,
        lease: SessionLease,
    ) -> Result<ExecutionTarget, Error> {
        let is_tool = matches!(command.entry, EntryPoint::Call(_));
        if !is_tool || command.environment == lease.environment() {
            return Ok(ExecutionTarget::Session(lease));
        }
        self.environment_cache.find(&self.config, &command.environment)?;
        let permit = self.wait_for_capacity(command).await?;
        let grants = self.reserve_grants((*lease.session.grants()).clone())?;
        let files = Some(SessionFiles::new(lease));
        Ok(ExecutionTarget::Fresh { grants, permit, files })
    }

    async fn wait_for_capacity(&self, command: &Command) -> Result<CapacityPermit, Error> {
        tokio::select! {
            biased;
            permit = self.capacity.acquire(command.started_by) => permit,
            () = command.stop.requested() => {
                Err(Error::new(ErrorCode::Cancelled, "the execution was cancelled while it waited"))
            }
        }
    }

    /// The installer for packages of a session, if it may install any.
    fn package_installer(
        &self,
        lease: &SessionLease,
        handle: &SandboxHandle,
    ) -> Option<PackageInstaller> {
        Some(PackageInstaller {
            environments: self.environment_cache.environments(&self.config).ok()?,
            environment: Arc::clone(&lease.session.environment),
            package_root: Arc::clone(self.config.package_root.as_ref()?),
            packages: Arc::clone(&handle.packages),
            permits: Arc::clone(&self.install_permits),
        })
    }

    /// Leases a sandbox for one execution.
    async fn lease(
        &self,
        record: &Execution,
        grants: &ReservedGrants,
        active: &CountedExecution,
    ) -> Result<SandboxHandle, Error> {
        let ready = self.environment_cache.get_for_code(&self.config, &record.environment).await?;
        self.attach_sandbox(&ready, &record.limits, Arc::clone(&grants.grants), active).await
    }
}

impl ExecutionTarget {
    fn generation(&self) -> u64 {
        match self {
            Self::Fresh { files, .. } => files.as_ref().map_or(1, SessionFiles::generation),
            Self::Session(lease) => lease.generation(),
        }
    }

    /// The environment of the session, if the command runs in its interpreter.
    fn environment(&self) -> Option<&str> {
        match self {
            Self::Fresh { .. } => None,
            Self::Session(lease) => Some(lease.environment()),
        }
    }

    /// The session whose files the command works on.
    fn session_lease(&mut self) -> Option<&mut SessionLease> {
        match self {
            Self::Fresh { files, .. } => files.as_mut()?.session_lease(),
            Self::Session(lease) => Some(lease),
        }
    }

    fn shares_interpreter(&self) -> bool {
        matches!(self, Self::Session(_))
    }

    fn has_egress(&self) -> bool {
        match self {
            Self::Fresh { grants, .. } => grants.grants.egress.is_some(),
            Self::Session(lease) => lease.session.grants().egress.is_some(),
        }
    }
}

impl Admitted {
    /// The record as far as it is known before the run.
    pub fn record(&self) -> &Execution {
        &self.command.record
    }

    /// Cancels it.
    pub fn stop_handle(&self) -> StopHandle {
        self.command.command.stop.clone()
    }

    /// Whether its code has network access.
    pub fn has_egress(&self) -> bool {
        self.target.has_egress()
    }

    /// Adds files that the caller opens only after admission.
    pub fn add_files(&mut self, files: Vec<InputFile>) {
        self.command.record.files_in.extend(files.iter().map(|file| file.name.clone()));
        self.command.command.files.extend(files);
    }

    /// The digest of the names and contents in its session's working directory, which only this
    /// command uses from now on. Absent for a fresh sandbox without such files.
    pub async fn directory_digest(&mut self) -> Result<Option<String>, Error> {
        let Some(lease) = self.target.session_lease() else { return Ok(None) };
        let handle = tokio::select! {
            biased;
            () = self.command.command.stop.requested() => {
                return Err(Error::new(ErrorCode::Cancelled, "the execution was cancelled before it started"));
            }
            taken = lease.take_sandbox(&self.engine) => taken?,
        };
        let files = handle.sandbox.directory();
        lease.return_sandbox(handle);
        let files = files.map_err(|error| directory_error(&error))?;
        let read = spawn_blocking(move || directory_digest::digest_directory(&files)).await;
        read.unwrap_or_else(|error| Err(directory_error(&error.into()))).map(Some)
    }

    /// Runs the command, emits each event while it happens, and returns the whole record.
    pub async fn run(
        self,
        sink: &mut (dyn FnMut(&Event) + Send),
    ) -> Result<FinishedExecution, Error> {
        let mut transcript = Transcript::default();
        let mut tell = |event: Event| {
            sink(&event);
            transcript.push(event);
        };
        let mut finished = self.stream(&mut tell, &ValueBudget::default()).await?;
        let Transcript { output, results } = transcript;
        finished.execution = Execution { output, results, ..finished.execution };
        Ok(finished)
    }

    /// Runs the command and emits its events. The record has no output and results, because the
    /// events have them. It has the value only if `value_budget` has memory for it.
    pub async fn stream(
        self,
        sink: EventSink<'_>,
        value_budget: &ValueBudget,
    ) -> Result<FinishedExecution, Error> {
        let stop = self.stop_handle();
        let Self { engine, command, target, running } = self;
        let run = async {
            match target {
                ExecutionTarget::Fresh { grants, permit: _permit, files } => {
                    command.run_fresh(&engine, &grants, files, sink, value_budget).await
                }
                ExecutionTarget::Session(lease) => {
                    command.run_in_session(&engine, lease, sink, value_budget).await
                }
            }
        };
        running.stoppable(&stop, run).await
    }
}

impl AdmittedCommand {
    async fn run_fresh(
        self,
        engine: &Arc<Engine>,
        grants: &ReservedGrants,
        mut session_files: Option<SessionFiles>,
        sink: EventSink<'_>,
        value_budget: &ValueBudget,
    ) -> Result<FinishedExecution, Error> {
        let active = engine.start_queue.enter(self.command.started_by);
        let leased = tokio::select! {
            biased;
            // An environment may have to be built first, which takes minutes.
            () = self.command.stop.requested() => None,
            leased = async {
                active.group.wait_for_output_rate().await;
                let mut handle = engine.lease(&self.record, grants, &active).await?;
                if let Some(files) = &mut session_files {
                    files.copy_into(engine, &mut handle, &self.redactor).await?;
                }
                Ok::<_, Error>(handle)
            } => Some(leased),
        };
        let Some(leased) = leased else { return Ok(self.cancelled_before_start(sink).finished) };
        let mut handle = leased?;
        handle.sandbox.join_group(active.group.clone());
        // A session whose sandbox has ended got a new one when its files were copied.
        let has_lost_state = session_files.as_mut().is_some_and(SessionFiles::take_unreported_loss);
        let session_files = session_files.as_mut().map(|files| (files, &**engine));
        let inputs = RunInputs { number: 1, installer: None, value_budget, session_files };
        let mut ran = self.run_in_sandbox(&mut handle, inputs, sink).await?;
        if has_lost_state {
            add_loss_warning(&mut ran.finished.execution);
        }
        handle.sandbox.end().await;
        Ok(ran.finished)
    }

    async fn run_in_session(
        self,
        engine: &Arc<Engine>,
        mut lease: SessionLease,
        sink: EventSink<'_>,
        value_budget: &ValueBudget,
    ) -> Result<FinishedExecution, Error> {
        let active = engine.start_queue.enter(self.command.started_by);
        let taken = tokio::select! {
            biased;
            // If its sandbox died, a new one waits for its turn to start.
            () = self.command.stop.requested() => None,
            taken = async {
                active.group.wait_for_output_rate().await;
                lease.take_sandbox(engine).await
            } => Some(taken),
        };
        let Some(taken) = taken else { return Ok(self.cancelled_before_start(sink).finished) };
        let mut handle = taken?;
        handle.sandbox.join_group(active.group.clone());
        let inputs = RunInputs {
            number: lease.count_execution(),
            installer: engine.package_installer(&lease, &handle),
            value_budget,
            session_files: None,
        };
        let ran = self.run_in_sandbox(&mut handle, inputs, sink).await;
        let Ok(SandboxRun { mut finished, alive }) = ran else {
            // Nothing ran, and the session is unchanged.
            lease.return_sandbox(handle);
            return ran.map(|ran| ran.finished);
        };
        let mut lost = lease.take_unreported_loss();
        if alive {
            lease.return_sandbox(handle);
        } else {
            finished.execution.generation = lease.record_state_loss();
            lost = true;
        }
        if lost {
            add_loss_warning(&mut finished.execution);
        }
        Ok(finished)
    }

    /// Writes input files, runs, collects and records, in a leased sandbox.
    async fn run_in_sandbox(
        mut self,
        SandboxHandle { sandbox, grants, volumes: held, redactor, .. }: &mut SandboxHandle,
        RunInputs { number, installer: package_installer, value_budget, session_files }: RunInputs<
            '_,
        >,
        sink: EventSink<'_>,
    ) -> Result<SandboxRun, Error> {
        held.refresh().await?;
        write_input_files(sandbox, take_input_files(&mut self.command)).await?;
        sandbox.set_limits(&self.record.limits).map_err(|error| limits_error(&error))?;
        if self.command.stop.is_requested() {
            return Ok(self.cancelled_before_start(sink));
        }
        *redactor = redactor.merge(&self.redactor).await?;
        let (events, mut event_redactor) = EventRedactor::new(redactor);
        let started = self.clock.now();
        sink(Event::Status { status: ExecutionStatus::Running });
        let Self { command, record, clock, .. } = self;
        let installer = command.installer.as_ref();
        let install = |wanted: Vec<String>| {
            package_installer::handle_install_request(
                &wanted,
                installer,
                package_installer.as_ref(),
            )
        };
        let limits = record.limits;
        let (id, egress) = (command.id, grants.egress.as_ref());
        if let (Some(egress), Some(sandbox_id)) = (egress, record.sandbox_id) {
            egress.begin_execution(sandbox_id, id, redactor);
        }
        let ending = {
            let variables = grants.environment_variables();
            let request = runner_request(&command, number, &variables, &limits);
            let stop = &command.stop;
            let mut queue = |event: Event| events.push(event);
            let run = sandbox.run(&request, &limits, stop, &mut queue, value_budget, &install);
            event_redactor.redact_during(pin!(run), &mut *sink).await
        };
        drop(events);
        let attempts = egress.map(|egress| egress.end_execution(id)).unwrap_or_default();
        event_redactor.finish(&mut *sink).await;
        let collected = collect_files(sandbox, &command.collect_files, redactor).await;
        let unkept = held.persist().await;
        let not_copied = match session_files {
            Some((files, engine)) => files.copy_back(engine, sandbox).await,
            None => UnsavedFiles::default(),
        };
        let (alive, bytes, redactor) = (ending.alive, ending.returned_bytes(), redactor.clone());
        let entry = command.entry;
        let close = move || {
            let mut execution =
                finish_record(record, &entry, (Some(started), clock.now()), ending, &collected);
            unkept.report_in(&mut execution);
            not_copied.report_in(&mut execution);
            execution.network.extend(attempts);
            redactor.redact_record(&mut execution);
            (execution, collected)
        };
        let (execution, collected) = run_off_thread(bytes, close).await;
        Ok(emit_final_events(execution, collected, alive, sink))
    }

    /// The record of a command that was cancelled before any of it ran.
    fn cancelled_before_start(self, sink: EventSink<'_>) -> SandboxRun {
        let (ending, nothing) = (ExitReport::cancelled_before_start(), CollectedFiles::default());
        let alive = ending.alive;
        let execution = finish_record(
            self.record,
            &self.command.entry,
            (None, self.clock.now()),
            ending,
            &nothing,
        );
        emit_final_events(execution, nothing, alive, sink)
    }
}

struct SandboxRun {
    finished: FinishedExecution,
    /// Whether the interpreter still runs, with its state.
    alive: bool,
}

/// The inputs of a run besides its sandbox.
struct RunInputs<'a> {
    /// Identifies the run within its sandbox.
    number: u64,
    /// Installs packages, if the code may install any.
    installer: Option<PackageInstaller>,
    /// Provides the memory for the value.
    value_budget: &'a ValueBudget,
    /// The files of the session that it works on, and the engine that has the session.
    session_files: Option<(&'a mut SessionFiles, &'a Engine)>,
}

/// Emits the events that are known only at the end. The writer of the record emits the last one.
fn emit_final_events(
    execution: Execution,
    collected: CollectedFiles,
    alive: bool,
    sink: EventSink<'_>,
) -> SandboxRun {
    execution.files_out.iter().for_each(|file| sink(Event::File(file.clone())));
    execution.error.iter().for_each(|error| sink(Event::Error(error.clone())));
    let CollectedFiles { contents, copies, .. } = collected;
    SandboxRun { finished: FinishedExecution { execution, contents, copies }, alive }
}

fn session_grants_error(id: SandboxId) -> Error {
    let message = format!("the command has its own grants, but session {id} already has grants");
    Error::new(ErrorCode::ArgsInvalid, message).hint("run it in a fresh sandbox")
}

fn limits_error(error: &std::io::Error) -> Error {
    Error::new(
        ErrorCode::SandboxUnreachable,
        format!("cannot set the limits of the sandbox: {error}"),
    )
}
