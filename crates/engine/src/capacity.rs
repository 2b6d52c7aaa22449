//! How many sandboxes there may be. A request that finds no room waits in a short queue, first come
//! first served; one that finds the queue full is told so at once.

use crate::config::Config;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;
use types::{Code, Fault};

#[derive(Debug)]
pub(crate) struct Capacity {
    /// Fair: whoever waits is served before whoever comes.
    room: Arc<Semaphore>,
    most: u32,
    queue_max: usize,
    queue_wait: Duration,
    waiting: AtomicUsize,
    stopping: watch::Sender<bool>,
}

/// How full an engine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    pub in_use: u32,
    pub most: u32,
    /// Requests in the queue.
    pub waiting: usize,
}

/// Room for one sandbox, given back when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    _permit: OwnedSemaphorePermit,
}

/// A place in the queue.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Capacity {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            room: Arc::new(Semaphore::new(config.sandboxes_max as usize)),
            most: config.sandboxes_max,
            queue_max: config.queue_max,
            queue_wait: config.queue_wait,
            waiting: AtomicUsize::new(0),
            stopping: watch::Sender::new(false),
        }
    }

    pub(crate) async fn take(&self) -> Result<Slot, Fault> {
        self.check_open()?;
        let room = || Arc::clone(&self.room);
        if let Ok(permit) = room().try_acquire_owned() {
            return Ok(Slot { _permit: permit });
        }
        let _waiting = self.queue()?;
        let mut stopping = self.stopping.subscribe();
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => Err(Self::closed()),
            waited = timeout(self.queue_wait, room().acquire_owned()) => match waited {
                Ok(Ok(permit)) => Ok(Slot { _permit: permit }),
                Ok(Err(_)) | Err(_) => Err(self.exhausted()),
            },
        }
    }

    fn queue(&self) -> Result<Waiting<'_>, Fault> {
        let one_more = |waiting| (waiting < self.queue_max).then_some(waiting + 1);
        match self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more) {
            Ok(_) => Ok(Waiting(&self.waiting)),
            Err(_) => Err(self.exhausted()),
        }
    }

    fn exhausted(&self) -> Fault {
        let message = format!("all {} sandboxes are in use", self.most);
        Fault::new(Code::CapacityExhausted, message)
            .hint("close a session that is no longer needed, or try again in a moment")
    }

    fn closed() -> Fault {
        Fault::new(Code::CapacityExhausted, "the server is stopping, and takes nothing new")
            .hint("try again when it has been started anew")
    }

    pub(crate) fn load(&self) -> Load {
        let free = u32::try_from(self.room.available_permits()).unwrap_or(u32::MAX);
        Load {
            in_use: self.most.saturating_sub(free),
            most: self.most,
            waiting: self.waiting.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn check_open(&self) -> Result<(), Fault> {
        if *self.stopping.borrow() { Err(Self::closed()) } else { Ok(()) }
    }

    /// From now on nothing is let in.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Returns when every sandbox has given its room back.
    pub(crate) async fn emptied(&self) {
        // An error would say that nobody can have any.
        let _ = self.room.acquire_many(self.most).await;
    }
}
