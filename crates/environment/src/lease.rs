//! An environment in use, which must not be removed.
//!
//! A user holds a shared lock on the environment's record; a remover needs an exclusive one. The
//! lock is on the record and not on the directory, because sandboxes see the directory and could
//! lock it themselves. Linux releases the locks of a process that dies. The record's mtime is the
//! last use.

use std::fs::{self, File, TryLockError};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::environment::{BuiltEnvironment, record_path};

#[derive(Debug)]
pub struct EnvironmentLease {
    environment: BuiltEnvironment,
    _lock: File,
}

impl EnvironmentLease {
    /// `None` if the directory is not an environment, or is being removed.
    pub(crate) fn acquire(directory: &Path) -> Option<Self> {
        let record = record_path(directory);
        let held = File::open(&record).ok()?;
        held.try_lock_shared().ok()?;
        // The record may have been removed, and even recreated, before it was locked.
        let same = fs::metadata(&record).ok()?.ino() == held.metadata().ok()?.ino();
        let environment = same.then(|| BuiltEnvironment::load(directory))??;
        // Only the owner can set the mtime; use by another user is not recorded.
        let _ = held.set_modified(SystemTime::now());
        Some(Self { environment, _lock: held })
    }
}

impl Deref for EnvironmentLease {
    type Target = BuiltEnvironment;

    fn deref(&self) -> &BuiltEnvironment {
        &self.environment
    }
}

/// An unused directory. No process can start to use it while this exists.
#[derive(Debug)]
pub(crate) struct ExclusiveLock {
    /// Absent without a record: then no process can use the directory anyway.
    lock: Option<File>,
}

impl ExclusiveLock {
    /// `None` if the environment is in use, which is recorded as its last use.
    pub(crate) fn try_acquire(directory: &Path) -> io::Result<Option<Self>> {
        let held = match File::open(record_path(directory)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Some(Self { lock: None }));
            }
            held => held?,
        };
        match held.try_lock() {
            Ok(()) => Ok(Some(Self { lock: Some(held) })),
            Err(TryLockError::WouldBlock) => {
                let _ = held.set_modified(SystemTime::now());
                Ok(None)
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    pub(crate) fn idle_time(&self, now: SystemTime) -> io::Result<Duration> {
        let Some(held) = &self.lock else { return Ok(Duration::MAX) };
        Ok(now.duration_since(held.metadata()?.modified()?).unwrap_or_default())
    }
}
