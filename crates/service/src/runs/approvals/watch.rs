//! Watches approvals: first those that are pending, oldest first, then each one that is requested
//! or decided.
//!
//! An approval has up to 4 MiB of code. So a watcher holds ids and one approval at a time, which is
//! shared by all watchers that are at the same approval. A slow watcher does not delay the others.

use crate::error::RequestError;
use crate::identity::caller::Caller;
use crate::service::Service;
use db::{ApprovalHeader, Reader};
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::Mutex as AsyncMutex;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use types::{Approval, ApprovalId, ApprovalState, WorkspaceId};

/// Number of ids of pending approvals that a watcher holds at once.
const PENDING_BATCH: usize = 200;

/// A change of an approval. Each watcher that may see the approval reads its contents.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ApprovalChange {
    workspace: WorkspaceId,
    id: ApprovalId,
    state: ApprovalState,
}

/// The JSON of an approval, which watchers share.
pub type ApprovalJson = Arc<String>;

#[derive(Debug, Default)]
pub(crate) struct ApprovalJsonCache {
    /// Held while an approval is read, because its row, its parts and its text are in memory then.
    reading: AsyncMutex<()>,
    /// The texts that some watcher holds now.
    entries: Mutex<HashMap<(ApprovalId, ApprovalState), Weak<String>>>,
}

impl ApprovalJsonCache {
    fn entries(&self) -> MutexGuard<'_, HashMap<(ApprovalId, ApprovalState), Weak<String>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, key: (ApprovalId, ApprovalState)) -> Option<ApprovalJson> {
        self.entries().get(&key).and_then(Weak::upgrade)
    }

    fn insert(&self, key: (ApprovalId, ApprovalState), text: &ApprovalJson) {
        let mut entries = self.entries();
        entries.retain(|_, text| text.strong_count() > 0);
        entries.insert(key, Arc::downgrade(text));
    }
}

/// The position of a watcher.
struct ApprovalWatcher {
    service: Arc<Service>,
    caller: Caller,
    /// The next pending approvals, and the last one that was read from the records.
    open: VecDeque<ApprovalHeader>,
    last: Option<ApprovalId>,
    /// Whether all pending approvals have been read.
    caught_up: bool,
    changes: Receiver<ApprovalChange>,
}

impl Service {
    pub(crate) fn publish_approval(&self, workspace: WorkspaceId, approval: &Approval) {
        let Approval { id, state, .. } = *approval;
        // Fails if there are no watchers.
        let _ = self.approval_changes.send(ApprovalChange { workspace, id, state });
    }

    /// Streams every pending approval, and then each one that is requested or decided.
    pub fn watch_approvals(self: &Arc<Self>, caller: &Caller) -> BoxStream<'static, ApprovalJson> {
        let listener = ApprovalWatcher {
            service: Arc::clone(self),
            caller: caller.clone(),
            open: VecDeque::new(),
            last: None,
            caught_up: false,
            changes: self.approval_changes.subscribe(),
        };
        stream::unfold(listener, |mut listener| async move {
            let text = listener.next().await?;
            Some((text, listener))
        })
        .boxed()
    }

    /// The text of an approval for a published change of its state.
    async fn approval_json(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
        state: ApprovalState,
    ) -> Result<Option<ApprovalJson>, RequestError> {
        if let Some(text) = self.approval_json.get((id, state)) {
            return Ok(Some(text));
        }
        let _alone = self.approval_json.reading.lock().await;
        if let Some(text) = self.approval_json.get((id, state)) {
            return Ok(Some(text));
        }
        let read = move |rows: &Reader<'_>| {
            let found = rows.approval(workspace, id)?;
            Ok(found.map(|(approval, _)| json_as_published(approval, state)))
        };
        let text = self.db.read_off_thread(read).await?.map(Arc::new);
        text.iter().for_each(|text| self.approval_json.insert((id, state), text));
        Ok(text)
    }
}

/// A decision is published before the approval is used, even if it has been used by now.
fn json_as_published(approval: Approval, published: ApprovalState) -> String {
    let used = (published, approval.state) == (ApprovalState::Allowed, ApprovalState::Used);
    let state = if used { published } else { approval.state };
    serde_json::to_string(&Approval { state, ..approval }).unwrap_or_default()
}

impl ApprovalWatcher {
    /// Returns `None` at the end of the stream.
    async fn next(&mut self) -> Option<ApprovalJson> {
        loop {
            // Most approvals may be of other principals, and checking them never awaits otherwise.
            tokio::task::yield_now().await;
            let (subject, state) = self.next_header().await?;
            // The roles of the caller may have changed.
            let Some(caller) = self.service.refresh_caller(&self.caller) else { continue };
            if !self.service.may_see_header(&caller, &subject).unwrap_or(false) {
                continue;
            }
            let text = self.service.approval_json(caller.workspace, subject.id, state).await;
            if let Ok(Some(text)) = text {
                return Some(text);
            }
        }
    }

    async fn next_header(&mut self) -> Option<(ApprovalHeader, ApprovalState)> {
        if self.open.is_empty() && !self.caught_up {
            self.read_pending().await?;
        }
        if let Some(subject) = self.open.pop_front() {
            return Some((subject, ApprovalState::Pending));
        }
        loop {
            match self.changes.recv().await {
                Ok(ApprovalChange { workspace, id, state })
                    if workspace == self.caller.workspace =>
                {
                    let found = self.service.db.read(|rows| rows.approval_header(workspace, id));
                    if let Ok(Some(subject)) = found {
                        return Some((subject, state));
                    }
                }
                // Missed changes are in the list of pending approvals.
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// Returns `None` if the approvals cannot be read; the client watches again.
    async fn read_pending(&mut self) -> Option<()> {
        let (workspace, last) = (self.caller.workspace, self.last);
        let read = move |rows: &Reader<'_>| rows.pending_approvals(workspace, last, PENDING_BATCH);
        let found = self.service.db.read_off_thread(read).await.ok()?;
        self.caught_up = found.len() < PENDING_BATCH;
        self.last = found.last().map(|subject| subject.id).or(self.last);
        self.open = found.into();
        Some(())
    }
}
