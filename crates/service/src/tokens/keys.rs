//! The keys of an issuer: where they are is asked of it, and what they are is remembered for a while.
//!
//! What it answers is bounded in bytes and time, and a redirect is no answer. A key that is not
//! known is asked for, but not more often than now and then, whoever shows what. Without an answer
//! that is recent enough there is no key.

use super::issuer::{Issuer, is_private};
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
const REMEMBERED: Duration = Duration::from_secs(10 * 60);
/// Between one question to the issuer and the next. A new key is good after so long at the latest.
const PAUSE: Duration = Duration::from_secs(5);
/// A request waits for it.
const TIME_MAX: Duration = Duration::from_secs(4);
/// Some hundred keys; issuers have two or three.
const BYTES_MAX: u64 = 256 * 1024;

/// A key of the issuer, and the one way in which it signs.
pub(super) struct Trusted {
    kid: String,
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
}

/// Why there is no key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Missing {
    Unknown,
    Unreachable,
}

#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error("{url}: {source}")]
    Fetch { url: Url, source: FetchError },
    #[error("{url}: {source}")]
    Unreadable { url: Url, source: serde_json::Error },
    #[error("it calls itself {0:?}, which is not how it was named with --oauth-issuer")]
    OtherName(String),
    #[error("its keys are at {0:?}, which is not asked: only https is, and http on this machine")]
    Insecure(String),
}

#[derive(Deserialize)]
struct Description {
    issuer: String,
    jwks_uri: String,
}

/// Of forms that are not known, too, which are left out.
#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

#[derive(Default)]
struct Held {
    keys: Vec<Arc<Trusted>>,
    /// When these were had.
    had: Option<Instant>,
    /// When the issuer was last asked, whatever came of it.
    asked: Option<Instant>,
    unreachable: bool,
}

pub(super) struct Ring {
    issuer: Issuer,
    fetcher: Fetcher,
    held: Mutex<Held>,
    /// Held by the one who asks; the others wait for the answer.
    asking: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

impl Ring {
    pub(super) fn new(issuer: Issuer) -> Self {
        let fetcher = Fetcher::new(FetchConfig {
            exceptions: vec![issuer.exception()],
            bytes_max: BYTES_MAX,
            time_max: TIME_MAX,
            redirects_max: 0,
            ..FetchConfig::default()
        });
        Self { issuer, fetcher, held: Mutex::default(), asking: tokio::sync::Mutex::default() }
    }

    pub(super) async fn find(
        self: &Arc<Self>,
        kid: &str,
        algorithm: Algorithm,
    ) -> Result<Arc<Trusted>, Missing> {
        if let Some(key) = self.held().known(kid, algorithm, Instant::now()) {
            return Ok(key);
        }
        // Whoever hangs up meanwhile has still asked, and the next one waits for the pause.
        let (ring, kid) = (Arc::clone(self), kid.to_owned());
        let found = tokio::spawn(async move { ring.find_or_ask(&kid, algorithm).await });
        found.await.unwrap_or(Err(Missing::Unreachable))
    }

    async fn find_or_ask(&self, kid: &str, algorithm: Algorithm) -> Result<Arc<Trusted>, Missing> {
        let known = || self.held().known(kid, algorithm, Instant::now());
        let _asking = self.asking.lock().await;
        // Whoever was here before may have brought it.
        if let Some(key) = known() {
            return Ok(key);
        }
        if self.held().may_ask(Instant::now()) {
            self.ask().await;
        }
        let unreachable = self.held().unreachable;
        let missing = if unreachable { Missing::Unreachable } else { Missing::Unknown };
        known().ok_or(missing)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self) {
        let answer = self.keys().await;
        let now = Instant::now();
        let mut held = self.held();
        held.asked = Some(now);
        held.unreachable = answer.is_err();
        match answer {
            Ok(keys) => (held.keys, held.had) = (keys, Some(now)),
            Err(error) => {
                let issuer = self.issuer.name();
                tracing::warn!(issuer, %error, "the keys of the issuer cannot be had");
            }
        }
    }

    async fn keys(&self) -> Result<Vec<Arc<Trusted>>, AskError> {
        let description = self.description().await?;
        if description.issuer != self.issuer.name() {
            return Err(AskError::OtherName(description.issuer));
        }
        let url = Url::parse(&description.jwks_uri).ok().filter(is_private);
        let url = url.ok_or(AskError::Insecure(description.jwks_uri))?;
        let KeySet { keys } = self.json(url).await?;
        Ok(keys.into_iter().filter_map(trusted).map(Arc::new).collect())
    }

    async fn description(&self) -> Result<Description, AskError> {
        let [first, second] = self.issuer.descriptions();
        match self.json(first).await {
            Err(AskError::Fetch { source: FetchError::Status { .. }, .. }) => {
                self.json(second).await
            }
            answer => answer,
        }
    }

    async fn json<T: DeserializeOwned>(&self, url: Url) -> Result<T, AskError> {
        let mut bytes = Vec::new();
        match self.fetcher.fetch(url.as_str(), &mut bytes).await {
            Ok(_) => serde_json::from_slice(&bytes)
                .map_err(|source| AskError::Unreadable { url, source }),
            Err(source) => Err(AskError::Fetch { url, source }),
        }
    }
}

impl Held {
    fn known(&self, kid: &str, algorithm: Algorithm, now: Instant) -> Option<Arc<Trusted>> {
        let recent = self.had.is_some_and(|had| now < had + REMEMBERED);
        let mut keys = self.keys.iter().filter(|_| recent);
        keys.find(|key| key.kid == kid && key.algorithm == algorithm).cloned()
    }

    fn may_ask(&self, now: Instant) -> bool {
        self.asked.is_none_or(|asked| now >= asked + PAUSE)
    }
}

/// A key that has a name and is for signatures of a kind that is taken. One that is secret, such as
/// for HMAC, is none.
fn trusted(key: Value) -> Option<Trusted> {
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
    Some(Trusted { kid: common.key_id.clone()?, algorithm, key })
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
            assert!(trusted(key(fine.clone())).is_some(), "{fine}");
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
            assert!(trusted(key(other.clone())).is_none(), "{other}");
        }
    }

    #[test]
    fn keys_are_forgotten_and_the_issuer_is_not_asked_all_the_time() {
        let now = Instant::now();
        let keys = vec![Arc::new(trusted(key(json!({}))).unwrap())];
        let held = Held { keys, had: Some(now), asked: Some(now), unreachable: false };
        assert!(held.known("a", Algorithm::EdDSA, now).is_some());
        assert!(held.known("b", Algorithm::EdDSA, now).is_none());
        assert!(held.known("a", Algorithm::RS256, now).is_none());
        assert!(held.known("a", Algorithm::EdDSA, now + REMEMBERED).is_none());
        assert!(!held.may_ask(now) && held.may_ask(now + PAUSE));
    }
}
