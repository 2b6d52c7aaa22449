//! A value that can be read. It has no `Display` and is never serialised, so that no log, record or
//! answer can come to have it by accident.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use std::fmt;
use zeroize::Zeroizing;

/// The text of a secret. Wiped when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Plaintext(Zeroizing<String>);

impl Plaintext {
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// For the one place that it is meant for.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Plaintext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Plain(..)")
    }
}

/// What is not text is not told again in the error.
impl<'de> Deserialize<'de> for Plaintext {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum TextOrOther {
            Text(String),
            Other(IgnoredAny),
        }
        match TextOrOther::deserialize(deserializer)? {
            TextOrOther::Text(text) => Ok(Self::new(text)),
            TextOrOther::Other(_) => Err(serde::de::Error::custom("must be text")),
        }
    }
}
