//! The queue of attempts that are not in the database yet. Code can make a thousand attempts per
//! second, and a commit for each would take as long as the attempt itself, so that attempts are
//! written in batches.

use crate::service::Service;
use db::DatabaseError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::sleep;
use types::{NetworkLogEntry, WorkspaceId};

/// Delay after a commit. A server that is killed may lose the attempts of this time from the log;
/// the record of an execution has its attempts too.
const FLUSH_INTERVAL: Duration = Duration::from_millis(50);
/// Delay before the next try after a failed write, such as on a full disk.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// Maximum number of attempts in one transaction.
const BATCH_ATTEMPTS_MAX: usize = 1_000;

pub(crate) type QueuedAttempt = (WorkspaceId, NetworkLogEntry);

/// The attempts that are not written yet, oldest first.
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
    /// Writes all queued attempts to the database.
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

/// Writes attempts as they arrive, as long as the server runs. Repeats failed writes.
pub(crate) async fn flush_loop(service: Weak<Service>, history: Arc<EgressLogQueue>) {
    loop {
        history.notify.notified().await;
        let Some(service) = service.upgrade() else { return };
        let written = service.flush_egress_log().await;
        drop(service);
        let pause = match written {
            Ok(()) => FLUSH_INTERVAL,
            Err(error) => {
                tracing::error!(%error, "cannot write the log of attempted connections");
                RETRY_DELAY
            }
        };
        sleep(pause).await;
    }
}
