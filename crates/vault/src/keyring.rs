//! The available keys: the first seals, and the earlier ones still open.

use crate::key::{OVERHEAD, SealError, SealingKey};
use crate::plaintext::Plaintext;
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use std::collections::BTreeSet;
use std::str::FromStr;
use types::{SealContext, SealedValue, SealingKeyId};
use zeroize::Zeroizing;

/// Length of a wrapped data key.
const WRAPPED_BYTES: usize = SealingKey::BYTES + OVERHEAD;
/// With or without padding: programs print both.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[derive(Debug, Clone)]
pub struct Keyring {
    newest: SealingKey,
    older: Vec<SealingKey>,
}

/// The text is not a key, or one of several is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be 32 random bytes in base64, for example from `openssl rand -base64 32`; separate \
     several keys with commas, newest first"
)]
pub struct KeyringParseError;

/// A value that cannot be opened: its key is missing, it was sealed for another context, or it was
/// changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a stored secret cannot be decrypted: it was changed, or this server does not have its key"
)]
pub struct OpenError;

impl Keyring {
    pub(crate) fn new(newest: SealingKey) -> Self {
        Self { newest, older: Vec::new() }
    }

    pub(crate) fn newest(&self) -> &SealingKey {
        &self.newest
    }

    pub(crate) fn has_older(&self) -> bool {
        !self.older.is_empty()
    }

    pub(crate) fn covers(&self, in_use: &BTreeSet<SealingKeyId>) -> bool {
        in_use.iter().all(|id| self.find(*id).is_some())
    }

    pub fn seal(&self, label: &SealContext, plain: &Plaintext) -> Result<SealedValue, SealError> {
        let data = SealingKey::random()?;
        let mut bytes = self.newest.seal(&associated_data("key", label), data.bytes())?;
        bytes.append(&mut data.seal(&associated_data("value", label), plain.reveal().as_bytes())?);
        Ok(SealedValue { key: self.newest.id(), bytes })
    }

    pub fn open(&self, label: &SealContext, sealed: &SealedValue) -> Result<Plaintext, OpenError> {
        self.try_open(label, sealed).ok_or(OpenError)
    }

    fn try_open(&self, label: &SealContext, sealed: &SealedValue) -> Option<Plaintext> {
        let master = self.find(sealed.key)?;
        let (wrapped, text) = sealed.bytes.split_at_checked(WRAPPED_BYTES)?;
        let data = SealingKey::from_bytes(&master.open(&associated_data("key", label), wrapped)?)?;
        let text = data.open(&associated_data("value", label), text)?;
        Some(Plaintext::new(str::from_utf8(&text).ok()?.to_owned()))
    }

    fn find(&self, id: SealingKeyId) -> Option<&SealingKey> {
        std::iter::once(&self.newest).chain(&self.older).find(|key| key.id() == id)
    }
}

impl FromStr for Keyring {
    type Err = KeyringParseError;

    fn from_str(text: &str) -> Result<Self, KeyringParseError> {
        let key = |text: &str| {
            let bytes = Zeroizing::new(BASE64.decode(text.trim()).map_err(|_| KeyringParseError)?);
            SealingKey::from_bytes(&bytes).ok_or(KeyringParseError)
        };
        let mut keys = text.split(',').map(key);
        let newest = keys.next().ok_or(KeyringParseError)??;
        Ok(Self { newest, older: keys.collect::<Result<_, _>>()? })
    }
}

/// Everything that identifies the value, each with its length, so that no two contexts give the
/// same bytes.
fn associated_data(what: &str, label: &SealContext) -> Vec<u8> {
    let SealContext { workspace, holder, name, version, destination: place } = label;
    let (workspace, version) = (workspace.uuid(), version.to_be_bytes());
    let fields: [&[u8]; 7] = [
        b"belljar sealed 1",
        what.as_bytes(),
        workspace.as_bytes(),
        holder.as_bytes(),
        name.as_bytes(),
        &version,
        place.as_bytes(),
    ];
    let mut bytes = Vec::new();
    for field in fields {
        bytes.extend_from_slice(&(field.len() as u64).to_be_bytes());
        bytes.extend_from_slice(field);
    }
    bytes
}
