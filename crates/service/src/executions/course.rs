//! The course of one execution: written down, run, kept, and only then told.
//!
//! What somebody has been told of, and what must not happen twice, has its row before its first
//! byte runs. Any other run has one as soon as it lasts, and one that is over before that gets it
//! with its end. Whatever dies with a row is found by the next start, is marked as interrupted,
//! and is not run again.

use super::attached::Attached;
use super::whose::Whose;
use crate::apart::{aside, to_the_end};
use crate::assets::without_files;
use crate::live::{Live, memory_bytes};
use crate::origins::Asker;
use crate::refused::Refused;
use crate::service::Service;
use crate::staging::Temporary;
use chrono::Utc;
use engine::{Admitted, Finished, ValueRoom};
use std::fs;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::{EventBatch, RequestKey, Tx};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::Instrument;
use types::{Code, Event, Execution, ExecutionId, Fault, File, Status, Transcript, WorkspaceId};

/// Between two tries to write down what the disk had no room for.
const AGAIN: Duration = Duration::from_secs(5);
/// A run is over within this, or has a row while it runs. A commit of its own would cost a short
/// run more than running does.
const SHORT: Duration = Duration::from_millis(2);
/// Of the events that are written together, so that neither the one thread that writes nor a reader
/// has much more of a log in memory.
const BATCH_BYTES: u64 = 256 * 1024;

/// An execution under way, or one that waits for a person.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) live: Arc<Live>,
    begun: AtomicBool,
    /// The run of a model that has begun it.
    parent: OnceLock<ExecutionId>,
    asker: OnceLock<Asker>,
    /// Its record; without output and results if its log is large.
    ended: OnceLock<Result<Execution, Refused>>,
    /// Of a run of a model: that it shall end.
    stop: watch::Sender<bool>,
}

impl Running {
    /// Whether it is on its way to an end without anybody's answer.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// From here on it is seen through.
    pub(crate) fn begin(&self, parent: Option<ExecutionId>) {
        self.belongs_to(parent);
        self.begun.store(true, Ordering::Relaxed);
    }

    /// The run that it is part of, once it is known.
    pub(crate) fn belongs_to(&self, run: Option<ExecutionId>) {
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

    pub(crate) fn is_of(&self, run: ExecutionId) -> bool {
        self.parent.get() == Some(&run)
    }

    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    pub(crate) async fn stopped(&self) {
        // It lives as long as this does.
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }

    pub(super) fn end(&self) -> Option<&Result<Execution, Refused>> {
        self.ended.get()
    }
}

/// Whether the store knows of an execution that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Row {
    There,
    New,
}

/// Where an execution is between its beginning and its end.
struct Course {
    whose: Whose,
    /// Its record as it was when it began.
    started: Execution,
    running: Arc<Running>,
    row: Row,
}

impl Service {
    /// From here on it is seen through, whatever becomes of the one who asked.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        admitted: Admitted,
        whose: Whose,
    ) -> Result<Attached, Refused> {
        let started = whose.mark(Execution {
            status: Status::Running,
            started_at: Some(Utc::now()),
            ..admitted.record()
        });
        // While the store is in trouble, nothing runs that it has not taken first.
        if whose.is_told_at_the_end() && self.store.is_well() {
            return Ok(self.go(admitted, whose, started, Row::New));
        }
        // Whoever asks may go away in the middle of this, and what has a row has an end.
        let service = Arc::clone(self);
        let begin = async move {
            let row = service.write_down(&started, &whose).await?;
            Ok(service.go(admitted, whose, started, row))
        };
        to_the_end(begin).await
    }

    fn go(
        self: &Arc<Self>,
        admitted: Admitted,
        whose: Whose,
        started: Execution,
        row: Row,
    ) -> Attached {
        let id = started.id;
        let running = self.follow(id);
        running.asked_by(whose.asker());
        running.begin(whose.manner.parent);
        // A right that is taken away from here on finds this and stops it.
        if running.asker().is_none_or(|asker| self.is_over(asker)) {
            self.stop_running(id);
        }
        let attached = self.attach(&running, &started, &whose);
        let course = Course { whose, started, running, row };
        tokio::spawn(Arc::clone(self).see_through(admitted, course));
        attached
    }

    pub(crate) fn attach(
        self: &Arc<Self>,
        running: &Arc<Running>,
        started: &Execution,
        whose: &Whose,
    ) -> Attached {
        Attached {
            service: Arc::clone(self),
            workspace: whose.workspace,
            id: started.id,
            running: Arc::clone(running),
            started: Box::new(started.clone()),
            attached: whose.manner.claim.is_none(),
        }
    }

    /// Where its events go, and are heard.
    pub(crate) fn follow(&self, id: ExecutionId) -> Arc<Running> {
        let new = || {
            let (begun, parent, ended) = (AtomicBool::new(false), OnceLock::new(), OnceLock::new());
            Arc::new(Running {
                live: Live::new(),
                begun,
                parent,
                asker: OnceLock::new(),
                ended,
                stop: watch::Sender::default(),
            })
        };
        Arc::clone(self.running().entry(id).or_insert_with(new))
    }

    /// That it has begun. What must not happen twice waits for the disk; the rest only has to
    /// outlive this process.
    async fn write_down(&self, record: &Execution, whose: &Whose) -> Result<Row, Refused> {
        let (record, workspace) = (record.clone(), whose.workspace);
        match (&whose.manner.claim, whose.approval) {
            (None, None) => {
                let insert = move |tx: &Tx<'_>| tx.insert_execution(workspace, &record, None);
                self.store.write_soon(insert).await?;
            }
            (Some(claim), None) => {
                let key = RequestKey { workspace, principal: whose.principal, key: claim.clone() };
                let insert = move |tx: &Tx<'_>| {
                    tx.link_request(&key, record.id)?;
                    tx.insert_execution(workspace, &record, None)
                };
                self.store.write(insert).await?;
            }
            (_, Some(approval)) => {
                let consume = move |tx: &Tx<'_>| {
                    if !tx.consume_approval(workspace, approval, Utc::now())? {
                        return Ok(false);
                    }
                    // One that has ended meanwhile was withdrawn.
                    tx.update_execution(workspace, &record)
                };
                if !self.store.write(consume).await? {
                    let used = "the approval was used already";
                    return Err(Fault::new(Code::ApprovalInvalid, used).into());
                }
            }
        }
        Ok(Row::There)
    }

    /// Runs it, keeps what it made, writes the record, and tells whoever listens.
    async fn see_through(self: Arc<Self>, admitted: Admitted, mut course: Course) {
        let span = tracing::info_span!("execution", id = %course.started.id);
        let ran = self.run(admitted, &mut course).instrument(span).await;
        let (lost, told) = match ran {
            Ok(finished) => match self.keep(finished, &mut course).await {
                Ok(record) => (None, Ok(with_transcript(record, &course.running.live))),
                Err(refused) => {
                    let told = Err(unkept(&refused.fault).into());
                    (Some(refused), told)
                }
            },
            Err(fault) => (self.keep_failure(&fault, &course).await.err(), Err(fault.into())),
        };
        self.conclude(course.started.id, &course.running, told);
        if let Some(refused) = lost {
            self.lose(*refused.fault, course).await;
        }
    }

    /// Runs it, and notes whom its code has tried to reach meanwhile.
    async fn run(&self, admitted: Admitted, course: &mut Course) -> Result<Finished, Fault> {
        let (id, trail) = (course.started.id, course.whose.trail.clone());
        if let Some(trail) = &trail {
            trail.begin(course.started.sandbox_id, id, &admitted.redactor());
        }
        let mut ran = self.run_and_tell(admitted, course).await;
        let attempts = trail.as_ref().map(|trail| trail.end(id));
        if let Ok(finished) = &mut ran {
            match attempts {
                Some(attempts) => finished.add_attempts(attempts),
                None => self.note_refused(&course.whose, &finished.execution),
            }
        }
        ran
    }

    async fn run_and_tell(
        &self,
        admitted: Admitted,
        course: &mut Course,
    ) -> Result<Finished, Fault> {
        let live = Arc::clone(&course.running.live);
        live.hold(self.output_budget.lease(course.whose.workspace));
        // A file is told when it is kept, and can be asked for.
        let mut tell = |event: Event| match event {
            Event::File(_) => {}
            event => live.offer(event),
        };
        let asked = Arc::clone(&live);
        let room = ValueRoom::new(move |bytes| asked.take_value_room(bytes));
        let mut run = pin!(admitted.stream(&mut tell, &room));
        if course.row == Row::There {
            return run.await;
        }
        if let Ok(ran) = timeout(SHORT, &mut run).await {
            return ran;
        }
        let write = async {
            let written = self.write_down(&course.started, &course.whose).await;
            if written.is_err() {
                self.engine.cancel(course.started.id);
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
                ran.into_iter().for_each(|finished| forget(finished.copies));
                Err(unkept(&refused.fault))
            }
        }
    }

    /// What came out of it is lost, but not that it is over: that is tried until it is written.
    async fn lose(&self, fault: Fault, course: Course) {
        let Course { whose, started, row, .. } = course;
        tracing::error!(execution = %started.id, error = %fault, "a record could not be kept");
        let ended_at = Some(Utc::now());
        let record = Execution { status: Status::Failed, error: Some(fault), ended_at, ..started };
        let nothing = Live::new();
        while self.write_end(record.clone(), Vec::new(), &whose, &nothing, row).await.is_err() {
            sleep(AGAIN).await;
        }
    }

    /// Tells whoever listens how it ended.
    pub(crate) fn conclude(
        &self,
        id: ExecutionId,
        running: &Running,
        kept: Result<Execution, Refused>,
    ) {
        let status = kept.as_ref().map_or(Status::Failed, |record| record.status);
        metrics::counter!("belljar_executions_total", "status" => status.name()).increment(1);
        if let Ok(record) = &kept {
            let seconds = Duration::from_millis(record.usage.wall_ms).as_secs_f64();
            metrics::histogram!("belljar_execution_seconds").record(seconds);
        }
        let is_kept = kept.is_ok();
        let _ = running.ended.set(kept);
        running.live.push(Event::End { status });
        running.live.close();
        if is_kept && running.live.is_large() {
            running.live.release();
        }
        self.running().remove(&id);
    }

    /// Keeps the record, which is without output and results: those are in the events.
    async fn keep(&self, finished: Finished, course: &mut Course) -> Result<Execution, Refused> {
        let Finished { mut execution, copies, .. } = finished;
        let live = &course.running.live;
        live.dropped().tell(&mut execution);
        if course.row == Row::New && course.running.live.is_large() {
            // The batches of its events need a row that they belong to.
            match self.write_down(&course.started, &course.whose).await {
                Ok(row) => course.row = row,
                Err(refused) => {
                    forget(copies);
                    return Err(refused);
                }
            }
        }
        let Course { whose, running, row, .. } = course;
        let execution = whose.mark(execution);
        let events = running.live.so_far();
        let (record, files) = self.keep_files(execution.clone(), &events, copies, whose).await?;
        let kept = files.clone();
        match self.write_end(record, files, whose, &running.live, *row).await {
            Err(refused) if !kept.is_empty() => {
                self.store.remove_blobs(kept.iter().map(|file| file.id).collect()).await?;
                if refused.fault.code != Code::QuotaExceeded {
                    return Err(refused);
                }
                // Others have filled the workspace meanwhile.
                let record = without_files(execution, &kept, &refused);
                self.write_end(record, Vec::new(), whose, &running.live, *row).await
            }
            written => written,
        }
    }

    /// It did not come to running: a file did not fit, or no sandbox could be had.
    async fn keep_failure(&self, fault: &Fault, course: &Course) -> Result<(), Refused> {
        let Course { whose, started, running, row } = course;
        running.live.push(Event::Error(fault.clone()));
        let execution = Execution {
            status: Status::Failed,
            error: Some(fault.clone()),
            ended_at: Some(Utc::now()),
            ..started.clone()
        };
        self.write_end(execution, Vec::new(), whose, &running.live, *row).await.map(drop)
    }

    async fn write_end(
        &self,
        execution: Execution,
        files: Vec<File>,
        whose: &Whose,
        live: &Live,
        row: Row,
    ) -> Result<Execution, Refused> {
        let (told, end) = (live.so_far(), Event::End { status: execution.status });
        let before = match row {
            Row::There if live.is_large() => {
                self.keep_events(whose.workspace, execution.id, &told).await?
            }
            Row::There | Row::New => 0,
        };
        let made: Vec<Event> = execution.files_out.iter().cloned().map(Event::File).collect();
        let told = told.iter().skip(before).map(AsRef::as_ref);
        let events: Vec<&Event> = told.chain(&made).chain([&end]).collect();
        let ended = store::Finished::new(&execution, &events)?.after(before as u64);
        let entry = whose.ran(&execution);
        let (workspace, most) = (whose.workspace, self.config.workspace_bytes_max);
        let (sandbox_id, generation) = (execution.sandbox_id, execution.generation);
        let written = move |tx: &Tx<'_>| {
            match row {
                Row::There => drop(tx.finish_execution(workspace, &ended)?),
                Row::New => tx.insert_finished(workspace, &ended)?,
            }
            tx.insert_files(workspace, &files, most)?;
            if let Some(id) = sandbox_id {
                tx.set_session_generation(workspace, id, generation)?;
            }
            tx.audit(&entry)?;
            Ok(())
        };
        self.store.write(written).await?;
        made.into_iter().for_each(|event| live.push(event));
        Ok(execution)
    }

    /// Keeps the events of a large log in batches, and says how many. They count when the end of the
    /// execution is written.
    async fn keep_events(
        &self,
        workspace: WorkspaceId,
        id: ExecutionId,
        events: &[Arc<Event>],
    ) -> Result<usize, Refused> {
        let mut kept = 0;
        while let Some(first) = events.get(kept) {
            let mut bytes = memory_bytes(first);
            let more = events[kept + 1..].iter().take_while(|event| {
                bytes += memory_bytes(event);
                bytes <= BATCH_BYTES
            });
            let count = 1 + more.count();
            let (number, batch) = (kept as u64 + 1, events[kept..kept + count].to_vec());
            let batch = aside(move || {
                let events: Vec<&Event> = batch.iter().map(AsRef::as_ref).collect();
                EventBatch::new(number, &events)
            });
            let batch = batch.await??;
            self.store.write_soon(move |tx| tx.insert_events(workspace, id, &batch)).await?;
            kept += count;
        }
        Ok(kept)
    }
}

/// A record with its output and results, unless those are so many that they are read from where
/// they are kept.
fn with_transcript(record: Execution, live: &Live) -> Execution {
    if live.is_large() {
        return record;
    }
    let Transcript { output, results } = live.transcript();
    Execution { output, results, ..record }
}

/// It must not look like a request that can be sent again: the code has run.
fn unkept(cause: &Fault) -> Fault {
    let message = format!("it ran, and what came out of it could not be kept: {}", cause.message);
    Fault::new(Code::ExecutionInterrupted, message)
        .hint("look at what it may have done already before it is run again")
}

fn forget(copies: Vec<(String, PathBuf)>) {
    let directory = copies.first().and_then(|(_, path)| path.parent()).map(Path::to_owned);
    copies.into_iter().for_each(|(_, path)| drop(Temporary::new(path)));
    // The next start wipes what is left.
    directory.into_iter().for_each(|directory| drop(fs::remove_dir(directory)));
}
