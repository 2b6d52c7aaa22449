//! How long a reading of a sandbox's processes may take before the sandbox counts as one that cannot be
//! measured.
//!
//! Only time counts that the sandbox can be the cause of: while the reading thread runs, and while it
//! waits for locks. While it is ready to run and other work of the machine has the cores, the sandbox
//! may be innocent.

use rustix::thread::{Pid, gettid};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long a reading may take.
#[derive(Debug, Clone, Copy)]
struct ReadingBounds {
    /// Without the time that the reading thread waits for a core.
    alone: Duration,
    with_waits: Duration,
}

const BOUNDS: ReadingBounds = ReadingBounds {
    // A sandbox with as many busy processes as it may have takes a second.
    alone: Duration::from_secs(10),
    // A machine that is busier than that holds no limit, and sandboxes end before others are harmed.
    with_waits: Duration::from_secs(60),
};

#[derive(Debug, Clone)]
pub(super) struct ReadingClock {
    bounds: ReadingBounds,
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
        Self::bounded_by(BOUNDS)
    }

    fn bounded_by(bounds: ReadingBounds) -> Self {
        Self { bounds, asked: Instant::now(), thread: Arc::default() }
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
        if self.asked.elapsed() <= self.bounds.alone {
            return false;
        }
        // One that no thread has begun with waits for us.
        let counted = self.thread.get().map_or(Duration::ZERO, |thread| {
            let waited = time_waited(thread.id).saturating_sub(thread.waited_before);
            thread.began.elapsed().saturating_sub(waited)
        });
        self.bounds.are_exceeded(self.asked.elapsed(), counted)
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
    struct Hogs(Arc<AtomicBool>, Vec<std::thread::JoinHandle<()>>);

    impl Hogs {
        fn start() -> Self {
            let stop = Arc::new(AtomicBool::new(false));
            let hog = |_| {
                let stop = Arc::clone(&stop);
                std::thread::spawn(move || while !stop.load(Ordering::Relaxed) {})
            };
            let threads = 16 * std::thread::available_parallelism().map_or(1, usize::from);
            let all = (0..threads).map(hog).collect();
            Self(stop, all)
        }
    }

    impl Drop for Hogs {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
            self.1.drain(..).for_each(|hog| hog.join().unwrap());
        }
    }

    #[test]
    fn t162_a_reader_that_others_keep_from_the_cores_is_not_late() {
        let hogs = Hogs::start();
        let clock = ReadingClock::bounded_by(SHORT);
        let reader = clock.clone();
        // It reads on until it has waited twice as long as a reading may take.
        let reading = std::thread::spawn(clock.timed(move || {
            let before = time_waited(gettid());
            while time_waited(gettid()).saturating_sub(before) < 2 * SHORT.alone {}
            reader.asked.elapsed()
        }));
        while !reading.is_finished() {
            assert!(!clock.is_overdue(), "it is ended for what others do");
            std::thread::yield_now();
        }
        let took = reading.join().unwrap();
        assert!(took > SHORT.alone, "{took:?}");
        drop(hogs);
    }

    #[test]
    fn t162_a_reader_that_the_sandbox_holds_up_is_late() {
        let clock = ReadingClock::bounded_by(SHORT);
        let lock = Arc::new(std::sync::Mutex::new(()));
        let held = lock.lock().unwrap();
        let waits = Arc::clone(&lock);
        let reading = std::thread::spawn(clock.timed(move || drop(waits.lock().unwrap())));
        let began = Instant::now();
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
