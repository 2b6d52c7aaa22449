//! The keys of an issuer: where they are is asked of it, and what they are is remembered for a while.
//!
//! What it answers is bounded in bytes and time, and a redirect is no answer. A key that is not
//! known is asked for, but at a bounded rate, whatever tokens are sent. Without an answer
//! that is recent enough there is no key.

use super::issuer::{Issuer, is_secure};
use egress::{FetchConfig, FetchError, Fetcher};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use url::Url;

/// A key that its issuer has withdrawn is good for so long at most.
const KEYS_MAX_AGE: Duration = Duration::from_secs(10 * 60);
/// Between one question to the issuer and the next. A new key is good after so long at the latest.
const REFRESH_INTERVAL_MIN: Duration = Duration::from_secs(5);
/// A request waits for it.
const TIME_MAX: Duration = Duration::from_secs(4);
/// Some hundred keys; issuers have two or three.
const BYTES_MAX: u64 = 256 * 1024;

/// A key of the issuer, and the one way in which it signs.
pub(super) struct TrustedKey {
    kid: String,
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
}

/// Why there is no key.
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

/// Of forms that are not known, too, which are left out.
#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

#[derive(Default)]
struct CachedKeys {
    keys: Vec<Arc<TrustedKey>>,
    /// When these were had.
    fetched_at: Option<Instant>,
    /// When the issuer was last asked, whatever came of it.
    refreshed_at: Option<Instant>,
    unreachable: bool,
}

pub(super) struct KeySetCache {
    issuer: Issuer,
    fetcher: Fetcher,
    cached: Mutex<CachedKeys>,
    /// Held by the one who asks; the others wait for the answer.
    refresh: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for KeySetCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("issuer", &self.issuer).finish_non_exhaustive()
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
        // A caller who disconnects has still caused a fetch, and the next one waits for the pause.
        let (ring, kid) = (Arc::clone(self), kid.to_owned());
        let found = tokio::spawn(async move { ring.find_or_refresh(&kid, algorithm).await });
        found.await.unwrap_or(Err(MissingKey::Unreachable))
    }

    async fn find_or_refresh(
        &self,
        kid: &str,
        algorithm: Algorithm,
    ) -> Result<Arc<TrustedKey>, MissingKey> {
        let known = || self.cached().find(kid, algorithm, Instant::now());
        let _asking = self.refresh.lock().await;
        // An earlier caller may have fetched it.
        if let Some(key) = known() {
            return Ok(key);
        }
        if self.cached().may_refresh(Instant::now()) {
            self.refresh().await;
        }
        let unreachable = self.cached().unreachable;
        let missing = if unreachable { MissingKey::Unreachable } else { MissingKey::Unknown };
        known().ok_or(missing)
    }

    fn cached(&self) -> MutexGuard<'_, CachedKeys> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn refresh(&self) {
        let answer = self.fetch_keys().await;
        let now = Instant::now();
        let mut held = self.cached();
        held.refreshed_at = Some(now);
        held.unreachable = answer.is_err();
        match answer {
            Ok(keys) => (held.keys, held.fetched_at) = (keys, Some(now)),
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
            answer => answer,
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
        let recent = self.fetched_at.is_some_and(|had| now < had + KEYS_MAX_AGE);
        let mut keys = self.keys.iter().filter(|_| recent);
        keys.find(|key| key.kid == kid && key.algorithm == algorithm).cloned()
    }

    fn may_refresh(&self, now: Instant) -> bool {
        self.refreshed_at.is_none_or(|asked| now >= asked + REFRESH_INTERVAL_MIN)
    }
}

/// A key that has a name and is for signatures of a kind that is taken. One that is secret, such as
/// for HMAC, is none.
fn trusted_key(key: Value) -> Option<TrustedKey> {
    let jwk: Jwk = serde_json::from_value(key).ok()?;
    let (algorithm, said) = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
            (Algorithm::ES256, KeyAlgorithm::ES256)
        }
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            (Algorithm::EdDSA, KeyAlgorithm::EdDSA)
        }
        _ => return None,
    };
    let common = &jwk.common;
    let signs = common.public_key_use.as_ref().is_none_or(|it| *it == PublicKeyUse::Signature);
    if !signs || common.key_algorithm.is_some_and(|it| it != said) {
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
