//! What is happening to environments, by their names, and what came of the last try.
//!
//! Whoever changes what a name stands for queues up for it: of two orders the later one stays, and what
//! was removed does not come back with an order that was made before.

use environment::{Progress, Stamp};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use types::Fault;

#[derive(Debug, Clone, Default)]
pub(crate) struct Builds(Arc<Mutex<BTreeMap<String, Build>>>);

#[derive(Debug, Default)]
struct Build {
    /// In the order in which they came; the first has his turn.
    queue: watch::Sender<BTreeMap<u64, Change>>,
    last: u64,
    progress: String,
    failed: Option<Failed>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Order,
    Removal,
}

/// A try that has failed, and the definition that was there then: it says nothing about another.
#[derive(Debug)]
struct Failed {
    fault: Fault,
    stamp: Option<Stamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Happening {
    Building { progress: String },
    Failed(Fault),
}

/// A place in the queue of a name, given up when it goes out of scope.
#[derive(Debug)]
pub(crate) struct Turn {
    builds: Builds,
    name: String,
    number: u64,
}

impl Build {
    fn is_ordered(&self) -> bool {
        self.queue.borrow().values().any(|change| *change == Change::Order)
    }

    fn is_over(&self) -> bool {
        self.queue.borrow().is_empty() && self.failed.is_none()
    }
}

impl Builds {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Build>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues up. Whoever does so later waits for this one.
    pub(crate) fn queue(&self, name: &str, change: Change) -> Turn {
        let mut all = self.all();
        let build = all.entry(name.to_owned()).or_default();
        if !build.is_ordered() {
            "waiting".clone_into(&mut build.progress);
        }
        build.last += 1;
        let number = build.last;
        build.queue.send_modify(|queue| {
            queue.insert(number, change);
        });
        Turn { builds: self.clone(), name: name.to_owned(), number }
    }

    /// How far the order is that has its turn.
    pub(crate) fn tell(&self, name: &str, progress: &Progress) {
        if let Some(build) = self.all().get_mut(name) {
            build.progress = progress.to_string();
        }
    }

    /// Forgets that the last try has failed; says whether it had.
    pub(crate) fn forgive(&self, name: &str) -> bool {
        self.all().get_mut(name).and_then(|build| build.failed.take()).is_some()
    }

    /// The names of which there may be something to say.
    pub(crate) fn names(&self) -> Vec<String> {
        self.all().keys().cloned().collect()
    }

    /// What there is to say of a name whose definition has this stamp.
    pub(crate) fn happening(&self, name: &str, stamp: Option<Stamp>) -> Option<Happening> {
        let all = self.all();
        let build = all.get(name)?;
        if build.is_ordered() {
            return Some(Happening::Building { progress: build.progress.clone() });
        }
        let failed = build.failed.as_ref().filter(|failed| failed.stamp == stamp)?;
        Some(Happening::Failed(failed.fault.clone()))
    }
}

impl Turn {
    /// Waits until all who came before are done.
    pub(crate) async fn come(&self) {
        let queue = self.builds.all().get(&self.name).map(|build| build.queue.subscribe());
        if let Some(mut queue) = queue {
            // It cannot end as long as somebody is in it.
            let _ = queue.wait_for(|queue| queue.keys().next() == Some(&self.number)).await;
        }
    }

    /// The order was carried out, or not; `stamp` is of the definition that is there now.
    pub(crate) fn ended(self, fault: Option<Fault>, stamp: Option<Stamp>) {
        if let Some(build) = self.builds.all().get_mut(&self.name) {
            build.failed = fault.map(|fault| Failed { fault, stamp });
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut all = self.builds.all();
        if let Some(build) = all.get(&self.name) {
            build.queue.send_modify(|queue| {
                queue.remove(&self.number);
            });
            if build.is_over() {
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
    use types::Code;

    const MOMENT: Duration = Duration::from_millis(20);

    fn fault() -> Fault {
        Fault::new(Code::SandboxUnreachable, "no")
    }

    #[tokio::test]
    async fn a_name_is_changed_in_the_order_of_the_requests_and_others_do_not_wait() {
        let builds = Builds::default();
        let queue = |name| builds.queue(name, Change::Order);
        let (first, given_up, third) = (queue("mine"), queue("mine"), queue("mine"));
        first.come().await;
        assert!(timeout(MOMENT, third.come()).await.is_err());
        queue("yours").come().await;
        drop(given_up);
        assert!(timeout(MOMENT, third.come()).await.is_err(), "the first is not done");
        drop(first);
        third.come().await;
    }

    #[test]
    fn it_is_building_until_the_last_order_has_ended() {
        let builds = Builds::default();
        let happening = || builds.happening("mine", None);
        let building = || matches!(happening(), Some(Happening::Building { .. }));
        let [first, second] = [(); 2].map(|()| builds.queue("mine", Change::Order));
        let removal = builds.queue("mine", Change::Removal);
        first.ended(Some(fault()), None);
        assert!(building());
        drop(second);
        assert_eq!(happening(), Some(Happening::Failed(fault())), "a removal builds nothing");
        assert!(builds.forgive("mine") && !builds.forgive("mine"));
        drop(removal);
        assert_eq!((happening(), builds.names()), (None, vec![]));
    }
}
