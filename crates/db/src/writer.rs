//! One thread writes, and a caller gets its result when the commit is on the disk.
//!
//! All jobs that wait when the thread is free are written in one transaction, so that they share one
//! fsync. Of bulk jobs, such as the output of an execution, only one is in a transaction, and callers
//! take turns, so that the output of one caller delays neither the records nor the output of others.
//! Each job has a savepoint: a job that fails undoes only itself. After an error of the disk nothing is
//! written any more. A commit that may have changed what is decided by makes a new [`Revision`] before
//! any caller is told of it.

use crate::audit::AuditSigner;
use crate::integrity::AuditHeadFile;
use crate::reader::Reader;
use crate::revision::{Revision, RevisionCounter};
use crate::{DatabaseError, schema};
use rusqlite::{Connection, Params};
use std::cell::Cell;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};
use types::{PrincipalId, TurnQueue};

/// Jobs in one transaction. An answer waits for all of them.
const BATCH_JOBS_MAX: usize = 256;
/// Capacity of the queue; further callers wait before it.
const QUEUE_JOBS_MAX: usize = 1024;
/// Bulk jobs that were received and are not written yet. Each holds the bytes that it writes; while
/// there are so many, no further job is received.
const BULK_JOBS_MAX: usize = 1024;
/// Pages in the log after which they are moved into the database, after the answers and not before
/// them. SQLite itself would wait for 1,000 pages; copying those takes so long that the next write
/// waits noticeably for it.
const CHECKPOINT_PAGES: i32 = 256;

/// A transaction: all of a `Reader`, seeing what it has itself written, and everything that changes
/// records.
#[derive(Debug)]
pub struct Tx<'c> {
    connection: &'c Connection,
    reader: Reader<'c>,
    /// Rows by which nothing is decided.
    unversioned_rows: Cell<u64>,
    pub(crate) audit_signer: &'c AuditSigner,
}

impl<'c> Tx<'c> {
    pub(crate) fn new(connection: &'c Connection, seal: &'c AuditSigner) -> Self {
        Self {
            connection,
            reader: Reader::new(connection),
            unversioned_rows: Cell::new(0),
            audit_signer: seal,
        }
    }

    /// Gives pages that nothing uses back to the file system, and tells whether some are left.
    pub(crate) fn vacuum_pages(&self, pages: u32) -> Result<bool, DatabaseError> {
        // Each step of this statement frees one page, so it has to be stepped to its end.
        self.connection.execute_batch(&format!("PRAGMA incremental_vacuum({pages})"))?;
        Ok(self.unused_pages()? > 0)
    }

    /// The number of changed rows.
    pub(crate) fn execute(&self, sql: &str, params: impl Params) -> Result<usize, DatabaseError> {
        Ok(self.connection.prepare_cached(sql)?.execute(params)?)
    }

    /// The same for rows that tell what was done, and have no part in what may be done. What a
    /// trigger or a foreign key changes besides them is not taken for such.
    pub(crate) fn execute_unversioned(
        &self,
        sql: &str,
        params: impl Params,
    ) -> Result<usize, DatabaseError> {
        let changed = self.execute(sql, params)?;
        self.unversioned_rows.update(|noted| noted.saturating_add(changed as u64));
        Ok(changed)
    }
}

impl<'c> Deref for Tx<'c> {
    type Target = Reader<'c>;

    fn deref(&self) -> &Reader<'c> {
        &self.reader
    }
}

/// When a write returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Durability {
    /// Kept when the server is killed; lost with the power, unless something was kept after it.
    Normal,
    /// Kept.
    Full,
}

/// Which jobs share a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    /// A caller waits for it: all that are in the queue are written together.
    Interactive,
    /// Many bytes: one in a transaction, behind the interactive jobs. Callers take turns; the server
    /// itself is one of them.
    Bulk { caller: Option<PrincipalId> },
}

/// Tells the caller how the commit went.
type CommitCallback = Box<dyn FnOnce(Result<(), DatabaseError>) + Send>;

/// A job that has run, and may tell nothing before the commit.
struct CompletedJob {
    failed: Option<DatabaseError>,
    answer: CommitCallback,
}

/// Without a transaction, a job tells its caller why there is none.
type JobFn = Box<dyn FnOnce(Result<&Tx<'_>, DatabaseError>) -> CompletedJob + Send>;

struct WriteJob {
    durability: Durability,
    priority: Priority,
    run: JobFn,
}

impl WriteJob {
    fn reject(self, error: DatabaseError) {
        let ran = (self.run)(Err(error));
        (ran.answer)(Ok(()));
    }
}

pub(crate) struct Writer {
    jobs: Option<mpsc::Sender<WriteJob>>,
    healthy: Arc<AtomicBool>,
    revisions: Arc<RevisionCounter>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(crate) fn start(
        connection: Connection,
        database: &Path,
        seal: AuditSigner,
        mark: AuditHeadFile,
    ) -> Result<Self, DatabaseError> {
        let (jobs, waiting) = mpsc::channel(QUEUE_JOBS_MAX);
        let writing = WriterThread::new(connection, seal, mark)?;
        let well = Arc::clone(&writing.healthy);
        let revisions = Arc::clone(&writing.revisions);
        let thread = std::thread::Builder::new()
            .name("db-writer".into())
            .spawn(move || writing.run(waiting))
            .map_err(DatabaseError::io(database))?;
        Ok(Self { jobs: Some(jobs), healthy: well, revisions, thread: Some(thread) })
    }

    pub(crate) fn revision(&self) -> Revision {
        self.revisions.current()
    }

    pub(crate) fn is_healthy(&self) -> bool {
        self.healthy.load(Ordering::Relaxed)
    }

    /// A caller who goes away meanwhile does not stop the job.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        durability: Durability,
        priority: Priority,
        job: impl FnOnce(&Tx<'_>) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        let (send_done, done) = oneshot::channel();
        let run: JobFn = Box::new(move |tx| {
            let result = tx.and_then(job);
            let failed = result.as_ref().err().cloned();
            let answer: CommitCallback = Box::new(move |committed| {
                // The caller may no longer be waiting.
                let _ = send_done.send(result.and_then(|value| committed.map(|()| value)));
            });
            CompletedJob { failed, answer }
        });
        let jobs = self.jobs.as_ref().ok_or(DatabaseError::Aborted)?;
        jobs.send(WriteJob { durability, priority, run })
            .await
            .map_err(|_| DatabaseError::Aborted)?;
        done.await.map_err(|_| DatabaseError::Aborted)?
    }
}

impl Drop for Writer {
    /// Jobs in the queue are still written.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // It has no result, and its callers already got the error of a panic.
            let _ = thread.join();
        }
    }
}

/// The jobs that wait for the thread.
struct JobQueue {
    jobs: mpsc::Receiver<WriteJob>,
    /// Bulk jobs that were received and not yet written.
    bulk: TurnQueue<Option<PrincipalId>, WriteJob>,
}

impl JobQueue {
    /// Fills `batch` with all interactive jobs and one bulk job, and waits if there is none. Returns
    /// false when no job can come any more.
    fn next_batch(&mut self, batch: &mut Vec<WriteJob>) -> bool {
        if self.bulk.is_empty() {
            let first = self.jobs.blocking_recv();
            first.into_iter().for_each(|job| self.enqueue(job, batch));
        }
        while batch.len() < BATCH_JOBS_MAX
            && self.bulk.len() < BULK_JOBS_MAX
            && let Ok(job) = self.jobs.try_recv()
        {
            self.enqueue(job, batch);
        }
        batch.extend(self.bulk.pop().map(|(_, job)| job));
        !batch.is_empty()
    }

    fn enqueue(&mut self, job: WriteJob, batch: &mut Vec<WriteJob>) {
        match job.priority {
            Priority::Interactive => batch.push(job),
            Priority::Bulk { caller } => drop(self.bulk.push(caller, job)),
        }
    }
}

/// The side of the thread.
struct WriterThread {
    connection: Connection,
    durability: Durability,
    pages_in_log: Arc<AtomicI32>,
    healthy: Arc<AtomicBool>,
    revisions: Arc<RevisionCounter>,
    stopped: Option<DatabaseError>,
    audit_signer: AuditSigner,
    audit_head_file: AuditHeadFile,
}

impl WriterThread {
    fn new(
        mut connection: Connection,
        seal: AuditSigner,
        mark: AuditHeadFile,
    ) -> Result<Self, DatabaseError> {
        let pages_in_log = Arc::new(AtomicI32::new(0));
        let count = Arc::clone(&pages_in_log);
        connection.wal_hook(Some(move |_: &mut _, pages| {
            count.store(pages, Ordering::Relaxed);
            Ok(())
        }))?;
        let well = Arc::new(AtomicBool::new(true));
        let (durability, revisions) = (Durability::Full, Arc::default());
        let stopped = None;
        Ok(Self {
            connection,
            durability,
            pages_in_log,
            healthy: well,
            revisions,
            stopped,
            audit_signer: seal,
            audit_head_file: mark,
        })
    }

    fn run(mut self, jobs: mpsc::Receiver<WriteJob>) {
        let mut queue = JobQueue { jobs, bulk: TurnQueue::default() };
        let mut batch = Vec::with_capacity(BATCH_JOBS_MAX);
        while queue.next_batch(&mut batch) {
            self.commit_batch(&mut batch);
            self.checkpoint();
        }
    }

    fn commit_batch(&mut self, batch: &mut Vec<WriteJob>) {
        let durability = batch.iter().map(|job| job.durability).max().unwrap_or(Durability::Full);
        let mut jobs = batch.drain(..);
        let mut answers = Vec::with_capacity(jobs.len());
        let before = self.connection.total_changes();
        let outcome = self.run_transaction(durability, &mut jobs, &mut answers);
        let changed = self.connection.total_changes() - before;
        // After the commit: a reader that sees the new revision also sees the new rows.
        if !matches!(outcome, Ok(noted) if noted == changed) {
            self.revisions.advance();
        }
        let outcome = outcome.map(drop);
        if let Err(error) = &outcome {
            self.roll_back(error);
            jobs.for_each(|job| job.reject(error.clone()));
        }
        self.healthy.store(outcome.is_ok(), Ordering::Relaxed);
        if outcome.is_ok() && durability == Durability::Full {
            self.update_audit_head_file();
        }
        answers.into_iter().for_each(|answer| answer(outcome.clone()));
    }

    /// After a commit that is on the disk, so that the mark is never ahead of the database. A head that
    /// cannot be read is told to the next job that reads it.
    fn update_audit_head_file(&mut self) {
        if let Ok(head) = Reader::new(&self.connection).audit_head() {
            self.audit_head_file.write(head);
        }
    }

    /// Fails for all jobs, or only for those that failed themselves. Returns how many rows
    /// were only noted.
    fn run_transaction(
        &mut self,
        durability: Durability,
        jobs: &mut impl Iterator<Item = WriteJob>,
        answers: &mut Vec<CommitCallback>,
    ) -> Result<u64, DatabaseError> {
        if let Some(error) = &self.stopped {
            return Err(error.clone());
        }
        self.set_durability(durability)?;
        self.execute("BEGIN IMMEDIATE")?;
        let tx = Tx::new(&self.connection, &self.audit_signer);
        for job in jobs {
            self.execute("SAVEPOINT job")?;
            // A panic drops the job and with it the way to its caller, who is told `Abandoned`.
            let ran = catch_unwind(AssertUnwindSafe(|| (job.run)(Ok(&tx)))).ok();
            let (failed, answer) = ran
                .map_or((Some(DatabaseError::Aborted), None), |ran| (ran.failed, Some(ran.answer)));
            answers.extend(answer);
            if let Some(error) = failed {
                // SQLite undoes the whole transaction by itself when it cannot go on.
                if error.is_fatal() || self.connection.is_autocommit() {
                    return Err(error);
                }
                self.execute("ROLLBACK TO job")?;
            }
            self.execute("RELEASE job")?;
        }
        let noted = tx.unversioned_rows.get();
        self.execute("COMMIT")?;
        Ok(noted)
    }

    /// A later commit that is synced takes along those before it, which are in the same file.
    fn set_durability(&mut self, durability: Durability) -> Result<(), DatabaseError> {
        if durability != self.durability {
            self.execute(match durability {
                Durability::Normal => "PRAGMA synchronous = NORMAL",
                Durability::Full => "PRAGMA synchronous = FULL",
            })?;
            self.durability = durability;
        }
        Ok(())
    }

    fn roll_back(&mut self, error: &DatabaseError) {
        let undone = match self.connection.is_autocommit() {
            true => Ok(()),
            false => self.execute("ROLLBACK"),
        };
        // What cannot be undone would be in the next transaction, with the jobs of other callers.
        if self.stopped.is_none() && (error.is_fatal() || undone.is_err()) {
            self.stopped = Some(DatabaseError::Stopped { cause: error.to_string() });
        }
    }

    fn checkpoint(&mut self) {
        if self.stopped.is_some() || self.pages_in_log.load(Ordering::Relaxed) < CHECKPOINT_PAGES {
            return;
        }
        // A checkpoint that found no room is done again after the next commit.
        if let Err(error) = schema::checkpoint(&self.connection)
            && error.is_fatal()
        {
            self.stopped = Some(DatabaseError::Stopped { cause: error.to_string() });
        }
    }

    fn execute(&self, sql: &str) -> Result<(), DatabaseError> {
        self.connection.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(priority: Priority) -> WriteJob {
        let answer: CommitCallback = Box::new(|_| {});
        let run: JobFn = Box::new(|_| CompletedJob { failed: None, answer });
        WriteJob { durability: Durability::Normal, priority, run }
    }

    #[test]
    fn t217_bulk_jobs_that_wait_are_bounded_and_do_not_hold_up_records() {
        const SENT: usize = 3 * BULK_JOBS_MAX;
        let (sender, jobs) = mpsc::channel(SENT + 1);
        let send = |priority| assert!(sender.try_send(job(priority)).is_ok());
        let mut queue = JobQueue { jobs, bulk: TurnQueue::default() };
        let bulk = Priority::Bulk { caller: None };
        (0..10).for_each(|_| send(bulk));
        send(Priority::Interactive);
        let mut batch = Vec::new();
        assert!(queue.next_batch(&mut batch));
        let kinds: Vec<_> = batch.drain(..).map(|job| job.priority).collect();
        assert_eq!(kinds, [Priority::Interactive, bulk], "the record first, and one bulk job");
        (10..SENT).for_each(|_| send(bulk));
        for written in 2..SENT {
            assert!(queue.next_batch(&mut batch));
            assert_eq!(batch.drain(..).count(), 1);
            assert!(queue.bulk.len() < BULK_JOBS_MAX);
            assert_eq!(queue.bulk.len() + queue.jobs.len(), SENT - written);
        }
    }
}
