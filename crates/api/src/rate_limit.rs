//! Rate limits: requests per second and concurrent requests of one API key together with the keys
//! that it created for its own principal, or of one principal with access tokens.

use super::extract::SMALL_BYTES_MAX;
use service::{RateLimitSubject, RateLimits};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use types::{Error, ErrorCode, WorkspaceId};

/// A burst may use as many requests as this time allows.
const BURST: Duration = Duration::from_secs(2);
/// Bytes of request bodies in memory at once, per key and in total: eight of the largest bodies,
/// and as much as a small server can spare. Responses that clients have not read have the same
/// limits, of their own.
const BODY_BYTES_PER_KEY_MAX: usize = 64 * 1024 * 1024;
const BODY_BYTES_TOTAL_MAX: usize = 256 * 1024 * 1024;
/// A workspace may use this fraction (one half) of the bytes that all other workspaces leave free,
/// so one that uses its maximum leaves as much for the next.
const WORKSPACE_SHARE: usize = 2;
/// Reserved for the response of a request that may change something, until its size is known: about
/// that of the largest object in the catalog. Such a response cannot be refused afterwards.
pub(crate) const RESPONSE_RESERVE: usize = 512 * 1024;
/// A bucket that was idle for this long is full again and can be dropped, also after a request of 100
/// operations at one per second.
const BUCKET_IDLE_TTL: Duration = Duration::from_secs(120);
/// Number of buckets at which idle ones are dropped.
const BUCKETS_BEFORE_CLEANUP: usize = 1_024;

#[derive(Debug, Clone, Copy)]
pub struct RequestLimits {
    pub rate_per_second: u32,
    pub concurrency: u32,
    /// Sessions of MCP's legacy revision that one principal has at once.
    pub mcp_sessions: usize,
}

#[derive(Debug)]
pub(crate) struct RateLimiter {
    defaults: RequestLimits,
    buckets: Arc<Mutex<HashMap<RateLimitSubject, TokenBucket>>>,
    request_bodies: Arc<Mutex<BodyMemory>>,
    response_bodies: Arc<Mutex<BodyMemory>>,
}

/// Bytes of request bodies, or of response bodies, in memory.
#[derive(Debug, Default)]
struct BodyMemory {
    total: usize,
    by_key: HashMap<RateLimitSubject, usize>,
    of_workspaces: HashMap<WorkspaceId, usize>,
}

impl BodyMemory {
    fn of_key(&self, key: RateLimitSubject) -> usize {
        self.by_key.get(&key).copied().unwrap_or_default()
    }

    fn of_workspace(&self, workspace: WorkspaceId) -> usize {
        self.of_workspaces.get(&workspace).copied().unwrap_or_default()
    }

    /// The share of a workspace. Responses that had to be sent can exceed the share of another; the
    /// excess is not counted here, so that it takes nothing from this one.
    fn workspace_max(&self, workspace: WorkspaceId) -> usize {
        let others = self.of_workspaces.iter().filter(|(other, _)| **other != workspace);
        let mut of_others: Vec<usize> = others.map(|(_, bytes)| *bytes).collect();
        of_others.sort_unstable_by(|one, other| other.cmp(one));
        let free = of_others
            .into_iter()
            .fold(BODY_BYTES_TOTAL_MAX, |free, bytes| free - bytes.min(free / WORKSPACE_SHARE));
        free / WORKSPACE_SHARE
    }

    fn set(
        &mut self,
        key: RateLimitSubject,
        of_key: usize,
        workspace: WorkspaceId,
        of_workspace: usize,
    ) {
        match of_key {
            0 => self.by_key.remove(&key),
            bytes => self.by_key.insert(key, bytes),
        };
        match of_workspace {
            0 => self.of_workspaces.remove(&workspace),
            bytes => self.of_workspaces.insert(workspace, bytes),
        };
    }
}

/// Which bodies a permit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyKind {
    Request,
    Response,
}

impl BodyKind {
    /// What the sum of these bodies is called in an error, and how it becomes smaller.
    fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::Request => {
                ("concurrent request bodies", "wait until one of its requests has ended")
            }
            Self::Response => ("unread responses", "read them, or close their connections"),
        }
    }
}

/// Bytes of one body. That of a request is held until the response, since the code and arguments
/// parsed from it stay in memory as long; that of a response until the client has read it.
#[derive(Debug)]
pub(crate) struct BodyMemoryPermit {
    kind: BodyKind,
    key: RateLimitSubject,
    workspace: WorkspaceId,
    bytes: AtomicUsize,
    bodies: Arc<Mutex<BodyMemory>>,
}

#[derive(Debug)]
struct TokenBucket {
    tokens: f64,
    filled: Instant,
    in_flight: u32,
}

#[derive(Debug)]
pub(crate) enum Admission {
    Admitted(RequestPermit),
    Refused(Error),
}

/// One concurrent request of a key; released on drop.
#[derive(Debug)]
pub(crate) struct RequestPermit {
    key: RateLimitSubject,
    keys: Arc<Mutex<HashMap<RateLimitSubject, TokenBucket>>>,
}

fn lock_buckets(
    keys: &Mutex<HashMap<RateLimitSubject, TokenBucket>>,
) -> MutexGuard<'_, HashMap<RateLimitSubject, TokenBucket>> {
    keys.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        if let Some(bucket) = lock_buckets(&self.keys).get_mut(&self.key) {
            bucket.in_flight = bucket.in_flight.saturating_sub(1);
        }
    }
}

impl RateLimiter {
    pub(crate) fn new(usual: RequestLimits) -> Self {
        Self {
            defaults: usual,
            buckets: Arc::default(),
            request_bodies: Arc::default(),
            response_bodies: Arc::default(),
        }
    }

    pub(crate) fn mcp_sessions(&self) -> usize {
        self.defaults.mcp_sessions
    }

    /// Starts counting the body of a request or a response of this key.
    pub(crate) fn body_permit(
        &self,
        kind: BodyKind,
        key: RateLimitSubject,
        workspace: WorkspaceId,
    ) -> BodyMemoryPermit {
        let bodies = match kind {
            BodyKind::Request => &self.request_bodies,
            BodyKind::Response => &self.response_bodies,
        };
        let (bytes, bodies) = (AtomicUsize::new(0), Arc::clone(bodies));
        BodyMemoryPermit { kind, key, workspace, bytes, bodies }
    }

    /// Counts further operations of a request that was admitted. It is not refused halfway: the bucket goes
    /// below zero, and the next requests are refused until it has been filled again.
    pub(crate) fn charge(&self, key: RateLimitSubject, operations: usize) {
        if let Some(bucket) = lock_buckets(&self.buckets).get_mut(&key) {
            bucket.tokens -= operations as f64;
        }
    }

    pub(crate) fn admit(&self, key: RateLimits, now: Instant) -> Admission {
        let rate = f64::from(key.rate_per_second.unwrap_or(self.defaults.rate_per_second));
        let most = key.concurrency.unwrap_or(self.defaults.concurrency);
        let full = (rate * BURST.as_secs_f64()).max(1.0);
        let mut keys = lock_buckets(&self.buckets);
        if keys.len() >= BUCKETS_BEFORE_CLEANUP {
            keys.retain(|_, bucket| bucket.in_flight > 0 || now < bucket.filled + BUCKET_IDLE_TTL);
        }
        let fresh = TokenBucket { tokens: full, filled: now, in_flight: 0 };
        let bucket = keys.entry(key.subject).or_insert(fresh);
        let since = now.saturating_duration_since(bucket.filled).as_secs_f64();
        bucket.tokens = (bucket.tokens + since * rate).min(full);
        bucket.filled = now;
        if bucket.in_flight >= most {
            return Admission::Refused(
                Error::new(
                    ErrorCode::RateExceeded,
                    format!("this key has {most} concurrent requests, which is its limit"),
                )
                .hint("wait until one of them has ended"),
            );
        }
        if bucket.tokens < 1.0 {
            return Admission::Refused(
                Error::new(
                    ErrorCode::RateExceeded,
                    format!("rate limit of {rate} requests per second exceeded"),
                )
                .hint("retry after the seconds in the header Retry-After"),
            );
        }
        bucket.tokens -= 1.0;
        bucket.in_flight += 1;
        Admission::Admitted(RequestPermit { key: key.subject, keys: Arc::clone(&self.buckets) })
    }
}

impl BodyMemoryPermit {
    /// Adds bytes of the body, or fails if they exceed a limit.
    pub(crate) fn add(&self, bytes: usize) -> Result<(), Error> {
        let mut bodies = self.lock_bodies();
        self.check_key(&bodies, bytes)?;
        // Small bodies always pass: one workspace must not block all others.
        let is_small = self.bytes.load(Ordering::Relaxed) + bytes <= SMALL_BYTES_MAX;
        let most = bodies.workspace_max(self.workspace);
        if !is_small && bodies.of_workspace(self.workspace) + bytes > most {
            let (counted, _) = self.kind.texts();
            let message = format!(
                "{counted} of this workspace exceed {most} bytes, its share of the free memory"
            );
            return Err(Error::new(ErrorCode::CapacityExhausted, message)
                .hint("retry after the seconds in the header Retry-After"));
        }
        self.count(&mut bodies, bytes);
        Ok(())
    }

    /// The same, counted until the returned permit is dropped.
    pub(crate) fn add_apart(&self, bytes: usize) -> Result<Self, Error> {
        let &Self { kind, key, workspace, .. } = self;
        let bodies = Arc::clone(&self.bodies);
        let apart = Self { kind, key, workspace, bytes: AtomicUsize::new(0), bodies };
        apart.add(bytes)?;
        Ok(apart)
    }

    /// Reserves [`RESPONSE_RESERVE`]. What other workspaces use does not matter: they must not be
    /// able to stop the requests of this one.
    pub(crate) fn reserve(&self) -> Result<(), Error> {
        let mut bodies = self.lock_bodies();
        self.check_key(&bodies, RESPONSE_RESERVE)?;
        self.count(&mut bodies, RESPONSE_RESERVE);
        Ok(())
    }

    /// Adds bytes of a body that must be sent in any case, since its request has had an effect.
    pub(crate) fn add_unchecked(&self, bytes: usize) {
        let mut bodies = self.lock_bodies();
        self.count(&mut bodies, bytes);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) == 0
    }

    fn check_key(&self, bodies: &BodyMemory, bytes: usize) -> Result<(), Error> {
        if bodies.of_key(self.key) + bytes <= BODY_BYTES_PER_KEY_MAX {
            return Ok(());
        }
        let (counted, remedy) = self.kind.texts();
        let message = format!("{counted} of this key exceed {BODY_BYTES_PER_KEY_MAX} bytes");
        Err(Error::new(ErrorCode::RateExceeded, message).hint(remedy))
    }

    fn lock_bodies(&self) -> MutexGuard<'_, BodyMemory> {
        self.bodies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, bodies: &mut BodyMemory, bytes: usize) {
        bodies.total += bytes;
        let of_key = bodies.of_key(self.key) + bytes;
        let of_workspace = bodies.of_workspace(self.workspace) + bytes;
        bodies.set(self.key, of_key, self.workspace, of_workspace);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Releases the bytes of a body that is no longer in memory.
    pub(crate) fn give_back(&self) {
        let bytes = self.bytes.swap(0, Ordering::Relaxed);
        let mut bodies = self.lock_bodies();
        bodies.total = bodies.total.saturating_sub(bytes);
        let of_key = bodies.of_key(self.key).saturating_sub(bytes);
        let of_workspace = bodies.of_workspace(self.workspace).saturating_sub(bytes);
        bodies.set(self.key, of_key, self.workspace, of_workspace);
    }
}

impl Drop for BodyMemoryPermit {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{KeyId, PrincipalId};
    use uuid::Uuid;

    fn key(number: u128) -> RateLimits {
        let counted_with = RateLimitSubject::Key(KeyId::new(Uuid::from_u128(number)));
        RateLimits { subject: counted_with, rate_per_second: None, concurrency: None }
    }

    fn admitted(limits: &RateLimiter, key: RateLimits, now: Instant) -> Option<RequestPermit> {
        match limits.admit(key, now) {
            Admission::Admitted(place) => Some(place),
            Admission::Refused(error) => {
                assert_eq!(error.code, ErrorCode::RateExceeded);
                None
            }
        }
    }

    #[test]
    fn t267_each_statement_of_a_request_counts_and_the_next_requests_wait() {
        let limits = RateLimiter::new(RequestLimits {
            rate_per_second: 10,
            concurrency: 4,
            mcp_sessions: 1,
        });
        let (counted, start) = (key(1), Instant::now());
        let permit = admitted(&limits, counted, start).unwrap();
        limits.charge(counted.subject, 99);
        drop(permit);
        // 20 of a burst less 100: it takes 8.1 s until one is left.
        assert!(admitted(&limits, counted, start + Duration::from_secs(8)).is_none());
        assert!(admitted(&limits, counted, start + Duration::from_millis(8_200)).is_some());
        // The twin: another key is not affected.
        assert!(admitted(&limits, key(2), start).is_some());
    }

    #[test]
    fn a_key_that_asks_too_often_waits_and_another_does_not() {
        let limits = RateLimiter::new(RequestLimits {
            rate_per_second: 5,
            concurrency: 100,
            mcp_sessions: 1,
        });
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
        let limits = RateLimiter::new(RequestLimits {
            rate_per_second: 5,
            concurrency: 100,
            mcp_sessions: 1,
        });
        let now = Instant::now();
        let counted_with = RateLimitSubject::Tokens(PrincipalId::new(Uuid::from_u128(1)));
        let tokens = RateLimits { subject: counted_with, ..key(1) };
        assert!((1..=10).all(|_| admitted(&limits, tokens, now).is_some()));
        assert!(admitted(&limits, tokens, now).is_none());
        assert!(admitted(&limits, key(1), now).is_some());
    }

    #[test]
    fn requests_at_once_are_bounded_and_a_place_comes_back() {
        let limits = RateLimiter::new(RequestLimits {
            rate_per_second: 1_000,
            concurrency: 2,
            mcp_sessions: 1,
        });
        let now = Instant::now();
        let (one, two) = (admitted(&limits, key(1), now), admitted(&limits, key(1), now));
        assert!(one.is_some() && two.is_some());
        assert!(admitted(&limits, key(1), now).is_none());
        drop(one);
        assert!(admitted(&limits, key(1), now).is_some());
        let generous = RateLimits { concurrency: Some(3), ..key(1) };
        assert!(admitted(&limits, generous, now).is_some());
    }

    impl RateLimiter {
        /// Bytes of responses in memory.
        pub(crate) fn response_bytes(&self) -> usize {
            self.response_bodies.lock().unwrap().total
        }
    }

    /// A permit for bodies of a key, in a workspace with this number.
    fn permit(
        limits: &RateLimiter,
        kind: BodyKind,
        workspace: u128,
        number: u128,
    ) -> BodyMemoryPermit {
        let workspace = WorkspaceId::new(Uuid::from_u128(workspace));
        limits.body_permit(kind, key(number).subject, workspace)
    }

    fn charge(limits: &RateLimiter, workspace: u128, number: u128) -> BodyMemoryPermit {
        permit(limits, BodyKind::Request, workspace, number)
    }

    fn code(added: Result<(), Error>) -> Option<ErrorCode> {
        added.err().map(|error| error.code)
    }

    #[test]
    fn t108_bodies_of_one_key_and_of_all_are_bounded_and_room_comes_back() {
        let limits = RateLimiter::new(RequestLimits {
            rate_per_second: 5,
            concurrency: 100,
            mcp_sessions: 1,
        });
        let charge = |number: u128| charge(&limits, 1, number);
        let one = charge(1);
        assert_eq!(code(one.add(BODY_BYTES_PER_KEY_MAX)), None);
        assert_eq!(code(one.add(1)), Some(ErrorCode::RateExceeded));
        let other = charge(2);
        assert_eq!(code(other.add(BODY_BYTES_PER_KEY_MAX)), None);
        assert_eq!(code(charge(9).add(SMALL_BYTES_MAX + 1)), Some(ErrorCode::CapacityExhausted));
        let small = charge(9);
        assert_eq!(code(small.add(SMALL_BYTES_MAX)), None, "a small request is always heard");
        assert_eq!(code(small.add(1)), Some(ErrorCode::CapacityExhausted));
        drop(other);
        assert_eq!(code(charge(9).add(SMALL_BYTES_MAX + 1)), None);
        assert_eq!(code(charge(1).add(1)), Some(ErrorCode::RateExceeded));
        one.give_back();
        assert_eq!(code(charge(1).add(1)), None, "also of a body that is not in memory any more");
    }

    #[test]
    fn t156_a_workspace_that_takes_all_it_can_leaves_room_for_large_bodies_of_others() {
        const LARGE: usize = 4 * 1024 * 1024;
        let limits = RateLimiter::new(RequestLimits {
            rate_per_second: 5,
            concurrency: 100,
            mcp_sessions: 1,
        });
        let mut held = Vec::new();
        // The most keys of each of four workspaces, one megabyte at a time.
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
        assert_eq!(refused.code, ErrorCode::CapacityExhausted);
        assert!(refused.message.contains("this workspace"), "{}", refused.message);
        held.clear();
        assert_eq!(code(charge(&limits, 1, 999).add(LARGE)), None, "room comes back");
        let bodies = limits.request_bodies.lock().unwrap();
        assert!(bodies.total == 0 && bodies.by_key.is_empty() && bodies.of_workspaces.is_empty());
    }

    #[test]
    fn t203_after_a_response_that_had_to_be_sent_the_next_request_of_the_key_is_refused() {
        let limits = RateLimiter::new(RequestLimits {
            rate_per_second: 5,
            concurrency: 100,
            mcp_sessions: 1,
        });
        let response = |number: u128| permit(&limits, BodyKind::Response, 1, number);
        let sent = response(1);
        sent.add_unchecked(BODY_BYTES_PER_KEY_MAX + 1);
        for next in [response(1).add(0), response(1).reserve()] {
            let refused = next.unwrap_err();
            assert_eq!(refused.code, ErrorCode::RateExceeded);
            assert!(refused.message.starts_with("unread responses of this key"), "{refused:?}");
        }
        assert_eq!(code(response(2).reserve()), None, "another key of the workspace");
        assert_eq!(code(charge(&limits, 1, 1).add(1)), None, "request bodies are counted apart");
        drop(sent);
        assert_eq!((code(response(1).add(0)), limits.response_bytes()), (None, 0));
    }

    #[test]
    fn t212_responses_that_had_to_be_sent_take_nothing_from_other_workspaces() {
        const LARGE: usize = 4 * 1024 * 1024;
        let limits = RateLimiter::new(RequestLimits {
            rate_per_second: 5,
            concurrency: 100,
            mcp_sessions: 1,
        });
        let response = |workspace: u128| permit(&limits, BodyKind::Response, workspace, workspace);
        let mut sent = Vec::new();
        for workspace in 1..=4 {
            sent.push(response(workspace));
            sent[workspace as usize - 1].add_unchecked(3 * BODY_BYTES_TOTAL_MAX);
            let other = response(9);
            assert_eq!(code(other.add(LARGE)), None, "beside {workspace} workspaces");
            assert_eq!(code(response(9).reserve()), None);
        }
        assert_eq!(
            code(permit(&limits, BodyKind::Response, 1, 99).add(LARGE)),
            Some(ErrorCode::CapacityExhausted)
        );
        drop(sent);
        assert_eq!(limits.response_bytes(), 0);
    }

    #[test]
    fn t212_requests_that_may_change_something_reserve_memory_until_their_size_is_known() {
        let limits = RateLimiter::new(RequestLimits {
            rate_per_second: 5,
            concurrency: 100,
            mcp_sessions: 1,
        });
        let reserve = || {
            let response = permit(&limits, BodyKind::Response, 1, 1);
            response.reserve().map(|()| response)
        };
        let mut admitted: Vec<_> = std::iter::from_fn(|| reserve().ok()).collect();
        assert_eq!(admitted.len() * RESPONSE_RESERVE, BODY_BYTES_PER_KEY_MAX);
        admitted[0].give_back();
        admitted.push(reserve().unwrap());
        assert_eq!(code(reserve().map(drop)), Some(ErrorCode::RateExceeded));
    }
}
