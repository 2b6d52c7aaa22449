//! The bytes of files, each in a file named by its id.
//!
//! Bytes are written to a staging directory, synced and renamed, so that a file under an id is
//! always complete. Bytes without a row, because it was never committed or was deleted, are moved
//! aside at the next start and removed after the retention: a database that was restored wrongly
//! must not delete the files.

use crate::DatabaseError;
use crate::database::{create_private_directory, sync_directory};
use crate::integrity::{quarantine_name, was_quarantined_before};
use chrono::{DateTime, Utc};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use types::FileId;
use uuid::Uuid;

/// Files in 256 shards, since listing one directory with all of them would be slow.
#[derive(Debug, Clone)]
pub struct Blobs {
    staging: PathBuf,
    files: PathBuf,
    aside: PathBuf,
}

/// Files without a record, which were moved aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuarantinedFiles {
    pub files: usize,
    pub directory: PathBuf,
}

impl Blobs {
    /// Opens the directories, and deletes what the last server had not finished writing.
    pub(crate) fn open(directory: &Path) -> Result<Self, DatabaseError> {
        let [staging, files, aside] =
            ["staging", "files", "aside"].map(|name| directory.join(name));
        let blobs = Self { staging, files, aside };
        if blobs.staging.exists() {
            fs::remove_dir_all(&blobs.staging).map_err(DatabaseError::io(&blobs.staging))?;
        }
        create_private_directory(&blobs.staging)?;
        create_private_directory(&blobs.files)?;
        Ok(blobs)
    }

    /// A new path in the staging directory, on the same file system as the files.
    pub fn staging_path(&self) -> PathBuf {
        self.staging.join(Uuid::now_v7().to_string())
    }

    /// Makes a staged file durable under an id. Blocks until it is synced.
    pub fn persist(&self, staged: &Path, id: FileId) -> Result<(), DatabaseError> {
        let shard = self.shard_directory(id);
        self.ensure_shard(&shard)?;
        File::open(staged)
            .and_then(|file| file.sync_all())
            .and_then(|()| fs::rename(staged, shard.join(id.to_string())))
            .map_err(DatabaseError::io(staged))?;
        sync_directory(&shard)
    }

    fn ensure_shard(&self, shard: &Path) -> Result<(), DatabaseError> {
        match fs::create_dir(shard) {
            Ok(()) => sync_directory(&self.files),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(DatabaseError::io(shard)(error)),
        }
    }

    pub fn open_file(&self, id: FileId) -> Result<Option<File>, DatabaseError> {
        let path = self.path(id);
        match File::open(&path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(DatabaseError::io(&path)(error)),
        }
    }

    /// Removes the bytes of a file whose row is gone; succeeds if they no longer exist.
    pub fn remove(&self, id: FileId) -> Result<(), DatabaseError> {
        let path = self.path(id);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(DatabaseError::io(&path)(error))
            }
            _ => Ok(()),
        }
    }

    /// Moves files whose id is not in `known` into a directory that is named by the time.
    pub(crate) fn quarantine_orphans(
        &self,
        known: &HashSet<FileId>,
        now: DateTime<Utc>,
    ) -> Result<Option<QuarantinedFiles>, DatabaseError> {
        let directory = self.aside.join(quarantine_name(now));
        let mut files = 0;
        for shard in fs::read_dir(&self.files).map_err(DatabaseError::io(&self.files))? {
            let shard = shard.map_err(DatabaseError::io(&self.files))?.path();
            // The database marker is beside the shards.
            if !shard.is_dir() {
                continue;
            }
            for file in fs::read_dir(&shard).map_err(DatabaseError::io(&shard))? {
                let file = file.map_err(DatabaseError::io(&shard))?;
                let id = file.file_name().to_str().and_then(|name| name.parse().ok());
                if id.is_some_and(|id| known.contains(&id)) {
                    continue;
                }
                if files == 0 {
                    create_private_directory(&directory)?;
                }
                let to = directory.join(file.file_name());
                fs::rename(file.path(), to).map_err(DatabaseError::io(&file.path()))?;
                files += 1;
            }
        }
        Ok((files > 0).then_some(QuarantinedFiles { files, directory }))
    }

    /// Removes the directories that were moved aside before that time, and returns their number.
    pub(crate) fn remove_quarantined(&self, before: DateTime<Utc>) -> Result<usize, DatabaseError> {
        let listed = match fs::read_dir(&self.aside) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            listed => listed.map_err(DatabaseError::io(&self.aside))?,
        };
        let mut removed = 0;
        for entry in listed {
            let entry = entry.map_err(DatabaseError::io(&self.aside))?;
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| was_quarantined_before(name, before)) {
                fs::remove_dir_all(entry.path()).map_err(DatabaseError::io(&entry.path()))?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    fn path(&self, id: FileId) -> PathBuf {
        self.shard_directory(id).join(id.to_string())
    }

    /// The shard is the last byte of the id: the first bytes are the time, and alike for decades.
    fn shard_directory(&self, id: FileId) -> PathBuf {
        let [.., last] = *id.uuid().as_bytes();
        self.files.join(format!("{last:02x}"))
    }
}
