//! An opened value. It has no `Display` and is never serialised, so that it cannot end up in a log,
//! record or response by accident.

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

    /// The text, for its one intended use.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Plaintext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Plain(..)")
    }
}

/// The error does not repeat a value that is not text.
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
