//! Changes of environments in progress, by environment name, and the result of the last attempt.
//!
//! Every change of an environment waits in the queue of its name. Of two changes the later one
//! wins, and a removed environment does not come back through a change that was queued before the
//! removal.

use environment::{DefinitionStamp, Progress};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use types::Error;

#[derive(Debug, Clone, Default)]
pub(crate) struct BuildQueues(Arc<Mutex<BTreeMap<String, BuildQueue>>>);

#[derive(Debug, Default)]
struct BuildQueue {
    /// In order of arrival; the first entry has the turn.
    queue: watch::Sender<BTreeMap<u64, QueuedChange>>,
    last: u64,
    progress: String,
    failed: Option<FailedBuild>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueuedChange {
    Build,
    Removal,
}

/// A failed build, and the definition it was built from: the failure says nothing about another
/// definition.
#[derive(Debug)]
struct FailedBuild {
    error: Error,
    stamp: Option<DefinitionStamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BuildStatus {
    Building { progress: String },
    Failed(Error),
}

/// An entry in the queue of a name. Dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct QueueEntry {
    builds: BuildQueues,
    name: String,
    number: u64,
}

impl BuildQueue {
    fn has_pending_build(&self) -> bool {
        self.queue.borrow().values().any(|change| *change == QueuedChange::Build)
    }

    fn is_idle(&self) -> bool {
        self.queue.borrow().is_empty() && self.failed.is_none()
    }
}

impl BuildQueues {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, BuildQueue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a change to the queue. Later changes of the name wait for it.
    pub(crate) fn enqueue(&self, name: &str, change: QueuedChange) -> QueueEntry {
        let mut all = self.all();
        let build = all.entry(name.to_owned()).or_default();
        if !build.has_pending_build() {
            "waiting".clone_into(&mut build.progress);
        }
        build.last += 1;
        let number = build.last;
        build.queue.send_modify(|queue| {
            queue.insert(number, change);
        });
        QueueEntry { builds: self.clone(), name: name.to_owned(), number }
    }

    /// Sets the progress of the change that has the turn.
    pub(crate) fn set_progress(&self, name: &str, progress: &Progress) {
        if let Some(build) = self.all().get_mut(name) {
            build.progress = progress.to_string();
        }
    }

    /// Forgets the failure of the last build. Returns whether there was one.
    pub(crate) fn clear_failure(&self, name: &str) -> bool {
        self.all().get_mut(name).and_then(|build| build.failed.take()).is_some()
    }

    /// The names that may have a status.
    pub(crate) fn names(&self) -> Vec<String> {
        self.all().keys().cloned().collect()
    }

    /// The build status of a name whose definition has this stamp.
    pub(crate) fn status(&self, name: &str, stamp: Option<DefinitionStamp>) -> Option<BuildStatus> {
        let all = self.all();
        let build = all.get(name)?;
        if build.has_pending_build() {
            return Some(BuildStatus::Building { progress: build.progress.clone() });
        }
        let failed = build.failed.as_ref().filter(|failed| failed.stamp == stamp)?;
        Some(BuildStatus::Failed(failed.error.clone()))
    }
}

impl QueueEntry {
    /// Waits until all earlier changes are done.
    pub(crate) async fn wait_for_turn(&self) {
        let queue = self.builds.all().get(&self.name).map(|build| build.queue.subscribe());
        if let Some(mut queue) = queue {
            // The channel cannot close while this entry exists.
            let _ = queue.wait_for(|queue| queue.keys().next() == Some(&self.number)).await;
        }
    }

    /// Ends the change with its result; `stamp` is that of the current definition.
    pub(crate) fn record_result(self, error: Option<Error>, stamp: Option<DefinitionStamp>) {
        if let Some(build) = self.builds.all().get_mut(&self.name) {
            build.failed = error.map(|error| FailedBuild { error, stamp });
        }
    }
}

impl Drop for QueueEntry {
    fn drop(&mut self) {
        let mut all = self.builds.all();
        if let Some(build) = all.get(&self.name) {
            build.queue.send_modify(|queue| {
                queue.remove(&self.number);
            });
            if build.is_idle() {
                all.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;
    use types::ErrorCode;

    const MOMENT: Duration = Duration::from_millis(20);

    fn error() -> Error {
        Error::new(ErrorCode::SandboxUnreachable, "no")
    }

    #[tokio::test]
    async fn a_name_is_changed_in_the_order_of_the_requests_and_others_do_not_wait() {
        let builds = BuildQueues::default();
        let queue = |name| builds.enqueue(name, QueuedChange::Build);
        let (first, given_up, third) = (queue("mine"), queue("mine"), queue("mine"));
        first.wait_for_turn().await;
        assert!(timeout(MOMENT, third.wait_for_turn()).await.is_err());
        queue("yours").wait_for_turn().await;
        drop(given_up);
        assert!(timeout(MOMENT, third.wait_for_turn()).await.is_err(), "the first is not done");
        drop(first);
        third.wait_for_turn().await;
    }

    #[test]
    fn it_is_building_until_the_last_order_has_ended() {
        let builds = BuildQueues::default();
        let status = || builds.status("mine", None);
        let building = || matches!(status(), Some(BuildStatus::Building { .. }));
        let [first, second] = [(); 2].map(|()| builds.enqueue("mine", QueuedChange::Build));
        let removal = builds.enqueue("mine", QueuedChange::Removal);
        first.record_result(Some(error()), None);
        assert!(building());
        drop(second);
        assert_eq!(status(), Some(BuildStatus::Failed(error())), "a removal builds nothing");
        assert!(builds.clear_failure("mine") && !builds.clear_failure("mine"));
        drop(removal);
        assert_eq!((status(), builds.names()), (None, vec![]));
    }
}
