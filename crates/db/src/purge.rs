//! Deletes expired records: files, executions, sessions, keys, remembered decisions, stored
//! responses, and the oldest entries of the audit log.
//!
//! Each transaction is short, so that writers do not wait long. The row of a file is deleted before
//! its bytes; bytes that a crash leaves are moved aside at the next start. Nothing is deleted while
//! the wall clock is not trusted.

use crate::clock::ClockReading;
use crate::columns::{from_nanos, to_nanos};
use crate::{Database, DatabaseError, Reader, Tx};
use chrono::{DateTime, TimeDelta, Utc};
use types::FileId;
use uuid::Uuid;

/// Rows per transaction: some milliseconds.
const PURGE_BATCH: usize = 100;
/// Longer than any client retries.
const IDEMPOTENCY_RETENTION: TimeDelta = TimeDelta::hours(24);
/// Unused pages below which the database file is not shrunk: new rows use them.
const UNUSED_PAGES_MAX: u32 = 256;
/// Pages that one transaction releases: a megabyte, some milliseconds.
const SHRINK_PAGES: u32 = 256;
/// Maximum number of transactions per round that release pages; the next round continues.
const SHRINK_STEPS: usize = 64;

/// Retention times.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Executions, from their creation and only after their end; also files without a record, the
    /// egress log, and sessions and keys from their end.
    pub executions: TimeDelta,
    /// Entries of the audit log.
    pub audit: TimeDelta,
    /// Remembered decisions that cover further calls.
    pub remembered_approvals: TimeDelta,
}

impl Retention {
    /// The same retention for everything.
    pub fn all(time: TimeDelta) -> Self {
        Self { executions: time, audit: time, remembered_approvals: time }
    }
}

/// The numbers of deleted rows and files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PurgeCounts {
    pub files: usize,
    pub executions: usize,
    pub requests: usize,
    pub sessions: usize,
    pub keys: usize,
    pub remembered_approvals: usize,
    pub audit: usize,
}

/// The result of one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PurgeOutcome {
    Completed(PurgeCounts),
    /// The wall clock has jumped; nothing is deleted until the new time has held for hours.
    ClockUnconfirmed,
}

impl Database {
    pub async fn purge(
        &self,
        now: ClockReading,
        retention: Retention,
    ) -> Result<PurgeOutcome, DatabaseError> {
        let last_trusted = self.read(|rows| rows.trusted_at())?;
        if !self.clock().confirm(now, last_trusted) {
            return Ok(PurgeOutcome::ClockUnconfirmed);
        }
        let now = now.wall;
        self.write_unsynced(move |tx| tx.set_trusted_at(now)).await?;
        let mut counts = PurgeCounts::default();
        loop {
            let step = self.write(move |tx| purge_step(tx, now, retention)).await?;
            self.remove_blobs(step.files.clone()).await?;
            counts.files += step.files.len();
            counts.executions += step.purged.executions;
            counts.requests += step.purged.requests;
            counts.sessions += step.purged.sessions;
            counts.keys += step.purged.keys;
            counts.remembered_approvals += step.purged.remembered_approvals;
            counts.audit += step.purged.audit;
            if step.is_last() {
                break;
            }
        }
        if let Some(before) = now.checked_sub_signed(retention.executions) {
            self.remove_quarantined(before).await?;
        }
        self.vacuum().await?;
        Ok(PurgeOutcome::Completed(counts))
    }

    /// Shrinks the database file by the pages that deleted rows have left.
    async fn vacuum(&self) -> Result<(), DatabaseError> {
        if self.read(|rows| rows.unused_pages())? <= UNUSED_PAGES_MAX {
            return Ok(());
        }
        for _ in 0..SHRINK_STEPS {
            if !self.write_unsynced(|tx| tx.vacuum_pages(SHRINK_PAGES)).await? {
                break;
            }
        }
        Ok(())
    }
}

impl Tx<'_> {
    fn set_trusted_at(&self, now: DateTime<Utc>) -> Result<(), DatabaseError> {
        self.execute_unversioned("UPDATE server SET trusted_at = ?1", [to_nanos(now)]).map(drop)
    }
}

impl Reader<'_> {
    /// The last wall-clock time that a purge has trusted.
    pub(crate) fn trusted_at(&self) -> Result<Option<DateTime<Utc>>, DatabaseError> {
        let found = self.query_one("SELECT trusted_at FROM server", [], |row| Ok(row.get(0)?))?;
        Ok(found.flatten().map(from_nanos))
    }
}

struct PurgeStep {
    files: Vec<FileId>,
    attempts: usize,
    purged: PurgeCounts,
}

impl PurgeStep {
    fn is_last(&self) -> bool {
        let PurgeCounts {
            files: _,
            executions,
            requests,
            sessions,
            keys,
            remembered_approvals,
            audit,
        } = self.purged;
        let rows = [self.files.len(), self.attempts, executions, requests, sessions, keys];
        rows.into_iter().chain([remembered_approvals, audit]).all(|rows| rows < PURGE_BATCH)
    }
}

fn purge_step(
    tx: &Tx<'_>,
    now: DateTime<Utc>,
    retention: Retention,
) -> Result<PurgeStep, DatabaseError> {
    let mut files = delete_expired_files(tx, now)?;
    let mut purged = PurgeCounts::default();
    let mut attempts = 0;
    // Without a date that is so long ago, nothing is old enough.
    if let Some(before) = now.checked_sub_signed(retention.executions) {
        purged.executions = delete_old_executions(tx, before, &mut files)?;
        attempts = delete_old_network_log(tx, before)?;
        purged.sessions = delete_old_sessions(tx, before)?;
        purged.keys = delete_old_keys(tx, before)?;
    }
    if let Some(before) = now.checked_sub_signed(retention.remembered_approvals) {
        purged.remembered_approvals = tx.execute(
            "DELETE FROM remembered WHERE id IN \
             (SELECT id FROM remembered WHERE created_at <= ?1 LIMIT ?2)",
            (to_nanos(before), PURGE_BATCH),
        )?;
    }
    if let Some(before) = now.checked_sub_signed(retention.audit) {
        purged.audit = tx.prune_audit_log(before, PURGE_BATCH)?;
    }
    purged.requests = tx.execute(
        "DELETE FROM idempotency WHERE rowid IN \
         (SELECT rowid FROM idempotency WHERE created_at <= ?1 LIMIT ?2)",
        (to_nanos(now - IDEMPOTENCY_RETENTION), PURGE_BATCH),
    )?;
    Ok(PurgeStep { files, attempts, purged })
}

/// Deletes ended sessions with the remembered decisions for them.
fn delete_old_sessions(tx: &Tx<'_>, before: DateTime<Utc>) -> Result<usize, DatabaseError> {
    let expired: Vec<(Uuid, Uuid)> = tx.query_many(
        "SELECT workspace, sandbox_id FROM sessions WHERE ended_at <= ?1 LIMIT ?2",
        (to_nanos(before), PURGE_BATCH),
        |row| Ok((row.get("workspace")?, row.get("sandbox_id")?)),
    )?;
    for key in &expired {
        tx.execute("DELETE FROM remembered WHERE workspace = ?1 AND sandbox_id = ?2", *key)?;
        tx.execute("DELETE FROM sessions WHERE workspace = ?1 AND sandbox_id = ?2", *key)?;
    }
    Ok(expired.len())
}

/// Deletes ended keys, but not a key that created an active one: revoking it must revoke that one
/// too.
fn delete_old_keys(tx: &Tx<'_>, before: DateTime<Utc>) -> Result<usize, DatabaseError> {
    tx.execute(
        "DELETE FROM keys WHERE id IN (SELECT id FROM keys AS old WHERE ended_at <= ?1 \
         AND NOT EXISTS (SELECT 1 FROM keys AS made WHERE made.workspace = old.workspace \
         AND made.principal = old.principal AND coalesce(made.ended_at > ?1, 1) \
         AND json_extract(made.body, '$.created_with') = json_extract(old.body, '$.id')) LIMIT ?2)",
        (to_nanos(before), PURGE_BATCH),
    )
}

fn delete_expired_files(tx: &Tx<'_>, now: DateTime<Utc>) -> Result<Vec<FileId>, DatabaseError> {
    tx.query_many(
        "DELETE FROM files WHERE rowid IN \
         (SELECT rowid FROM files WHERE expires_at <= ?1 LIMIT ?2) RETURNING id",
        (to_nanos(now), PURGE_BATCH),
        |row| Ok(FileId::new(row.get("id")?)),
    )
}

/// Deletes entries of the egress log, which are stored as long as executions.
fn delete_old_network_log(tx: &Tx<'_>, before: DateTime<Utc>) -> Result<usize, DatabaseError> {
    tx.execute(
        "DELETE FROM network_log WHERE rowid IN \
         (SELECT rowid FROM network_log WHERE at <= ?1 LIMIT ?2)",
        (to_nanos(before), PURGE_BATCH),
    )
}

/// Deletes executions with their files, and with their approvals, which contain the same code.
fn delete_old_executions(
    tx: &Tx<'_>,
    before: DateTime<Utc>,
    files: &mut Vec<FileId>,
) -> Result<usize, DatabaseError> {
    let expired: Vec<(Uuid, Uuid)> = tx.query_many(
        "SELECT workspace, id FROM executions WHERE created_at <= ?1 \
         AND status NOT IN ('waiting_approval', 'queued', 'running') LIMIT ?2",
        (to_nanos(before), PURGE_BATCH),
        |row| Ok((row.get("workspace")?, row.get("id")?)),
    )?;
    for key in &expired {
        files.append(&mut tx.query_many(
            "DELETE FROM files WHERE workspace = ?1 AND execution_id = ?2 RETURNING id",
            *key,
            |row| Ok(FileId::new(row.get("id")?)),
        )?);
        tx.execute("DELETE FROM approvals WHERE workspace = ?1 AND execution_id = ?2", *key)?;
        tx.execute("DELETE FROM runs WHERE workspace = ?1 AND id = ?2", *key)?;
        tx.execute("DELETE FROM executions WHERE workspace = ?1 AND id = ?2", *key)?;
    }
    Ok(expired.len())
}
