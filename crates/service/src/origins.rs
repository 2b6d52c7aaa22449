//! What ends with a right that was taken away: a key that is revoked or has expired, a principal that
//! is deleted.
//!
//! Whatever was asked for by such an origin ends: what runs, sessions, and questions to people, so that
//! no later answer lets anything run. The right is taken away first and its remains are ended after
//! that, so each is looked for again from time to time: a server that stops in between, or a request
//! that was on its way, leaves nothing for good.

use crate::executions::Running;
use crate::refused::Refused;
use crate::service::Service;
use chrono::{DateTime, Utc};
use std::collections::HashSet;
use std::sync::Arc;
use store::{AuditLine, Origin, Reader, StoreError, Tx};
use types::{Code, ExecutionId, Fault, KeyId, PrincipalId, SandboxId, WorkspaceId};

/// Whoever asked for an execution.
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
        self.store.read(|rows| is_asker_over(rows, asker, Utc::now())).unwrap_or(true)
    }

    /// Ends all that was asked for by an origin that may no longer ask.
    pub(crate) async fn end_all_from(
        &self,
        workspace: WorkspaceId,
        origin: Origin,
    ) -> Result<(), Refused> {
        self.stop_from(origin);
        self.end_questions_from(workspace, origin).await?;
        self.close_sessions_from(workspace, origin).await
    }

    /// Ends what is left of all origins that may no longer ask.
    pub(crate) async fn end_remains(&self, now: DateTime<Utc>) -> Result<(), Refused> {
        for origin in self.running_over() {
            self.stop_from(origin);
        }
        let over = self.store.read_long(move |rows| rows.origins_over(now)).await?;
        for (workspace, origin) in over {
            self.end_all_from(workspace, origin).await?;
        }
        Ok(())
    }

    fn running_over(&self) -> HashSet<Origin> {
        let askers: Vec<Asker> =
            self.running().values().filter_map(|running| running.asker()).collect();
        let over = askers.into_iter().filter(|asker| self.is_over(*asker));
        over.map(|asker| asker.key.map_or(Origin::Principal(asker.principal), Origin::Key))
            .collect()
    }

    /// Ends what runs, as a cancel does.
    fn stop_from(&self, origin: Origin) {
        let asked = |(id, running): (&ExecutionId, &Arc<Running>)| {
            let is_theirs = running.asker().is_some_and(|asker| asker.is_from(origin));
            (running.has_begun() && is_theirs).then_some(*id)
        };
        let asked: Vec<ExecutionId> = self.running().iter().filter_map(asked).collect();
        for id in asked {
            self.stop_running(id);
        }
    }

    async fn close_sessions_from(
        &self,
        workspace: WorkspaceId,
        origin: Origin,
    ) -> Result<(), Refused> {
        let read = move |rows: &Reader<'_>| rows.open_sessions_from(workspace, origin);
        for id in self.store.read_long(read).await? {
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
        entry: AuditLine,
    ) -> Result<(), Refused> {
        // One that was lost or has expired has nothing left to close.
        let _ = self.engine.close(id).await;
        let close = move |tx: &Tx<'_>| {
            if tx.close_session(workspace, id, Utc::now())? {
                tx.audit(&entry)?;
            }
            Ok(())
        };
        Ok(self.store.write(close).await?)
    }
}

pub(crate) fn is_asker_over(
    rows: &Reader<'_>,
    asker: Asker,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let Asker { workspace, principal, key } = asker;
    Ok(match key {
        Some(key) => rows.find_key(key)?.is_none_or(|found| !found.key.is_good_at(now)),
        None => rows.principal(workspace, principal)?.is_none(),
    })
}

pub(crate) fn asker_over() -> Refused {
    let message = "the API key was revoked or has expired meanwhile, or its principal was deleted";
    Fault::new(Code::AuthMissing, message).into()
}

/// The server does it by itself.
fn closed(workspace: WorkspaceId, origin: Origin, id: SandboxId) -> AuditLine {
    let (key, detail) = match origin {
        Origin::Key(key) => (Some(key), "the key that it was opened with is over"),
        Origin::Principal(_) => (None, "its principal was deleted"),
    };
    AuditLine {
        at: Utc::now(),
        workspace,
        principal: None,
        key,
        action: "session.close".to_owned(),
        object: id.to_string(),
        detail: detail.to_owned(),
    }
}
