//! The time limit of a reading of the processes of a sandbox, after which the sandbox counts as
//! unmeasurable.
//!
//! Only time that the sandbox can cause counts: while the reading thread runs, and while it waits for
//! locks. Time in which it is ready to run and other processes have the cores does not count.

use rustix::thread::{Pid, gettid};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The time limits of a reading.
#[derive(Debug, Clone, Copy)]
struct ReadingBounds {
    /// Limit without the time that the reading thread waits for a core.
    alone: Duration,
    /// Limit with that time.
    with_waits: Duration,
}

const BOUNDS: ReadingBounds = ReadingBounds {
    // A sandbox with as many busy processes as it may have takes a second.
    alone: Duration::from_secs(10),
    // On a machine that is busier than that, no limit could be enforced, so the sandbox is killed.
    with_waits: Duration::from_secs(60),
};

#[derive(Debug, Clone)]
pub(super) struct ReadingClock {
    bounds: ReadingBounds,
    requested_at: Instant,
    thread: Arc<OnceLock<ReadingThread>>,
}

#[derive(Debug)]
struct ReadingThread {
    id: Pid,
    began: Instant,
    /// How long the thread had waited for a core before.
    waited_before: Duration,
}

impl ReadingClock {
    pub(super) fn new() -> Self {
        Self::bounded_by(BOUNDS)
    }

    fn bounded_by(bounds: ReadingBounds) -> Self {
        Self { bounds, requested_at: Instant::now(), thread: Arc::default() }
    }

    /// Wraps `work` so that its time starts when a thread begins with it.
    pub(super) fn timed<T, W: FnOnce() -> T>(&self, work: W) -> impl FnOnce() -> T + use<T, W> {
        let thread = Arc::clone(&self.thread);
        move || {
            let id = gettid();
            let waited_before = time_waited(id);
            thread.get_or_init(|| ReadingThread { id, began: Instant::now(), waited_before });
            work()
        }
    }

    /// Whether an unfinished reading has taken too long.
    pub(super) fn is_overdue(&self) -> bool {
        if self.requested_at.elapsed() <= self.bounds.alone {
            return false;
        }
        // A reading that no thread has begun waits for the supervisor.
        let counted = self.thread.get().map_or(Duration::ZERO, |thread| {
            let waited = time_waited(thread.id).saturating_sub(thread.waited_before);
            thread.began.elapsed().saturating_sub(waited)
        });
        self.bounds.are_exceeded(self.requested_at.elapsed(), counted)
    }
}

impl ReadingBounds {
    fn are_exceeded(self, elapsed: Duration, counted: Duration) -> bool {
        counted > self.alone || elapsed > self.with_waits
    }
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
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn t162_a_reading_that_waits_for_a_core_is_no_fault_of_its_sandbox() {
        let seconds = Duration::from_secs;
        assert!(!BOUNDS.are_exceeded(seconds(30), seconds(1)), "others had the cores");
        assert!(BOUNDS.are_exceeded(seconds(11), seconds(11)), "the sandbox held it up");
        assert!(BOUNDS.are_exceeded(seconds(61), seconds(1)), "nothing is held any more");
    }

    const SHORT: ReadingBounds =
        ReadingBounds { alone: Duration::from_millis(500), with_waits: Duration::from_secs(600) };

    /// Many busy threads for each core, until dropped.
    struct BusyThreads(Arc<AtomicBool>, Vec<std::thread::JoinHandle<()>>);

    impl BusyThreads {
        fn start() -> Self {
            let stop = Arc::new(AtomicBool::new(false));
            let thread = |_| {
                let stop = Arc::clone(&stop);
                std::thread::spawn(move || while !stop.load(Ordering::Relaxed) {})
            };
            let threads = 16 * std::thread::available_parallelism().map_or(1, usize::from);
            let all = (0..threads).map(thread).collect();
            Self(stop, all)
        }
    }

    impl Drop for BusyThreads {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
            self.1.drain(..).for_each(|thread| thread.join().unwrap());
        }
    }

    #[test]
    fn t162_a_reader_that_others_keep_from_the_cores_is_not_late() {
        let busy_threads = BusyThreads::start();
        let clock = ReadingClock::bounded_by(SHORT);
        let reader = clock.clone();
        // It reads on until it has waited twice as long as a reading may take.
        let reading = std::thread::spawn(clock.timed(move || {
            let before = time_waited(gettid());
            while time_waited(gettid()).saturating_sub(before) < 2 * SHORT.alone {}
            reader.requested_at.elapsed()
        }));
        while !reading.is_finished() {
            assert!(!clock.is_overdue(), "it is ended for what others do");
            std::thread::yield_now();
        }
        let elapsed = reading.join().unwrap();
        assert!(elapsed > SHORT.alone, "{elapsed:?}");
        drop(busy_threads);
    }

    #[test]
    fn t162_a_reader_that_the_sandbox_holds_up_is_late() {
        let began = Instant::now();
        let clock = ReadingClock::bounded_by(SHORT);
        let lock = Arc::new(std::sync::Mutex::new(()));
        let held = lock.lock().unwrap();
        let waits = Arc::clone(&lock);
        let reading = std::thread::spawn(clock.timed(move || drop(waits.lock().unwrap())));
        while !clock.is_overdue() {
            assert!(began.elapsed() < Duration::from_secs(60), "it is never late");
            std::thread::yield_now();
        }
        assert!(began.elapsed() >= SHORT.alone);
        drop(held);
        reading.join().unwrap();
    }

    /// Many threads for each core: all of them wait for most of the time, and Linux says so.
    #[test]
    fn t162_the_time_that_a_thread_waits_for_a_core_is_measured() {
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
