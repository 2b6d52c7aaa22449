//! `wait.rs` for tests and fixtures that have a thread and no tokio.

#![allow(dead_code, reason = "each test binary uses a part of this")]
#![allow(clippy::panic, reason = "a test that waits in vain has failed")]
#![allow(unreachable_pub, reason = "a test binary has no outside")]

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Between two looks at a condition.
const INTERVAL: Duration = Duration::from_millis(10);

/// As in `wait.rs`.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until it holds.
pub fn until(what: &str, holds: impl FnMut() -> bool) {
    assert!(soon(PATIENCE, holds), "waited {PATIENCE:?} in vain until {what}");
}

/// Waits until it holds, and says whether it did within this time.
pub fn soon(patience: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + patience;
    while !holds() {
        if Instant::now() > until {
            return false;
        }
        sleep(INTERVAL);
    }
    true
}

/// Waits until there is something, and returns it.
pub fn until_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    until(what, || {
        found = look();
        found.is_some()
    });
    found.unwrap_or_else(|| panic!("{what} was not found"))
}

/// The pause of a fixture that plays a slow client, host or disk. It is what the test is about, and nothing is
/// concluded from its being over.
pub fn slow_peer(pause: Duration) {
    sleep(pause);
}

/// Lets an event that may come at any moment come at this one. The test must hold for every moment.
pub fn any_moment(delay: Duration) {
    sleep(delay);
}
