//! Decides which sandbox starts next. Starting one takes milliseconds of CPU: if every request
//! started its own at once, a caller with many requests would slow down each start of the others by
//! their number. Few start at once, and the caller with the fewest executions is next.

use std::collections::{HashMap, VecDeque};
use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;
use tokio::sync::oneshot;
use types::PrincipalId;

/// Ready sandboxes that are left for callers who run nothing else.
const READY_RESERVED: usize = 1;

#[derive(Debug)]
pub(crate) struct StartQueue {
    at_once: usize,
    state: Mutex<QueueState>,
}

#[derive(Debug, Default)]
struct QueueState {
    starting: usize,
    /// Executions of each caller that wait, start or run. Callers without any are absent.
    active: HashMap<Option<PrincipalId>, usize>,
    waiting: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    caller: Option<PrincipalId>,
    granted: oneshot::Sender<StartPermit>,
}

/// One execution of a caller, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct CountedExecution {
    queue: Arc<StartQueue>,
    caller: Option<PrincipalId>,
}

/// The right to start one sandbox now. Dropping it lets the next one start.
#[derive(Debug)]
pub(crate) struct StartPermit {
    queue: Arc<StartQueue>,
    /// How many ready sandboxes must be left when one of them is taken.
    pub(crate) ready_left: usize,
}

/// One for each core, since a start keeps one busy. Two at least, so that one that waits for the
/// disk does not hold up the others.
pub(crate) fn starts_at_once() -> usize {
    available_parallelism().map_or(1, NonZero::get).max(2)
}

impl StartQueue {
    pub(crate) fn new(at_once: usize) -> Arc<Self> {
        Arc::new(Self { at_once, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an execution of the caller from now on.
    pub(crate) fn enter(self: &Arc<Self>, caller: Option<PrincipalId>) -> CountedExecution {
        *self.state().active.entry(caller).or_default() += 1;
        CountedExecution { queue: Arc::clone(self), caller }
    }

    fn permit(self: &Arc<Self>, state: &QueueState, caller: Option<PrincipalId>) -> StartPermit {
        let alone = state.active_of(caller) <= 1;
        StartPermit { queue: Arc::clone(self), ready_left: if alone { 0 } else { READY_RESERVED } }
    }
}

impl QueueState {
    fn active_of(&self, caller: Option<PrincipalId>) -> usize {
        self.active.get(&caller).copied().unwrap_or_default()
    }

    /// The waiter of the caller with the fewest executions; of several, the one that came first.
    fn take_next(&mut self) -> Option<Waiter> {
        let active = self.waiting.iter().map(|waiter| self.active_of(waiter.caller));
        let (next, _) = active.enumerate().min_by_key(|(_, active)| *active)?;
        self.waiting.remove(next)
    }
}

impl CountedExecution {
    /// Waits until the sandbox of this execution may start.
    pub(crate) async fn start(&self) -> StartPermit {
        let granted = {
            let mut state = self.queue.state();
            if state.starting < self.queue.at_once {
                state.starting += 1;
                return self.queue.permit(&state, self.caller);
            }
            let (granted, waiting) = oneshot::channel();
            state.waiting.push_back(Waiter { caller: self.caller, granted });
            waiting
        };
        match granted.await {
            Ok(permit) => permit,
            // The queue drops no sender: it hands a permit to each, and lives as long as `self`.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for CountedExecution {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        if let Some(active) = state.active.get_mut(&self.caller) {
            *active -= 1;
            if *active == 0 {
                state.active.remove(&self.caller);
            }
        }
    }
}

impl Drop for StartPermit {
    fn drop(&mut self) {
        let (next, permit) = {
            let mut state = self.queue.state();
            let Some(next) = state.take_next() else {
                state.starting -= 1;
                return;
            };
            let permit = self.queue.permit(&state, next.caller);
            (next, permit)
        };
        // If that caller went away, the permit comes back and is dropped here, which passes it on.
        let _ = next.granted.send(permit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};
    use uuid::Uuid;

    type Start<'a> = Pin<Box<dyn Future<Output = StartPermit> + 'a>>;

    fn poll(start: &mut Start<'_>) -> Option<StartPermit> {
        match start.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => Some(permit),
            Poll::Pending => None,
        }
    }

    fn caller(number: u128) -> Option<PrincipalId> {
        Some(PrincipalId::new(Uuid::from_u128(number)))
    }

    #[tokio::test]
    async fn a_caller_with_one_execution_starts_before_the_fourteenth_of_another() {
        let queue = StartQueue::new(1);
        let flood: Vec<_> = (0..14).map(|_| queue.enter(caller(1))).collect();
        let first = flood[0].start().await;
        let mut waiting: Vec<Start<'_>> =
            flood[1..].iter().map(|it| Box::pin(it.start()) as Start<'_>).collect();
        assert!(waiting.iter_mut().all(|start| poll(start).is_none()));
        let neighbour = queue.enter(caller(2));
        let mut start: Start<'_> = Box::pin(neighbour.start());
        assert!(poll(&mut start).is_none(), "one starts at a time");
        drop(first);
        let permit = poll(&mut start).expect("the neighbour is next");
        assert_eq!(permit.ready_left, 0, "it may take the last ready sandbox");
        drop(permit);
        let permit = poll(&mut waiting[0]).expect("then the first that waits");
        assert_eq!(permit.ready_left, READY_RESERVED);
    }

    #[tokio::test]
    async fn a_caller_that_goes_away_while_it_waits_passes_its_permit_on() {
        let queue = StartQueue::new(1);
        let [a, b, c] = [1, 2, 3].map(|it| queue.enter(caller(it)));
        let first = a.start().await;
        let (mut gone, mut stays): (Start<'_>, Start<'_>) =
            (Box::pin(b.start()), Box::pin(c.start()));
        assert!(poll(&mut gone).is_none() && poll(&mut stays).is_none());
        drop(gone);
        drop(first);
        drop(poll(&mut stays).expect("the permit was passed on"));
        assert_eq!(queue.state().starting, 0);
        drop(stays);
        drop((a, b, c));
        assert!(queue.state().active.is_empty());
    }

    #[tokio::test]
    async fn as_many_start_at_once_as_allowed_and_no_more() {
        let queue = StartQueue::new(2);
        let all = [1, 1, 2].map(|it| queue.enter(caller(it)));
        let permits = (all[0].start().await, all[1].start().await);
        let mut third: Start<'_> = Box::pin(all[2].start());
        assert!(poll(&mut third).is_none());
        drop(permits.0);
        assert!(poll(&mut third).is_some());
    }
}
