//! The time slice of one sandbox: how long the supervisor works for it before other tasks run.

use std::time::{Duration, Instant};
use tokio::task::yield_now;

/// Work for one sandbox without a pause. Other tasks wait for at most this long, times the number of
/// sandboxes that send without a pause.
const SLICE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct TimeSlice {
    started: Instant,
}

impl TimeSlice {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now() }
    }

    /// Lets the runtime run other tasks, and its timers, if the slice is used up.
    pub(crate) async fn yield_if_used(&mut self) {
        if self.started.elapsed() >= SLICE {
            yield_now().await;
            self.started = Instant::now();
        }
    }
}
