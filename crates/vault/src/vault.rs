//! The vault of a server: where its key comes from, and how it gets another one.

use crate::file::{KeyFile, KeyFileError};
use crate::key::CannotSeal;
use crate::plain::Plain;
use crate::ring::{Keyring, Unsealed};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use types::{Label, Sealed, SealingKeyId};

#[derive(Debug)]
pub struct Vault {
    source: Source,
    ring: Keyring,
}

#[derive(Debug)]
enum Source {
    File(KeyFile),
    /// By whoever started the server, who alone can change it.
    Given,
}

#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    #[error(transparent)]
    File(#[from] KeyFileError),
    #[error(
        "the key that was given is not the one that the secrets here were sealed with; give that \
         one, or both with a comma between them, the new one first"
    )]
    Another,
}

#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    #[error(transparent)]
    File(#[from] KeyFileError),
    #[error("the server was given one key, and there is no other to rotate to")]
    OneKey,
}

/// The way from the keys before to the key after.
#[derive(Debug)]
pub struct Rotation {
    before: Keyring,
    after: Keyring,
}

impl Vault {
    /// With the keys that were given, or the one in the directory. `in_use` are the keys of everything
    /// that is sealed.
    pub fn open_with(
        given: Option<Keyring>,
        directory: &Path,
        in_use: &BTreeSet<SealingKeyId>,
    ) -> Result<Self, VaultError> {
        match given {
            Some(ring) if ring.covers(in_use) => Ok(Self { source: Source::Given, ring }),
            Some(_) => Err(VaultError::Another),
            None => {
                let file = KeyFile::new(directory);
                let ring = Keyring::of(file.load(in_use)?);
                Ok(Self { source: Source::File(file), ring })
            }
        }
    }

    pub fn seal(&self, label: &Label, plain: &Plain) -> Result<Sealed, CannotSeal> {
        self.ring.seal(label, plain)
    }

    pub fn open(&self, label: &Label, sealed: &Sealed) -> Result<Plain, Unsealed> {
        self.ring.open(label, sealed)
    }

    /// A key to seal everything with, which is kept before anything is. Nothing may be sealed with the
    /// vault between this and `finish`.
    pub fn begin_rotation(
        &mut self,
        in_use: &BTreeSet<SealingKeyId>,
    ) -> Result<Arc<Rotation>, RotationError> {
        let after = match &self.source {
            Source::File(file) => {
                // An earlier one may not have come to its end.
                self.ring = Keyring::of(file.load(in_use)?);
                Keyring::of(file.make_next()?)
            }
            Source::Given if self.ring.has_older() => Keyring::of(self.ring.newest().clone()),
            Source::Given => return Err(RotationError::OneKey),
        };
        Ok(Arc::new(Rotation { before: self.ring.clone(), after }))
    }

    /// For when everything is sealed with the new key, and that is on the disk.
    pub fn finish_rotation(&mut self, rotation: &Rotation) -> Result<(), KeyFileError> {
        self.ring = rotation.after.clone();
        match &self.source {
            Source::File(file) => file.promote(),
            Source::Given => Ok(()),
        }
    }
}

impl Rotation {
    /// With a new data key, too.
    pub fn reseal(&self, label: &Label, sealed: &Sealed) -> Result<Sealed, Unsealed> {
        let plain = self.before.open(label, sealed)?;
        self.after.seal(label, &plain).map_err(|_| Unsealed)
    }
}
