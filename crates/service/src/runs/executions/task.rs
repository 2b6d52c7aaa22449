//! The course of one execution: written down, run, kept, and only then told.
//!
//! What somebody has been told of, and what must not happen twice, has its row before its first
//! byte runs. Any other run has one as soon as it lasts, and one that is over before that gets it
//! with its end. Whatever dies with a row is found by the next start, is marked as interrupted,
//! and is not run again.

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

/// Between two tries to write down what the disk had no room for.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// A run is over within this, or has a row while it runs. A commit of its own would cost a short
/// run more than running does.
const ROW_GRACE: Duration = Duration::from_millis(2);
/// Of the events that are written together, so that neither the one thread that writes nor a reader
/// has much more of a log in memory.
const BATCH_BYTES: u64 = 256 * 1024;

/// An execution under way, or one that waits for a person.
#[derive(Debug)]
pub(crate) struct ActiveExecution {
    pub(crate) live: Arc<LiveLog>,
    started: AtomicBool,
    /// The run of a model that has begun it.
    parent: OnceLock<ExecutionId>,
    asker: OnceLock<Asker>,
    /// Its record, for the one who waits; without output and results if its log is large.
    outcome: Mutex<Option<Result<Execution, RequestError>>>,
    /// Stops it: the run of a model, or the command that the engine runs.
    stop: StopHandle,
}

impl ActiveExecution {
    /// Whether it is on its way to an end without anybody's answer.
    pub(crate) fn has_started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    /// From here on it is seen through.
    pub(crate) fn mark_started(&self, parent: Option<ExecutionId>) {
        self.set_parent(parent);
        self.started.store(true, Ordering::Relaxed);
    }

    /// The run that it is part of, once it is known.
    pub(crate) fn set_parent(&self, run: Option<ExecutionId>) {
        // What was asked about first is told the same twice.
        if let Some(run) = run {
            let _ = self.parent.set(run);
        }
    }

    /// Who asked for it, once that is known.
    pub(crate) fn asked_by(&self, asker: Asker) {
        // What a person was asked about has its asker from the question.
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

    /// What stops it, for the engine.
    pub(crate) fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Takes the outcome, once it was published. Only the handle of the execution does.
    pub(super) fn take_outcome(&self) -> Option<Result<Execution, RequestError>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Whether the volume knows of an execution that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowState {
    Stored,
    Unwritten,
}

/// Where an execution is between its beginning and its end.
struct ExecutionTask {
    context: RunContext,
    /// Its record as it was when it began.
    started: Arc<Execution>,
    running: Arc<ActiveExecution>,
    row: RowState,
}

impl Service {
    /// From here on it is seen through, whatever becomes of the one who asked.
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
        // While the volume is in trouble, nothing runs that it has not taken first.
        if whose.can_defer_row(admitted.has_egress()) && self.db.is_healthy() {
            return Ok(self.spawn_execution(admitted, whose, started, RowState::Unwritten));
        }
        // Whoever asks may go away in the middle of this, and what has a row has an end.
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
        // A right that is taken away from here on finds this and stops it.
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

    /// The handle of one that waits for an approval, and may wait for days.
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

    /// Where its events go, and are heard.
    pub(crate) fn register_execution(&self, id: ExecutionId) -> Arc<ActiveExecution> {
        self.register_with(id, StopHandle::default())
    }

    /// The same for one that `stop` stops, unless it is registered already.
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

    /// That it has begun. What must not happen twice waits for the disk; the rest only has to
    /// outlive this process.
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
                    // One that has ended meanwhile was withdrawn.
                    tx.update_execution(workspace, &record)
                };
                if !self.db.write(consume).await? {
                    let used = "the approval was used already";
                    return Err(Error::new(ErrorCode::ApprovalInvalid, used).into());
                }
            }
        }
        Ok(RowState::Stored)
    }

    /// Runs it, keeps what it made, writes the record, and tells whoever listens.
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

    /// Runs it. Attempts of code without network access are only on its record, and are logged here.
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
        // A file is told when it is kept, and can be asked for.
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

    /// What came out of it is lost, but not that it is over: that is tried until it is written.
    #[boxed::future]
    async fn record_lost(&self, fault: Error, course: ExecutionTask) {
        let ExecutionTask { context: whose, started, row, .. } = course;
        tracing::error!(execution = %started.id, error = %fault, "a record could not be kept");
        let ended_at = Some(Utc::now());
        let started = Arc::unwrap_or_clone(started);
        let record =
            Execution { status: ExecutionStatus::Failed, error: Some(fault), ended_at, ..started };
        let nothing = LiveLog::new();
        while self.write_outcome(&record, &[], &whose, &nothing, row).await.is_err() {
            sleep(RETRY_DELAY).await;
        }
    }

    /// Tells whoever listens how it ended.
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

    /// Keeps the record, which is without output and results: those are in the events.
    async fn persist_record(
        &self,
        finished: FinishedExecution,
        course: &mut ExecutionTask,
    ) -> Result<Execution, RequestError> {
        let FinishedExecution { mut execution, copies, .. } = finished;
        let live = &course.running.live;
        live.dropped().annotate_record(&mut execution);
        if course.row == RowState::Unwritten && course.running.live.is_large() {
            // The batches of its events need a row that they belong to.
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
                // Others have filled the workspace meanwhile.
                let record = Execution { files_out: produced, ..record };
                let record = without_files(record, &files, &refused);
                self.write_outcome(&record, &[], whose, &running.live, *row).await?;
                Ok(record)
            }
            written => written.map(|()| record),
        }
    }

    /// It did not come to running: a file did not fit, or no sandbox could be had.
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
                self.persist_events(whose.workspace, execution.id, &told).await?
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

    /// Keeps the events of a large log in batches, and says how many. They count when the end of the
    /// execution is written.
    async fn persist_events(
        &self,
        workspace: WorkspaceId,
        id: ExecutionId,
        events: &[Arc<Event>],
    ) -> Result<usize, RequestError> {
        let mut kept = 0;
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
            self.db.write_unsynced(move |tx| tx.insert_events(workspace, id, &batch)).await?;
            kept += count;
        }
        Ok(kept)
    }
}

/// A record with its output and results, unless those are so many that they are read from where
/// they are kept.
fn with_transcript(record: Execution, live: &LiveLog) -> Execution {
    if live.is_large() {
        return record;
    }
    let Transcript { output, results } = live.transcript();
    Execution { output, results, ..record }
}

/// It must not look like a request that can be sent again: the code has run.
fn record_lost_error(cause: &Error) -> Error {
    let message = format!("it ran, and what came out of it could not be kept: {}", cause.message);
    Error::new(ErrorCode::ExecutionInterrupted, message)
        .hint("look at what it may have done already before it is run again")
}

fn remove_copies(copies: Vec<(String, PathBuf)>) {
    let directory = copies.first().and_then(|(_, path)| path.parent()).map(Path::to_owned);
    copies.into_iter().for_each(|(_, path)| drop(TempPath::new(path)));
    // The next start wipes what is left.
    directory.into_iter().for_each(|directory| drop(fs::remove_dir(directory)));
}
