//! Redactors of secrets that several sandboxes share: prepared once, in a bounded cache.

use super::patterns::SecretPatterns;
use super::{OutputRedactor, cache_full_error};
use std::fmt;
use types::{Error, REDACTED_BYTES_MIN, SecretId, SharedCache};

/// Memory limit of all redactors that are in use or cached for the next sandbox.
const REDACTORS_BYTES_MAX: usize = 128 * 1024 * 1024;

/// One version of a secret, as code receives it.
#[derive(Clone)]
pub struct SecretVersion {
    pub id: SecretId,
    pub version: u64,
    pub name: String,
    pub value: String,
}

impl fmt::Debug for SecretVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.id, self.version)
    }
}

/// The redactors in use, by their secrets, and some recently used ones.
pub struct RedactorCache(SharedCache<Vec<(SecretId, u64, String)>, SecretPatterns>);

impl Default for RedactorCache {
    fn default() -> Self {
        Self(SharedCache::new(REDACTORS_BYTES_MAX))
    }
}

impl fmt::Debug for RedactorCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedactorCache(..)")
    }
}

impl RedactorCache {
    /// The redactor of these secrets. All sandboxes with exactly these secrets share it.
    pub async fn redactor(&self, mut secrets: Vec<SecretVersion>) -> Result<OutputRedactor, Error> {
        secrets.retain(|secret| secret.value.len() >= REDACTED_BYTES_MIN);
        let key = |secret: &SecretVersion| (secret.id, secret.version, secret.name.clone());
        let keys: Vec<_> = secrets.iter().map(key).collect();
        if let Some(patterns) = self.0.get(&keys) {
            return Ok(OutputRedactor(Some(patterns)));
        }
        let secrets = secrets.into_iter().map(|secret| (secret.name, secret.value));
        let OutputRedactor(Some(patterns)) = OutputRedactor::prepare(secrets).await? else {
            return Ok(OutputRedactor::default());
        };
        let weight = patterns.memory_bytes();
        let kept = self.0.insert(keys, patterns, weight).ok_or_else(cache_full_error)?;
        Ok(OutputRedactor(Some(kept)))
    }
}
