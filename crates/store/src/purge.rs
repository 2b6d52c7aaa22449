//! Forgetting what is over: files, executions, and answers to requests.
//!
//! It goes in small steps, so that nobody who writes waits long for it. A file's row goes before
//! its bytes; what is left of the bytes after a crash is swept at the next start.

use crate::column::moment;
use crate::{Store, StoreError, Tx};
use chrono::{DateTime, TimeDelta, Utc};
use types::FileId;
use uuid::Uuid;

/// Rows in one transaction: some milliseconds.
const STEP: usize = 100;
/// Longer than any client tries again.
const REQUESTS_KEPT: TimeDelta = TimeDelta::hours(24);

/// How long things are kept.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Counted from when they were made; those that have not ended are kept.
    pub executions: TimeDelta,
}

/// How many went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Purged {
    pub files: usize,
    pub executions: usize,
    pub requests: usize,
}

impl Store {
    pub async fn purge(
        &self,
        now: DateTime<Utc>,
        retention: Retention,
    ) -> Result<Purged, StoreError> {
        let mut purged = Purged::default();
        loop {
            let step = self.write(move |tx| purge_step(tx, now, retention)).await?;
            self.remove_blobs(step.files.clone()).await?;
            purged.files += step.files.len();
            purged.executions += step.executions;
            purged.requests += step.requests;
            if step.is_last() {
                return Ok(purged);
            }
        }
    }
}

struct Step {
    files: Vec<FileId>,
    executions: usize,
    attempts: usize,
    requests: usize,
}

impl Step {
    fn is_last(&self) -> bool {
        self.files.len().max(self.executions).max(self.attempts).max(self.requests) < STEP
    }
}

fn purge_step(tx: &Tx<'_>, now: DateTime<Utc>, retention: Retention) -> Result<Step, StoreError> {
    let mut files = expired_files(tx, now)?;
    // Nothing is older than the calendar.
    let (executions, attempts) = match now.checked_sub_signed(retention.executions) {
        Some(before) => (old_executions(tx, before, &mut files)?, old_attempts(tx, before)?),
        None => (0, 0),
    };
    let requests = tx.change(
        "DELETE FROM idempotency WHERE rowid IN \
         (SELECT rowid FROM idempotency WHERE created_at <= ?1 LIMIT ?2)",
        (moment(now - REQUESTS_KEPT), STEP),
    )?;
    Ok(Step { files, executions, attempts, requests })
}

fn expired_files(tx: &Tx<'_>, now: DateTime<Utc>) -> Result<Vec<FileId>, StoreError> {
    tx.many(
        "DELETE FROM files WHERE rowid IN \
         (SELECT rowid FROM files WHERE expires_at <= ?1 LIMIT ?2) RETURNING id",
        (moment(now), STEP),
        |row| Ok(FileId::new(row.get("id")?)),
    )
}

/// The history of what code has tried to reach is kept as long as its executions.
fn old_attempts(tx: &Tx<'_>, before: DateTime<Utc>) -> Result<usize, StoreError> {
    tx.change(
        "DELETE FROM network_log WHERE rowid IN \
         (SELECT rowid FROM network_log WHERE at <= ?1 LIMIT ?2)",
        (moment(before), STEP),
    )
}

/// With their files, and with the questions that were asked about them, which have the same code.
fn old_executions(
    tx: &Tx<'_>,
    before: DateTime<Utc>,
    files: &mut Vec<FileId>,
) -> Result<usize, StoreError> {
    let old: Vec<(Uuid, Uuid)> = tx.many(
        "SELECT workspace, id FROM executions WHERE created_at <= ?1 \
         AND status NOT IN ('waiting_approval', 'queued', 'running') LIMIT ?2",
        (moment(before), STEP),
        |row| Ok((row.get("workspace")?, row.get("id")?)),
    )?;
    for key in &old {
        files.append(&mut tx.many(
            "DELETE FROM files WHERE workspace = ?1 AND execution_id = ?2 RETURNING id",
            *key,
            |row| Ok(FileId::new(row.get("id")?)),
        )?);
        tx.change("DELETE FROM approvals WHERE workspace = ?1 AND execution_id = ?2", *key)?;
        tx.change("DELETE FROM runs WHERE workspace = ?1 AND id = ?2", *key)?;
        tx.change("DELETE FROM executions WHERE workspace = ?1 AND id = ?2", *key)?;
    }
    Ok(old.len())
}
