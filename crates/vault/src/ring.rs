//! The keys that there are: one seals, and those before it still open.

use crate::key::{CannotSeal, Key, OVERHEAD};
use crate::plain::Plain;
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use std::collections::BTreeSet;
use std::str::FromStr;
use types::{Label, Sealed, SealingKeyId};
use zeroize::Zeroizing;

/// A data key once it is wrapped.
const WRAPPED_BYTES: usize = Key::BYTES + OVERHEAD;
/// With its padding or without: both are what programs print.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[derive(Debug, Clone)]
pub struct Keyring {
    newest: Key,
    older: Vec<Key>,
}

/// Text that is no key, or several that are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be 32 random bytes as base64, such as `openssl rand -base64 32` gives, or several of \
     them, the newest first, with commas between them"
)]
pub struct NotAKeyring;

/// A value that cannot be read: sealed with a key that is not here, for another place, or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("what is sealed here was not sealed here, or not with a key that this server has")]
pub struct Unsealed;

impl Keyring {
    pub(crate) fn of(newest: Key) -> Self {
        Self { newest, older: Vec::new() }
    }

    pub(crate) fn newest(&self) -> &Key {
        &self.newest
    }

    pub(crate) fn has_older(&self) -> bool {
        !self.older.is_empty()
    }

    pub(crate) fn covers(&self, in_use: &BTreeSet<SealingKeyId>) -> bool {
        in_use.iter().all(|id| self.find(*id).is_some())
    }

    pub fn seal(&self, label: &Label, plain: &Plain) -> Result<Sealed, CannotSeal> {
        let data = Key::random()?;
        let mut bytes = self.newest.seal(&about("key", label), data.bytes())?;
        bytes.append(&mut data.seal(&about("value", label), plain.reveal().as_bytes())?);
        Ok(Sealed { key: self.newest.id(), bytes })
    }

    pub fn open(&self, label: &Label, sealed: &Sealed) -> Result<Plain, Unsealed> {
        self.opened(label, sealed).ok_or(Unsealed)
    }

    fn opened(&self, label: &Label, sealed: &Sealed) -> Option<Plain> {
        let master = self.find(sealed.key)?;
        let (wrapped, text) = sealed.bytes.split_at_checked(WRAPPED_BYTES)?;
        let data = Key::from_bytes(&master.open(&about("key", label), wrapped)?)?;
        let text = data.open(&about("value", label), text)?;
        Some(Plain::new(str::from_utf8(&text).ok()?.to_owned()))
    }

    fn find(&self, id: SealingKeyId) -> Option<&Key> {
        std::iter::once(&self.newest).chain(&self.older).find(|key| key.id() == id)
    }
}

impl FromStr for Keyring {
    type Err = NotAKeyring;

    fn from_str(text: &str) -> Result<Self, NotAKeyring> {
        let key = |text: &str| {
            let bytes = Zeroizing::new(BASE64.decode(text.trim()).map_err(|_| NotAKeyring)?);
            Key::from_bytes(&bytes).ok_or(NotAKeyring)
        };
        let mut keys = text.split(',').map(key);
        let newest = keys.next().ok_or(NotAKeyring)??;
        Ok(Self { newest, older: keys.collect::<Result<_, _>>()? })
    }
}

/// Everything that says which value it is, each with its length, so that no two labels give the same
/// bytes.
fn about(what: &str, label: &Label) -> Vec<u8> {
    let Label { workspace, holder, name, version, place } = label;
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
