//! Decides which sandbox starts next. Starting one takes milliseconds of CPU: if every request
//! started its own at once, a caller with many requests would slow down each start of the others by
//! their number. Few start at once, and the callers that wait take turns in rounds: each starts one in
//! a round, so a start waits for at most one start of each other caller.

use std::collections::{BTreeMap, HashMap};
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

/// An execution of the server itself has no principal; all of them are one caller.
type Caller = Option<PrincipalId>;

#[derive(Debug, Default)]
struct QueueState {
    starting: usize,
    /// The round in which the last one started.
    round: u64,
    callers: HashMap<Caller, CallerQueue>,
    next_ticket: u64,
}

#[derive(Debug, Default)]
struct CallerQueue {
    /// Executions that wait, start or run.
    active: usize,
    /// Its next start is not before this round.
    next_round: u64,
    /// The waiting executions by ticket, the oldest first.
    waiting: BTreeMap<u64, oneshot::Sender<StartGrant>>,
}

/// One execution of a caller, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct CountedExecution {
    queue: Arc<StartQueue>,
    caller: Caller,
}

/// What a waiting execution is told when it may start.
#[derive(Debug)]
struct StartGrant {
    ready_left: usize,
}

/// A waiting execution. Dropping it takes it out of the queue, or passes on the right to start that
/// it was granted and did not use.
struct QueuedStart<'a> {
    execution: &'a CountedExecution,
    ticket: u64,
    granted: oneshot::Receiver<StartGrant>,
    accepted: bool,
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
    pub(crate) fn enter(self: &Arc<Self>, caller: Caller) -> CountedExecution {
        self.state().callers.entry(caller).or_default().active += 1;
        CountedExecution { queue: Arc::clone(self), caller }
    }

    /// Lets the next one start after one has ended its start.
    fn pass_on(&self) {
        let mut state = self.state();
        match state.take_next() {
            Some((caller, next)) => {
                // It is received: who goes away leaves the queue first, under the same lock.
                let _ = next.send(state.grant(caller));
            }
            None => state.starting -= 1,
        }
    }
}

impl QueueState {
    /// Counts a start of the caller in its round.
    fn grant(&mut self, caller: Caller) -> StartGrant {
        let queue = self.callers.entry(caller).or_default();
        self.round = self.round.max(queue.next_round);
        queue.next_round = self.round + 1;
        let ready_left = if queue.active <= 1 { 0 } else { READY_RESERVED };
        self.forget_idle();
        StartGrant { ready_left }
    }

    /// Forgets callers that run nothing and that no round holds back.
    fn forget_idle(&mut self) {
        let round = self.round;
        self.callers.retain(|_, queue| queue.active > 0 || queue.next_round > round);
    }

    fn add(&mut self, caller: Caller) -> (u64, oneshot::Receiver<StartGrant>) {
        let (grant, granted) = oneshot::channel();
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.callers.entry(caller).or_default().waiting.insert(ticket, grant);
        (ticket, granted)
    }

    /// Returns whether the ticket was still waiting.
    fn remove(&mut self, caller: Caller, ticket: u64) -> bool {
        self.callers.get_mut(&caller).is_some_and(|queue| queue.waiting.remove(&ticket).is_some())
    }

    /// The oldest of those whose caller has not yet started one in this round; after those, the
    /// oldest of the next round.
    fn take_next(&mut self) -> Option<(Caller, oneshot::Sender<StartGrant>)> {
        let waiting = self.callers.iter_mut().filter_map(|(caller, queue)| {
            let (ticket, _) = queue.waiting.first_key_value()?;
            Some(((queue.next_round.max(self.round), *ticket), *caller, queue))
        });
        let (_, caller, queue) = waiting.min_by_key(|(turn, ..)| *turn)?;
        let (_, next) = queue.waiting.pop_first()?;
        Some((caller, next))
    }
}

impl CountedExecution {
    /// Waits until the sandbox of this execution may start.
    pub(crate) async fn start(&self) -> StartPermit {
        let queued = {
            let mut state = self.queue.state();
            if state.starting < self.queue.at_once {
                state.starting += 1;
                return self.permit(state.grant(self.caller));
            }
            let (ticket, granted) = state.add(self.caller);
            QueuedStart { execution: self, ticket, granted, accepted: false }
        };
        queued.permit().await
    }

    fn permit(&self, grant: StartGrant) -> StartPermit {
        StartPermit { queue: Arc::clone(&self.queue), ready_left: grant.ready_left }
    }
}

impl QueuedStart<'_> {
    async fn permit(mut self) -> StartPermit {
        match (&mut self.granted).await {
            Ok(grant) => {
                self.accepted = true;
                self.execution.permit(grant)
            }
            // The queue drops no sender that waits, and lives as long as the execution.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for QueuedStart<'_> {
    fn drop(&mut self) {
        let CountedExecution { queue, caller } = self.execution;
        if !self.accepted && !queue.state().remove(*caller, self.ticket) {
            queue.pass_on();
        }
    }
}

impl Drop for CountedExecution {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        if let Some(queue) = state.callers.get_mut(&self.caller) {
            queue.active -= 1;
        }
        state.forget_idle();
    }
}

impl Drop for StartPermit {
    fn drop(&mut self) {
        self.queue.pass_on();
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

    fn caller(number: u128) -> Caller {
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
        assert!(queue.state().callers.values().all(|queue| queue.active == 0));
        drop(queue.enter(caller(4)).start().await);
        drop(queue.enter(caller(4)).start().await);
        assert_eq!(queue.state().callers.len(), 1, "those of an earlier round are forgotten");
    }

    #[tokio::test]
    async fn a_permit_granted_to_a_caller_that_goes_away_unread_is_passed_on() {
        let queue = StartQueue::new(1);
        let [a, b, c] = [1, 2, 3].map(|it| queue.enter(caller(it)));
        let first = a.start().await;
        let (mut gone, mut stays): (Start<'_>, Start<'_>) =
            (Box::pin(b.start()), Box::pin(c.start()));
        assert!(poll(&mut gone).is_none() && poll(&mut stays).is_none());
        drop(first);
        assert!(poll(&mut stays).is_none(), "it is granted to the one before");
        drop(gone);
        drop(poll(&mut stays).expect("the permit was passed on"));
        assert_eq!(queue.state().starting, 0);
    }

    /// A permit that is passed from one to the next by recursion overflows the stack here, which ends
    /// the whole server.
    #[test]
    fn t201_a_hundred_thousand_cancelled_starts_leave_nothing_and_end_no_thread() {
        const CANCELLED: usize = 100_000;
        let stack = std::thread::Builder::new().stack_size(256 * 1024);
        let thread = stack.spawn(|| {
            let queue = StartQueue::new(1);
            let execution = queue.enter(caller(1));
            let mut first: Start<'_> = Box::pin(execution.start());
            let first = poll(&mut first).expect("nothing else starts");
            for _ in 0..CANCELLED {
                let mut start: Start<'_> = Box::pin(execution.start());
                assert!(poll(&mut start).is_none());
            }
            let left = queue.state().callers[&caller(1)].waiting.len();
            assert_eq!(left, 0, "who goes away leaves the queue");
            let all: Vec<_> = (0..CANCELLED).map(|_| execution.start()).collect();
            let mut all: Vec<_> = all.into_iter().map(|it| Box::pin(it) as Start<'_>).collect();
            assert!(all.iter_mut().all(|start| poll(start).is_none()));
            drop(first);
            all.into_iter().for_each(drop);
            assert_eq!(queue.state().starting, 0);
            assert!(queue.state().callers[&caller(1)].waiting.is_empty());
        });
        thread.unwrap().join().unwrap();
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
        let permit = loop {
            let next = queue.enter(caller(2));
            let mut other: Start<'_> = Box::pin(next.start());
            assert!(poll(&mut other).is_none());
            drop(running);
            if let Some(permit) = poll(&mut start) {
                break permit;
            }
            before += 1;
            running = poll(&mut other).expect("one of the two is granted");
        };
        assert!(before <= 1, "{before} of the other started first");
        drop(permit);
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
