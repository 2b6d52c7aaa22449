//! The history on its way to the records. Code can try a thousand times a second: a commit for each
//! attempt would take the time of the attempts themselves, so that many are written at once.

use crate::service::Service;
use db::DatabaseError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::sleep;
use types::{NetworkLogEntry, WorkspaceId};

/// After a commit. It is what a server that is killed may lose of the history; the record of an
/// execution has its attempts as well.
const FLUSH_INTERVAL: Duration = Duration::from_millis(50);
/// Between two tries to write down what the disk had no room for.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// In one transaction.
const BATCH_ATTEMPTS_MAX: usize = 1_000;

pub(crate) type QueuedAttempt = (WorkspaceId, NetworkLogEntry);

/// What was not written down yet, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct EgressLogQueue {
    attempts: Mutex<Vec<QueuedAttempt>>,
    notify: Notify,
}

impl EgressLogQueue {
    pub(crate) fn push(&self, line: QueuedAttempt) {
        self.attempts().push(line);
        self.notify.notify_one();
    }

    fn attempts(&self) -> MutexGuard<'_, Vec<QueuedAttempt>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_batch(&self) -> Arc<Vec<QueuedAttempt>> {
        let mut lines = self.attempts();
        let count = lines.len().min(BATCH_ATTEMPTS_MAX);
        Arc::new(lines.drain(..count).collect())
    }

    fn requeue(&self, batch: &[QueuedAttempt]) {
        self.attempts().splice(..0, batch.iter().cloned());
        self.notify.notify_one();
    }
}

impl Service {
    /// Writes all of it down.
    pub(crate) async fn flush_egress_log(&self) -> Result<(), DatabaseError> {
        loop {
            let batch = self.egress_log_queue.take_batch();
            if batch.is_empty() {
                return Ok(());
            }
            let lines = Arc::clone(&batch);
            let written = self.db.write_unsynced(move |tx| {
                lines
                    .iter()
                    .try_for_each(|(workspace, entry)| tx.append_network_log(*workspace, entry))
            });
            if let Err(error) = written.await {
                self.egress_log_queue.requeue(&batch);
                return Err(error);
            }
        }
    }
}

/// Writes it down as it comes, as long as the server lives. What the disk had no room for is tried
/// again.
pub(crate) async fn flush_loop(service: Weak<Service>, history: Arc<EgressLogQueue>) {
    loop {
        history.notify.notified().await;
        let Some(service) = service.upgrade() else { return };
        let written = service.flush_egress_log().await;
        drop(service);
        let pause = match written {
            Ok(()) => FLUSH_INTERVAL,
            Err(error) => {
                tracing::error!(%error, "attempts to reach hosts could not be written down");
                RETRY_DELAY
            }
        };
        sleep(pause).await;
    }
}
