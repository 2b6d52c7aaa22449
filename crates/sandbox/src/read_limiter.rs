//! Backpressure on the control channel: the supervisor reads as much as an honest program sends at full
//! speed, then slowly, then ends the sandbox.
//!
//! Reading costs the server more than writing costs the sandbox. A sandbox that floods its channel is
//! read slowly, so that it waits for the supervisor, and its own time limit ends it.

use crate::channel::ProtocolError;
use std::time::{Duration, Instant};
use tokio::time::sleep;

const MIB: u64 = 1024 * 1024;

/// Cost of a message besides its bytes: a small one costs time and not memory. An honest run sends at
/// most 512 results, 1,000 refusals and 17 other messages.
pub(crate) const MESSAGE_COST_BYTES: u64 = 16 * 1024;
/// Bytes that are read without delay: all that an honest run can send (32 MiB of results, a value, and
/// the cost of its messages).
pub(crate) const BURST_BYTES: u64 = 64 * MIB;
/// Bytes that are read per second after that: less than a hundredth of a core.
pub(crate) const SLOW_BYTES_PER_SECOND: u64 = 8 * MIB;
/// Maximum bytes that are read in one run, and between two runs. No known program sends more.
pub(crate) const TOTAL_BYTES_MAX: u64 = 96 * MIB;

/// The bytes that were read in one run, or between two runs.
#[derive(Debug)]
pub(crate) struct ReadLimiter {
    since: Instant,
    spent: u64,
}

impl Default for ReadLimiter {
    fn default() -> Self {
        Self { since: Instant::now(), spent: 0 }
    }
}

impl ReadLimiter {
    /// Counts a message of so many bytes; an error if the total exceeds [`TOTAL_BYTES_MAX`].
    pub(crate) fn charge(&mut self, bytes: usize) -> Result<(), ProtocolError> {
        self.spent = self.spent.saturating_add(MESSAGE_COST_BYTES).saturating_add(bytes as u64);
        if self.spent > TOTAL_BYTES_MAX { Err(ProtocolError::TooManyBytes) } else { Ok(()) }
    }

    /// Waits until the next message may be read.
    pub(crate) async fn ready(&self) {
        let wait = self.delay_after(self.since.elapsed());
        if !wait.is_zero() {
            sleep(wait).await;
        }
    }

    /// The time to wait before the next message, `elapsed` after the start.
    fn delay_after(&self, elapsed: Duration) -> Duration {
        let over = self.spent.saturating_sub(BURST_BYTES);
        let due = Duration::from_secs_f64(over as f64 / SLOW_BYTES_PER_SECOND as f64);
        due.saturating_sub(elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_honest_run_does_not_wait_and_a_flood_waits_longer_and_longer() {
        let mut limiter = ReadLimiter::default();
        let results = 32 * 1024 * 1024 / 512;
        (0..512).for_each(|_| limiter.charge(results).unwrap());
        (0..1_000).for_each(|_| limiter.charge(100).unwrap());
        assert_eq!(limiter.delay_after(Duration::ZERO), Duration::ZERO);
        let mut waits = vec![Duration::ZERO];
        while limiter.charge(40).is_ok() {
            waits.push(limiter.delay_after(Duration::ZERO));
        }
        assert!(waits.is_sorted(), "{waits:?}");
        let last = *waits.last().unwrap();
        assert!(last > Duration::from_secs(3), "a flood of 2 s does not come to the end: {last:?}");
        assert_eq!(limiter.delay_after(last + Duration::from_secs(1)), Duration::ZERO);
    }

    #[test]
    fn a_few_large_messages_are_too_much_as_well_as_many_small_ones() {
        let until_refused = |bytes: usize| {
            let mut limiter = ReadLimiter::default();
            (0..).find(|_| limiter.charge(bytes).is_err()).unwrap()
        };
        assert_eq!(until_refused(8 * 1024 * 1024), 11);
        assert_eq!(until_refused(0), 96 * 64);
    }
}
