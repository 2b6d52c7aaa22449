//! Encodings of secrets that several users share: built once, off the threads that serve requests,
//! in a bounded cache.

use crate::secret::{SecretText, SecretVersion};
use crate::secret_encodings::{ENCODING_BYTES_MAX, SecretEncodings};
use std::sync::Arc;
use tokio::sync::Semaphore;
use types::{SecretId, SharedCache};

/// Memory limit of all encodings that are in use or cached: four times the most that one set of
/// secrets takes.
const CACHE_BYTES_MAX: usize = 192 * 1024 * 1024;
/// Values of at most this many bytes in total are prepared on the current thread: it takes less
/// than a millisecond.
const INLINE_BYTES_MAX: usize = 1024;
/// Concurrent preparations of more bytes: each takes a thread and memory for a while.
const PREPARATIONS_MAX: usize = 2;

/// Why values cannot be searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretEncodingsError {
    #[error(
        "the encodings of the secrets of this sandbox have more than {ENCODING_BYTES_MAX} bytes"
    )]
    TooLong,
    #[error("too many different secrets are in use by sandboxes at the moment")]
    CacheFull,
    #[error("the redaction of secret values could not be prepared")]
    NotBuilt,
}

/// Secrets are identified by id, version and the name that replaces them. A hash of the values would
/// tell, by the time of a request, whether another caller uses a guessed value.
type CacheKey = Vec<(SecretId, u64, String)>;

/// The encodings in use, by their secrets, and some recently used ones.
#[derive(Debug)]
pub struct SecretEncodingsCache {
    encodings: SharedCache<CacheKey, SecretEncodings>,
    preparations: Semaphore,
}

impl Default for SecretEncodingsCache {
    fn default() -> Self {
        let encodings = SharedCache::new(CACHE_BYTES_MAX);
        Self { encodings, preparations: Semaphore::new(PREPARATIONS_MAX) }
    }
}

impl SecretEncodingsCache {
    /// The encodings of exactly these secrets.
    pub async fn get_or_build(
        &self,
        secrets: &[&SecretVersion],
    ) -> Result<Arc<SecretEncodings>, SecretEncodingsError> {
        let key = |secret: &&SecretVersion| (secret.id, secret.version, secret.name.clone());
        let key: CacheKey = secrets.iter().map(key).collect();
        let has_values = |it: &Arc<SecretEncodings>| {
            secrets.iter().all(|secret| it.contains_value(&secret.value))
        };
        if let Some(encodings) = self.encodings.get(&key).filter(has_values) {
            return Ok(encodings);
        }
        let secrets = secrets.iter().map(|secret| (secret.name.clone(), secret.value.clone()));
        let encodings = build(secrets.collect(), &self.preparations).await?;
        let weight = encodings.memory_bytes();
        let kept = self.encodings.insert(key, Arc::new(encodings), weight);
        kept.ok_or(SecretEncodingsError::CacheFull)
    }
}

/// Builds the encodings of some names and values. A long build waits for a permit.
pub(crate) async fn build(
    secrets: Vec<(String, SecretText)>,
    preparations: &Semaphore,
) -> Result<SecretEncodings, SecretEncodingsError> {
    let bytes: usize = secrets.iter().map(|(_, value)| value.expose().len()).sum();
    let built = if bytes <= INLINE_BYTES_MAX {
        SecretEncodings::new(secrets)
    } else {
        let permit = preparations.acquire().await;
        let _permit = permit.map_err(|_| SecretEncodingsError::NotBuilt)?;
        let building = tokio::task::spawn_blocking(|| SecretEncodings::new(secrets));
        building.await.map_err(|_| SecretEncodingsError::NotBuilt)?
    };
    built.map_err(|_| SecretEncodingsError::TooLong)
}
