//! Connections on which nobody asks for anything: where there is no room they give way to new clients,
//! the oldest first.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(super) struct Silence(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// In the order in which they became silent.
    all: BTreeMap<u64, Entry>,
    next: u64,
}

#[derive(Debug)]
struct Entry {
    from: IpAddr,
    close: Arc<Notify>,
}

/// A connection, while it is silent.
#[derive(Debug)]
pub(super) struct Silent {
    silence: Arc<Silence>,
    at: u64,
    close: Arc<Notify>,
}

impl State {
    fn close_oldest(&mut self, from: IpAddr) {
        let oldest = self.all.iter().find(|(_, it)| it.from == from).map(|(at, _)| *at);
        if let Some(closed) = oldest.and_then(|at| self.all.remove(&at)) {
            closed.close.notify_one();
        }
    }
}

impl Silence {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a connection that is silent from now on.
    pub(super) fn enter(self: &Arc<Self>, from: IpAddr) -> Silent {
        let close = Arc::new(Notify::new());
        let mut state = self.state();
        let at = state.next;
        state.next += 1;
        state.all.insert(at, Entry { from, close: Arc::clone(&close) });
        Silent { silence: Arc::clone(self), at, close }
    }

    /// Closes one: the oldest of the address that has most of them.
    pub(super) fn make_room(&self) {
        let mut state = self.state();
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        state.all.values().for_each(|it| *counts.entry(it.from).or_default() += 1);
        if let Some((from, _)) = counts.into_iter().max_by_key(|(_, count)| *count) {
            state.close_oldest(from);
        }
    }
}

impl Silent {
    /// Returns when this connection has to give way.
    pub(super) async fn given_way(&self) {
        self.close.notified().await;
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.silence.state().all.remove(&self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    async fn gives_way(silent: &Silent) -> bool {
        timeout(Duration::from_millis(50), silent.given_way()).await.is_ok()
    }

    #[tokio::test]
    async fn t114_the_oldest_of_the_address_that_has_most_gives_way() {
        let silence = Arc::new(Silence::default());
        let [one, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let lone = silence.enter(other);
        let many: Vec<Silent> = (0..3).map(|_| silence.enter(one)).collect();
        silence.make_room();
        assert!(gives_way(&many[0]).await && !gives_way(&lone).await);
        // The twin: nobody gives way while there is room, however many one address has.
        assert!(!gives_way(&many[1]).await && !gives_way(&many[2]).await);
        drop(many);
        silence.make_room();
        assert!(gives_way(&lone).await);
    }
}
