//! Decides whether the wall clock can be trusted before expired records are deleted.
//!
//! The wall clock can jump: set by hand, by a bad battery clock at boot, or by a wrong time server.
//! Records that are deleted because of a wrong time are lost. So a round whose wall clock disagrees
//! with the monotonic clock deletes nothing, until the new time has held for [`CONFIRMATION`].

use chrono::{DateTime, TimeDelta, Utc};
use std::time::{Duration, Instant};

/// The allowed difference between two rounds: slewing, leap seconds, a restart of the server. It is
/// negligible compared with every retention.
const TOLERANCE: TimeDelta = TimeDelta::minutes(5);
/// How long a new time must hold before it is trusted: long enough for a time server to correct
/// it, and shorter than a working day, after which many machines are switched off.
const CONFIRMATION: Duration = Duration::from_secs(6 * 60 * 60);

/// Both clocks of the machine at one moment.
#[derive(Debug, Clone, Copy)]
pub struct ClockReading {
    pub wall: DateTime<Utc>,
    pub monotonic: Instant,
}

impl ClockReading {
    /// Whether the wall clock has advanced as far as the monotonic one since `earlier`.
    fn agrees_with(self, earlier: Self) -> bool {
        let elapsed = self.monotonic.saturating_duration_since(earlier.monotonic);
        let expected = TimeDelta::from_std(elapsed)
            .ok()
            .and_then(|elapsed| earlier.wall.checked_add_signed(elapsed));
        expected.is_some_and(|expected| is_near(self.wall, expected))
    }
}

fn is_near(one: DateTime<Utc>, other: DateTime<Utc>) -> bool {
    one.signed_duration_since(other).abs() <= TOLERANCE
}

/// The readings of this process that a decision needs.
#[derive(Debug, Default)]
pub(crate) struct TrustedClock {
    /// The last trusted reading.
    trusted: Option<ClockReading>,
    /// The first reading of a new time that is not trusted yet.
    unconfirmed: Option<ClockReading>,
}

impl TrustedClock {
    /// Whether this reading can be trusted. `last_trusted` is the last trusted wall time of an
    /// earlier process; a database without one has deleted nothing yet.
    pub(crate) fn confirm(
        &mut self,
        now: ClockReading,
        last_trusted: Option<DateTime<Utc>>,
    ) -> bool {
        let is_consistent = match self.trusted {
            Some(trusted) => now.agrees_with(trusted),
            None => last_trusted.is_none_or(|last_trusted| is_near(now.wall, last_trusted)),
        };
        let is_confirmed = self.unconfirmed.is_some_and(|first| {
            now.agrees_with(first)
                && now.monotonic.saturating_duration_since(first.monotonic) >= CONFIRMATION
        });
        if is_consistent || is_confirmed {
            (self.trusted, self.unconfirmed) = (Some(now), None);
            return true;
        }
        if !self.unconfirmed.is_some_and(|first| now.agrees_with(first)) {
            self.unconfirmed = Some(now);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TestClock {
        began: Instant,
        wall: DateTime<Utc>,
    }

    impl TestClock {
        /// Seconds since the clock began, and how far its wall clock is ahead.
        fn at(&self, seconds: u64, ahead: TimeDelta) -> ClockReading {
            let passed = Duration::from_secs(seconds);
            ClockReading {
                wall: self.wall + TimeDelta::from_std(passed).unwrap() + ahead,
                monotonic: self.began + passed,
            }
        }
    }

    fn machine() -> TestClock {
        TestClock {
            began: Instant::now(),
            wall: DateTime::from_timestamp(1_800_000_000, 0).unwrap(),
        }
    }

    const RIGHT: TimeDelta = TimeDelta::zero();
    const AHEAD: TimeDelta = TimeDelta::days(40);

    #[test]
    fn a_clock_that_is_ahead_for_a_while_is_not_believed_and_then_is_again_at_once() {
        let (machine, mut clock) = (machine(), TrustedClock::default());
        assert!(clock.confirm(machine.at(0, RIGHT), None));
        assert!(clock.confirm(machine.at(30, RIGHT), None));
        for seconds in [60, 90, 5 * 60 * 60] {
            assert!(!clock.confirm(machine.at(seconds, AHEAD), None), "{seconds}");
        }
        assert!(clock.confirm(machine.at(5 * 60 * 60 + 30, RIGHT), None));
        assert!(!clock.confirm(machine.at(6 * 60 * 60, -AHEAD), None), "behind is wrong as well");
    }

    #[test]
    fn a_new_time_that_holds_is_believed_in_the_end() {
        let (machine, mut clock) = (machine(), TrustedClock::default());
        assert!(clock.confirm(machine.at(0, RIGHT), None));
        assert!(!clock.confirm(machine.at(30, AHEAD), None));
        let confirmed = 30 + CONFIRMATION.as_secs();
        assert!(!clock.confirm(machine.at(confirmed - 1, AHEAD), None));
        assert!(clock.confirm(machine.at(confirmed, AHEAD), None));
        // Another jump restarts the wait.
        assert!(!clock.confirm(machine.at(confirmed + 30, AHEAD * 2), None));
    }

    #[test]
    fn a_start_compares_with_the_time_that_was_kept() {
        let machine = machine();
        let kept = Some(machine.wall);
        assert!(TrustedClock::default().confirm(machine.at(60, RIGHT), kept));
        let mut ahead = TrustedClock::default();
        assert!(!ahead.confirm(machine.at(60, AHEAD), kept));
        assert!(!ahead.confirm(machine.at(90, AHEAD), kept));
        assert!(ahead.confirm(machine.at(120, RIGHT), kept));
        assert!(TrustedClock::default().confirm(machine.at(60, AHEAD), None), "nothing was kept");
    }

    #[test]
    fn a_new_time_that_keeps_changing_is_never_believed() {
        let (machine, mut clock) = (machine(), TrustedClock::default());
        assert!(clock.confirm(machine.at(0, RIGHT), None));
        for hour in 1..48 {
            let jumping = AHEAD + TimeDelta::hours(i64::try_from(hour).unwrap() % 2);
            assert!(!clock.confirm(machine.at(hour * 60 * 60, jumping), None), "{hour}");
        }
    }
}
