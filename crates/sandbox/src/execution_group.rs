//! What the executions of one caller share, however many the caller has at once: one share of the CPU,
//! and one rate at which their output is read.
//!
//! Reading output costs the server more than writing it costs the sandbox: it is decoded, redacted,
//! stored and sent. A caller that writes without a pause is read more slowly, so that its sandboxes
//! wait for the supervisor and not the sandboxes of others.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::sleep;

const MIB: u64 = 1024 * 1024;

/// An execution that has used much CPU time has this fraction of the share of a short one.
pub(crate) const LONG_SHARE: u32 = 10;
/// Output that is read without a pause: many times the default limit of one execution.
const OUTPUT_BURST_BYTES: u64 = 32 * MIB;
/// Output that is read per second after that. All steps of a mebibyte, up to the client, take about
/// 10 ms of a core.
const OUTPUT_BYTES_PER_SECOND: u64 = 32 * MIB;
/// Output beyond its limit is read and dropped, which costs this fraction of keeping it.
const DROPPED_COST: u64 = 4;
/// Longest pause. What is read beyond it is forgotten: executions of a caller that is over its rate
/// wait, and must not wait for what others of the same caller have printed long ago.
const PAUSE_MAX: Duration = Duration::from_secs(1);
const OUTPUT_BYTES_MAX: u64 = OUTPUT_BURST_BYTES + OUTPUT_BYTES_PER_SECOND * PAUSE_MAX.as_secs();

/// Whether an execution has used much CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunDuration {
    Short,
    Long,
}

/// The executions of one caller.
#[derive(Debug, Clone, Default)]
pub struct ExecutionGroup(Arc<GroupState>);

#[derive(Debug, Default)]
struct GroupState {
    executions: AtomicU32,
    output: Mutex<OutputRate>,
}

/// The bytes that were read lately.
#[derive(Debug)]
struct OutputRate {
    bytes: u64,
    /// When they were counted.
    at: Instant,
}

impl Default for OutputRate {
    fn default() -> Self {
        Self { bytes: 0, at: Instant::now() }
    }
}

impl ExecutionGroup {
    /// Adds one execution; returns how many there are now.
    pub fn join(&self) -> u32 {
        self.0.executions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Removes one execution; returns how many are left.
    pub fn leave(&self) -> u32 {
        self.0.executions.fetch_sub(1, Ordering::Relaxed) - 1
    }

    pub fn executions(&self) -> u32 {
        self.0.executions.load(Ordering::Relaxed)
    }

    /// Whether nothing is left to remember of it.
    pub fn is_idle(&self) -> bool {
        self.executions() == 0 && self.output_rate().is_unused(Instant::now())
    }

    /// Waits until output may be read, so that many short executions are held to the rate as well.
    pub async fn wait_for_output_rate(&self) {
        let pause = self.charge_output(0, 0);
        if !pause.is_zero() {
            sleep(pause).await;
        }
    }

    /// Counts output that was read. Returns how long its reader must pause now.
    pub(crate) fn charge_output(&self, kept: u64, dropped: u64) -> Duration {
        self.output_rate().charge(kept + dropped / DROPPED_COST, Instant::now())
    }

    fn output_rate(&self) -> MutexGuard<'_, OutputRate> {
        self.0.output.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutputRate {
    fn charge(&mut self, bytes: u64, now: Instant) -> Duration {
        let bytes = self.bytes_at(now).saturating_add(bytes).min(OUTPUT_BYTES_MAX);
        *self = Self { bytes, at: now };
        let over = bytes.saturating_sub(OUTPUT_BURST_BYTES);
        Duration::from_secs_f64(over as f64 / OUTPUT_BYTES_PER_SECOND as f64)
    }

    fn is_unused(&self, now: Instant) -> bool {
        self.bytes_at(now) == 0
    }

    /// The bytes that still count.
    fn bytes_at(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.at).as_micros();
        let forgotten = elapsed.saturating_mul(u128::from(OUTPUT_BYTES_PER_SECOND)) / 1_000_000;
        self.bytes.saturating_sub(u64::try_from(forgotten).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t220_output_of_one_caller_is_read_at_once_and_then_at_a_rate() {
        let start = Instant::now();
        let mut rate = OutputRate { bytes: 0, at: start };
        for _ in 0..32 {
            assert_eq!(rate.charge(MIB, start), Duration::ZERO, "the default limit of 32 runs");
        }
        let second = Duration::from_secs(1);
        assert_eq!(rate.charge(32 * MIB, start), second);
        assert_eq!(rate.charge(0, start + second), Duration::ZERO, "the pause was long enough");
        assert_eq!(rate.charge(16 * MIB, start + second), second / 2);
        assert_eq!(rate.charge(1_000 * MIB, start + second), PAUSE_MAX, "no pause is longer");
        assert_eq!(rate.charge(0, start + second + PAUSE_MAX), Duration::ZERO);
        // Twin: a caller that has paused is read at once again.
        assert_eq!(rate.charge(32 * MIB, start + 10 * second), Duration::ZERO);
    }

    #[test]
    fn t220_executions_of_one_caller_share_the_rate_and_those_of_another_do_not() {
        let (flood, neighbour) = (ExecutionGroup::default(), ExecutionGroup::default());
        let executions: Vec<_> = (0..14).map(|_| flood.clone()).collect();
        let pauses: Vec<_> = executions.iter().map(|it| it.charge_output(4 * MIB, 0)).collect();
        assert!(pauses.last().is_some_and(|pause| *pause > Duration::from_millis(500)));
        assert_eq!(neighbour.charge_output(MIB, 0), Duration::ZERO);
    }

    #[test]
    fn t227_what_a_caller_has_printed_is_remembered_after_its_last_execution_and_not_for_ever() {
        let start = Instant::now();
        let group = ExecutionGroup::default();
        group.join();
        assert!(!group.is_idle());
        group.charge_output(64 * MIB, 0);
        group.leave();
        assert!(!group.is_idle(), "its next execution is held to the rate");
        assert!(group.output_rate().is_unused(start + Duration::from_secs(60)));
        assert!(ExecutionGroup::default().is_idle());
    }

    #[test]
    fn t220_dropped_output_costs_less() {
        let (kept, dropped) = (ExecutionGroup::default(), ExecutionGroup::default());
        assert!(kept.charge_output(64 * MIB, 0) > Duration::from_millis(900));
        assert_eq!(dropped.charge_output(0, 64 * MIB), Duration::ZERO);
    }
}
