//! Requests that may be sent twice and must be done once.
//!
//! The first request with a key claims it and is executed; later ones get its outcome.

use crate::columns::to_nanos;
use crate::{DatabaseError, Tx};
use chrono::{DateTime, Utc};
use rusqlite::Row;
use types::{ExecutionId, PrincipalId, WorkspaceId};
use uuid::Uuid;

/// A key as its sender chose it. Two principals may choose the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    pub workspace: WorkspaceId,
    pub principal: PrincipalId,
    pub key: String,
}

/// The response of a request, to be replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    pub status: u16,
    pub content_type: String,
    pub body: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// The request is the caller's to do.
    Claimed,
    Completed(StoredResponse),
    /// The first request is in progress; as this execution, if it has one already.
    Pending(Option<ExecutionId>),
    /// The server stopped before the outcome was known.
    Interrupted,
    /// The key stands for another request.
    Mismatch,
}

impl Tx<'_> {
    /// `fingerprint` is of everything that makes it the same request.
    pub fn claim_request(
        &self,
        key: &IdempotencyKey,
        fingerprint: &[u8; 32],
        now: DateTime<Utc>,
    ) -> Result<ClaimOutcome, DatabaseError> {
        let claimed = self.execute_unversioned(
            "INSERT INTO idempotency (workspace, principal, key, fingerprint, state, created_at) \
             VALUES (?1, ?2, ?3, ?4, 'pending', ?5) \
             ON CONFLICT (workspace, principal, key) DO NOTHING",
            (key.workspace.uuid(), key.principal.uuid(), &key.key, fingerprint, to_nanos(now)),
        )?;
        if claimed == 1 {
            return Ok(ClaimOutcome::Claimed);
        }
        let found = self.query_one(
            "SELECT * FROM idempotency WHERE workspace = ?1 AND principal = ?2 AND key = ?3",
            (key.workspace.uuid(), key.principal.uuid(), &key.key),
            |row| claim(row, fingerprint),
        )?;
        found.ok_or(DatabaseError::Corrupt { what: "request" })
    }

    /// From now on, after a restart, the record of the execution has the outcome.
    pub fn link_request(
        &self,
        key: &IdempotencyKey,
        execution: ExecutionId,
    ) -> Result<(), DatabaseError> {
        self.execute_unversioned(
            "UPDATE idempotency SET execution_id = ?4 \
             WHERE workspace = ?1 AND principal = ?2 AND key = ?3 AND state = 'pending'",
            (key.workspace.uuid(), key.principal.uuid(), &key.key, execution.uuid()),
        )?;
        Ok(())
    }

    pub fn complete_request(
        &self,
        key: &IdempotencyKey,
        reply: &StoredResponse,
    ) -> Result<(), DatabaseError> {
        self.execute_unversioned(
            "UPDATE idempotency SET state = 'done', status = ?4, content_type = ?5, body = ?6 \
             WHERE workspace = ?1 AND principal = ?2 AND key = ?3 AND state = 'pending'",
            (
                key.workspace.uuid(),
                key.principal.uuid(),
                &key.key,
                reply.status,
                &reply.content_type,
                &reply.body,
            ),
        )?;
        Ok(())
    }

    /// Releases the key of a request that was refused before it did anything. A request that has
    /// started an execution keeps its key: only its record could not be read, and a retry must get
    /// that record instead of a second execution.
    pub fn release_request(&self, key: &IdempotencyKey) -> Result<(), DatabaseError> {
        self.execute_unversioned(
            "DELETE FROM idempotency \
             WHERE workspace = ?1 AND principal = ?2 AND key = ?3 AND state = 'pending' \
             AND execution_id IS NULL",
            (key.workspace.uuid(), key.principal.uuid(), &key.key),
        )?;
        Ok(())
    }

    /// At the start of a server, in all workspaces: their requests are no longer running.
    pub fn interrupt_all_requests(&self) -> Result<usize, DatabaseError> {
        self.execute_unversioned(
            "UPDATE idempotency SET state = 'interrupted' \
             WHERE state = 'pending' AND execution_id IS NULL",
            [],
        )
    }
}

fn claim(row: &Row<'_>, fingerprint: &[u8; 32]) -> Result<ClaimOutcome, DatabaseError> {
    let same: [u8; 32] = row.get("fingerprint")?;
    if same != *fingerprint {
        return Ok(ClaimOutcome::Mismatch);
    }
    let state: String = row.get("state")?;
    match state.as_str() {
        "pending" => {
            let execution: Option<Uuid> = row.get("execution_id")?;
            Ok(ClaimOutcome::Pending(execution.map(ExecutionId::new)))
        }
        "done" => Ok(ClaimOutcome::Completed(StoredResponse {
            status: row.get("status")?,
            content_type: row.get("content_type")?,
            body: row.get("body")?,
        })),
        "interrupted" => Ok(ClaimOutcome::Interrupted),
        _ => Err(DatabaseError::Corrupt { what: "request" }),
    }
}
