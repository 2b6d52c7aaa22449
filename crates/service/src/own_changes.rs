//! How often somebody without rights may change what is their own: each change is a line of the audit
//! log, which is kept for a long time, and a row besides.

use crate::caller::Caller;
use crate::refused::Refused;
use crate::service::Service;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use types::{Code, Fault, PrincipalId};

/// Keys made and preferences set, by one principal that does not own its workspace. A
/// person or a program that changes its keys needs a few a day.
const CHANGES_MAX: u32 = 60;
const WINDOW: Duration = Duration::from_secs(60 * 60);

/// Changes of each principal since its window began. There are as many as principals that have
/// changed something within the last window.
#[derive(Debug, Default)]
pub(crate) struct OwnChanges(Mutex<HashMap<PrincipalId, (Instant, u32)>>);

impl OwnChanges {
    fn admits(&self, principal: PrincipalId, now: Instant) -> bool {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.retain(|_, (began, _)| now.saturating_duration_since(*began) < WINDOW);
        let (_, count) = counts.entry(principal).or_insert((now, 0));
        *count = count.saturating_add(1);
        *count <= CHANGES_MAX
    }
}

impl Service {
    /// Before a change of the caller's own things.
    pub(crate) fn count_own_change(&self, caller: &Caller) -> Result<(), Refused> {
        if self.only_own(caller)?.is_none() || self.own_changes.admits(caller.id(), Instant::now())
        {
            return Ok(());
        }
        let message = format!(
            "a principal that does not own its workspace changes its keys and preferences at most \
             {CHANGES_MAX} times in an hour"
        );
        Err(Fault::new(Code::RateExceeded, message).hint("try again later").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn each_principal_has_so_many_changes_and_then_waits() {
        let (changes, now) = (OwnChanges::default(), Instant::now());
        let [one, other] = [(); 2].map(|()| PrincipalId::new(Uuid::now_v7()));
        assert!((0..CHANGES_MAX).all(|_| changes.admits(one, now)));
        assert!(!changes.admits(one, now));
        assert!(changes.admits(other, now));
        assert!(!changes.admits(one, now + WINDOW - Duration::from_secs(1)));
        assert!(changes.admits(one, now + WINDOW));
        assert_eq!(changes.0.lock().unwrap().len(), 1, "a window that is over is forgotten");
    }
}
