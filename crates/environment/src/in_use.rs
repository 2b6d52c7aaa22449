//! An environment that somebody uses, and therefore nobody removes.
//!
//! Whoever uses one holds a shared lock on its directory; whoever removes one must hold it alone. The
//! system lets go of the locks of a process that dies. The directory's time of change is when it was
//! last used.

use std::fs::{File, TryLockError};
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::environment::Environment;

#[derive(Debug)]
pub struct InUse {
    environment: Environment,
    _held: File,
}

impl InUse {
    /// `None` if the directory is not an environment, or is just being removed.
    pub(crate) fn take(directory: &Path) -> Option<Self> {
        let held = File::open(directory).ok()?;
        held.try_lock_shared().ok()?;
        // Read only now, when nobody can be removing it.
        let environment = Environment::load(directory)?;
        // Only its owner can write the time; another user's use goes by unseen.
        let _ = held.set_modified(SystemTime::now());
        Some(Self { environment, _held: held })
    }
}

impl Deref for InUse {
    type Target = Environment;

    fn deref(&self) -> &Environment {
        &self.environment
    }
}

/// A directory that nobody uses, and cannot begin to as long as this is there.
#[derive(Debug)]
pub(crate) struct Alone {
    held: File,
}

impl Alone {
    /// `None` if somebody uses it, which is written down as its last use.
    pub(crate) fn with(directory: &Path) -> io::Result<Option<Self>> {
        let held = File::open(directory)?;
        match held.try_lock() {
            Ok(()) => Ok(Some(Self { held })),
            Err(TryLockError::WouldBlock) => {
                let _ = held.set_modified(SystemTime::now());
                Ok(None)
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    pub(crate) fn idle(&self, now: SystemTime) -> io::Result<Duration> {
        Ok(now.duration_since(self.held.metadata()?.modified()?).unwrap_or_default())
    }
}
