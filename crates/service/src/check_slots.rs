//! Threads for checks of what people write: definitions of tools, and arguments of calls. A check
//! takes up to half a second of CPU time, so it never runs on a thread that serves requests, and the
//! checks of one workspace take neither all blocking threads nor the turn of another workspace.

use crate::error::RequestError;
use crate::identity::caller::Caller;
use crate::service::Service;
use crate::tasks::run_blocking;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;
use types::{Error, WorkspaceId};

/// Checks of one workspace at once.
const WORKSPACE_CHECKS_MAX: usize = 2;
/// Checks of all workspaces at once; tokio has 512 blocking threads, which also read and write files.
const CHECKS_MAX: usize = 128;

#[derive(Debug)]
pub(crate) struct CheckSlots {
    /// Of workspaces with a check that runs or waits.
    workspaces: Mutex<HashMap<WorkspaceId, Arc<Semaphore>>>,
    all: Arc<Semaphore>,
}

impl CheckSlots {
    pub(crate) fn new() -> Self {
        Self { workspaces: Mutex::default(), all: Arc::new(Semaphore::new(CHECKS_MAX)) }
    }

    /// Runs a check on a blocking thread when its workspace has a free slot. Dropping the future
    /// leaves the queue; a check that has started keeps its slots until it ends.
    pub(crate) async fn run_check<T: Send + 'static>(
        &self,
        workspace: WorkspaceId,
        check: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, RequestError> {
        let slots = self.slots_of(workspace);
        let slot = slots.acquire_owned().await.map_err(|_| no_slots())?;
        let shared = Arc::clone(&self.all).acquire_owned().await.map_err(|_| no_slots())?;
        run_blocking(move || {
            let _held = (slot, shared);
            check()
        })
        .await
    }

    fn slots_of(&self, workspace: WorkspaceId) -> Arc<Semaphore> {
        let mut known = self.workspaces.lock().unwrap_or_else(PoisonError::into_inner);
        // Each check that runs or waits has a reference of its own.
        known.retain(|_, slots| Arc::strong_count(slots) > 1);
        let slots = known.entry(workspace);
        Arc::clone(slots.or_insert_with(|| Arc::new(Semaphore::new(WORKSPACE_CHECKS_MAX))))
    }
}

impl Service {
    /// Runs a check of what a caller has sent, for interfaces that read more than JSON themselves.
    pub async fn run_check<T: Send + 'static>(
        &self,
        caller: &Caller,
        check: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, RequestError> {
        self.check_slots.run_check(caller.workspace, check).await
    }
}

fn no_slots() -> Error {
    Error::server_fault("the slots for checks are closed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;
    use uuid::Uuid;

    fn workspace(number: u128) -> WorkspaceId {
        WorkspaceId::new(Uuid::from_u128(number))
    }

    /// A check that ends when the other end of a channel is dropped.
    fn wait_for_end(end: Receiver<()>) -> impl FnOnce() + Send + 'static {
        move || {
            let _ = end.recv();
        }
    }

    #[tokio::test]
    async fn t208_checks_of_one_workspace_do_not_take_the_turn_of_another() {
        let slots = CheckSlots::new();
        let (first_end, first) = channel();
        let (second_end, second) = channel();
        let mut first = Box::pin(slots.run_check(workspace(1), wait_for_end(first)));
        let mut second = Box::pin(slots.run_check(workspace(1), wait_for_end(second)));
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        let mut third = Box::pin(slots.run_check(workspace(1), || 3));
        let mut left = Box::pin(slots.run_check(workspace(1), || panic!("its caller has left")));
        assert!((&mut left).now_or_never().is_none() && (&mut third).now_or_never().is_none());
        drop(left);
        assert_eq!(slots.run_check(workspace(2), || 2).await.unwrap(), 2, "another workspace");
        assert!((&mut third).now_or_never().is_none(), "it waits for a slot");
        // A caller that leaves does not free the slot of a check that runs.
        drop(first);
        assert!((&mut third).now_or_never().is_none());
        drop(first_end);
        assert_eq!(third.await.unwrap(), 3);
        drop(second_end);
        second.await.unwrap();
        slots.run_check(workspace(3), || ()).await.unwrap();
        let known = slots.workspaces.lock().unwrap().len();
        assert!(known <= 2, "workspaces without a check are forgotten: {known}");
    }

    #[tokio::test]
    async fn t208_a_check_runs_on_no_thread_that_serves() {
        let slots = CheckSlots::new();
        let here = thread::current().id();
        let there = slots.run_check(workspace(1), || thread::current().id()).await.unwrap();
        assert_ne!(here, there);
    }
}
