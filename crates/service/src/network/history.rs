//! The history on its way to the records. Code can try a thousand times a second: a commit for each
//! attempt would take the time of the attempts themselves, so that many are written at once.

use crate::service::Service;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use store::StoreError;
use tokio::sync::Notify;
use tokio::time::sleep;
use types::{NetworkEntry, WorkspaceId};

/// After a commit. It is what a server that is killed may lose of the history; the record of an
/// execution has its attempts as well.
const PAUSE: Duration = Duration::from_millis(50);
/// Between two tries to write down what the disk had no room for.
const AGAIN: Duration = Duration::from_secs(5);
/// In one transaction.
const BATCH: usize = 1_000;

pub(crate) type Line = (WorkspaceId, NetworkEntry);

/// What was not written down yet, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct History {
    lines: Mutex<Vec<Line>>,
    news: Notify,
}

impl History {
    pub(crate) fn add(&self, line: Line) {
        self.lines().push(line);
        self.news.notify_one();
    }

    fn lines(&self) -> MutexGuard<'_, Vec<Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Arc<Vec<Line>> {
        let mut lines = self.lines();
        let count = lines.len().min(BATCH);
        Arc::new(lines.drain(..count).collect())
    }

    fn give_back(&self, batch: &[Line]) {
        self.lines().splice(..0, batch.iter().cloned());
        self.news.notify_one();
    }
}

impl Service {
    /// Writes all of it down.
    pub(crate) async fn write_history(&self) -> Result<(), StoreError> {
        loop {
            let batch = self.history.take();
            if batch.is_empty() {
                return Ok(());
            }
            let lines = Arc::clone(&batch);
            let written = self.store.write_soon(move |tx| {
                lines.iter().try_for_each(|(workspace, entry)| tx.log_network(*workspace, entry))
            });
            if let Err(error) = written.await {
                self.history.give_back(&batch);
                return Err(error);
            }
        }
    }
}

/// Writes it down as it comes, as long as the server lives. What the disk had no room for is tried
/// again.
pub(crate) async fn keep(service: Weak<Service>, history: Arc<History>) {
    loop {
        history.news.notified().await;
        let Some(service) = service.upgrade() else { return };
        let written = service.write_history().await;
        drop(service);
        let pause = match written {
            Ok(()) => PAUSE,
            Err(error) => {
                tracing::error!(%error, "attempts to reach hosts could not be written down");
                AGAIN
            }
        };
        sleep(pause).await;
    }
}
