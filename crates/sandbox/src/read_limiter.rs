//! How much of a sandbox's messages the supervisor reads: quickly as much as an honest program sends,
//! then slowly, then no more.
//!
//! Reading costs the server more than writing costs the sandbox. A sandbox that floods its channel is
//! read slowly, so that it waits for us and not we for it, and its own clock ends it.

use crate::channel::ProtocolError;
use std::time::{Duration, Instant};
use tokio::time::sleep;

const MIB: u64 = 1024 * 1024;

/// Cost of a message besides its bytes: a small one costs time and not memory. An honest run sends at
/// most 512 results, 1,000 refusals and 17 other messages.
pub(crate) const MESSAGE_COST_BYTES: u64 = 16 * 1024;
/// Read without delay: all that an honest run can send (32 MiB of results, a value, and the cost of
/// its messages).
pub(crate) const BURST_BYTES: u64 = 64 * MIB;
/// Read in a second after that: less than a hundredth of a core.
pub(crate) const SLOW_BYTES_PER_SECOND: u64 = 8 * MIB;
/// Read in one run, and between two: more than that is no program that we know.
pub(crate) const TOTAL_BYTES_MAX: u64 = 96 * MIB;

/// The account of one run, or of the time between two.
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
    /// Notes a message of so many bytes; an error if it is one too many.
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

    /// The time to wait so long after the beginning.
    fn delay_after(&self, elapsed: Duration) -> Duration {
        let over = self.spent.saturating_sub(BURST_BYTES);
        let paid = Duration::from_secs_f64(over as f64 / SLOW_BYTES_PER_SECOND as f64);
        paid.saturating_sub(elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_honest_run_does_not_wait_and_a_flood_waits_longer_and_longer() {
        let mut allowance = ReadLimiter::default();
        let results = 32 * 1024 * 1024 / 512;
        (0..512).for_each(|_| allowance.charge(results).unwrap());
        (0..1_000).for_each(|_| allowance.charge(100).unwrap());
        assert_eq!(allowance.delay_after(Duration::ZERO), Duration::ZERO);
        let mut waits = vec![Duration::ZERO];
        while allowance.charge(40).is_ok() {
            waits.push(allowance.delay_after(Duration::ZERO));
        }
        assert!(waits.is_sorted(), "{waits:?}");
        let last = *waits.last().unwrap();
        assert!(last > Duration::from_secs(3), "a flood of 2 s does not come to the end: {last:?}");
        assert_eq!(allowance.delay_after(last + Duration::from_secs(1)), Duration::ZERO);
    }

    #[test]
    fn a_few_large_messages_are_too_much_as_well_as_many_small_ones() {
        let until_refused = |bytes: usize| {
            let mut allowance = ReadLimiter::default();
            (0..).find(|_| allowance.charge(bytes).is_err()).unwrap()
        };
        assert_eq!(until_refused(8 * 1024 * 1024), 11);
        assert_eq!(until_refused(0), 96 * 64);
    }
}
