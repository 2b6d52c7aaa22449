//! One thread writes, and nothing is told before it is on the disk.
//!
//! Whoever waits when the thread is free is written in one transaction, so that many share one
//! fsync. Each job has a savepoint: one that fails undoes itself and nobody else. After an error
//! of the disk nothing is written any more. A commit that may have changed what is decided by makes
//! a new [`Revision`] before anybody is told of it.

use crate::audit::AuditSeal;
use crate::belonging::Mark;
use crate::reader::Reader;
use crate::revision::{Revision, Revisions};
use crate::{StoreError, schema};
use rusqlite::{Connection, Params};
use std::cell::Cell;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};

/// Jobs in one transaction. An answer waits for all of them.
const BATCH: usize = 256;
/// Jobs that wait; whoever comes then waits before the queue.
const QUEUE: usize = 1024;
/// Pages in the log after which they are moved into the database: four megabytes, as SQLite does
/// by itself, but after the answers and not before them.
const CHECKPOINT_PAGES: i32 = 1000;

/// A transaction: all of a `Reader`, seeing what it has itself written, and everything that changes
/// records.
#[derive(Debug)]
pub struct Tx<'c> {
    connection: &'c Connection,
    reader: Reader<'c>,
    /// Rows by which nothing is decided.
    noted: Cell<u64>,
    pub(crate) seal: &'c AuditSeal,
}

impl<'c> Tx<'c> {
    pub(crate) fn new(connection: &'c Connection, seal: &'c AuditSeal) -> Self {
        Self { connection, reader: Reader::new(connection), noted: Cell::new(0), seal }
    }

    /// Gives pages that nothing uses back to the file system, and tells whether some are left.
    pub(crate) fn shrink(&self, pages: u32) -> Result<bool, StoreError> {
        // Each step of this statement frees one page, so it has to be stepped to its end.
        self.connection.execute_batch(&format!("PRAGMA incremental_vacuum({pages})"))?;
        Ok(self.unused_pages()? > 0)
    }

    /// How many rows were changed.
    pub(crate) fn change(&self, sql: &str, params: impl Params) -> Result<usize, StoreError> {
        Ok(self.connection.prepare_cached(sql)?.execute(params)?)
    }

    /// The same for rows that tell what was done, and have no part in what may be done. What a
    /// trigger or a foreign key changes besides them is not taken for such.
    pub(crate) fn note(&self, sql: &str, params: impl Params) -> Result<usize, StoreError> {
        let changed = self.change(sql, params)?;
        self.noted.update(|noted| noted.saturating_add(changed as u64));
        Ok(changed)
    }
}

impl<'c> Deref for Tx<'c> {
    type Target = Reader<'c>;

    fn deref(&self) -> &Reader<'c> {
        &self.reader
    }
}

/// What an answer promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Durability {
    /// Kept when the server is killed; lost with the power, unless something was kept after it.
    Soon,
    /// Kept.
    Full,
}

/// Tells the caller how the commit went.
type Answer = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// A job that has run, and may tell nothing before the commit.
struct Ran {
    failed: Option<StoreError>,
    answer: Answer,
}

/// Without a transaction, a job tells its caller why there is none.
type Run = Box<dyn FnOnce(Result<&Tx<'_>, StoreError>) -> Ran + Send>;

struct Job {
    durability: Durability,
    run: Run,
}

impl Job {
    fn refuse(self, error: StoreError) {
        let ran = (self.run)(Err(error));
        (ran.answer)(Ok(()));
    }
}

pub(crate) struct Writer {
    jobs: Option<mpsc::Sender<Job>>,
    well: Arc<AtomicBool>,
    revisions: Arc<Revisions>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(crate) fn start(
        connection: Connection,
        database: &Path,
        seal: AuditSeal,
        mark: Mark,
    ) -> Result<Self, StoreError> {
        let (jobs, waiting) = mpsc::channel(QUEUE);
        let writing = Writing::new(connection, seal, mark)?;
        let well = Arc::clone(&writing.well);
        let revisions = Arc::clone(&writing.revisions);
        let thread = std::thread::Builder::new()
            .name("store".into())
            .spawn(move || writing.serve(waiting))
            .map_err(StoreError::io(database))?;
        Ok(Self { jobs: Some(jobs), well, revisions, thread: Some(thread) })
    }

    pub(crate) fn revision(&self) -> Revision {
        self.revisions.now()
    }

    pub(crate) fn is_well(&self) -> bool {
        self.well.load(Ordering::Relaxed)
    }

    /// A caller who goes away meanwhile does not stop the job.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        durability: Durability,
        job: impl FnOnce(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (tell, told) = oneshot::channel();
        let run: Run = Box::new(move |tx| {
            let result = tx.and_then(job);
            let failed = result.as_ref().err().cloned();
            let answer: Answer = Box::new(move |committed| {
                // Nobody may be waiting any more.
                let _ = tell.send(result.and_then(|value| committed.map(|()| value)));
            });
            Ran { failed, answer }
        });
        let jobs = self.jobs.as_ref().ok_or(StoreError::Abandoned)?;
        jobs.send(Job { durability, run }).await.map_err(|_| StoreError::Abandoned)?;
        told.await.map_err(|_| StoreError::Abandoned)?
    }
}

impl Drop for Writer {
    /// What was asked for is still written.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // It has nothing more to say, and a panic of it was told to whoever waited.
            let _ = thread.join();
        }
    }
}

/// The side of the thread.
struct Writing {
    connection: Connection,
    durability: Durability,
    pages_in_log: Arc<AtomicI32>,
    well: Arc<AtomicBool>,
    revisions: Arc<Revisions>,
    stopped: Option<StoreError>,
    seal: AuditSeal,
    mark: Mark,
}

impl Writing {
    fn new(mut connection: Connection, seal: AuditSeal, mark: Mark) -> Result<Self, StoreError> {
        let pages_in_log = Arc::new(AtomicI32::new(0));
        let count = Arc::clone(&pages_in_log);
        connection.wal_hook(Some(move |_: &mut _, pages| {
            count.store(pages, Ordering::Relaxed);
            Ok(())
        }))?;
        let well = Arc::new(AtomicBool::new(true));
        let (durability, revisions) = (Durability::Full, Arc::default());
        let stopped = None;
        Ok(Self { connection, durability, pages_in_log, well, revisions, stopped, seal, mark })
    }

    fn serve(mut self, mut jobs: mpsc::Receiver<Job>) {
        let mut batch = Vec::with_capacity(BATCH);
        while jobs.blocking_recv_many(&mut batch, BATCH) > 0 {
            self.write(&mut batch);
            self.checkpoint();
        }
    }

    fn write(&mut self, batch: &mut Vec<Job>) {
        let durability = batch.iter().map(|job| job.durability).max().unwrap_or(Durability::Full);
        let mut jobs = batch.drain(..);
        let mut answers = Vec::with_capacity(jobs.len());
        let before = self.connection.total_changes();
        let outcome = self.transact(durability, &mut jobs, &mut answers);
        let changed = self.connection.total_changes() - before;
        // After the commit: whoever sees the new revision sees what is new about it.
        if !matches!(outcome, Ok(noted) if noted == changed) {
            self.revisions.begin_next();
        }
        let outcome = outcome.map(drop);
        if let Err(error) = &outcome {
            self.undo(error);
            jobs.for_each(|job| job.refuse(error.clone()));
        }
        self.well.store(outcome.is_ok(), Ordering::Relaxed);
        if outcome.is_ok() && durability == Durability::Full {
            self.note_head();
        }
        answers.into_iter().for_each(|answer| answer(outcome.clone()));
    }

    /// After a commit that is on the disk, so that the mark is never ahead of the database. A head that
    /// cannot be read is told to the next job that reads it.
    fn note_head(&mut self) {
        if let Ok(head) = Reader::new(&self.connection).audit_head() {
            self.mark.write(head);
        }
    }

    /// Fails for everybody, or for nobody but those who failed by themselves. Tells how many rows
    /// were only noted.
    fn transact(
        &mut self,
        durability: Durability,
        jobs: &mut impl Iterator<Item = Job>,
        answers: &mut Vec<Answer>,
    ) -> Result<u64, StoreError> {
        if let Some(error) = &self.stopped {
            return Err(error.clone());
        }
        self.promise(durability)?;
        self.execute("BEGIN IMMEDIATE")?;
        let tx = Tx::new(&self.connection, &self.seal);
        for job in jobs {
            self.execute("SAVEPOINT job")?;
            // A panic drops the job and with it the way to its caller, who is told `Abandoned`.
            let ran = catch_unwind(AssertUnwindSafe(|| (job.run)(Ok(&tx)))).ok();
            let (failed, answer) = ran
                .map_or((Some(StoreError::Abandoned), None), |ran| (ran.failed, Some(ran.answer)));
            answers.extend(answer);
            if let Some(error) = failed {
                // SQLite undoes the whole transaction by itself when it cannot go on.
                if error.is_final() || self.connection.is_autocommit() {
                    return Err(error);
                }
                self.execute("ROLLBACK TO job")?;
            }
            self.execute("RELEASE job")?;
        }
        let noted = tx.noted.get();
        self.execute("COMMIT")?;
        Ok(noted)
    }

    /// A later commit that is synced takes along those before it, which are in the same file.
    fn promise(&mut self, durability: Durability) -> Result<(), StoreError> {
        if durability != self.durability {
            self.execute(match durability {
                Durability::Soon => "PRAGMA synchronous = NORMAL",
                Durability::Full => "PRAGMA synchronous = FULL",
            })?;
            self.durability = durability;
        }
        Ok(())
    }

    fn undo(&mut self, error: &StoreError) {
        let undone = match self.connection.is_autocommit() {
            true => Ok(()),
            false => self.execute("ROLLBACK"),
        };
        // What cannot be undone would be in everybody's next transaction.
        if self.stopped.is_none() && (error.is_final() || undone.is_err()) {
            self.stopped = Some(StoreError::Stopped { cause: error.to_string() });
        }
    }

    fn checkpoint(&mut self) {
        if self.stopped.is_some() || self.pages_in_log.load(Ordering::Relaxed) < CHECKPOINT_PAGES {
            return;
        }
        // A checkpoint that found no room is done again after the next commit.
        if let Err(error) = schema::checkpoint(&self.connection)
            && error.is_final()
        {
            self.stopped = Some(StoreError::Stopped { cause: error.to_string() });
        }
    }

    fn execute(&self, sql: &str) -> Result<(), StoreError> {
        self.connection.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}
