//! Decides which sandbox starts next. Starting one takes milliseconds of CPU: if every request
//! started its own at once, a caller with many requests would slow down each start of the others by
//! their number. Few start at once, and the callers that wait take turns.

use crate::slot_queue::{Caller, Slot, SlotQueue};
use sandbox::ExecutionGroup;
use std::collections::HashMap;
use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

/// Ready sandboxes that are left for callers who run nothing else.
const READY_RESERVED: usize = 1;

#[derive(Debug)]
pub(crate) struct StartQueue {
    /// Without a limit of those that wait: each has its sandbox counted already.
    slots: Arc<SlotQueue>,
    /// Executions of each caller that wait, start or run. A caller without any is in it for as long as
    /// its output counts.
    active: Mutex<HashMap<Caller, ExecutionGroup>>,
}

/// One execution of a caller, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct CountedExecution {
    queue: Arc<StartQueue>,
    caller: Caller,
    /// All executions of the caller, with which it shares the CPU and the rate of output.
    pub(crate) group: ExecutionGroup,
}

/// The right to start one sandbox now. Dropping it lets the next one start.
#[derive(Debug)]
pub(crate) struct StartSlot {
    _slot: Slot,
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
        Arc::new(Self { slots: SlotQueue::new(at_once, usize::MAX), active: Mutex::default() })
    }

    fn active(&self) -> MutexGuard<'_, HashMap<Caller, ExecutionGroup>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an execution of the caller from now on.
    pub(crate) fn enter(self: &Arc<Self>, caller: Caller) -> CountedExecution {
        // Under the lock, under which the last execution of the caller leaves.
        let mut active = self.active();
        let group = active.entry(caller).or_default().clone();
        group.join();
        drop(active);
        CountedExecution { queue: Arc::clone(self), caller, group }
    }
}

impl CountedExecution {
    /// Waits until the sandbox of this execution may start.
    pub(crate) async fn start(&self) -> StartSlot {
        let Some(slot) = self.queue.slots.acquire(self.caller).await else {
            // The queue has no limit, so it refuses nothing.
            return std::future::pending().await;
        };
        let runs_nothing_else = self.group.executions() <= 1;
        StartSlot { _slot: slot, ready_left: if runs_nothing_else { 0 } else { READY_RESERVED } }
    }
}

impl Drop for CountedExecution {
    fn drop(&mut self) {
        let mut active = self.queue.active();
        self.group.leave();
        active.retain(|_, group| !group.is_idle());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};
    use types::PrincipalId;
    use uuid::Uuid;

    type Start<'a> = Pin<Box<dyn Future<Output = StartSlot> + 'a>>;

    fn poll(start: &mut Start<'_>) -> Option<StartSlot> {
        match start.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(slot) => Some(slot),
            Poll::Pending => None,
        }
    }

    fn caller(number: u128) -> Caller {
        Some(PrincipalId::new(Uuid::from_u128(number)))
    }

    #[tokio::test]
    async fn a_caller_that_runs_nothing_else_may_take_the_last_ready_sandbox() {
        let queue = StartQueue::new(2);
        let (busy, other, neighbour) =
            (queue.enter(caller(1)), queue.enter(caller(1)), queue.enter(caller(2)));
        assert_eq!(busy.start().await.ready_left, READY_RESERVED);
        assert_eq!(neighbour.start().await.ready_left, 0);
        drop(other);
        assert_eq!(busy.start().await.ready_left, 0);
    }

    #[tokio::test]
    async fn t201_a_caller_with_many_executions_gets_every_other_start_beside_one_with_few() {
        let queue = StartQueue::new(1);
        let asleep: Vec<_> = (0..10).map(|_| queue.enter(caller(1))).collect();
        drop(asleep[0].start().await);
        let mut running = queue.enter(caller(2)).start().await;
        let mut start: Start<'_> = Box::pin(asleep[0].start());
        assert!(poll(&mut start).is_none());
        let mut before = 0;
        // The other one has a single execution at any time, and always a next one.
        let slot = loop {
            let next = queue.enter(caller(2));
            let mut other: Start<'_> = Box::pin(next.start());
            assert!(poll(&mut other).is_none());
            drop(running);
            if let Some(slot) = poll(&mut start) {
                break slot;
            }
            before += 1;
            running = poll(&mut other).expect("one of the two is next");
        };
        assert!(before <= 1, "{before} of the other started first");
        drop(slot);
    }

    #[tokio::test]
    async fn t218_callers_that_started_once_are_forgotten() {
        let queue = StartQueue::new(2);
        for number in 0..1_000 {
            drop(queue.enter(caller(number)).start().await);
        }
        assert_eq!(queue.active().len(), 0);
        let running = queue.enter(caller(1));
        assert_eq!(queue.active().len(), 1, "one that runs is counted");
        drop(running);
    }
}
