//! A fixed number of slots. Requests that find none wait, and the callers that wait take turns: one
//! slot for each caller in a round, however many requests it has.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};
use types::{PrincipalId, TurnQueue};

/// An execution of the server itself has no principal; all of them are one caller.
pub(crate) type Caller = Option<PrincipalId>;

#[derive(Debug)]
pub(crate) struct SlotQueue {
    max: usize,
    /// Requests that may wait.
    waiting_max: usize,
    state: Mutex<SlotState>,
    /// Notified when the last slot was released.
    idle: Notify,
}

#[derive(Debug, Default)]
struct SlotState {
    in_use: usize,
    /// Each is told when it has a slot. One that is dropped untold has given way to another caller.
    waiting: TurnQueue<Caller, oneshot::Sender<()>>,
}

/// A slot. Dropping it passes it on to the caller whose turn it is.
#[derive(Debug)]
pub(crate) struct Slot {
    queue: Arc<SlotQueue>,
}

/// A request that waits. Dropping it takes it out of the queue, or passes on the slot that it was
/// given and did not use.
struct WaitingRequest<'a> {
    queue: &'a Arc<SlotQueue>,
    caller: Caller,
    ticket: u64,
    given: oneshot::Receiver<()>,
}

impl SlotQueue {
    pub(crate) fn new(max: usize, waiting_max: usize) -> Arc<Self> {
        Arc::new(Self { max, waiting_max, state: Mutex::default(), idle: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a slot. Absent if too many wait: a full queue refuses the newest request of the
    /// caller that has the most in it.
    pub(crate) async fn acquire(self: &Arc<Self>, caller: Caller) -> Option<Slot> {
        let mut request = {
            let mut state = self.state();
            if state.in_use < self.max {
                state.in_use += 1;
                return Some(self.slot());
            }
            state.make_room_for(caller, self.waiting_max)?;
            let (give, given) = oneshot::channel();
            let ticket = state.waiting.push(caller, give);
            WaitingRequest { queue: self, caller, ticket, given }
        };
        (&mut request.given).await.ok().map(|()| self.slot())
    }

    fn slot(self: &Arc<Self>) -> Slot {
        Slot { queue: Arc::clone(self) }
    }

    pub(crate) fn in_use(&self) -> usize {
        self.state().in_use
    }

    pub(crate) fn waiting(&self) -> usize {
        self.state().waiting.len()
    }

    /// Waits until no slot is in use.
    pub(crate) async fn wait_until_idle(&self) {
        loop {
            let idle = self.idle.notified();
            if self.in_use() == 0 {
                return;
            }
            idle.await;
        }
    }

    /// Gives a slot that was released to the next request.
    fn pass_on(&self) {
        let mut state = self.state();
        match state.waiting.pop() {
            Some((_, next)) => {
                // It is received: a request that is given up leaves the queue first, under the
                // same lock.
                let _ = next.send(());
            }
            None => {
                state.in_use -= 1;
                if state.in_use == 0 {
                    self.idle.notify_waiters();
                }
            }
        }
    }
}

impl SlotState {
    /// Absent if the caller itself has as many waiting requests as any other.
    fn make_room_for(&mut self, caller: Caller, waiting_max: usize) -> Option<()> {
        if self.waiting.len() >= waiting_max {
            self.waiting.pop_newest_of_longest(self.waiting.len_of(caller) + 2)?;
        }
        Some(())
    }
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        let left = self.queue.state().waiting.remove(self.caller, self.ticket);
        // A slot that was received before is no longer in the channel.
        if left.is_none() && self.given.try_recv().is_ok() {
            self.queue.pass_on();
        }
    }
}

impl Drop for Slot {
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

    type Request<'a> = Pin<Box<dyn Future<Output = Option<Slot>> + 'a>>;

    fn request(queue: &Arc<SlotQueue>, number: u128) -> Request<'_> {
        Box::pin(queue.acquire(Some(PrincipalId::new(Uuid::from_u128(number)))))
    }

    fn poll(request: &mut Request<'_>) -> Poll<Option<Slot>> {
        request.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    fn given(request: &mut Request<'_>) -> Option<Slot> {
        match poll(request) {
            Poll::Ready(slot) => Some(slot.expect("it was not refused")),
            Poll::Pending => None,
        }
    }

    fn waiting<'a>(queue: &'a Arc<SlotQueue>, number: u128, count: usize) -> Vec<Request<'a>> {
        let mut all: Vec<_> = (0..count).map(|_| request(queue, number)).collect();
        assert!(all.iter_mut().all(|request| poll(request).is_pending()));
        all
    }

    #[test]
    fn t219_a_caller_with_one_request_waits_for_one_of_each_other_caller() {
        let queue = SlotQueue::new(1, usize::MAX);
        let first = given(&mut request(&queue, 1));
        let mut flood = waiting(&queue, 1, 14);
        let mut neighbour = waiting(&queue, 2, 1);
        drop(first);
        let slot = given(&mut flood[0]).expect("it came first");
        assert!(given(&mut neighbour[0]).is_none(), "one slot exists");
        drop(slot);
        let slot = given(&mut neighbour[0]).expect("it is the neighbour's turn");
        drop(slot);
        assert!(given(&mut flood[1]).is_some());
    }

    #[test]
    fn t219_a_full_queue_refuses_the_newest_request_of_the_caller_with_the_most() {
        let queue = SlotQueue::new(1, 4);
        let first = given(&mut request(&queue, 1));
        let mut flood = waiting(&queue, 1, 4);
        assert!(
            matches!(poll(&mut request(&queue, 1)), Poll::Ready(None)),
            "its own gives not way"
        );
        let mut neighbours = waiting(&queue, 2, 2);
        assert_eq!(queue.waiting(), 4);
        assert!(matches!(poll(&mut request(&queue, 2)), Poll::Ready(None)), "two each");
        let is_refused = flood.iter_mut().map(|it| matches!(poll(it), Poll::Ready(None)));
        assert_eq!(is_refused.collect::<Vec<_>>(), [false, false, true, true]);
        drop(first);
        drop(given(&mut flood[0]).expect("it still waits"));
        drop(given(&mut neighbours[0]).expect("and so does the neighbour"));
    }

    #[test]
    fn a_request_that_gave_way_and_is_dropped_unread_passes_no_slot_on() {
        let queue = SlotQueue::new(1, 2);
        let first = given(&mut request(&queue, 1));
        let mut flood = waiting(&queue, 1, 2);
        let neighbour = waiting(&queue, 2, 1);
        drop(flood.pop());
        assert_eq!((queue.in_use(), queue.waiting()), (1, 2));
        drop((flood, neighbour, first));
        assert_eq!((queue.in_use(), queue.waiting()), (0, 0));
    }

    #[test]
    fn a_slot_given_to_a_request_that_is_dropped_unread_is_passed_on() {
        let queue = SlotQueue::new(1, usize::MAX);
        let first = given(&mut request(&queue, 1));
        let gone = waiting(&queue, 2, 1);
        let mut stays = waiting(&queue, 3, 1);
        drop(first);
        assert!(given(&mut stays[0]).is_none(), "it is given to the one before");
        drop(gone);
        drop(given(&mut stays[0]).expect("the slot was passed on"));
        assert_eq!(queue.in_use(), 0);
    }

    /// A slot that is passed from one to the next by recursion overflows the stack here, which ends
    /// the whole server.
    #[test]
    fn t201_a_hundred_thousand_cancelled_requests_leave_nothing_and_end_no_thread() {
        const CANCELLED: usize = 100_000;
        let stack = std::thread::Builder::new().stack_size(256 * 1024);
        let thread = stack.spawn(|| {
            let queue = SlotQueue::new(1, usize::MAX);
            let first = given(&mut request(&queue, 1)).expect("nothing else waits");
            for _ in 0..CANCELLED {
                assert!(poll(&mut request(&queue, 1)).is_pending());
            }
            assert_eq!(queue.waiting(), 0, "a request that is given up leaves the queue");
            let all = waiting(&queue, 1, CANCELLED);
            drop(first);
            all.into_iter().for_each(drop);
            assert_eq!((queue.in_use(), queue.waiting()), (0, 0));
        });
        thread.unwrap().join().unwrap();
    }

    #[test]
    fn as_many_slots_are_in_use_as_there_are_and_no_more() {
        let queue = SlotQueue::new(2, usize::MAX);
        let slots = [1, 2].map(|caller| given(&mut request(&queue, caller)).expect("free"));
        let mut third = waiting(&queue, 3, 1);
        let mut idle: Pin<Box<dyn Future<Output = ()>>> = Box::pin(queue.wait_until_idle());
        let mut is_idle = || idle.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert!(!is_idle());
        let [one, two] = slots;
        drop(one);
        let last = given(&mut third[0]).expect("one is free");
        drop(two);
        assert!(!is_idle(), "the third is still in use");
        drop(last);
        assert!(is_idle());
    }
}
