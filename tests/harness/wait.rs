//! How tests wait: for a condition, never for a time. The architecture test allows a sleep only here and in
//! `wait_blocking.rs`.

#![allow(dead_code, reason = "each test binary uses a part of this")]
#![allow(clippy::panic, reason = "a test that waits in vain has failed")]
#![allow(unreachable_pub, reason = "a test binary has no outside")]

use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Between two looks at a condition.
const INTERVAL: Duration = Duration::from_millis(10);

/// For which a condition is waited for where no promise says how soon it must hold. A machine with other work
/// is many times slower than a quiet one, and a test that passes never waits so long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until it holds.
pub async fn until(what: &str, holds: impl AsyncFnMut() -> bool) {
    within(PATIENCE, what, holds).await;
}

/// Waits until it holds, which must be within this time because a promise says so.
pub async fn within(time: Duration, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < time, "waited {time:?} in vain until {what}");
        sleep(INTERVAL).await;
    }
}

/// As `until`, for a condition that must be noticed before more of the same has happened.
pub async fn closely(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain until {what}");
        sleep(INTERVAL / 10).await;
    }
}

/// Waits until there is something, and returns it.
pub async fn until_some<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain until {what}");
        sleep(INTERVAL).await;
    }
}

/// Asserts that something which must not happen does not happen for this time: that the condition holds at
/// every look. A slow machine can make this pass by chance, and never fail by chance.
pub async fn stays(time: Duration, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while began.elapsed() < time {
        assert!(holds().await, "after {:?} it is no longer so that {what}", began.elapsed());
        sleep(INTERVAL).await;
    }
}

/// Waits until what it looks at has not changed for this time, and returns it: for work that nobody waits
/// for and that tells nobody of its end.
pub async fn at_rest<T: PartialEq>(
    time: Duration,
    what: &str,
    mut look: impl AsyncFnMut() -> T,
) -> T {
    let (began, mut changed) = (Instant::now(), Instant::now());
    let mut last = look().await;
    while changed.elapsed() < time {
        assert!(began.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain until {what} rests");
        sleep(INTERVAL).await;
        let now = look().await;
        if now != last {
            changed = Instant::now();
            last = now;
        }
    }
    last
}

/// The pause of a fixture that plays a slow client, host or provider. It is what the test is about, and
/// nothing is concluded from its being over.
pub async fn slow_peer(pause: Duration) {
    sleep(pause).await;
}

/// The beat of a fixture that measures how late each beat is.
pub async fn tick(interval: Duration) {
    sleep(interval).await;
}

/// Lets an event that may come at any moment (a kill, a client that leaves) come at this one. The test must
/// hold for every moment.
pub async fn any_moment(delay: Duration) {
    sleep(delay).await;
}
