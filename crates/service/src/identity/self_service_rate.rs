//! Rate limit for principals that change their own keys and preferences without owning the
//! workspace: each change adds an audit entry, which is stored for a long time, and a row.

use crate::error::RequestError;
use crate::identity::caller::Caller;
use crate::service::Service;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use types::{Error, ErrorCode, PrincipalId};

/// Keys created and preferences set by one principal. People and programs that rotate keys need a
/// few per day.
const CHANGES_MAX: u32 = 60;
const WINDOW: Duration = Duration::from_secs(60 * 60);

/// The number of changes of each principal since its window began. It has one entry per principal
/// with a change in the last window.
#[derive(Debug, Default)]
pub(crate) struct SelfServiceRateLimit(Mutex<HashMap<PrincipalId, (Instant, u32)>>);

impl SelfServiceRateLimit {
    fn try_count(&self, principal: PrincipalId, now: Instant) -> bool {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.retain(|_, (began, _)| now.saturating_duration_since(*began) < WINDOW);
        let (_, count) = counts.entry(principal).or_insert((now, 0));
        *count = count.saturating_add(1);
        *count <= CHANGES_MAX
    }
}

impl Service {
    /// Counts a change of the caller's own keys or preferences, and checks the limit.
    pub(crate) fn check_self_service_rate(&self, caller: &Caller) -> Result<(), RequestError> {
        if self.owner_filter(caller)?.is_none()
            || self.self_service_rate.try_count(caller.id(), self.config.clock.instant())
        {
            return Ok(());
        }
        let message = format!(
            "limit of {CHANGES_MAX} changes of keys and preferences per hour exceeded (owners of \
             the workspace have no limit)"
        );
        Err(Error::new(ErrorCode::RateExceeded, message).hint("try again later").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn each_principal_has_so_many_changes_and_then_waits() {
        let (changes, now) = (SelfServiceRateLimit::default(), Instant::now());
        let [one, other] = [(); 2].map(|()| PrincipalId::new(Uuid::now_v7()));
        assert!((0..CHANGES_MAX).all(|_| changes.try_count(one, now)));
        assert!(!changes.try_count(one, now));
        assert!(changes.try_count(other, now));
        assert!(!changes.try_count(one, now + WINDOW - Duration::from_secs(1)));
        assert!(changes.try_count(one, now + WINDOW));
        assert_eq!(changes.0.lock().unwrap().len(), 1, "a window that is over is forgotten");
    }
}
