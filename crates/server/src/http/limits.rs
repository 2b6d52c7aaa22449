//! How much one key may ask for, together with those that it has made for itself, or one principal
//! with tokens: requests a second, and requests at once.

use super::body::SMALL_BYTES_MAX;
use axum::body::Body;
use axum::response::Response;
use http_body::{Body as HttpBody, Frame, SizeHint};
use service::{Allowance, Counted};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use types::{Code, Fault, WorkspaceId};

/// A burst may use up this much of what a key may ask for.
const BURST: Duration = Duration::from_secs(2);
/// Bodies that are in memory at once, of one key and of all: eight of the largest, and as much as a small server
/// can spare.
const BODY_BYTES_OF_KEY_MAX: usize = 64 * 1024 * 1024;
const BODY_BYTES_OF_ALL_MAX: usize = 256 * 1024 * 1024;
/// A workspace has at most this part of the bytes that the bodies of all others leave free: one that takes all it can
/// leaves as much again for the next one.
const WORKSPACE_SHARE: usize = 2;
/// Keys that were not used for so long are as if they had never been.
const FORGET: Duration = Duration::from_secs(60);
/// How many keys are remembered before the unused ones are looked for.
const REMEMBERED: usize = 1_024;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) rate_per_second: u32,
    pub(crate) concurrency: u32,
    /// Sessions of MCP's legacy revision that one principal has at once.
    pub(crate) mcp_sessions: usize,
}

#[derive(Debug)]
pub(crate) struct Limits {
    usual: Bounds,
    keys: Arc<Mutex<HashMap<Counted, Bucket>>>,
    bodies: Arc<Mutex<Bodies>>,
}

/// Bytes of bodies that are in memory.
#[derive(Debug, Default)]
struct Bodies {
    of_all: usize,
    of_keys: HashMap<Counted, usize>,
    of_workspaces: HashMap<WorkspaceId, usize>,
}

impl Bodies {
    fn of_key(&self, key: Counted) -> usize {
        self.of_keys.get(&key).copied().unwrap_or_default()
    }

    fn of_workspace(&self, workspace: WorkspaceId) -> usize {
        self.of_workspaces.get(&workspace).copied().unwrap_or_default()
    }

    fn workspace_max(&self, workspace: WorkspaceId) -> usize {
        let of_others = self.of_all.saturating_sub(self.of_workspace(workspace));
        BODY_BYTES_OF_ALL_MAX.saturating_sub(of_others) / WORKSPACE_SHARE
    }

    fn set(&mut self, key: Counted, of_key: usize, workspace: WorkspaceId, of_workspace: usize) {
        match of_key {
            0 => self.of_keys.remove(&key),
            bytes => self.of_keys.insert(key, bytes),
        };
        match of_workspace {
            0 => self.of_workspaces.remove(&workspace),
            bytes => self.of_workspaces.insert(workspace, bytes),
        };
    }
}

/// Bytes of the body of one request, until it is answered: the code and the arguments that were read of it are in
/// memory for as long.
#[derive(Debug)]
pub(crate) struct Charge {
    key: Counted,
    workspace: WorkspaceId,
    bytes: AtomicUsize,
    bodies: Arc<Mutex<Bodies>>,
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
        Self { usual, keys: Arc::default(), bodies: Arc::default() }
    }

    pub(crate) fn mcp_sessions(&self) -> usize {
        self.usual.mcp_sessions
    }

    /// What the body of a request of this key is counted with.
    pub(crate) fn charge(&self, key: Counted, workspace: WorkspaceId) -> Charge {
        Charge { key, workspace, bytes: AtomicUsize::new(0), bodies: Arc::clone(&self.bodies) }
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

impl Charge {
    /// Counts bytes that were read, or refuses to keep them.
    pub(crate) fn add(&self, bytes: usize) -> Result<(), Fault> {
        let mut bodies = self.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        let of_key = bodies.of_key(self.key) + bytes;
        if of_key > BODY_BYTES_OF_KEY_MAX {
            let message = format!("bodies of this key have {BODY_BYTES_OF_KEY_MAX} bytes at once");
            return Err(Fault::new(Code::RateExceeded, message)
                .hint("wait for one of its requests to be answered"));
        }
        // Small requests are always heard: those of one workspace must not silence all others.
        let is_small = self.bytes.load(Ordering::Relaxed) + bytes <= SMALL_BYTES_MAX;
        let of_workspace = bodies.of_workspace(self.workspace) + bytes;
        let most = bodies.workspace_max(self.workspace);
        if !is_small && of_workspace > most {
            let message = format!(
                "bodies of this workspace may have {most} bytes at once, its share of what is free"
            );
            return Err(Fault::new(Code::CapacityExhausted, message)
                .hint("send the request again after Retry-After seconds"));
        }
        bodies.of_all += bytes;
        bodies.set(self.key, of_key, self.workspace, of_workspace);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// For a body that is not in memory any more.
    pub(crate) fn give_back(&self) {
        let bytes = self.bytes.swap(0, Ordering::Relaxed);
        let mut bodies = self.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        bodies.of_all = bodies.of_all.saturating_sub(bytes);
        let of_key = bodies.of_key(self.key).saturating_sub(bytes);
        let of_workspace = bodies.of_workspace(self.workspace).saturating_sub(bytes);
        bodies.set(self.key, of_key, self.workspace, of_workspace);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.give_back();
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
        let limits = Limits::new(Bounds { rate_per_second: 5, concurrency: 100, mcp_sessions: 1 });
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
        let limits = Limits::new(Bounds { rate_per_second: 5, concurrency: 100, mcp_sessions: 1 });
        let now = Instant::now();
        let counted_with = Counted::Tokens(PrincipalId::new(Uuid::from_u128(1)));
        let tokens = Allowance { counted_with, ..key(1) };
        assert!((1..=10).all(|_| admitted(&limits, tokens, now).is_some()));
        assert!(admitted(&limits, tokens, now).is_none());
        assert!(admitted(&limits, key(1), now).is_some());
    }

    #[test]
    fn requests_at_once_are_bounded_and_a_place_comes_back() {
        let limits =
            Limits::new(Bounds { rate_per_second: 1_000, concurrency: 2, mcp_sessions: 1 });
        let now = Instant::now();
        let (one, two) = (admitted(&limits, key(1), now), admitted(&limits, key(1), now));
        assert!(one.is_some() && two.is_some());
        assert!(admitted(&limits, key(1), now).is_none());
        drop(one);
        assert!(admitted(&limits, key(1), now).is_some());
        let generous = Allowance { concurrency: Some(3), ..key(1) };
        assert!(admitted(&limits, generous, now).is_some());
    }

    /// A workspace by its number, and a key of it.
    fn charge(limits: &Limits, workspace: u128, number: u128) -> Charge {
        limits.charge(key(number).counted_with, WorkspaceId::new(Uuid::from_u128(workspace)))
    }

    fn code(added: Result<(), Fault>) -> Option<Code> {
        added.err().map(|fault| fault.code)
    }

    #[test]
    fn t108_bodies_of_one_key_and_of_all_are_bounded_and_room_comes_back() {
        let limits = Limits::new(Bounds { rate_per_second: 5, concurrency: 100, mcp_sessions: 1 });
        let charge = |number: u128| charge(&limits, 1, number);
        let one = charge(1);
        assert_eq!(code(one.add(BODY_BYTES_OF_KEY_MAX)), None);
        assert_eq!(code(one.add(1)), Some(Code::RateExceeded));
        let other = charge(2);
        assert_eq!(code(other.add(BODY_BYTES_OF_KEY_MAX)), None);
        assert_eq!(code(charge(9).add(SMALL_BYTES_MAX + 1)), Some(Code::CapacityExhausted));
        let small = charge(9);
        assert_eq!(code(small.add(SMALL_BYTES_MAX)), None, "a small request is always heard");
        assert_eq!(code(small.add(1)), Some(Code::CapacityExhausted));
        drop(other);
        assert_eq!(code(charge(9).add(SMALL_BYTES_MAX + 1)), None);
        assert_eq!(code(charge(1).add(1)), Some(Code::RateExceeded));
        one.give_back();
        assert_eq!(code(charge(1).add(1)), None, "also of a body that is not in memory any more");
    }

    #[test]
    fn t156_a_workspace_that_takes_all_it_can_leaves_room_for_large_bodies_of_others() {
        const LARGE: usize = 4 * 1024 * 1024;
        let limits = Limits::new(Bounds { rate_per_second: 5, concurrency: 100, mcp_sessions: 1 });
        let mut held = Vec::new();
        // As many keys of each of four workspaces as are let, one megabyte at a time.
        for workspace in 1..=4 {
            for number in 0..8 {
                let charge = charge(&limits, workspace, workspace * 100 + number);
                while charge.add(1024 * 1024).is_ok() {}
                held.push(charge);
            }
            let other = charge(&limits, 9, 900);
            assert_eq!(code(other.add(LARGE)), None, "beside {workspace} greedy workspaces");
        }
        let refused = charge(&limits, 1, 999).add(LARGE).unwrap_err();
        assert_eq!(refused.code, Code::CapacityExhausted);
        assert!(refused.message.contains("this workspace"), "{}", refused.message);
        held.clear();
        assert_eq!(code(charge(&limits, 1, 999).add(LARGE)), None, "room comes back");
        let bodies = limits.bodies.lock().unwrap();
        assert!(bodies.of_all == 0 && bodies.of_keys.is_empty() && bodies.of_workspaces.is_empty());
    }
}
