//! The vault of a server: the source of its key, and key rotation.

use crate::key::SealError;
use crate::key_file::{KeyFile, KeyFileError};
use crate::keyring::{Keyring, OpenError};
use crate::plaintext::Plaintext;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use types::{SealContext, SealedValue, SealingKeyId};

#[derive(Debug)]
pub struct Vault {
    source: KeySource,
    ring: Keyring,
}

#[derive(Debug)]
enum KeySource {
    File(KeyFile),
    /// From the configuration of the server; only the operator can change it.
    Provided,
}

#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    #[error(transparent)]
    File(#[from] KeyFileError),
    #[error(
        "BELLJAR_SECRETS_KEY is not the key that the stored secrets are encrypted with; set the \
         original key, or NEW,OLD"
    )]
    WrongKey,
}

#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    #[error(transparent)]
    File(#[from] KeyFileError),
    #[error(
        "cannot rotate: BELLJAR_SECRETS_KEY has only one key; set NEW,OLD and restart the server"
    )]
    OneKey,
}

/// A rotation from the earlier keys to a new key.
#[derive(Debug)]
pub struct Rotation {
    before: Keyring,
    after: Keyring,
}

impl Vault {
    /// Opens the vault with the given keys, or with the key file. `in_use` are the keys of all
    /// sealed values.
    pub fn open_with(
        keyring: Option<Keyring>,
        directory: &Path,
        in_use: &BTreeSet<SealingKeyId>,
    ) -> Result<Self, VaultError> {
        match keyring {
            Some(ring) if ring.covers(in_use) => Ok(Self { source: KeySource::Provided, ring }),
            Some(_) => Err(VaultError::WrongKey),
            None => {
                let file = KeyFile::new(directory);
                let ring = Keyring::new(file.load(in_use)?);
                Ok(Self { source: KeySource::File(file), ring })
            }
        }
    }

    pub fn seal(&self, label: &SealContext, plain: &Plaintext) -> Result<SealedValue, SealError> {
        self.ring.seal(label, plain)
    }

    pub fn open(&self, label: &SealContext, sealed: &SealedValue) -> Result<Plaintext, OpenError> {
        self.ring.open(label, sealed)
    }

    /// Creates the new key and stores it before anything is sealed with it. Nothing else may be
    /// sealed with the vault until `finish_rotation`.
    pub fn begin_rotation(
        &mut self,
        in_use: &BTreeSet<SealingKeyId>,
    ) -> Result<Arc<Rotation>, RotationError> {
        let after = match &self.source {
            KeySource::File(file) => {
                // An earlier rotation may not have been finished.
                self.ring = Keyring::new(file.load(in_use)?);
                Keyring::new(file.create_next()?)
            }
            KeySource::Provided if self.ring.has_older() => {
                Keyring::new(self.ring.newest().clone())
            }
            KeySource::Provided => return Err(RotationError::OneKey),
        };
        Ok(Arc::new(Rotation { before: self.ring.clone(), after }))
    }

    /// Call this when everything is sealed with the new key and on the disk.
    pub fn finish_rotation(&mut self, rotation: &Rotation) -> Result<(), KeyFileError> {
        self.ring = rotation.after.clone();
        match &self.source {
            KeySource::File(file) => file.promote_next(),
            KeySource::Provided => Ok(()),
        }
    }
}

impl Rotation {
    /// Uses a new data key, too.
    pub fn reseal(
        &self,
        label: &SealContext,
        sealed: &SealedValue,
    ) -> Result<SealedValue, OpenError> {
        let plain = self.before.open(label, sealed)?;
        self.after.seal(label, &plain).map_err(|_| OpenError)
    }
}
