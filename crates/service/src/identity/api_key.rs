//! API keys: created once, returned once, and stored only as a hash.
//!
//! A key is `bj_`, its id, and 256 random bits, which need no slow hash. Rows are found by the id,
//! so that no secret is ever part of a look-up.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use std::fmt;
use subtle::ConstantTimeEq;
use types::{Error, ErrorCode, KeyId};
use uuid::Uuid;

const PREFIX: &str = "bj_";
const SECRET_BYTES: usize = 32;

/// The secret text of an API key. It is never written to a log or a record.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKeyText(String);

impl ApiKeyText {
    /// The whole key, for the one response that contains it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Creates a key: its id, its text, and the hash to store.
pub(crate) fn issue_key() -> Result<(KeyId, ApiKeyText, [u8; 32]), Error> {
    let id = Uuid::now_v7();
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::new(
            ErrorCode::DatabaseUnavailable,
            format!("the system random number generator failed: {error}"),
        )
    })?;
    let secret = ApiKeyText(format!("{PREFIX}{}_{}", id.simple(), URL_SAFE_NO_PAD.encode(bytes)));
    let hash = hash(&bytes);
    Ok((KeyId::new(id), secret, hash))
}

/// Whether the text has the form of an API key, valid or not.
pub(crate) fn has_key_prefix(bearer: &str) -> bool {
    bearer.starts_with(PREFIX)
}

/// A parsed API key, not yet verified.
pub(crate) fn parse_key(key: &str) -> Option<(KeyId, [u8; 32])> {
    let (id, secret) = key.strip_prefix(PREFIX)?.split_once('_')?;
    if id.len() != 32 {
        return None;
    }
    let id = Uuid::try_parse(id).ok()?;
    let bytes = URL_SAFE_NO_PAD.decode(secret).ok()?;
    (bytes.len() == SECRET_BYTES).then(|| (KeyId::new(id), hash(&bytes)))
}

/// Compares in constant time.
pub(crate) fn hashes_equal(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.ct_eq(other).into()
}

fn hash(secret: &[u8]) -> [u8; 32] {
    Sha256::digest(secret).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_by_its_hash_and_a_changed_one_is_not() {
        let (id, secret, kept) = issue_key().unwrap();
        let (found, hash) = parse_key(secret.reveal()).unwrap();
        assert_eq!(found, id);
        assert!(hashes_equal(&hash, &kept));
        let changed = if secret.0.ends_with('A') { 'B' } else { 'A' };
        let mut other = secret.0.clone();
        other.replace_range(40..41, &changed.to_string());
        assert!(parse_key(&other).is_none_or(|(_, hash)| !hashes_equal(&hash, &kept)));
    }

    #[test]
    fn what_is_not_a_key_is_not_looked_for() {
        let (_, secret, _) = issue_key().unwrap();
        for text in
            ["", "bj_", "bj__", "sk_1_2", &secret.0[..60], &format!("{}A", secret.0), "bj_é_é"]
        {
            assert!(parse_key(text).is_none(), "{text}");
        }
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }
}
