//! Ends executions, sessions and approvals after a right was revoked: a key that is revoked or has expired, a principal that
//! is deleted.
//!
//! Whatever was asked for by such an origin ends: what runs, sessions, and questions to people, so that
//! no later answer lets anything run. The right is taken away first and its remains are ended after
//! that, so each is looked for again from time to time: a server that stops in between, or a request
//! that was on its way, leaves nothing for good.

use crate::error::RequestError;
use crate::runs::executions::ActiveExecution;
use crate::service::Service;
use chrono::{DateTime, Utc};
use db::{DatabaseError, NewAuditEntry, Origin, Reader, Tx};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use types::{Error, ErrorCode, ExecutionId, KeyId, PrincipalId, SandboxId, WorkspaceId};

/// The origin of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asker {
    pub(crate) workspace: WorkspaceId,
    pub(crate) principal: PrincipalId,
    /// Absent for a token.
    pub(crate) key: Option<KeyId>,
}

impl Asker {
    pub(crate) fn is_from(&self, origin: Origin) -> bool {
        match origin {
            Origin::Key(key) => self.key == Some(key),
            Origin::Principal(principal) => self.principal == principal,
        }
    }
}

impl Service {
    /// Whether an asker may no longer ask: the key is revoked, expired or gone, or the principal is
    /// gone. What cannot be looked up is taken for gone.
    pub(crate) fn is_over(&self, asker: Asker) -> bool {
        self.db.read(|rows| is_asker_over(rows, asker, self.now())).unwrap_or(true)
    }

    /// Ends what an origin that may no longer ask has running, its sessions and the first of its
    /// questions. The others, of which there may be a thousand, end at the next look for remains: the caller who
    /// takes a right away does not wait for them, and no answer to them counts any more.
    pub(crate) async fn end_from(
        &self,
        workspace: WorkspaceId,
        origin: Origin,
    ) -> Result<(), RequestError> {
        self.stop_from(origin);
        self.close_sessions_from(workspace, origin).await?;
        self.end_first_questions_from(workspace, origin).await.map(drop)
    }

    /// Ends what runs for those who may no longer ask. Nothing is written or waited for.
    pub(crate) fn stop_over(&self) {
        for origin in self.running_over() {
            self.stop_from(origin);
        }
    }

    /// Origins that may no longer ask and have sessions or questions left, by workspace.
    pub(crate) async fn remains(
        &self,
        now: DateTime<Utc>,
    ) -> Result<HashMap<WorkspaceId, Vec<Origin>>, RequestError> {
        let over = self.db.read_off_thread(move |rows| rows.origins_over(now)).await?;
        let mut remains: HashMap<_, Vec<_>> = HashMap::new();
        for (workspace, origin) in over {
            remains.entry(workspace).or_default().push(origin);
        }
        Ok(remains)
    }

    /// Ends what is left in a workspace: first whatever can still compute, of all origins, since there
    /// may be many questions.
    pub(crate) async fn end_remains(
        &self,
        workspace: WorkspaceId,
        origins: Vec<Origin>,
    ) -> Result<(), RequestError> {
        for origin in &origins {
            self.close_sessions_from(workspace, *origin).await?;
        }
        for origin in origins {
            self.end_questions_from(workspace, origin).await?;
        }
        Ok(())
    }

    fn running_over(&self) -> HashSet<Origin> {
        let askers: Vec<Asker> =
            self.active_executions().values().filter_map(|running| running.asker()).collect();
        let over = askers.into_iter().filter(|asker| self.is_over(*asker));
        over.map(|asker| asker.key.map_or(Origin::Principal(asker.principal), Origin::Key))
            .collect()
    }

    /// Ends what runs, as a cancel does.
    fn stop_from(&self, origin: Origin) {
        let asked = |(id, running): (&ExecutionId, &Arc<ActiveExecution>)| {
            let is_theirs = running.asker().is_some_and(|asker| asker.is_from(origin));
            (running.has_started() && is_theirs).then_some(*id)
        };
        let asked: Vec<ExecutionId> = self.active_executions().iter().filter_map(asked).collect();
        for id in asked {
            self.cancel_active(id);
        }
    }

    async fn close_sessions_from(
        &self,
        workspace: WorkspaceId,
        origin: Origin,
    ) -> Result<(), RequestError> {
        let read = move |rows: &Reader<'_>| rows.open_sessions_from(workspace, origin);
        for id in self.db.read_off_thread(read).await? {
            let entry = closed(workspace, origin, id);
            self.close_and_note(workspace, id, entry).await?;
        }
        Ok(())
    }

    /// Nothing of a session is left when this returns.
    pub(crate) async fn close_and_note(
        &self,
        workspace: WorkspaceId,
        id: SandboxId,
        entry: NewAuditEntry,
    ) -> Result<(), RequestError> {
        // One that was lost or has expired has nothing left to close.
        let _ = self.engine.close(id).await;
        let close = move |tx: &Tx<'_>| {
            if tx.close_session(workspace, id, Utc::now())? {
                tx.append_audit_entry(&entry)?;
            }
            Ok(())
        };
        Ok(self.db.write(close).await?)
    }
}

pub(crate) fn is_asker_over(
    rows: &Reader<'_>,
    asker: Asker,
    now: DateTime<Utc>,
) -> Result<bool, DatabaseError> {
    let Asker { workspace, principal, key } = asker;
    Ok(match key {
        Some(key) => rows.find_key(key)?.is_none_or(|found| !found.key.is_good_at(now)),
        None => rows.principal(workspace, principal)?.is_none(),
    })
}

pub(crate) fn asker_over() -> RequestError {
    let message = "the API key was revoked or has expired, or its principal was deleted";
    Error::new(ErrorCode::AuthMissing, message).into()
}

/// The server does it by itself.
fn closed(workspace: WorkspaceId, origin: Origin, id: SandboxId) -> NewAuditEntry {
    let (key, detail) = match origin {
        Origin::Key(key) => (Some(key), "the API key that opened it was revoked or has expired"),
        Origin::Principal(_) => (None, "its principal was deleted"),
    };
    NewAuditEntry {
        at: Utc::now(),
        workspace,
        principal: None,
        key,
        action: "session.close".to_owned(),
        object: id.to_string(),
        detail: detail.to_owned(),
    }
}
