//! Idle connections. At the connection limit, the server evicts the oldest idle connection to
//! accept a new client.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(super) struct IdleConnections(Mutex<IdleConnectionsState>);

#[derive(Debug, Default)]
struct IdleConnectionsState {
    /// Ordered by the time at which they became idle.
    connections: BTreeMap<u64, IdleConnectionEntry>,
    next: u64,
}

#[derive(Debug)]
struct IdleConnectionEntry {
    from: IpAddr,
    close: Arc<Notify>,
}

/// Registration of a connection while it is idle.
#[derive(Debug)]
pub(super) struct IdleConnectionGuard {
    registry: Arc<IdleConnections>,
    at: u64,
    close: Arc<Notify>,
}

impl IdleConnectionsState {
    fn evict_oldest(&mut self, from: IpAddr) {
        let oldest = self.connections.iter().find(|(_, it)| it.from == from).map(|(at, _)| *at);
        if let Some(closed) = oldest.and_then(|at| self.connections.remove(&at)) {
            closed.close.notify_one();
        }
    }
}

impl IdleConnections {
    fn state(&self) -> MutexGuard<'_, IdleConnectionsState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a connection that is now idle.
    pub(super) fn register(self: &Arc<Self>, from: IpAddr) -> IdleConnectionGuard {
        let close = Arc::new(Notify::new());
        let mut state = self.state();
        let at = state.next;
        state.next += 1;
        state.connections.insert(at, IdleConnectionEntry { from, close: Arc::clone(&close) });
        IdleConnectionGuard { registry: Arc::clone(self), at, close }
    }

    /// Evicts the oldest idle connection of the address that has the most of them.
    pub(super) fn evict_one(&self) {
        let mut state = self.state();
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        state.connections.values().for_each(|it| *counts.entry(it.from).or_default() += 1);
        if let Some((from, _)) = counts.into_iter().max_by_key(|(_, count)| *count) {
            state.evict_oldest(from);
        }
    }
}

impl IdleConnectionGuard {
    /// Completes when this connection is evicted.
    pub(super) async fn evicted(&self) {
        self.close.notified().await;
    }
}

impl Drop for IdleConnectionGuard {
    fn drop(&mut self) {
        self.registry.state().connections.remove(&self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    async fn is_evicted(connection: &IdleConnectionGuard) -> bool {
        timeout(Duration::from_millis(50), connection.evicted()).await.is_ok()
    }

    #[tokio::test]
    async fn t114_the_oldest_of_the_address_that_has_most_gives_way() {
        let connections = Arc::new(IdleConnections::default());
        let [one, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let lone = connections.register(other);
        let many: Vec<IdleConnectionGuard> = (0..3).map(|_| connections.register(one)).collect();
        connections.evict_one();
        assert!(is_evicted(&many[0]).await && !is_evicted(&lone).await);
        // Counterpart: below the limit no connection is evicted, however many one address has.
        assert!(!is_evicted(&many[1]).await && !is_evicted(&many[2]).await);
        drop(many);
        connections.evict_one();
        assert!(is_evicted(&lone).await);
    }
}
