//! How long a reading of a sandbox's processes may take before the sandbox counts as one that cannot be
//! measured.
//!
//! Only time counts that the sandbox can be the cause of: while the reading thread runs, and while it
//! waits for locks. While it is ready to run and other work of the machine has the cores, the sandbox
//! may be innocent.

use rustix::thread::{Pid, gettid};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A sandbox with as many busy processes as it may have takes a second.
const READING_MAX: Duration = Duration::from_secs(10);
/// With the time that the reading thread waits for a core. A machine that is busier than that holds no
/// limit, and sandboxes end before others are harmed.
const READING_WITH_WAITS_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub(super) struct ReadingClock {
    asked: Instant,
    thread: Arc<OnceLock<ReadingThread>>,
}

#[derive(Debug)]
struct ReadingThread {
    id: Pid,
    began: Instant,
    /// How long it had waited for a core before.
    waited_before: Duration,
}

impl ReadingClock {
    pub(super) fn new() -> Self {
        Self { asked: Instant::now(), thread: Arc::default() }
    }

    /// The same work, timed from the moment that a thread begins with it.
    pub(super) fn timed<T, W: FnOnce() -> T>(&self, work: W) -> impl FnOnce() -> T + use<T, W> {
        let thread = Arc::clone(&self.thread);
        move || {
            let id = gettid();
            let waited_before = time_waited(id);
            thread.get_or_init(|| ReadingThread { id, began: Instant::now(), waited_before });
            work()
        }
    }

    /// Whether a reading that has not come to its end takes too long.
    pub(super) fn is_overdue(&self) -> bool {
        if self.asked.elapsed() <= READING_MAX {
            return false;
        }
        // One that no thread has begun with waits for us.
        let counted = self.thread.get().map_or(Duration::ZERO, |thread| {
            let waited = time_waited(thread.id).saturating_sub(thread.waited_before);
            thread.began.elapsed().saturating_sub(waited)
        });
        takes_too_long(self.asked.elapsed(), counted)
    }
}

fn takes_too_long(elapsed: Duration, counted: Duration) -> bool {
    counted > READING_MAX || elapsed > READING_WITH_WAITS_MAX
}

/// How long a thread of this process has waited for a core; nothing where Linux does not say.
fn time_waited(thread: Pid) -> Duration {
    let path = format!("/proc/self/task/{}/schedstat", thread.as_raw_nonzero());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let waited = text.split_whitespace().nth(1).and_then(|nanoseconds| nanoseconds.parse().ok());
    Duration::from_nanos(waited.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t162_a_reading_that_waits_for_a_core_is_no_fault_of_its_sandbox() {
        let seconds = Duration::from_secs;
        assert!(!takes_too_long(seconds(30), seconds(1)), "others had the cores");
        assert!(takes_too_long(seconds(11), seconds(11)), "the sandbox held it up");
        assert!(takes_too_long(seconds(61), seconds(1)), "nothing is held any more");
    }

    /// Many threads for each core: all of them wait for most of the time, and Linux says so.
    #[test]
    fn t162_the_time_that_a_thread_waits_for_a_core_is_told() {
        let threads = 8 * std::thread::available_parallelism().map_or(1, usize::from);
        let waits = || {
            let (before, began) = (time_waited(gettid()), Instant::now());
            while time_waited(gettid()) == before && began.elapsed() < Duration::from_secs(20) {
                std::hint::spin_loop();
            }
            time_waited(gettid()) > before
        };
        let all: Vec<_> = (0..threads).map(|_| std::thread::spawn(waits)).collect();
        assert!(all.into_iter().all(|thread| thread.join().unwrap()));
    }

    #[test]
    fn a_reading_that_no_thread_has_begun_with_is_not_late_at_once() {
        let clock = ReadingClock::new();
        assert!(!clock.is_overdue());
        assert_eq!(clock.timed(|| 7)(), 7);
        assert!(!clock.is_overdue());
    }
}
