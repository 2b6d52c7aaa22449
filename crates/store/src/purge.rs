//! Forgetting what is over: files, executions, sessions, keys, remembered answers, answers to
//! requests, and the oldest part of the audit log.
//!
//! It goes in small steps, so that nobody who writes waits long for it. A file's row goes before
//! its bytes; what is left of the bytes after a crash is set aside at the next start. Nothing is
//! forgotten while the wall clock is not confirmed.

use crate::clock::Reading;
use crate::column::{at, moment};
use crate::{Reader, Store, StoreError, Tx};
use chrono::{DateTime, TimeDelta, Utc};
use types::FileId;
use uuid::Uuid;

/// Rows in one transaction: some milliseconds.
const STEP: usize = 100;
/// Longer than any client tries again.
const REQUESTS_KEPT: TimeDelta = TimeDelta::hours(24);
/// Pages that may be unused before the file is made smaller: new rows will take them.
const UNUSED_PAGES_MAX: u32 = 256;
/// Pages that are given back in one transaction: a megabyte, some milliseconds.
const SHRINK_PAGES: u32 = 256;
/// Transactions of one round that give pages back; the next round goes on.
const SHRINK_STEPS: usize = 64;

/// How long things are kept.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Executions, counted from when they were made, without those that have not ended; also files that
    /// no record knows, attempts to reach hosts, and sessions and keys, counted from their end.
    pub executions: TimeDelta,
    /// Entries of the audit log.
    pub audit: TimeDelta,
    /// Answers that are good for more than one call.
    pub answers: TimeDelta,
}

impl Retention {
    /// The same for everything.
    pub fn all(time: TimeDelta) -> Self {
        Self { executions: time, audit: time, answers: time }
    }
}

/// How many went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Purged {
    pub files: usize,
    pub executions: usize,
    pub requests: usize,
    pub sessions: usize,
    pub keys: usize,
    pub answers: usize,
    pub audit: usize,
}

/// What came of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgetting {
    Done(Purged),
    /// The wall clock has jumped, and nothing is forgotten until the new time has held for hours.
    ClockUnconfirmed,
}

impl Store {
    pub async fn purge(
        &self,
        now: Reading,
        retention: Retention,
    ) -> Result<Forgetting, StoreError> {
        let kept = self.read(|rows| rows.trusted_at())?;
        if !self.clock().confirms(now, kept) {
            return Ok(Forgetting::ClockUnconfirmed);
        }
        let now = now.wall;
        self.write_soon(move |tx| tx.set_trusted_at(now)).await?;
        let mut purged = Purged::default();
        loop {
            let step = self.write(move |tx| purge_step(tx, now, retention)).await?;
            self.remove_blobs(step.files.clone()).await?;
            purged.files += step.files.len();
            purged.executions += step.purged.executions;
            purged.requests += step.purged.requests;
            purged.sessions += step.purged.sessions;
            purged.keys += step.purged.keys;
            purged.answers += step.purged.answers;
            purged.audit += step.purged.audit;
            if step.is_last() {
                break;
            }
        }
        if let Some(before) = now.checked_sub_signed(retention.executions) {
            self.remove_set_aside(before).await?;
        }
        self.shrink().await?;
        Ok(Forgetting::Done(purged))
    }

    /// Gives room back that forgotten rows have left.
    async fn shrink(&self) -> Result<(), StoreError> {
        if self.read(|rows| rows.unused_pages())? <= UNUSED_PAGES_MAX {
            return Ok(());
        }
        for _ in 0..SHRINK_STEPS {
            if !self.write_soon(|tx| tx.shrink(SHRINK_PAGES)).await? {
                break;
            }
        }
        Ok(())
    }
}

impl Tx<'_> {
    fn set_trusted_at(&self, now: DateTime<Utc>) -> Result<(), StoreError> {
        self.note("UPDATE server SET trusted_at = ?1", [moment(now)]).map(drop)
    }
}

impl Reader<'_> {
    /// The last wall-clock time by which something was forgotten.
    pub(crate) fn trusted_at(&self) -> Result<Option<DateTime<Utc>>, StoreError> {
        let found = self.one("SELECT trusted_at FROM server", [], |row| Ok(row.get(0)?))?;
        Ok(found.flatten().map(at))
    }
}

struct Step {
    files: Vec<FileId>,
    attempts: usize,
    purged: Purged,
}

impl Step {
    fn is_last(&self) -> bool {
        let Purged { files: _, executions, requests, sessions, keys, answers, audit } = self.purged;
        let rows = [self.files.len(), self.attempts, executions, requests, sessions, keys];
        rows.into_iter().chain([answers, audit]).all(|rows| rows < STEP)
    }
}

fn purge_step(tx: &Tx<'_>, now: DateTime<Utc>, retention: Retention) -> Result<Step, StoreError> {
    let mut files = expired_files(tx, now)?;
    let mut purged = Purged::default();
    let mut attempts = 0;
    // Nothing is older than the calendar.
    if let Some(before) = now.checked_sub_signed(retention.executions) {
        purged.executions = old_executions(tx, before, &mut files)?;
        attempts = old_attempts(tx, before)?;
        purged.sessions = old_sessions(tx, before)?;
        purged.keys = old_keys(tx, before)?;
    }
    if let Some(before) = now.checked_sub_signed(retention.answers) {
        purged.answers = tx.change(
            "DELETE FROM remembered WHERE id IN \
             (SELECT id FROM remembered WHERE created_at <= ?1 LIMIT ?2)",
            (moment(before), STEP),
        )?;
    }
    if let Some(before) = now.checked_sub_signed(retention.audit) {
        purged.audit = tx.forget_audit(before, STEP)?;
    }
    purged.requests = tx.change(
        "DELETE FROM idempotency WHERE rowid IN \
         (SELECT rowid FROM idempotency WHERE created_at <= ?1 LIMIT ?2)",
        (moment(now - REQUESTS_KEPT), STEP),
    )?;
    Ok(Step { files, attempts, purged })
}

/// With the answers that were good for them alone.
fn old_sessions(tx: &Tx<'_>, before: DateTime<Utc>) -> Result<usize, StoreError> {
    let old: Vec<(Uuid, Uuid)> = tx.many(
        "SELECT workspace, sandbox_id FROM sessions WHERE ended_at <= ?1 LIMIT ?2",
        (moment(before), STEP),
        |row| Ok((row.get("workspace")?, row.get("sandbox_id")?)),
    )?;
    for key in &old {
        tx.change("DELETE FROM remembered WHERE workspace = ?1 AND sandbox_id = ?2", *key)?;
        tx.change("DELETE FROM sessions WHERE workspace = ?1 AND sandbox_id = ?2", *key)?;
    }
    Ok(old.len())
}

/// Those that have ended, unless one that is good was made with them: it is revoked with them.
fn old_keys(tx: &Tx<'_>, before: DateTime<Utc>) -> Result<usize, StoreError> {
    tx.change(
        "DELETE FROM keys WHERE id IN (SELECT id FROM keys AS old WHERE ended_at <= ?1 \
         AND NOT EXISTS (SELECT 1 FROM keys AS made WHERE made.workspace = old.workspace \
         AND made.principal = old.principal AND coalesce(made.ended_at > ?1, 1) \
         AND json_extract(made.body, '$.made_with') = json_extract(old.body, '$.id')) LIMIT ?2)",
        (moment(before), STEP),
    )
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
