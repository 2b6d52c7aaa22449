//! Limits the number of sandboxes. A request that finds no capacity waits in a short queue, first
//! come first served; if the queue is full, it is refused at once.

use crate::config::Config;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;
use types::{Error, ErrorCode};

#[derive(Debug)]
pub(crate) struct Capacity {
    /// Fair: waiting requests are served before new ones.
    permits: Arc<Semaphore>,
    max: u32,
    queue_max: usize,
    queue_wait: Duration,
    waiting: AtomicUsize,
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
    _permit: OwnedSemaphorePermit,
}

/// A place in the queue.
struct QueueGuard<'a>(&'a AtomicUsize);

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Capacity {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(config.sandboxes_max as usize)),
            max: config.sandboxes_max,
            queue_max: config.queue_max,
            queue_wait: config.queue_wait,
            waiting: AtomicUsize::new(0),
            stopping: watch::Sender::new(false),
        }
    }

    pub(crate) async fn acquire(&self) -> Result<CapacityPermit, Error> {
        self.check_open()?;
        let room = || Arc::clone(&self.permits);
        if let Ok(permit) = room().try_acquire_owned() {
            return Ok(CapacityPermit { _permit: permit });
        }
        let _waiting = self.queue()?;
        let mut stopping = self.stopping.subscribe();
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => Err(Self::stopping_error()),
            waited = timeout(self.queue_wait, room().acquire_owned()) => match waited {
                Ok(Ok(permit)) => Ok(CapacityPermit { _permit: permit }),
                Ok(Err(_)) | Err(_) => Err(self.exhausted_error()),
            },
        }
    }

    fn queue(&self) -> Result<QueueGuard<'_>, Error> {
        let one_more = |waiting| (waiting < self.queue_max).then_some(waiting + 1);
        match self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more) {
            Ok(_) => Ok(QueueGuard(&self.waiting)),
            Err(_) => Err(self.exhausted_error()),
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
        let free = u32::try_from(self.permits.available_permits()).unwrap_or(u32::MAX);
        EngineLoad {
            in_use: self.max.saturating_sub(free),
            max: self.max,
            waiting: self.waiting.load(Ordering::Relaxed),
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
        // An error means that the semaphore is closed and has no permits to give.
        let _ = self.permits.acquire_many(self.max).await;
    }
}
