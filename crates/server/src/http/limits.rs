//! How much one key may ask for, together with those that it has made for itself: requests a second,
//! and requests at once.

use axum::body::Body;
use axum::response::Response;
use http_body::{Body as HttpBody, Frame, SizeHint};
use service::KeyLimits;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use types::{Code, Fault, KeyId};

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
    keys: Arc<Mutex<HashMap<KeyId, Bucket>>>,
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
    key: KeyId,
    keys: Arc<Mutex<HashMap<KeyId, Bucket>>>,
}

fn locked(keys: &Mutex<HashMap<KeyId, Bucket>>) -> MutexGuard<'_, HashMap<KeyId, Bucket>> {
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

    pub(crate) fn admit(&self, key: KeyLimits, now: Instant) -> Admission {
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
    use uuid::Uuid;

    fn key(number: u128) -> KeyLimits {
        let id = KeyId::new(Uuid::from_u128(number));
        let counted_with = id;
        KeyLimits { id, counted_with, rate_per_second: None, concurrency: None, expires_at: None }
    }

    fn admitted(limits: &Limits, key: KeyLimits, now: Instant) -> Option<Place> {
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
    fn keys_that_are_counted_together_may_ask_as_often_as_one() {
        let limits = Limits::new(Bounds { rate_per_second: 5, concurrency: 100 });
        let now = Instant::now();
        let made = |number| KeyLimits { counted_with: key(1).id, ..key(number) };
        assert!((1..=10).all(|number| admitted(&limits, made(number), now).is_some()));
        assert!(admitted(&limits, made(11), now).is_none());
        assert!(admitted(&limits, key(12), now).is_some());
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
        let generous = KeyLimits { concurrency: Some(3), ..key(1) };
        assert!(admitted(&limits, generous, now).is_some());
    }
}
