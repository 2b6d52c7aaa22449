//! Limits the number of sandboxes. A request that finds no capacity waits in a short queue, in which
//! callers take turns. If the queue is full, the caller with the most requests in it gives way.

use crate::config::Config;
use crate::slot_queue::{Caller, Slot, SlotQueue};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;
use types::{Error, ErrorCode};

#[derive(Debug)]
pub(crate) struct Capacity {
    slots: Arc<SlotQueue>,
    max: u32,
    queue_wait: Duration,
    stopping: watch::Sender<bool>,
}

/// How full an engine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineLoad {
    pub in_use: u32,
    pub max: u32,
    /// Requests in the queue.
    pub waiting: usize,
}

/// Capacity for one sandbox. Dropping it releases the capacity.
#[derive(Debug)]
pub(crate) struct CapacityPermit {
    _slot: Slot,
}

impl Capacity {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            slots: SlotQueue::new(config.sandboxes_max as usize, config.queue_max),
            max: config.sandboxes_max,
            queue_wait: config.queue_wait,
            stopping: watch::Sender::new(false),
        }
    }

    pub(crate) async fn acquire(&self, caller: Caller) -> Result<CapacityPermit, Error> {
        self.check_open()?;
        let mut stopping = self.stopping.subscribe();
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => Err(Self::stopping_error()),
            waited = timeout(self.queue_wait, self.slots.acquire(caller)) => match waited {
                Ok(Some(slot)) => Ok(CapacityPermit { _slot: slot }),
                Ok(None) | Err(_) => Err(self.exhausted_error()),
            },
        }
    }

    fn exhausted_error(&self) -> Error {
        let message = format!("all {} sandboxes are in use", self.max);
        Error::new(ErrorCode::CapacityExhausted, message)
            .hint("close a session that is no longer needed, or try again in a moment")
    }

    fn stopping_error() -> Error {
        Error::new(
            ErrorCode::CapacityExhausted,
            "the server is stopping and accepts no new requests",
        )
        .hint("try again after the server has restarted")
    }

    pub(crate) fn load(&self) -> EngineLoad {
        EngineLoad {
            in_use: u32::try_from(self.slots.in_use()).unwrap_or(self.max),
            max: self.max,
            waiting: self.slots.waiting(),
        }
    }

    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if *self.stopping.borrow() { Err(Self::stopping_error()) } else { Ok(()) }
    }

    /// Refuses all requests from now on.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Waits until every sandbox has released its capacity.
    pub(crate) async fn wait_until_empty(&self) {
        self.slots.wait_until_idle().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};
    use types::PrincipalId;
    use uuid::Uuid;

    type Request<'a> = Pin<Box<dyn Future<Output = Result<CapacityPermit, Error>> + 'a>>;

    fn capacity(queue_max: usize) -> Capacity {
        let config = Config::for_server("data".into(), "belljar".into());
        Capacity::new(&Config { sandboxes_max: 1, queue_max, ..config })
    }

    fn request(capacity: &Capacity, number: u128) -> Request<'_> {
        Box::pin(capacity.acquire(Some(PrincipalId::new(Uuid::from_u128(number)))))
    }

    fn answer(request: &mut Request<'_>) -> Option<Result<CapacityPermit, ErrorCode>> {
        match request.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Some(answer.map_err(|error| error.code)),
            Poll::Pending => None,
        }
    }

    fn is_exhausted(request: &mut Request<'_>) -> bool {
        matches!(answer(request), Some(Err(ErrorCode::CapacityExhausted)))
    }

    fn waiting<'a>(capacity: &'a Capacity, number: u128, count: usize) -> Vec<Request<'a>> {
        let mut all: Vec<_> = (0..count).map(|_| request(capacity, number)).collect();
        assert!(all.iter_mut().all(|request| answer(request).is_none()));
        all
    }

    #[tokio::test]
    async fn t219_callers_that_wait_for_a_sandbox_take_turns() {
        let capacity = capacity(16);
        let running = answer(&mut request(&capacity, 1));
        let mut flood = waiting(&capacity, 1, 10);
        let mut neighbour = waiting(&capacity, 2, 1);
        drop(running);
        let next = answer(&mut flood[0]);
        assert!(matches!(next, Some(Ok(_))), "it came first");
        drop(next);
        let next = answer(&mut neighbour[0]);
        assert!(matches!(next, Some(Ok(_))), "then the neighbour");
        let load = EngineLoad { in_use: 1, max: 1, waiting: 9 };
        assert_eq!(capacity.load(), load, "the released sandbox went to the next");
    }

    #[tokio::test]
    async fn t219_one_caller_does_not_fill_the_queue() {
        let capacity = capacity(4);
        let _running = answer(&mut request(&capacity, 1));
        let mut flood = waiting(&capacity, 1, 4);
        assert!(is_exhausted(&mut request(&capacity, 1)), "its own fifth");
        let mut neighbour = waiting(&capacity, 2, 1);
        assert!(is_exhausted(&mut flood[3]), "the newest of the flood gave way");
        assert!(answer(&mut flood[2]).is_none() && answer(&mut neighbour[0]).is_none());
        assert_eq!(capacity.load().waiting, 4);
        capacity.stop();
        assert!(is_exhausted(&mut neighbour[0]), "a stop refuses those that wait");
    }
}
