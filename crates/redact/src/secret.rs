//! The value of a secret, and what identifies it.

use std::fmt;
use types::SecretId;
use zeroize::Zeroizing;

/// A secret text: never printed, zeroed on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(Zeroizing<String>);

impl SecretText {
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(..)")
    }
}

/// One version of a secret. A version has one value; another value is another version.
#[derive(Clone)]
pub struct SecretVersion {
    pub id: SecretId,
    pub version: u64,
    pub name: String,
    pub value: SecretText,
}

impl fmt::Debug for SecretVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.id, self.version)
    }
}
