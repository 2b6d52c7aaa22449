//! How many sandboxes there may be. A request that finds no room is told so at once.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use types::{Code, Fault};

#[derive(Debug)]
pub(crate) struct Capacity {
    room: Arc<Semaphore>,
    most: usize,
}

/// Room for one sandbox, given back when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    _permit: OwnedSemaphorePermit,
}

impl Capacity {
    pub(crate) fn new(most: usize) -> Self {
        Self { room: Arc::new(Semaphore::new(most)), most }
    }

    pub(crate) fn take(&self) -> Result<Slot, Fault> {
        match Arc::clone(&self.room).try_acquire_owned() {
            Ok(permit) => Ok(Slot { _permit: permit }),
            Err(_) => Err(Fault::new(
                Code::CapacityExhausted,
                format!("all {} sandboxes are in use", self.most),
            )
            .hint("close a session that is no longer needed, or try again in a moment")),
        }
    }
}
