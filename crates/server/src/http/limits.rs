//! How much one key may ask for, together with those that it has made for itself, or one principal
//! with tokens: requests a second, and requests at once.

use axum::body::Body;
use axum::response::Response;
use http_body::{Body as HttpBody, Frame, SizeHint};
use service::{Allowance, Counted};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use types::{Code, Fault};

/// A burst may use up this much of what a key may ask for.
const BURST: Duration = Duration::from_secs(2);
/// Keys that were not used for so long are as if they had never been.
const FORGET: Duration = Duration::from_secs(60);
/// How many keys are remembered before the unused ones are looked for.
const REMEMBERED: usize = 1_024;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) rate_per_second: u32,
    pub(crate) concurrency: u32,
}

#[derive(Debug)]
pub(crate) struct Limits {
    usual: Bounds,
    keys: Arc<Mutex<HashMap<Counted, Bucket>>>,
}

#[derive(Debug)]
struct Bucket {
    left: f64,
    filled: Instant,
    under_way: u32,
}

#[derive(Debug)]
pub(crate) enum Admission {
    Admitted(Place),
    Refused(Fault),
}

/// One request of a key, over when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    key: Counted,
    keys: Arc<Mutex<HashMap<Counted, Bucket>>>,
}

fn locked(keys: &Mutex<HashMap<Counted, Bucket>>) -> MutexGuard<'_, HashMap<Counted, Bucket>> {
    keys.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(bucket) = locked(&self.keys).get_mut(&self.key) {
            bucket.under_way = bucket.under_way.saturating_sub(1);
        }
    }
}

impl Limits {
    pub(crate) fn new(usual: Bounds) -> Self {
        Self { usual, keys: Arc::default() }
    }

    pub(crate) fn admit(&self, key: Allowance, now: Instant) -> Admission {
        let rate = f64::from(key.rate_per_second.unwrap_or(self.usual.rate_per_second));
        let most = key.concurrency.unwrap_or(self.usual.concurrency);
        let full = (rate * BURST.as_secs_f64()).max(1.0);
        let mut keys = locked(&self.keys);
        if keys.len() >= REMEMBERED {
            keys.retain(|_, bucket| bucket.under_way > 0 || now < bucket.filled + FORGET);
        }
        let fresh = Bucket { left: full, filled: now, under_way: 0 };
        let bucket = keys.entry(key.counted_with).or_insert(fresh);
        let since = now.saturating_duration_since(bucket.filled).as_secs_f64();
        bucket.left = (bucket.left + since * rate).min(full);
        bucket.filled = now;
        if bucket.under_way >= most {
            return Admission::Refused(
                Fault::new(Code::RateExceeded, format!("this key has {most} requests under way"))
                    .hint("wait for one of them to be answered"),
            );
        }
        if bucket.left < 1.0 {
            return Admission::Refused(
                Fault::new(Code::RateExceeded, format!("this key may ask {rate} times a second"))
                    .hint("send the request again after Retry-After seconds"),
            );
        }
        bucket.left -= 1.0;
        bucket.under_way += 1;
        Admission::Admitted(Place { key: key.counted_with, keys: Arc::clone(&self.keys) })
    }
}

/// A stream is under way until its last byte: only then is the guard dropped.
pub(crate) fn until_sent<T: Send + Unpin + 'static>(response: Response, guard: T) -> Response {
    response.map(|body| Body::new(Held { body, _guard: guard }))
}

struct Held<T> {
    body: Body,
    _guard: T,
}

impl<T: Unpin> HttpBody for Held<T> {
    type Data = <Body as HttpBody>::Data;
    type Error = <Body as HttpBody>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{KeyId, PrincipalId};
    use uuid::Uuid;

    fn key(number: u128) -> Allowance {
        let counted_with = Counted::Key(KeyId::new(Uuid::from_u128(number)));
        Allowance { counted_with, rate_per_second: None, concurrency: None }
    }

    fn admitted(limits: &Limits, key: Allowance, now: Instant) -> Option<Place> {
        match limits.admit(key, now) {
            Admission::Admitted(place) => Some(place),
            Admission::Refused(fault) => {
                assert_eq!(fault.code, Code::RateExceeded);
                None
            }
        }
    }

    #[test]
    fn a_key_that_asks_too_often_waits_and_another_does_not() {
        let limits = Limits::new(Bounds { rate_per_second: 5, concurrency: 100 });
        let now = Instant::now();
        assert!((0..10).all(|_| admitted(&limits, key(1), now).is_some()));
        assert!(admitted(&limits, key(1), now).is_none());
        assert!(admitted(&limits, key(2), now).is_some());
        let later = now + Duration::from_millis(201);
        assert!(admitted(&limits, key(1), later).is_some());
        assert!(admitted(&limits, key(1), later).is_none());
    }

    #[test]
    fn tokens_of_a_principal_are_counted_apart_from_keys() {
        let limits = Limits::new(Bounds { rate_per_second: 5, concurrency: 100 });
        let now = Instant::now();
        let counted_with = Counted::Tokens(PrincipalId::new(Uuid::from_u128(1)));
        let tokens = Allowance { counted_with, ..key(1) };
        assert!((1..=10).all(|_| admitted(&limits, tokens, now).is_some()));
        assert!(admitted(&limits, tokens, now).is_none());
        assert!(admitted(&limits, key(1), now).is_some());
    }

    #[test]
    fn requests_at_once_are_bounded_and_a_place_comes_back() {
        let limits = Limits::new(Bounds { rate_per_second: 1_000, concurrency: 2 });
        let now = Instant::now();
        let (one, two) = (admitted(&limits, key(1), now), admitted(&limits, key(1), now));
        assert!(one.is_some() && two.is_some());
        assert!(admitted(&limits, key(1), now).is_none());
        drop(one);
        assert!(admitted(&limits, key(1), now).is_some());
        let generous = Allowance { concurrency: Some(3), ..key(1) };
        assert!(admitted(&limits, generous, now).is_some());
    }
}
