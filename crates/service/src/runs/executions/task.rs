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
use crate::origins::Asker;
use crate::runs::live_log::{LiveLog, memory_bytes};
use crate::service::Service;
use crate::tasks::{catch_panic, run_blocking, run_to_completion};
use chrono::Utc;
use db::{EventBatch, IdempotencyKey, Tx};
use engine::{Admitted, FinishedExecution, StopHandle, ValueRoom};
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
    asker: OnceLock<Asker>,
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
    pub(crate) fn asked_by(&self, asker: Asker) {
        // Already set if the execution waited for an approval.
        let _ = self.asker.set(asker);
    }

    pub(crate) fn asker(&self) -> Option<Asker> {
        self.asker.get().copied()
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
        whose: RunContext,
    ) -> Result<ExecutionHandle, RequestError> {
        let started = whose.annotate(Execution {
            status: ExecutionStatus::Running,
            started_at: Some(Utc::now()),
            ..admitted.record().clone()
        });
        let started = Arc::new(started);
        // While the database fails, no execution runs without a row.
        if whose.can_defer_row(admitted.has_egress()) && self.db.is_healthy() {
            return Ok(self.spawn_execution(admitted, whose, started, RowState::Unwritten));
        }
        // The requester may disconnect meanwhile, and an execution with a row must get an end.
        let service = Arc::clone(self);
        let begin = async move {
            let row = service.write_started_row(&started, &whose).await?;
            Ok(service.spawn_execution(admitted, whose, started, row))
        };
        run_to_completion(begin).await
    }

    fn spawn_execution(
        self: &Arc<Self>,
        admitted: Admitted,
        whose: RunContext,
        started: Arc<Execution>,
        row: RowState,
    ) -> ExecutionHandle {
        let id = started.id;
        let running = self.register_with(id, admitted.stop_handle());
        running.asked_by(whose.asker());
        running.mark_started(whose.options.parent);
        // A right that is revoked from now on finds this entry and stops the execution.
        if running.asker().is_none_or(|asker| self.is_over(asker)) {
            self.cancel_active(id);
        }
        let attached = self.execution_handle(&running, Arc::clone(&started), &whose);
        let course = ExecutionTask { context: whose, started, running, row };
        tokio::spawn(Arc::clone(self).run_execution_task(admitted, course));
        attached
    }

    pub(crate) fn execution_handle(
        self: &Arc<Self>,
        running: &Arc<ActiveExecution>,
        started: Arc<Execution>,
        whose: &RunContext,
    ) -> ExecutionHandle {
        let mut handle = self.waiting_handle(running, started, whose.workspace);
        handle.cancel_on_drop = whose.options.idempotency_key.is_none();
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
                asker: OnceLock::new(),
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
        whose: &RunContext,
    ) -> Result<RowState, RequestError> {
        let (record, workspace) = (Arc::clone(record), whose.workspace);
        match (&whose.options.idempotency_key, whose.approval) {
            (None, None) => {
                let insert = move |tx: &Tx<'_>| tx.insert_execution(workspace, &record);
                self.db.write_unsynced(insert).await?;
            }
            (Some(claim), None) => {
                let key =
                    IdempotencyKey { workspace, principal: whose.principal, key: claim.clone() };
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
    async fn run_execution_task(self: Arc<Self>, admitted: Admitted, mut course: ExecutionTask) {
        let span = tracing::info_span!("execution", id = %course.started.id);
        let ran = self.run_and_log_egress(admitted, &mut course).instrument(span);
        let (lost, told) = match catch_panic(ran).await {
            Ok(finished) => match catch_panic(self.persist_record(finished, &mut course)).await {
                Ok(record) => (None, Ok(with_transcript(record, &course.running.live))),
                Err(refused) => {
                    let told = Err(record_lost_error(&refused.error).into());
                    (Some(refused), told)
                }
            },
            Err(fault) => (self.persist_failure(&fault, &course).await.err(), Err(fault.into())),
        };
        self.publish_outcome(course.started.id, &course.running, told);
        if let Some(refused) = lost {
            self.record_lost(*refused.error, course).await;
        }
    }

    /// Runs the command. Attempts of code without network access are only in its record, and are
    /// logged here.
    async fn run_and_log_egress(
        &self,
        admitted: Admitted,
        course: &mut ExecutionTask,
    ) -> Result<FinishedExecution, Error> {
        let has_egress = admitted.has_egress();
        let finished = self.run_and_publish(admitted, course).await?;
        if !has_egress {
            self.log_refused_attempts(&course.context, &finished.execution);
        }
        Ok(finished)
    }

    async fn run_and_publish(
        &self,
        admitted: Admitted,
        course: &mut ExecutionTask,
    ) -> Result<FinishedExecution, Error> {
        let live = Arc::clone(&course.running.live);
        live.set_lease(self.output_budget.lease(course.context.workspace));
        // The event of a file is published after the file is stored, so that clients can read it.
        let mut tell = |event: Event| match event {
            Event::File(_) => {}
            event => live.push_within_budget(event),
        };
        let asked = Arc::clone(&live);
        let room = ValueRoom::new(move |bytes| asked.take_value_room(bytes));
        let mut run = pin!(admitted.stream(&mut tell, &room));
        if course.row == RowState::Stored {
            return run.await;
        }
        if let Ok(ran) = timeout(ROW_GRACE, &mut run).await {
            return ran;
        }
        let write = async {
            let written = self.write_started_row(&course.started, &course.context).await;
            if written.is_err() {
                course.running.request_stop();
            }
            written
        };
        let (ran, written) = tokio::join!(run, write);
        match written {
            Ok(row) => {
                course.row = row;
                ran
            }
            Err(refused) => {
                ran.into_iter().for_each(|finished| remove_copies(finished.copies));
                Err(record_lost_error(&refused.error))
            }
        }
    }

    /// Records the end of an execution whose results are lost. Repeats the write until it succeeds.
    #[boxed::future]
    async fn record_lost(&self, fault: Error, course: ExecutionTask) {
        let ExecutionTask { context: whose, started, row, .. } = course;
        tracing::error!(execution = %started.id, error = %fault, "cannot store the record of an execution");
        let ended_at = Some(Utc::now());
        let started = Arc::unwrap_or_clone(started);
        let record =
            Execution { status: ExecutionStatus::Failed, error: Some(fault), ended_at, ..started };
        let nothing = LiveLog::new();
        while self.write_outcome(&record, &[], &whose, &nothing, row).await.is_err() {
            sleep(RETRY_DELAY).await;
        }
    }

    /// Publishes how the execution ended.
    pub(crate) fn publish_outcome(
        &self,
        id: ExecutionId,
        running: &ActiveExecution,
        kept: Result<Execution, RequestError>,
    ) {
        let status = kept.as_ref().map_or(ExecutionStatus::Failed, |record| record.status);
        let wall_time = kept.as_ref().ok().map(|it| Duration::from_millis(it.usage.wall_ms));
        self.execution_metrics.record(status, wall_time);
        let is_kept = kept.is_ok();
        *running.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
        running.live.push(Event::End { status });
        running.live.close();
        if is_kept && running.live.is_large() {
            running.live.release_events();
        }
        self.active_executions().remove(&id);
    }

    /// Stores the record without output and results, which are in the events.
    async fn persist_record(
        &self,
        finished: FinishedExecution,
        course: &mut ExecutionTask,
    ) -> Result<Execution, RequestError> {
        let FinishedExecution { mut execution, copies, .. } = finished;
        let live = &course.running.live;
        live.dropped().annotate_record(&mut execution);
        if course.row == RowState::Unwritten && course.running.live.is_large() {
            // The batches of events need the row that they belong to.
            match self.write_started_row(&course.started, &course.context).await {
                Ok(row) => course.row = row,
                Err(refused) => {
                    remove_copies(copies);
                    return Err(refused);
                }
            }
        }
        let ExecutionTask { context: whose, running, row, .. } = course;
        let execution = whose.annotate(execution);
        let events = running.live.events();
        let produced = execution.files_out.clone();
        let (record, files) = self.persist_output_files(execution, &events, copies, whose).await?;
        match self.write_outcome(&record, &files, whose, &running.live, *row).await {
            Err(refused) if !files.is_empty() => {
                self.db.remove_blobs(files.iter().map(|file| file.id).collect()).await?;
                if refused.error.code != ErrorCode::QuotaExceeded {
                    return Err(refused);
                }
                // Other executions have used up the space of the workspace meanwhile.
                let record = Execution { files_out: produced, ..record };
                let record = without_files(record, &files, &refused);
                self.write_outcome(&record, &[], whose, &running.live, *row).await?;
                Ok(record)
            }
            written => written.map(|()| record),
        }
    }

    /// Ends an execution that did not run: a file did not fit, or there was no sandbox.
    async fn persist_failure(
        &self,
        fault: &Error,
        course: &ExecutionTask,
    ) -> Result<(), RequestError> {
        let ExecutionTask { context: whose, started, running, row } = course;
        running.live.push(Event::Error(fault.clone()));
        let execution = Execution {
            status: ExecutionStatus::Failed,
            error: Some(fault.clone()),
            ended_at: Some(Utc::now()),
            ..Execution::clone(started)
        };
        self.write_outcome(&execution, &[], whose, &running.live, *row).await
    }

    async fn write_outcome(
        &self,
        execution: &Execution,
        files: &[File],
        whose: &RunContext,
        live: &LiveLog,
        row: RowState,
    ) -> Result<(), RequestError> {
        let (told, end) = (live.events(), Event::End { status: execution.status });
        let before = match row {
            RowState::Stored if live.is_large() => {
                self.persist_events(whose.workspace, execution, &told).await?
            }
            RowState::Stored | RowState::Unwritten => 0,
        };
        let made: Vec<Event> = execution.files_out.iter().cloned().map(Event::File).collect();
        let told = told.iter().skip(before).map(AsRef::as_ref);
        let events: Vec<&Event> = told.chain(&made).chain([&end]).collect();
        let ended =
            db::FinishedExecutionRow::new(execution, &events)?.with_stored_events(before as u64);
        let (entry, files) = (whose.audit_entry(execution), files.to_vec());
        let (workspace, most) = (whose.workspace, self.config.workspace_bytes_max);
        let (sandbox_id, generation) = (execution.sandbox_id, execution.generation);
        let written = move |tx: &Tx<'_>| {
            match row {
                RowState::Stored => drop(tx.finish_execution(workspace, &ended)?),
                RowState::Unwritten => tx.insert_finished(workspace, &ended)?,
            }
            tx.insert_files(workspace, &files, most)?;
            if let Some(id) = sandbox_id {
                tx.set_session_generation(workspace, id, generation)?;
            }
            tx.append_audit_entry(&entry)?;
            Ok(())
        };
        self.db.write(written).await?;
        made.into_iter().for_each(|event| live.push(event));
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
        let (id, principal, mut kept) = (execution.id, execution.principal, 0);
        while let Some(first) = events.get(kept) {
            let mut bytes = memory_bytes(first);
            let more = events[kept + 1..].iter().take_while(|event| {
                bytes += memory_bytes(event);
                bytes <= BATCH_BYTES
            });
            let count = 1 + more.count();
            let (number, batch) = (kept as u64 + 1, events[kept..kept + count].to_vec());
            let batch = run_blocking(move || {
                let events: Vec<&Event> = batch.iter().map(AsRef::as_ref).collect();
                EventBatch::new(number, &events)
            });
            let batch = batch.await??;
            let insert = move |tx: &Tx<'_>| tx.insert_events(workspace, id, &batch);
            self.db.write_bulk(principal, insert).await?;
            kept += count;
        }
        Ok(kept)
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
