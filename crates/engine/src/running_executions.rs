//! The executions in progress, by id, so that each can be stopped: from its admission until its
//! record is written.

use sandbox::StopHandle;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use types::{Error, ErrorCode, ExecutionId};

#[derive(Debug, Clone, Default)]
pub(crate) struct RunningExecutions(Arc<ExecutionTable>);

#[derive(Debug, Default)]
struct ExecutionTable {
    stoppers: Mutex<HashMap<ExecutionId, StopHandle>>,
    /// Notified at each end.
    ended: Notify,
}

/// Registration of an execution in progress. Dropping it ends the registration.
#[derive(Debug)]
pub(crate) struct CancelHandle {
    id: ExecutionId,
    pub(crate) stopper: StopHandle,
    running: RunningExecutions,
}

impl Drop for CancelHandle {
    fn drop(&mut self) {
        self.running.stoppers().remove(&self.id);
        self.running.0.ended.notify_waiters();
    }
}

impl RunningExecutions {
    fn stoppers(&self) -> MutexGuard<'_, HashMap<ExecutionId, StopHandle>> {
        self.0.stoppers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn register(&self, id: ExecutionId) -> Result<CancelHandle, Error> {
        match self.stoppers().entry(id) {
            Entry::Occupied(_) => {
                let message = format!("execution {id} is running already");
                Err(Error::new(ErrorCode::ArgsInvalid, message)
                    .hint("give each one an id of its own"))
            }
            Entry::Vacant(free) => {
                let stopper = free.insert(StopHandle::default()).clone();
                Ok(CancelHandle { id, stopper, running: self.clone() })
            }
        }
    }

    /// Asks one to stop. Returns whether it was in progress.
    pub(crate) fn stop(&self, id: ExecutionId) -> bool {
        self.stoppers().get(&id).inspect(|stopper| stopper.stop()).is_some()
    }

    pub(crate) fn stop_all(&self) {
        self.stoppers().values().for_each(StopHandle::stop);
    }

    /// Waits until no execution is in progress.
    pub(crate) async fn wait_until_idle(&self) {
        loop {
            // Created before the check, so that an end in between is not missed.
            let ended = self.0.ended.notified();
            if self.stoppers().is_empty() {
                return;
            }
            ended.await;
        }
    }
}
