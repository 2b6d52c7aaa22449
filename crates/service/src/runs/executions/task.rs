//! The task of one execution: recorded, run, persisted, and only then published.
//!
//! An execution whose id a client knows, or that must not run twice, has a row before its first
//! byte runs. Every other execution gets a row if it lasts, or else with its end. If the server
//! dies, the next start marks each execution that has a row and no end as interrupted, and does not
//! repeat it.

use super::context::RunContext;
use super::handle::ExecutionHandle;
use crate::data::assets::without_files;
use crate::data::staging::TempPath;
use crate::error::RequestError;
use crate::origins::Requester;
use crate::runs::live_log::{LiveLog, memory_bytes};
use crate::runs::mcp_calls::ReadyMcpCall;
use crate::service::Service;
use crate::tasks::{catch_panic, run_blocking, run_to_completion};
use db::{EventBatch, IdempotencyKey, Tx};
use engine::{Admitted, FinishedExecution, StopHandle, ValueBudget};
use std::fs;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tracing::Instrument;
use types::{
    Error, ErrorCode, Event, Execution, ExecutionId, ExecutionStatus, File, Transcript, WorkspaceId,
};

/// Delay between two attempts to write, such as on a full disk.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// A run that lasts longer than this gets a row while it runs. A separate commit would cost a short
/// run more than the run itself.
const ROW_GRACE: Duration = Duration::from_millis(2);
/// Maximum bytes of events that are written together, so that neither the single writer thread nor
/// a reader holds much more of a log in memory.
const BATCH_BYTES: u64 = 256 * 1024;

/// An execution that runs or waits for an approval.
#[derive(Debug)]
pub(crate) struct ActiveExecution {
    pub(crate) live: Arc<LiveLog>,
    started: AtomicBool,
    /// The model run that started it.
    parent: OnceLock<ExecutionId>,
    requester: OnceLock<Requester>,
    /// The record for the waiting client; without output and results if the log is large.
    outcome: Mutex<Option<Result<Execution, RequestError>>>,
    /// Stops it: a model run, or the command that the engine runs.
    stop: StopHandle,
}

impl ActiveExecution {
    /// Whether it will end without a further decision.
    pub(crate) fn has_started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    /// Marks it as started; from now on it runs to its end.
    pub(crate) fn mark_started(&self, parent: Option<ExecutionId>) {
        self.set_parent(parent);
        self.started.store(true, Ordering::Relaxed);
    }

    /// Sets the model run that it is part of, once that is known.
    pub(crate) fn set_parent(&self, run: Option<ExecutionId>) {
        // Already set if the execution waited for an approval.
        if let Some(run) = run {
            let _ = self.parent.set(run);
        }
    }

    /// Sets the requester, once it is known.
    pub(crate) fn set_requester(&self, requester: Requester) {
        // Already set if the execution waited for an approval.
        let _ = self.requester.set(requester);
    }

    pub(crate) fn requester(&self) -> Option<Requester> {
        self.requester.get().copied()
    }

    pub(crate) fn is_child_of(&self, run: ExecutionId) -> bool {
        self.parent.get() == Some(&run)
    }

    pub(crate) fn request_stop(&self) {
        self.stop.stop();
    }

    pub(crate) async fn stop_requested(&self) {
        self.stop.requested().await;
    }

    /// The handle with which the engine stops it.
    pub(crate) fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Takes the outcome after it was published. Only the handle of the execution calls this.
    pub(super) fn take_outcome(&self) -> Option<Result<Execution, RequestError>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Whether the database has a row of an execution that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowState {
    Stored,
    Unwritten,
}

/// What an execution does.
#[derive(Debug)]
enum ExecutionWork {
    Sandbox(Box<Admitted>),
    McpCall(Box<ReadyMcpCall>),
}

impl ExecutionWork {
    fn record(&self) -> &Execution {
        match self {
            Self::Sandbox(admitted) => admitted.record(),
            Self::McpCall(call) => call.record(),
        }
    }

    fn has_egress(&self) -> bool {
        match self {
            Self::Sandbox(admitted) => admitted.has_egress(),
            Self::McpCall(_) => true,
        }
    }

    fn stop_handle(&self) -> StopHandle {
        match self {
            Self::Sandbox(admitted) => admitted.stop_handle(),
            Self::McpCall(_) => StopHandle::default(),
        }
    }
}

/// An execution between its start and its end.
struct ExecutionTask {
    context: RunContext,
    /// The record when the execution started.
    started: Arc<Execution>,
    running: Arc<ActiveExecution>,
    row: RowState,
}

impl Service {
    /// Starts an admitted execution. From now on it runs to its end, even if its requester
    /// disconnects.
    #[boxed::future]
    pub(crate) async fn start_execution(
        self: &Arc<Self>,
        admitted: Admitted,
        context: RunContext,
    ) -> Result<ExecutionHandle, RequestError> {
        self.start_work(ExecutionWork::Sandbox(Box::new(admitted)), context).await
    }

    /// Starts a call of an MCP server, which runs to its end too.
    #[boxed::future]
    pub(crate) async fn start_mcp_execution(
        self: &Arc<Self>,
        call: ReadyMcpCall,
        context: RunContext,
    ) -> Result<ExecutionHandle, RequestError> {
        self.start_work(ExecutionWork::McpCall(Box::new(call)), context).await
    }

    async fn start_work(
        self: &Arc<Self>,
        work: ExecutionWork,
        context: RunContext,
    ) -> Result<ExecutionHandle, RequestError> {
        let started = context.annotate(Execution {
            status: ExecutionStatus::Running,
            started_at: Some(self.now()),
            ..work.record().clone()
        });
        let started = Arc::new(started);
        // While the database fails, no execution runs without a row.
        if context.can_defer_row(work.has_egress()) && self.db.is_healthy() {
            return Ok(self.spawn_execution(work, context, started, RowState::Unwritten));
        }
        // The requester may disconnect meanwhile, and an execution with a row must get an end.
        let service = Arc::clone(self);
        let begin = async move {
            let row = service.write_started_row(&started, &context).await?;
            Ok(service.spawn_execution(work, context, started, row))
        };
        run_to_completion(begin).await
    }

    fn spawn_execution(
        self: &Arc<Self>,
        work: ExecutionWork,
        context: RunContext,
        started: Arc<Execution>,
        row: RowState,
    ) -> ExecutionHandle {
        let id = started.id;
        let running = self.register_with(id, work.stop_handle());
        running.set_requester(context.requester());
        running.mark_started(context.options.parent);
        // A right that is revoked from now on finds this entry and stops the execution.
        if running.requester().is_none_or(|requester| self.is_requester_revoked(requester)) {
            self.cancel_active(id);
        }
        let handle = self.execution_handle(&running, Arc::clone(&started), &context);
        let task = ExecutionTask { context, started, running, row };
        tokio::spawn(Arc::clone(self).run_execution_task(work, task));
        handle
    }

    pub(crate) fn execution_handle(
        self: &Arc<Self>,
        running: &Arc<ActiveExecution>,
        started: Arc<Execution>,
        context: &RunContext,
    ) -> ExecutionHandle {
        let mut handle = self.waiting_handle(running, started, context.workspace);
        handle.cancel_on_drop = context.options.idempotency_key.is_none();
        handle
    }

    /// The handle of an execution that waits for an approval, possibly for days.
    pub(crate) fn waiting_handle(
        self: &Arc<Self>,
        running: &Arc<ActiveExecution>,
        started: Arc<Execution>,
        workspace: WorkspaceId,
    ) -> ExecutionHandle {
        ExecutionHandle {
            service: Arc::clone(self),
            workspace,
            id: started.id,
            running: Arc::clone(running),
            started,
            cancel_on_drop: false,
        }
    }

    /// Registers an execution, so that its events can be read.
    pub(crate) fn register_execution(&self, id: ExecutionId) -> Arc<ActiveExecution> {
        self.register_with(id, StopHandle::default())
    }

    /// The same for an execution that `stop` stops, unless it is already registered.
    fn register_with(&self, id: ExecutionId, stop: StopHandle) -> Arc<ActiveExecution> {
        let new = || {
            Arc::new(ActiveExecution {
                live: LiveLog::new(),
                started: AtomicBool::new(false),
                parent: OnceLock::new(),
                requester: OnceLock::new(),
                outcome: Mutex::default(),
                stop,
            })
        };
        Arc::clone(self.active_executions().entry(id).or_insert_with(new))
    }

    /// Writes the row of a started execution. An execution that must not run twice waits for the
    /// disk; for others it is enough that the row outlives this process.
    async fn write_started_row(
        &self,
        record: &Arc<Execution>,
        context: &RunContext,
    ) -> Result<RowState, RequestError> {
        let (record, workspace) = (Arc::clone(record), context.workspace);
        match (&context.options.idempotency_key, context.approval) {
            (None, None) => {
                let insert = move |tx: &Tx<'_>| tx.insert_execution(workspace, &record);
                self.db.write_unsynced(insert).await?;
            }
            (Some(claim), None) => {
                let key =
                    IdempotencyKey { workspace, principal: context.principal, key: claim.clone() };
                let insert = move |tx: &Tx<'_>| {
                    tx.link_request(&key, record.id)?;
                    tx.insert_execution(workspace, &record)
                };
                self.db.write(insert).await?;
            }
            (_, Some(approval)) => {
                let now = self.now();
                let consume = move |tx: &Tx<'_>| {
                    if !tx.consume_approval(workspace, approval, now)? {
                        return Ok(false);
                    }
                    // An execution that has ended meanwhile was withdrawn.
                    tx.update_execution(workspace, &record)
                };
                if !self.db.write(consume).await? {
                    let used = "the approval was already used";
                    return Err(Error::new(ErrorCode::ApprovalInvalid, used).into());
                }
            }
        }
        Ok(RowState::Stored)
    }

    /// Runs the execution, persists its files and its record, and publishes its end.
    async fn run_execution_task(self: Arc<Self>, work: ExecutionWork, mut task: ExecutionTask) {
        let span = tracing::info_span!("execution", id = %task.started.id);
        let result = self.run_work(work, &mut task).instrument(span);
        let (lost, outcome) = match catch_panic(result).await {
            Ok(finished) => match catch_panic(self.persist_record(finished, &mut task)).await {
                Ok(record) => (None, Ok(with_transcript(record, &task.running.live))),
                Err(error) => {
                    let outcome = Err(record_lost_error(&error.error).into());
                    (Some(error), outcome)
                }
            },
            Err(error) => (self.persist_failure(&error, &task).await.err(), Err(error.into())),
        };
        self.publish_outcome(task.started.id, &task.running, outcome);
        if let Some(error) = lost {
            self.record_lost(*error.error, task).await;
        }
    }

    async fn run_work(
        &self,
        work: ExecutionWork,
        task: &mut ExecutionTask,
    ) -> Result<FinishedExecution, Error> {
        match work {
            ExecutionWork::Sandbox(admitted) => self.run_and_log_egress(*admitted, task).await,
            ExecutionWork::McpCall(call) => {
                self.run_mcp_call(*call, &task.running, task.context.workspace).await
            }
        }
    }

    /// Runs the command. Attempts of code without network access are only in its record, and are
    /// logged here.
    async fn run_and_log_egress(
        &self,
        admitted: Admitted,
        task: &mut ExecutionTask,
    ) -> Result<FinishedExecution, Error> {
        let has_egress = admitted.has_egress();
        let finished = self.run_and_publish(admitted, task).await?;
        if !has_egress {
            self.log_refused_attempts(&task.context, &finished.execution);
        }
        Ok(finished)
    }

    async fn run_and_publish(
        &self,
        admitted: Admitted,
        task: &mut ExecutionTask,
    ) -> Result<FinishedExecution, Error> {
        let live = Arc::clone(&task.running.live);
        live.set_lease(self.output_budget.lease_output(task.context.workspace));
        // The event of a file is published after the file is stored, so that clients can read it.
        let mut publish = |event: Event| match event {
            Event::File(_) => {}
            event => live.push_within_budget(event),
        };
        let log = Arc::clone(&live);
        let value_budget = ValueBudget::new(move |bytes| log.take_value_room(bytes));
        let mut run = pin!(admitted.stream(&mut publish, &value_budget));
        if task.row == RowState::Stored {
            return run.await;
        }
        if let Ok(result) = timeout(ROW_GRACE, &mut run).await {
            return result;
        }
        let write = async {
            let written = self.write_started_row(&task.started, &task.context).await;
            if written.is_err() {
                task.running.request_stop();
            }
            written
        };
        let (result, written) = tokio::join!(run, write);
        match written {
            Ok(row) => {
                task.row = row;
                result
            }
            Err(error) => {
                result.into_iter().for_each(|finished| remove_copies(finished.copies));
                Err(record_lost_error(&error.error))
            }
        }
    }

    /// Records the end of an execution whose results are lost. Repeats the write until it succeeds.
    #[boxed::future]
    async fn record_lost(&self, error: Error, task: ExecutionTask) {
        let ExecutionTask { context, started, row, .. } = task;
        tracing::error!(execution = %started.id, %error, "cannot store the record of an execution");
        let ended_at = Some(self.now());
        let started = Arc::unwrap_or_clone(started);
        let record =
            Execution { status: ExecutionStatus::Failed, error: Some(error), ended_at, ..started };
        let empty_log = LiveLog::new();
        while self.write_outcome(&record, &[], &context, &empty_log, row).await.is_err() {
            sleep(RETRY_DELAY).await;
        }
    }

    /// Publishes how the execution ended.
    pub(crate) fn publish_outcome(
        &self,
        id: ExecutionId,
        running: &ActiveExecution,
        outcome: Result<Execution, RequestError>,
    ) {
        let status = outcome.as_ref().map_or(ExecutionStatus::Failed, |record| record.status);
        let wall_time = outcome.as_ref().ok().map(|it| Duration::from_millis(it.usage.wall_ms));
        self.execution_metrics.record(status, wall_time);
        let is_stored = outcome.is_ok();
        *running.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        running.live.push(Event::End { status });
        running.live.close();
        if is_stored && running.live.is_large() {
            running.live.release_events();
        }
        self.active_executions().remove(&id);
    }

    /// Stores the record without output and results, which are in the events.
    async fn persist_record(
        &self,
        finished: FinishedExecution,
        task: &mut ExecutionTask,
    ) -> Result<Execution, RequestError> {
        let FinishedExecution { mut execution, copies, .. } = finished;
        let live = &task.running.live;
        live.dropped().annotate_record(&mut execution);
        if task.row == RowState::Unwritten && task.running.live.is_large() {
            // The batches of events need the row that they belong to.
            match self.write_started_row(&task.started, &task.context).await {
                Ok(row) => task.row = row,
                Err(error) => {
                    remove_copies(copies);
                    return Err(error);
                }
            }
        }
        let ExecutionTask { context, running, row, .. } = task;
        let execution = context.annotate(execution);
        let events = running.live.events();
        let produced = execution.files_out.clone();
        let (record, files) =
            self.persist_output_files(execution, &events, copies, context).await?;
        match self.write_outcome(&record, &files, context, &running.live, *row).await {
            Err(error) if !files.is_empty() => {
                self.db.remove_blobs(files.iter().map(|file| file.id).collect()).await?;
                if error.error.code != ErrorCode::QuotaExceeded {
                    return Err(error);
                }
                // Other executions have used up the space of the workspace meanwhile.
                let record = Execution { files_out: produced, ..record };
                let record = without_files(record, &files, &error);
                self.write_outcome(&record, &[], context, &running.live, *row).await?;
                Ok(record)
            }
            written => written.map(|()| record),
        }
    }

    /// Ends an execution that did not run: a file did not fit, or there was no sandbox.
    async fn persist_failure(
        &self,
        error: &Error,
        task: &ExecutionTask,
    ) -> Result<(), RequestError> {
        let ExecutionTask { context, started, running, row } = task;
        running.live.push(Event::Error(error.clone()));
        let execution = Execution {
            status: ExecutionStatus::Failed,
            error: Some(error.clone()),
            ended_at: Some(self.now()),
            ..Execution::clone(started)
        };
        self.write_outcome(&execution, &[], context, &running.live, *row).await
    }

    async fn write_outcome(
        &self,
        execution: &Execution,
        files: &[File],
        context: &RunContext,
        live: &LiveLog,
        row: RowState,
    ) -> Result<(), RequestError> {
        let (logged, end) = (live.events(), Event::End { status: execution.status });
        let before = match row {
            RowState::Stored if live.is_large() => {
                self.persist_events(context.workspace, execution, &logged).await?
            }
            RowState::Stored | RowState::Unwritten => 0,
        };
        let file_events: Vec<Event> =
            execution.files_out.iter().cloned().map(Event::File).collect();
        let remaining = logged.iter().skip(before).map(AsRef::as_ref);
        let events: Vec<&Event> = remaining.chain(&file_events).chain([&end]).collect();
        let finished =
            db::FinishedExecutionRow::new(execution, &events)?.with_stored_events(before as u64);
        let (entry, files) = (context.audit_entry(execution, self.now()), files.to_vec());
        let (workspace, most) = (context.workspace, self.config.workspace_bytes_max);
        let (sandbox_id, generation) = (execution.sandbox_id, execution.generation);
        let written = move |tx: &Tx<'_>| {
            match row {
                RowState::Stored => drop(tx.finish_execution(workspace, &finished)?),
                RowState::Unwritten => tx.insert_finished(workspace, &finished)?,
            }
            tx.insert_files(workspace, &files, most)?;
            if let Some(id) = sandbox_id {
                tx.set_session_generation(workspace, id, generation)?;
            }
            tx.append_audit_entry(&entry)?;
            Ok(())
        };
        self.db.write(written).await?;
        file_events.into_iter().for_each(|event| live.push(event));
        Ok(())
    }

    /// Stores the events of a large log in batches, and returns their number. They become visible
    /// when the end of the execution is written.
    async fn persist_events(
        &self,
        workspace: WorkspaceId,
        execution: &Execution,
        events: &[Arc<Event>],
    ) -> Result<usize, RequestError> {
        let (id, principal, mut stored) = (execution.id, execution.principal, 0);
        while let Some(first) = events.get(stored) {
            let mut bytes = memory_bytes(first);
            let more = events[stored + 1..].iter().take_while(|event| {
                bytes += memory_bytes(event);
                bytes <= BATCH_BYTES
            });
            let count = 1 + more.count();
            let (number, batch) = (stored as u64 + 1, events[stored..stored + count].to_vec());
            let batch = run_blocking(move || {
                let events: Vec<&Event> = batch.iter().map(AsRef::as_ref).collect();
                EventBatch::new(number, &events)
            });
            let batch = batch.await??;
            let insert = move |tx: &Tx<'_>| tx.insert_events(workspace, id, &batch);
            self.db.write_bulk(principal, insert).await?;
            stored += count;
        }
        Ok(stored)
    }
}

/// The record with its output and results, unless those are so large that they are read from the
/// database.
fn with_transcript(record: Execution, live: &LiveLog) -> Execution {
    if live.is_large() {
        return record;
    }
    let Transcript { output, results } = live.transcript();
    Execution { output, results, ..record }
}

/// Must not be retryable, because the code has already run.
fn record_lost_error(cause: &Error) -> Error {
    let message = format!("the code ran, but its results could not be stored: {}", cause.message);
    Error::new(ErrorCode::ExecutionInterrupted, message)
        .hint("check what effects it had before you run it again")
}

fn remove_copies(copies: Vec<(String, PathBuf)>) {
    let directory = copies.first().and_then(|(_, path)| path.parent()).map(Path::to_owned);
    copies.into_iter().for_each(|(_, path)| drop(TempPath::new(path)));
    // The next start removes leftover files.
    directory.into_iter().for_each(|directory| drop(fs::remove_dir(directory)));
}
