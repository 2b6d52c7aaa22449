//! An environment that somebody uses, and therefore nobody removes.
//!
//! Whoever uses one holds a shared lock on its record; whoever removes one must hold that alone. The
//! record and not the directory, because sandboxes see the directory and could lock it themselves. The
//! system lets go of the locks of a process that dies. The record's time of change is the last use.

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
    /// `None` if the directory is not an environment, or is just being removed.
    pub(crate) fn acquire(directory: &Path) -> Option<Self> {
        let record = record_path(directory);
        let held = File::open(&record).ok()?;
        held.try_lock_shared().ok()?;
        // It may have been removed, and even made again, before it was held.
        let same = fs::metadata(&record).ok()?.ino() == held.metadata().ok()?.ino();
        let environment = same.then(|| BuiltEnvironment::load(directory))??;
        // Only its owner can write the time; another user's use goes by unseen.
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

/// A directory that nobody uses, and cannot begin to as long as this is there.
#[derive(Debug)]
pub(crate) struct ExclusiveLock {
    /// Without a record, nobody can use it in the first place.
    lock: Option<File>,
}

impl ExclusiveLock {
    /// `None` if somebody uses it, which is written down as its last use.
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
