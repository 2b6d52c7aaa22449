//! Room for connections: a request or a tunnel takes a seat, and a connection on which nobody asks for anything
//! takes none and gives way to a new one.
//!
//! Seats are shared out: one sandbox, one workspace and all of them together have so many. Code that opens
//! sockets and is silent must close nobody's way out, not even that of its own workspace.

use super::Sandbox;
use super::limits::Limits;
use super::refusal::{Body, Refusal};
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::sync::Notify;
use types::WorkspaceId;

/// Who is connected to the proxy.
#[derive(Debug)]
pub(super) struct Seats {
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Connections without a request, the oldest first.
    silent: BTreeMap<u64, Silent>,
    next: u64,
    seats: usize,
    of_workspaces: HashMap<WorkspaceId, usize>,
    of_sandboxes: HashMap<u64, usize>,
}

#[derive(Debug)]
struct Silent {
    sandbox: u64,
    close: Arc<Notify>,
}

impl State {
    fn silent_of(&self, sandbox: u64) -> usize {
        self.silent.values().filter(|it| it.sandbox == sandbox).count()
    }

    /// Closes the connection of a sandbox that has been silent for longest.
    fn close_oldest(&mut self, sandbox: u64) {
        let oldest = self.silent.iter().find(|(_, it)| it.sandbox == sandbox).map(|(at, _)| *at);
        if let Some(closed) = oldest.and_then(|at| self.silent.remove(&at)) {
            closed.close.notify_one();
        }
    }

    /// The sandbox that has most of the silent connections.
    fn most_silent(&self) -> Option<u64> {
        let mut counts: HashMap<u64, usize> = HashMap::new();
        self.silent.values().for_each(|it| *counts.entry(it.sandbox).or_default() += 1);
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(sandbox, _)| sandbox)
    }
}

impl Seats {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a connection that is silent from now on, and closes another if there are too many.
    fn enter(&self, sandbox: u64, close: &Arc<Notify>) -> u64 {
        let mut state = self.state();
        if state.silent_of(sandbox) >= self.limits.silent {
            state.close_oldest(sandbox);
        }
        if state.silent.len() >= self.limits.silent_of_all
            && let Some(most) = state.most_silent()
        {
            state.close_oldest(most);
        }
        let at = state.next;
        state.next += 1;
        state.silent.insert(at, Silent { sandbox, close: Arc::clone(close) });
        at
    }

    fn leave(&self, at: u64) {
        self.state().silent.remove(&at);
    }

    fn take(&self, sandbox: u64, workspace: WorkspaceId) -> Result<(), Refusal> {
        let mut state = self.state();
        let limits = &self.limits;
        if state.of_sandboxes.get(&sandbox).is_some_and(|count| *count >= limits.connections) {
            return Err(Refusal::Busy(limits.connections));
        }
        let of_workspace = state.of_workspaces.get(&workspace);
        if of_workspace.is_some_and(|count| *count >= limits.connections_of_workspace) {
            return Err(Refusal::WorkspaceBusy(limits.connections_of_workspace));
        }
        if state.seats >= limits.connections_of_all {
            return Err(Refusal::AllBusy(limits.connections_of_all));
        }
        state.seats += 1;
        *state.of_sandboxes.entry(sandbox).or_default() += 1;
        *state.of_workspaces.entry(workspace).or_default() += 1;
        Ok(())
    }

    fn give_back(&self, sandbox: u64, workspace: WorkspaceId) {
        let mut state = self.state();
        state.seats = state.seats.saturating_sub(1);
        release(&mut state.of_sandboxes, sandbox);
        release(&mut state.of_workspaces, workspace);
    }
}

fn release<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

/// One connection of a sandbox, while it lasts.
pub(super) struct Presence {
    sandbox: Arc<Sandbox>,
    /// Its place among the silent ones, and how many seats it has.
    place: Mutex<(Option<u64>, usize)>,
    close: Arc<Notify>,
}

impl Presence {
    pub(super) fn new(sandbox: Arc<Sandbox>) -> Arc<Self> {
        let close = Arc::new(Notify::new());
        let at = sandbox.proxy.seats.enter(sandbox.number, &close);
        Arc::new(Self { sandbox, place: Mutex::new((Some(at), 0)), close })
    }

    /// Returns when this connection has to give way to another.
    pub(super) async fn given_way(&self) {
        self.close.notified().await;
    }

    /// A seat for a request that was read.
    pub(super) fn seat(self: &Arc<Self>) -> Result<Seat, Refusal> {
        let seats = &self.sandbox.proxy.seats;
        seats.take(self.sandbox.number, self.sandbox.authority.workspace())?;
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = place.0.take() {
            seats.leave(at);
        }
        place.1 += 1;
        Ok(Seat(Arc::clone(self)))
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let place = self.place.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = place.0 {
            self.sandbox.proxy.seats.leave(at);
        }
    }
}

/// The right to be served. When it is dropped, the connection is silent again.
pub(super) struct Seat(Arc<Presence>);

impl Drop for Seat {
    fn drop(&mut self) {
        let Presence { sandbox, place, close } = &*self.0;
        let seats = &sandbox.proxy.seats;
        seats.give_back(sandbox.number, sandbox.authority.workspace());
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        place.1 = place.1.saturating_sub(1);
        if place.1 == 0 && place.0.is_none() {
            place.0 = Some(seats.enter(sandbox.number, close));
        }
    }
}

/// An answer, whose request has its seat until the last byte.
pub(super) struct Seated {
    body: Body,
    _seat: Option<Seat>,
}

impl Seated {
    pub(super) fn new(body: Body, seat: Option<Seat>) -> Self {
        Self { body, _seat: seat }
    }
}

impl HttpBody for Seated {
    type Data = <Body as HttpBody>::Data;
    type Error = <Body as HttpBody>::Error;

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
