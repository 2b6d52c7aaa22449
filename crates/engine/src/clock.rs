//! The clock of an engine or a service. Every expiry in them uses it; nothing there reads the time
//! elsewhere.
//!
//! A server uses the clock of the machine. A program that embeds an engine or a service may pass a
//! manual clock, which moves only when it is advanced; then sessions, keys, approvals and records
//! expire without any real waiting.

use chrono::{DateTime, Utc};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::watch;

#[derive(Debug, Clone, Default)]
pub struct Clock(Source);

#[derive(Debug, Clone, Default)]
enum Source {
    #[default]
    System,
    Manual(Arc<watch::Sender<ManualTime>>),
}

#[derive(Debug, Clone, Copy)]
struct ManualTime {
    wall: DateTime<Utc>,
    monotonic: Instant,
}

impl Clock {
    /// The clock of the machine.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A manual clock. It starts at the current time and moves only by [`Clock::advance`].
    pub fn manual() -> Self {
        let now = ManualTime { wall: Utc::now(), monotonic: Instant::now() };
        Self(Source::Manual(Arc::new(watch::Sender::new(now))))
    }

    /// Advances a manual clock and wakes all tasks that sleep until a time that has passed. It has
    /// no effect on the clock of the machine.
    pub fn advance(&self, time: Duration) {
        if let Source::Manual(now) = &self.0 {
            now.send_modify(|now| {
                now.wall += time;
                now.monotonic += time;
            });
        }
    }

    /// The time of day, as shown in records.
    pub fn now(&self) -> DateTime<Utc> {
        match &self.0 {
            Source::System => Utc::now(),
            Source::Manual(now) => now.borrow().wall,
        }
    }

    /// The time that files have. The kernel and other processes set it, so it is that of the
    /// machine with a manual clock too.
    pub fn file_time(&self) -> SystemTime {
        SystemTime::now()
    }

    /// The monotonic time, for durations.
    pub fn instant(&self) -> Instant {
        match &self.0 {
            Source::System => Instant::now(),
            Source::Manual(now) => now.borrow().monotonic,
        }
    }

    pub async fn sleep(&self, time: Duration) {
        match &self.0 {
            Source::System => tokio::time::sleep(time).await,
            Source::Manual(now) => {
                let (until, mut changes) = (self.instant() + time, now.subscribe());
                // Fails only if the sender is gone, which `self` holds.
                let _ = changes.wait_for(|now| now.monotonic >= until).await;
            }
        }
    }
}
