//! Connection slots. A request or a tunnel takes a slot; an idle connection takes none and is
//! evicted when a new one needs its place.
//!
//! Slots are limited per sandbox, per workspace and in total. Code that opens sockets and stays
//! idle must not block the egress of any other sandbox, not even in its own workspace.

use super::ProxyClient;
use super::error::{EgressError, ProxyBody};
use super::limits::ProxyLimits;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::sync::Notify;
use types::WorkspaceId;

/// The connections to the proxy.
#[derive(Debug)]
pub(super) struct ConnectionSlots {
    limits: ProxyLimits,
    state: Mutex<ConnectionSlotsState>,
}

#[derive(Debug, Default)]
struct ConnectionSlotsState {
    /// Connections without a request, oldest first.
    idle: BTreeMap<u64, IdleConnection>,
    next: u64,
    slots_used: usize,
    used_by_workspace: HashMap<WorkspaceId, usize>,
    used_by_sandbox: HashMap<u64, usize>,
}

#[derive(Debug)]
struct IdleConnection {
    sandbox: u64,
    close: Arc<Notify>,
}

impl ConnectionSlotsState {
    fn idle_count(&self, sandbox: u64) -> usize {
        self.idle.values().filter(|it| it.sandbox == sandbox).count()
    }

    /// Closes the connection of a sandbox that has been idle longest.
    fn evict_oldest(&mut self, sandbox: u64) {
        let oldest = self.idle.iter().find(|(_, it)| it.sandbox == sandbox).map(|(at, _)| *at);
        if let Some(closed) = oldest.and_then(|at| self.idle.remove(&at)) {
            closed.close.notify_one();
        }
    }

    /// The sandbox with the most idle connections.
    fn sandbox_with_most_idle(&self) -> Option<u64> {
        let mut counts: HashMap<u64, usize> = HashMap::new();
        self.idle.values().for_each(|it| *counts.entry(it.sandbox).or_default() += 1);
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(sandbox, _)| sandbox)
    }
}

impl ConnectionSlots {
    pub(super) fn new(limits: ProxyLimits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, ConnectionSlotsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers an idle connection, and evicts another one if there are too many.
    fn add_idle(&self, sandbox: u64, close: &Arc<Notify>) -> u64 {
        let mut state = self.state();
        if state.idle_count(sandbox) >= self.limits.idle_connections {
            state.evict_oldest(sandbox);
        }
        if state.idle.len() >= self.limits.idle_connections_total
            && let Some(most) = state.sandbox_with_most_idle()
        {
            state.evict_oldest(most);
        }
        let at = state.next;
        state.next += 1;
        state.idle.insert(at, IdleConnection { sandbox, close: Arc::clone(close) });
        at
    }

    fn remove_idle(&self, at: u64) {
        self.state().idle.remove(&at);
    }

    fn acquire(&self, sandbox: u64, workspace: WorkspaceId) -> Result<(), EgressError> {
        let mut state = self.state();
        let limits = &self.limits;
        if state.used_by_sandbox.get(&sandbox).is_some_and(|count| *count >= limits.connections) {
            return Err(EgressError::SandboxBusy(limits.connections));
        }
        let of_workspace = state.used_by_workspace.get(&workspace);
        if of_workspace.is_some_and(|count| *count >= limits.connections_per_workspace) {
            return Err(EgressError::WorkspaceBusy(limits.connections_per_workspace));
        }
        if state.slots_used >= limits.connections_total {
            return Err(EgressError::ProxyBusy(limits.connections_total));
        }
        state.slots_used += 1;
        *state.used_by_sandbox.entry(sandbox).or_default() += 1;
        *state.used_by_workspace.entry(workspace).or_default() += 1;
        Ok(())
    }

    fn release(&self, sandbox: u64, workspace: WorkspaceId) {
        let mut state = self.state();
        state.slots_used = state.slots_used.saturating_sub(1);
        decrement(&mut state.used_by_sandbox, sandbox);
        decrement(&mut state.used_by_workspace, workspace);
    }
}

fn decrement<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

/// One connection of a sandbox.
pub(super) struct TrackedConnection {
    sandbox: Arc<ProxyClient>,
    /// The key of the connection among the idle ones, and the number of its slots.
    position: Mutex<(Option<u64>, usize)>,
    close: Arc<Notify>,
}

impl TrackedConnection {
    pub(super) fn new(sandbox: Arc<ProxyClient>) -> Arc<Self> {
        let close = Arc::new(Notify::new());
        let at = sandbox.proxy.connection_slots.add_idle(sandbox.id, &close);
        Arc::new(Self { sandbox, position: Mutex::new((Some(at), 0)), close })
    }

    /// Completes when this connection is evicted.
    pub(super) async fn evicted(&self) {
        self.close.notified().await;
    }

    /// Takes a slot for a request that was read.
    pub(super) fn acquire_slot(self: &Arc<Self>) -> Result<ConnectionSlot, EgressError> {
        let connection_slots = &self.sandbox.proxy.connection_slots;
        connection_slots.acquire(self.sandbox.id, self.sandbox.policy_source.workspace())?;
        let mut place = self.position.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = place.0.take() {
            connection_slots.remove_idle(at);
        }
        place.1 += 1;
        Ok(ConnectionSlot(Arc::clone(self)))
    }
}

impl Drop for TrackedConnection {
    fn drop(&mut self) {
        let place = self.position.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = place.0 {
            self.sandbox.proxy.connection_slots.remove_idle(at);
        }
    }
}

/// The permit to be served. Dropping the last one makes the connection idle again.
pub(super) struct ConnectionSlot(Arc<TrackedConnection>);

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let TrackedConnection { sandbox, position: place, close } = &*self.0;
        let connection_slots = &sandbox.proxy.connection_slots;
        connection_slots.release(sandbox.id, sandbox.policy_source.workspace());
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        place.1 = place.1.saturating_sub(1);
        if place.1 == 0 && place.0.is_none() {
            place.0 = Some(connection_slots.add_idle(sandbox.id, close));
        }
    }
}

/// A response body that holds the slot of its request until the last byte.
pub(super) struct SlotHoldingBody {
    body: ProxyBody,
    _slot: Option<ConnectionSlot>,
}

impl SlotHoldingBody {
    pub(super) fn new(body: ProxyBody, slot: Option<ConnectionSlot>) -> Self {
        Self { body, _slot: slot }
    }
}

impl HttpBody for SlotHoldingBody {
    type Data = <ProxyBody as HttpBody>::Data;
    type Error = <ProxyBody as HttpBody>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
