//! The file of the master key: 32 bytes that only its owner can read.
//!
//! A rotation first stores the new key beside the old one, and replaces the old one once everything
//! is sealed with the new key. After a crash the sealed values decide which of the two is current,
//! never the files.

use crate::key::{SealError, SealingKey};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use types::SealingKeyId;

const NAME: &str = "secrets.key";

/// Why a key file is unusable.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error(transparent)]
    Unusable(#[from] keyfile::Error),
    #[error(
        "master key file {} is missing, and stored secrets are encrypted with it; restore it from \
         a backup",
        .0.display()
    )]
    Missing(PathBuf),
    #[error(
        "{} is not the master key that the stored secrets are encrypted with; restore the original \
         from a backup",
        .0.display()
    )]
    WrongKey(PathBuf),
    #[error("{} cannot be used: {cause}", .path.display())]
    Io { path: PathBuf, cause: io::Error },
    #[error(transparent)]
    CannotSeal(#[from] SealError),
}

#[derive(Debug)]
pub(crate) struct KeyFile {
    path: PathBuf,
}

impl KeyFile {
    pub(crate) fn new(directory: &Path) -> Self {
        Self { path: directory.join(NAME) }
    }

    /// Loads the key that everything is sealed with, or creates one if nothing is sealed. Completes
    /// or discards an interrupted rotation.
    pub(crate) fn load(&self, in_use: &BTreeSet<SealingKeyId>) -> Result<SealingKey, KeyFileError> {
        let opens_all = |key: &SealingKey| in_use.iter().all(|id| *id == key.id());
        let (current, next) = (read_key(&self.path)?, read_key(&self.next())?);
        let found = current.is_some();
        if let Some(current) = current.filter(&opens_all) {
            if next.is_some() {
                fs::remove_file(self.next()).map_err(io_error(&self.next()))?;
            }
            return Ok(current);
        }
        if let Some(next) = next.filter(|key| !in_use.is_empty() && opens_all(key)) {
            self.promote_next()?;
            return Ok(next);
        }
        match (found, in_use.is_empty()) {
            (false, true) => create_key(&self.path),
            (false, false) => Err(KeyFileError::Missing(self.path.clone())),
            (true, _) => Err(KeyFileError::WrongKey(self.path.clone())),
        }
    }

    /// Creates a new key beside the current one.
    pub(crate) fn create_next(&self) -> Result<SealingKey, KeyFileError> {
        create_key(&self.next())
    }

    /// Replaces the old key with the new one. Nothing of the old one is left.
    pub(crate) fn promote_next(&self) -> Result<(), KeyFileError> {
        fs::rename(self.next(), &self.path)
            .and_then(|()| keyfile::sync_directory_of(&self.path))
            .map_err(io_error(&self.path))
    }

    fn next(&self) -> PathBuf {
        self.path.with_extension("key.next")
    }
}

fn read_key(path: &Path) -> Result<Option<SealingKey>, KeyFileError> {
    Ok(keyfile::read_key(path, SealingKey::BYTES)?.and_then(|bytes| SealingKey::from_bytes(&bytes)))
}

fn create_key(path: &Path) -> Result<SealingKey, KeyFileError> {
    let key = SealingKey::random()?;
    keyfile::create(path, key.bytes())?;
    Ok(key)
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> KeyFileError {
    |cause| KeyFileError::Io { path: path.to_owned(), cause }
}
