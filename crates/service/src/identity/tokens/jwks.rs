//! The key set of the issuer (JWKS): its URL comes from the issuer's metadata, and the keys are
//! cached.
//!
//! Responses are limited in size and time, and redirects are rejected. An unknown key id triggers a
//! refresh, at a limited rate whatever tokens are sent. A cached key expires if the issuer cannot
//! be reached.

use super::issuer::{Issuer, is_secure};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use egress::{FetchConfig, FetchError, Fetcher};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use url::Url;

/// Maximum time for which a withdrawn key stays valid.
const KEYS_MAX_AGE: Duration = Duration::from_secs(10 * 60);
/// Minimum time between two refreshes, after which a new key is known at the latest.
const REFRESH_INTERVAL_MIN: Duration = Duration::from_secs(5);
/// Time limit of a refresh, for which a request waits.
const TIME_MAX: Duration = Duration::from_secs(4);
/// Size limit: some hundred keys; issuers have two or three.
const BYTES_MAX: u64 = 256 * 1024;

/// A key of the issuer, and the only algorithm that it is used with.
pub(super) struct TrustedKey {
    kid: String,
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
}

/// Why no key was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MissingKey {
    Unknown,
    Unreachable,
}

#[derive(Debug, thiserror::Error)]
enum KeyFetchError {
    #[error("{url}: {source}")]
    Fetch { url: Url, source: FetchError },
    #[error("{url}: {source}")]
    Unreadable { url: Url, source: serde_json::Error },
    #[error("its metadata names the issuer {0:?}, which differs from --oauth-issuer")]
    IssuerMismatch(String),
    #[error("its jwks_uri is {0:?}; only https is allowed, and http on this machine")]
    Insecure(String),
}

#[derive(Deserialize)]
struct IssuerMetadata {
    issuer: String,
    jwks_uri: String,
}

/// A JSON Web Key Set. Keys of unknown types are ignored.
#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

#[derive(Default)]
struct CachedKeys {
    keys: Vec<Arc<TrustedKey>>,
    /// The time of the last successful fetch.
    fetched_at: Option<Instant>,
    /// The time of the last attempt, successful or not.
    refreshed_at: Option<Instant>,
    unreachable: bool,
}

pub(super) struct KeySetCache {
    issuer: Issuer,
    fetcher: Fetcher,
    cached: Mutex<CachedKeys>,
    /// Held during a refresh; other callers wait for its result.
    refresh: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for KeySetCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeySetCache").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

impl KeySetCache {
    pub(super) fn new(issuer: Issuer) -> Self {
        let fetcher = Fetcher::new(FetchConfig {
            exceptions: vec![issuer.exception()],
            bytes_max: BYTES_MAX,
            time_max: TIME_MAX,
            redirects_max: 0,
            ..FetchConfig::default()
        });
        Self { issuer, fetcher, cached: Mutex::default(), refresh: tokio::sync::Mutex::default() }
    }

    pub(super) async fn find_key(
        self: &Arc<Self>,
        kid: &str,
        algorithm: Algorithm,
    ) -> Result<Arc<TrustedKey>, MissingKey> {
        if let Some(key) = self.cached().find(kid, algorithm, Instant::now()) {
            return Ok(key);
        }
        // Spawned, so that a fetch completes and counts even if the caller disconnects.
        let (cache, kid) = (Arc::clone(self), kid.to_owned());
        let found = tokio::spawn(async move { cache.find_or_refresh(&kid, algorithm).await });
        found.await.unwrap_or(Err(MissingKey::Unreachable))
    }

    async fn find_or_refresh(
        &self,
        kid: &str,
        algorithm: Algorithm,
    ) -> Result<Arc<TrustedKey>, MissingKey> {
        let cached_key = || self.cached().find(kid, algorithm, Instant::now());
        let _refreshing = self.refresh.lock().await;
        // A concurrent caller may have fetched it.
        if let Some(key) = cached_key() {
            return Ok(key);
        }
        if self.cached().may_refresh(Instant::now()) {
            self.refresh().await;
        }
        let unreachable = self.cached().unreachable;
        let missing = if unreachable { MissingKey::Unreachable } else { MissingKey::Unknown };
        cached_key().ok_or(missing)
    }

    fn cached(&self) -> MutexGuard<'_, CachedKeys> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn refresh(&self) {
        let fetched = self.fetch_keys().await;
        let now = Instant::now();
        let mut cached = self.cached();
        cached.refreshed_at = Some(now);
        cached.unreachable = fetched.is_err();
        match fetched {
            Ok(keys) => (cached.keys, cached.fetched_at) = (keys, Some(now)),
            Err(error) => {
                let issuer = self.issuer.name();
                tracing::warn!(issuer, %error, "fetching the keys of the token issuer failed");
            }
        }
    }

    async fn fetch_keys(&self) -> Result<Vec<Arc<TrustedKey>>, KeyFetchError> {
        let description = self.fetch_metadata().await?;
        if description.issuer != self.issuer.name() {
            return Err(KeyFetchError::IssuerMismatch(description.issuer));
        }
        let url = Url::parse(&description.jwks_uri).ok().filter(is_secure);
        let url = url.ok_or(KeyFetchError::Insecure(description.jwks_uri))?;
        let KeySet { keys } = self.fetch_json(url).await?;
        Ok(keys.into_iter().filter_map(trusted_key).map(Arc::new).collect())
    }

    async fn fetch_metadata(&self) -> Result<IssuerMetadata, KeyFetchError> {
        let [first, second] = self.issuer.metadata_urls();
        match self.fetch_json(first).await {
            Err(KeyFetchError::Fetch { source: FetchError::Status { .. }, .. }) => {
                self.fetch_json(second).await
            }
            fetched => fetched,
        }
    }

    async fn fetch_json<T: DeserializeOwned>(&self, url: Url) -> Result<T, KeyFetchError> {
        let mut bytes = Vec::new();
        match self.fetcher.fetch(url.as_str(), &mut bytes).await {
            Ok(_) => serde_json::from_slice(&bytes)
                .map_err(|source| KeyFetchError::Unreadable { url, source }),
            Err(source) => Err(KeyFetchError::Fetch { url, source }),
        }
    }
}

impl CachedKeys {
    fn find(&self, kid: &str, algorithm: Algorithm, now: Instant) -> Option<Arc<TrustedKey>> {
        let is_recent = self.fetched_at.is_some_and(|fetched_at| now < fetched_at + KEYS_MAX_AGE);
        let mut keys = self.keys.iter().filter(|_| is_recent);
        keys.find(|key| key.kid == kid && key.algorithm == algorithm).cloned()
    }

    fn may_refresh(&self, now: Instant) -> bool {
        self.refreshed_at.is_none_or(|refreshed_at| now >= refreshed_at + REFRESH_INTERVAL_MIN)
    }
}

/// The points of small order on the curve of Ed25519, and their other encodings, in hexadecimal and
/// without the sign. A signature for such a key can be made without a private key.
const SMALL_ORDER: [&str; 7] = [
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
];

/// Whether a public key of Ed25519 has small order. One that cannot be decoded is refused later.
fn has_small_order(x: &str) -> bool {
    let Ok(mut point) = URL_SAFE_NO_PAD.decode(x) else { return false };
    if let Some(last) = point.last_mut() {
        *last &= 0x7f;
    }
    let point: String = point.iter().map(|byte| format!("{byte:02x}")).collect();
    SMALL_ORDER.contains(&point.as_str())
}

/// A key with an id, for signatures with a supported algorithm. Symmetric keys, such as for HMAC,
/// are rejected.
fn trusted_key(key: Value) -> Option<TrustedKey> {
    let jwk: Jwk = serde_json::from_value(key).ok()?;
    let (algorithm, expected) = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
            (Algorithm::ES256, KeyAlgorithm::ES256)
        }
        AlgorithmParameters::OctetKeyPair(key)
            if key.curve == EllipticCurve::Ed25519 && !has_small_order(&key.x) =>
        {
            (Algorithm::EdDSA, KeyAlgorithm::EdDSA)
        }
        _ => return None,
    };
    let common = &jwk.common;
    let signs = common.public_key_use.as_ref().is_none_or(|it| *it == PublicKeyUse::Signature);
    if !signs || common.key_algorithm.is_some_and(|it| it != expected) {
        return None;
    }
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    Some(TrustedKey { kid: common.key_id.clone()?, algorithm, key })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn key(changes: Value) -> Value {
        let mut key = json!({"kty": "OKP", "crv": "Ed25519", "kid": "a",
            "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"});
        key.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        key
    }

    #[test]
    fn only_keys_that_sign_in_a_way_that_is_taken_are_keys() {
        for fine in [json!({}), json!({"use": "sig"}), json!({"alg": "EdDSA"}), json!({"x5u": "?"})]
        {
            assert!(trusted_key(key(fine.clone())).is_some(), "{fine}");
        }
        let others = [
            json!({"use": "enc"}),
            json!({"alg": "HS256"}),
            json!({"alg": "RS256"}),
            json!({"crv": "Ed448"}),
            json!({"kid": null}),
            json!({"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}),
            json!({"kty": "new", "alg": "ML-DSA-44"}),
        ];
        for other in others {
            assert!(trusted_key(key(other.clone())).is_none(), "{other}");
        }
    }

    #[test]
    fn t224_a_key_for_which_anyone_can_sign_is_no_key() {
        for point in SMALL_ORDER {
            let bytes: Vec<u8> = (0..64)
                .step_by(2)
                .map(|at| u8::from_str_radix(&point[at..at + 2], 16).unwrap())
                .collect();
            let mut signed = bytes.clone();
            signed[31] |= 0x80;
            for bytes in [bytes, signed] {
                let x = URL_SAFE_NO_PAD.encode(bytes);
                assert!(trusted_key(key(json!({"x": x}))).is_none(), "{point}");
            }
        }
        assert!(trusted_key(key(json!({}))).is_some());
    }

    #[test]
    fn keys_are_forgotten_and_the_issuer_is_not_asked_all_the_time() {
        let now = Instant::now();
        let keys = vec![Arc::new(trusted_key(key(json!({}))).unwrap())];
        let held =
            CachedKeys { keys, fetched_at: Some(now), refreshed_at: Some(now), unreachable: false };
        assert!(held.find("a", Algorithm::EdDSA, now).is_some());
        assert!(held.find("b", Algorithm::EdDSA, now).is_none());
        assert!(held.find("a", Algorithm::RS256, now).is_none());
        assert!(held.find("a", Algorithm::EdDSA, now + KEYS_MAX_AGE).is_none());
        assert!(!held.may_refresh(now) && held.may_refresh(now + REFRESH_INTERVAL_MIN));
    }
}
