//! Ends executions, sessions and approvals of an origin whose rights have ended: a key that was
//! revoked or has expired, or a principal that was deleted.
//!
//! The right is revoked first, and then everything of the origin ends, including pending approvals,
//! so that a later decision starts nothing. Ended origins are also checked periodically, because
//! the server may stop in between, and a request may have been in progress.

use crate::error::RequestError;
use crate::runs::executions::ActiveExecution;
use crate::service::Service;
use chrono::{DateTime, Utc};
use db::{DatabaseError, NewAuditEntry, Origin, Reader, Tx};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use types::{Error, ErrorCode, ExecutionId, KeyId, PrincipalId, SandboxId, WorkspaceId};

/// The principal, and the key if any, that requested an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Requester {
    pub(crate) workspace: WorkspaceId,
    pub(crate) principal: PrincipalId,
    /// Absent with an access token.
    pub(crate) key: Option<KeyId>,
}

impl Requester {
    pub(crate) fn is_from(&self, origin: Origin) -> bool {
        match origin {
            Origin::Key(key) => self.key == Some(key),
            Origin::Principal(principal) => self.principal == principal,
        }
    }
}

impl Service {
    /// Whether the rights of a requester have ended: its key was revoked, has expired or was
    /// deleted, or its principal was deleted. If it cannot be looked up, they have.
    pub(crate) fn is_requester_revoked(&self, requester: Requester) -> bool {
        self.db.read(|rows| is_revoked(rows, requester, self.now())).unwrap_or(true)
    }

    /// Ends the executions and sessions of an origin whose rights have ended, and the first batch
    /// of its approvals. The remaining approvals, possibly a thousand, end with the next periodic
    /// check: the caller that revokes a key does not wait for them, and a decision about them has
    /// no effect.
    pub(crate) async fn end_origin(
        &self,
        workspace: WorkspaceId,
        origin: Origin,
    ) -> Result<(), RequestError> {
        self.stop_executions_of(origin);
        self.close_sessions_of(workspace, origin).await?;
        self.end_first_approvals_of(workspace, origin).await.map(drop)
    }

    /// Stops executions of requesters whose rights have ended, without writing or waiting.
    pub(crate) fn stop_revoked(&self) {
        for origin in self.revoked_origins() {
            self.stop_executions_of(origin);
        }
    }

    /// Origins whose rights have ended and that have open sessions or approvals, by workspace.
    pub(crate) async fn ended_origins(
        &self,
        now: DateTime<Utc>,
    ) -> Result<HashMap<WorkspaceId, Vec<Origin>>, RequestError> {
        let ended = self.db.read_off_thread(move |rows| rows.ended_origins(now)).await?;
        let mut by_workspace: HashMap<_, Vec<_>> = HashMap::new();
        for (workspace, origin) in ended {
            by_workspace.entry(workspace).or_default().push(origin);
        }
        Ok(by_workspace)
    }

    /// Ends the sessions of these origins, and then their approvals, of which there may be many.
    pub(crate) async fn end_origins(
        &self,
        workspace: WorkspaceId,
        origins: Vec<Origin>,
    ) -> Result<(), RequestError> {
        for origin in &origins {
            self.close_sessions_of(workspace, *origin).await?;
        }
        for origin in origins {
            self.end_approvals_of(workspace, origin).await?;
        }
        Ok(())
    }

    fn revoked_origins(&self) -> HashSet<Origin> {
        let requesters: Vec<Requester> =
            self.active_executions().values().filter_map(|running| running.requester()).collect();
        let revoked =
            requesters.into_iter().filter(|requester| self.is_requester_revoked(*requester));
        revoked
            .map(|requester| {
                requester.key.map_or(Origin::Principal(requester.principal), Origin::Key)
            })
            .collect()
    }

    /// Cancels the running executions of an origin.
    fn stop_executions_of(&self, origin: Origin) {
        let matching = |(id, running): (&ExecutionId, &Arc<ActiveExecution>)| {
            let is_from_origin =
                running.requester().is_some_and(|requester| requester.is_from(origin));
            (running.has_started() && is_from_origin).then_some(*id)
        };
        let ids: Vec<ExecutionId> = self.active_executions().iter().filter_map(matching).collect();
        for id in ids {
            self.cancel_active(id);
        }
    }

    async fn close_sessions_of(
        &self,
        workspace: WorkspaceId,
        origin: Origin,
    ) -> Result<(), RequestError> {
        let read = move |rows: &Reader<'_>| rows.open_sessions_from(workspace, origin);
        for id in self.db.read_off_thread(read).await? {
            let entry = session_close_entry(workspace, origin, id, self.now());
            self.close_and_record(workspace, id, entry).await?;
        }
        Ok(())
    }

    /// Closes a session and writes the audit entry. No process and no file of the session is left
    /// when this returns.
    pub(crate) async fn close_and_record(
        &self,
        workspace: WorkspaceId,
        id: SandboxId,
        entry: NewAuditEntry,
    ) -> Result<(), RequestError> {
        // A session that was lost or has expired is not in the engine any more.
        let _ = self.engine.close(id).await;
        let clock = self.config.clock.clone();
        let close = move |tx: &Tx<'_>| {
            if tx.close_session(workspace, id, clock.now())? {
                tx.append_audit_entry(&entry)?;
            }
            Ok(())
        };
        Ok(self.db.write(close).await?)
    }
}

pub(crate) fn is_revoked(
    rows: &Reader<'_>,
    requester: Requester,
    now: DateTime<Utc>,
) -> Result<bool, DatabaseError> {
    let Requester { workspace, principal, key } = requester;
    Ok(match key {
        Some(key) => rows.find_key(key)?.is_none_or(|found| !found.key.is_good_at(now)),
        None => rows.principal(workspace, principal)?.is_none(),
    })
}

pub(crate) fn credential_revoked_error() -> RequestError {
    let message = "the API key was revoked or has expired, or its principal was deleted";
    Error::new(ErrorCode::AuthMissing, message).into()
}

/// The audit entry of a session that the server closes.
fn session_close_entry(
    workspace: WorkspaceId,
    origin: Origin,
    id: SandboxId,
    at: DateTime<Utc>,
) -> NewAuditEntry {
    let (key, detail) = match origin {
        Origin::Key(key) => (Some(key), "the API key that opened it was revoked or has expired"),
        Origin::Principal(_) => (None, "its principal was deleted"),
    };
    NewAuditEntry {
        at,
        workspace,
        principal: None,
        key,
        action: "session.close".to_owned(),
        object: id.to_string(),
        detail: detail.to_owned(),
    }
}
