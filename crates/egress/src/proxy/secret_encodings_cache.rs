//! Caches the encodings of a host's credentials, shared by all sandboxes that have them.
//!
//! Building them takes longer than a request, and memory for each byte of each value. So they are
//! built off the server threads, once per version of the secrets, and within limits.

use super::allowed_route::AllowedRoute;
use super::error::EgressError;
use super::redact::SecretEncodings;
use crate::policy_source::{Credential, SecretText};
use std::sync::Arc;
use tokio::sync::Semaphore;
use types::{SecretId, SharedCache};

/// More secrets than the clients of any host use.
const SECRETS_PER_HOST_MAX: usize = 32;
/// Total size of their values: twice the longest that a header takes. The automaton needs up to 1
/// KiB per byte.
const SECRET_BYTES_PER_HOST_MAX: usize = 16 * 1024;
/// Memory of all automata that are in use or cached.
const ENCODINGS_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Values up to this size are built in less than a millisecond, without a permit.
const SMALL_BYTES_MAX: usize = 1024;
/// Concurrent builds of larger ones.
const PREPARATIONS_MAX: usize = 2;

type SecretVersions = Vec<(SecretId, u64)>;

#[derive(Debug)]
pub(super) struct SecretEncodingsCache {
    cache: SharedCache<SecretVersions, SecretEncodings>,
    preparations: Semaphore,
}

impl Default for SecretEncodingsCache {
    fn default() -> Self {
        let cache = SharedCache::new(ENCODINGS_BYTES_MAX);
        Self { cache, preparations: Semaphore::new(PREPARATIONS_MAX) }
    }
}

impl SecretEncodingsCache {
    /// The encodings of a route's credentials, if it has any.
    pub(super) async fn get_or_build(
        &self,
        route: &AllowedRoute,
    ) -> Result<Option<Arc<SecretEncodings>>, EgressError> {
        let credentials = distinct_credentials(route);
        let Some(first) = credentials.first() else { return Ok(None) };
        let values = || credentials.iter().map(|it| &it.value);
        let key: SecretVersions = credentials.iter().map(|it| (it.id, it.version)).collect();
        if let Some(spellings) = self.cache.get(&key).filter(|it| it.matches_values(values())) {
            return Ok(Some(spellings));
        }
        let (count, bytes) = (credentials.len(), values().map(|it| it.expose().len()).sum());
        if count > SECRETS_PER_HOST_MAX || bytes > SECRET_BYTES_PER_HOST_MAX {
            let to = route.destination().clone();
            let (count_max, bytes_max) = (SECRETS_PER_HOST_MAX, SECRET_BYTES_PER_HOST_MAX);
            return Err(EgressError::TooManySecrets { to, count, bytes, count_max, bytes_max });
        }
        let unfit = || EgressError::InvalidSecretValue(first.secret.clone());
        let values: Vec<SecretText> =
            values().map(|it| SecretText::new(it.expose().to_owned())).collect();
        let spellings = if bytes <= SMALL_BYTES_MAX {
            SecretEncodings::new(&values)
        } else {
            let _permit = self.preparations.acquire().await.map_err(|_| unfit())?;
            let preparing = tokio::task::spawn_blocking(move || SecretEncodings::new(&values));
            preparing.await.map_err(|_| unfit())?
        };
        let spellings = Arc::new(spellings.ok_or_else(unfit)?);
        let weight = spellings.memory_bytes();
        let kept = self.cache.insert(key, spellings, weight);
        kept.map(Some).ok_or_else(|| EgressError::RedactionBusy(route.destination().clone()))
    }
}

/// Each secret once, however many headers it may be sent in.
fn distinct_credentials(route: &AllowedRoute) -> Vec<&Credential> {
    let mut distinct: Vec<&Credential> = Vec::new();
    for credential in route.credentials() {
        let is_same = |it: &&Credential| {
            it.id == credential.id && it.value.expose() == credential.value.expose()
        };
        if !distinct.iter().any(is_same) {
            distinct.push(credential);
        }
    }
    distinct
}
