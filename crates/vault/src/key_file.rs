//! The file of the master key: 32 bytes that are readable by its owner alone.
//!
//! A new key is first kept beside the old one, and takes its place once everything is sealed with
//! it. Which of the two it is after a crash is said by what is sealed, never by the files.

use crate::key::{SealError, SealingKey};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use types::SealingKeyId;

const NAME: &str = "secrets.key";

/// Why a key file is not used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error(transparent)]
    Unusable(#[from] keyfile::Error),
    #[error(
        "{} is not there, and there are secrets that were sealed with it; bring it back, without it \
         they cannot be read",
        .0.display()
    )]
    Missing(PathBuf),
    #[error(
        "{} is not the key that the secrets here were sealed with; bring that one back",
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

    /// The key that everything is sealed with, and a new one where nothing is. Ends what a rotation
    /// that was interrupted has left.
    pub(crate) fn load(&self, in_use: &BTreeSet<SealingKeyId>) -> Result<SealingKey, KeyFileError> {
        let fits = |key: &SealingKey| in_use.iter().all(|id| *id == key.id());
        let (current, next) = (read_key(&self.path)?, read_key(&self.next())?);
        let found = current.is_some();
        if let Some(current) = current.filter(&fits) {
            if next.is_some() {
                fs::remove_file(self.next()).map_err(io_error(&self.next()))?;
            }
            return Ok(current);
        }
        if let Some(next) = next.filter(|key| !in_use.is_empty() && fits(key)) {
            self.promote_next()?;
            return Ok(next);
        }
        match (found, in_use.is_empty()) {
            (false, true) => create_key(&self.path),
            (false, false) => Err(KeyFileError::Missing(self.path.clone())),
            (true, _) => Err(KeyFileError::WrongKey(self.path.clone())),
        }
    }

    /// A new key, beside the one that is in use.
    pub(crate) fn create_next(&self) -> Result<SealingKey, KeyFileError> {
        create_key(&self.next())
    }

    /// The new key takes the place of the old one, of which nothing is left.
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
