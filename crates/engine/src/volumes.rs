//! Volumes in sandboxes: directories that outlive sessions.
//!
//! A sandbox sees a read-only volume directly. Of a writable volume it has a copy in memory,
//! bounded by the quota, that the engine refreshes before each execution and persists after it,
//! file by file. So Linux enforces the quota, and code never touches the disk of the host. If two
//! sessions write the same file, the one whose execution ends later wins.

mod directory;

use directory::VolumeTransaction;
pub use directory::{FileStamp, VOLUME_FILES_MAX, VolumeBase, VolumeDirectory, VolumeFileError};

use crate::engine::Engine;
use sandbox::{
    DirectoryListing, FileEntry, FileError, Sandbox, SandboxDirectory, VolumeContent, VolumeMount,
};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::spawn_blocking;
use types::{Error, ErrorCode, Execution, ExecutionStatus, VolumeAccess, Warning};

/// Limit for persisting the files of one execution: its caller waits for this.
const PERSIST_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of reported unsaved files; code can create any number.
const REPORTED_MAX: usize = 20;

/// A volume that code of a sandbox may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantedVolume {
    /// Its name for users.
    pub name: String,
    /// The name of its directory.
    pub directory: String,
    /// Its path inside the sandbox.
    pub path: PathBuf,
    pub access: VolumeAccess,
    pub quota_bytes: u64,
}

impl GrantedVolume {
    pub(crate) fn mount(&self) -> VolumeMount {
        let content = match self.access {
            VolumeAccess::Read => sandbox::read_only_volume(&self.directory),
            VolumeAccess::Write => {
                VolumeContent::Held { bytes: self.quota_bytes, inodes: VOLUME_FILES_MAX as u64 }
            }
        };
        VolumeMount { path: self.path.clone(), content }
    }
}

/// The copies of the writable volumes of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct WritableVolumes {
    volumes: Vec<WritableVolume>,
    /// An operation was interrupted, so their contents are unknown.
    lost: bool,
}

#[derive(Debug)]
struct WritableVolume {
    name: String,
    directory: VolumeDirectory,
    quota_bytes: u64,
    inside: SandboxDirectory,
    /// Each file as it was when both copies were last equal.
    synced: BTreeMap<String, SyncedFile>,
    /// Keeps other sessions from changing the volume meanwhile.
    lock: Arc<AsyncMutex<()>>,
}

#[derive(Debug, Clone)]
struct SyncedFile {
    inside: FileEntry,
    stored: FileStamp,
}

/// Files that could not be persisted, and why.
#[derive(Debug, Default)]
pub(crate) struct UnsavedFiles {
    pub(crate) failed: Option<Error>,
    pub(crate) skipped: Vec<String>,
}

impl WritableVolumes {
    pub(crate) fn open(
        sandbox: &Sandbox,
        volumes: &[GrantedVolume],
        base: &VolumeBase,
        locks: &VolumeLocks,
    ) -> io::Result<Self> {
        let writable = volumes.iter().filter(|volume| volume.access == VolumeAccess::Write);
        let directories = sandbox.volume_directories()?;
        if writable.clone().count() != directories.len() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let opened = writable.zip(directories).map(|(volume, inside)| WritableVolume {
            name: volume.name.clone(),
            directory: base.volume(&volume.directory),
            quota_bytes: volume.quota_bytes,
            inside,
            synced: BTreeMap::new(),
            lock: locks.lock_for(&volume.directory),
        });
        Ok(Self { volumes: opened.collect(), lost: false })
    }

    /// Copies changes that other sessions have persisted into the sandbox.
    pub(crate) async fn refresh(&mut self) -> Result<(), Error> {
        let refreshed =
            self.each(|volume| volume.refresh().map_err(|error| volume.volume_error(&error)));
        refreshed.await?.into_iter().collect()
    }

    /// Writes the changes of the code to the disk.
    pub(crate) async fn persist(&mut self) -> UnsavedFiles {
        let mut unsaved = UnsavedFiles::default();
        match self.each(WritableVolume::persist).await {
            Err(error) => unsaved.failed = Some(error),
            Ok(volumes) => volumes.into_iter().for_each(|volume| {
                unsaved.failed = unsaved.failed.take().or(volume.failed);
                unsaved.skipped.extend(volume.skipped);
            }),
        }
        unsaved
    }

    /// Runs `work` on one volume after the other, each under its lock.
    async fn each<T: Send + 'static>(
        &mut self,
        work: impl Fn(&mut WritableVolume) -> T + Copy + Send + 'static,
    ) -> Result<Vec<T>, Error> {
        if self.lost {
            return Err(lost_error());
        }
        let mut done = Vec::with_capacity(self.volumes.len());
        for mut volume in std::mem::take(&mut self.volumes) {
            self.lost = true;
            let writing = Arc::clone(&volume.lock).lock_owned().await;
            let task = spawn_blocking(move || {
                let _writing = writing;
                let result = work(&mut volume);
                (volume, result)
            });
            let (volume, result) = task.await.map_err(|_| lost_error())?;
            self.volumes.push(volume);
            done.push(result);
        }
        self.lost = false;
        Ok(done)
    }
}

impl WritableVolume {
    fn refresh(&mut self) -> Result<(), VolumeFileError> {
        let stored = self.directory.list()?;
        let stale: Vec<String> =
            self.synced.keys().filter(|name| !stored.contains_key(*name)).cloned().collect();
        for name in stale {
            match self.inside.remove(&name) {
                Ok(()) | Err(FileError::NotFound { .. }) => drop(self.synced.remove(&name)),
                Err(error) => return Err(error.into()),
            }
        }
        let mut fresh = BTreeMap::new();
        for (name, stamp) in stored {
            if self.synced.get(&name).is_none_or(|pair| pair.stored != stamp) {
                let (mut file, _) = self.directory.open(&name)?;
                self.inside.write(&name, &mut file)?;
                fresh.insert(name, stamp);
            }
        }
        if fresh.is_empty() {
            return Ok(());
        }
        let mut inside = self.inside.snapshot().files;
        for (name, stored) in fresh {
            if let Some(entry) = inside.remove(&name) {
                self.synced.insert(name, SyncedFile { inside: entry, stored });
            }
        }
        Ok(())
    }

    /// Persists every file that it can, even if others fail.
    fn persist(&mut self) -> UnsavedFiles {
        let now = self.inside.snapshot();
        let mut left_out = Vec::new();
        let volume = self.directory.clone();
        let changed = match VolumeTransaction::begin(&volume, self.quota_bytes) {
            Ok(mut change) => {
                self.remove_deleted(&now, &mut change, &mut left_out);
                self.persist_changed(now.files, &mut change, &mut left_out);
                change.commit()
            }
            Err(error) => Err(error),
        };
        left_out.extend(changed.err().map(|error| ("/".to_owned(), error.into())));
        let others = now.skipped.len().saturating_sub(REPORTED_MAX);
        let more = (others > 0).then(|| ("…".to_owned(), format!("and {others} more")));
        let skipped = now.skipped.into_iter().take(REPORTED_MAX).chain(more);
        UnsavedFiles {
            failed: self.unsaved_error(&left_out),
            skipped: skipped
                .map(|(file, why)| format!("volume {}: {file}: {why}", self.name))
                .collect(),
        }
    }

    /// Removes files that the code deleted, unless another session has changed them meanwhile.
    fn remove_deleted(
        &mut self,
        now: &DirectoryListing,
        change: &mut VolumeTransaction<'_>,
        left_out: &mut UnsavedFileErrors,
    ) {
        // Files below an unreadable directory are invisible, not deleted.
        let all_hidden = now.skipped.contains_key(".");
        let hidden = |name: &str| {
            all_hidden
                || Path::new(name)
                    .ancestors()
                    .any(|path| path.to_str().is_some_and(|path| now.skipped.contains_key(path)))
        };
        let is_gone = |name: &&String| !now.files.contains_key(*name) && !hidden(name);
        let deleted: Vec<String> = self.synced.keys().filter(is_gone).cloned().collect();
        for name in deleted {
            let Some(pair) = self.synced.remove(&name) else { continue };
            if change.files().get(&name) != Some(&pair.stored) {
                continue;
            }
            match change.remove(&name) {
                Ok(()) | Err(VolumeFileError::NotFound { .. }) => {}
                Err(error) => left_out.push((name, error)),
            }
        }
    }

    fn persist_changed(
        &mut self,
        files: BTreeMap<String, FileEntry>,
        change: &mut VolumeTransaction<'_>,
        left_out: &mut UnsavedFileErrors,
    ) {
        let until = Instant::now() + PERSIST_TIMEOUT;
        let is_same = |name: &str, entry: &FileEntry| {
            self.synced.get(name).is_some_and(|pair| pair.inside.is_unchanged_from(entry))
        };
        let mut changed: Vec<(String, FileEntry)> =
            files.into_iter().filter(|(name, entry)| !is_same(name, entry)).collect();
        // Shrinking files come first, because they free space for growing ones.
        let before = |name: &str| change.files().get(name).map_or(0, |stamp| stamp.size);
        changed.sort_by_key(|(name, entry)| i128::from(entry.size) - i128::from(before(name)));
        for (name, entry) in changed {
            if Instant::now() > until {
                left_out.push((name, VolumeFileError::Timeout));
                continue;
            }
            match self.persist_file(&name, change) {
                Ok(stamp) => {
                    self.synced.insert(name, SyncedFile { inside: entry, stored: stamp });
                }
                Err(error) => left_out.push((name, error)),
            }
        }
    }

    fn persist_file(
        &self,
        name: &str,
        change: &mut VolumeTransaction<'_>,
    ) -> Result<FileStamp, VolumeFileError> {
        let (file, _) = self.inside.open(name)?;
        // The file may still be growing.
        change.write(name, &mut file.take(self.quota_bytes.saturating_add(1)))
    }

    fn unsaved_error(&self, left_out: &UnsavedFileErrors) -> Option<Error> {
        let (name, first) = left_out.first()?;
        let error = volume_file_error(first);
        let others = left_out.len() - 1;
        let more = if others == 0 { String::new() } else { format!(" (and {others} more)") };
        Some(Error {
            message: format!("volume {:?}: {name}{more} not saved: {}", self.name, error.message),
            ..error
        })
    }

    fn volume_error(&self, error: &VolumeFileError) -> Error {
        let error = volume_file_error(error);
        Error { message: format!("volume {:?}: {}", self.name, error.message), ..error }
    }
}

/// Files that could not be persisted.
type UnsavedFileErrors = Vec<(String, VolumeFileError)>;

/// Locks for changes of volumes, by directory.
#[derive(Debug, Default)]
pub(crate) struct VolumeLocks(Mutex<HashMap<String, Arc<AsyncMutex<()>>>>);

impl VolumeLocks {
    fn lock_for(&self, directory: &str) -> Arc<AsyncMutex<()>> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Unused locks are removed.
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry(directory.to_owned()).or_default())
    }
}

/// Memory budget for copies of volumes, which use the server's memory and no sandbox's.
#[derive(Debug)]
pub(crate) struct VolumeMemoryBudget(Mutex<u64>);

/// A part of the budget. Dropping it releases the memory.
#[derive(Debug)]
pub(crate) struct MemoryReservation {
    budget: Arc<VolumeMemoryBudget>,
    bytes: u64,
}

impl VolumeMemoryBudget {
    pub(crate) fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(bytes)))
    }

    fn bytes_left(&self) -> MutexGuard<'_, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn reserve(
        self: &Arc<Self>,
        volumes: &[GrantedVolume],
    ) -> Result<MemoryReservation, Error> {
        let writable = volumes.iter().filter(|volume| volume.access == VolumeAccess::Write);
        let bytes = writable.map(|volume| volume.quota_bytes).sum();
        let mut bytes_left = self.bytes_left();
        *bytes_left = bytes_left.checked_sub(bytes).ok_or_else(|| {
            let message =
                format!("not enough memory for another copy of volumes with {bytes} bytes");
            Error::new(ErrorCode::CapacityExhausted, message)
                .hint("close sessions that write to volumes, or reduce the quotas of the volumes")
        })?;
        Ok(MemoryReservation { budget: Arc::clone(self), bytes })
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        *self.budget.bytes_left() += self.bytes;
    }
}

fn volume_file_error(error: &VolumeFileError) -> Error {
    let with_code = |code| Error::new(code, error.to_string());
    match error {
        VolumeFileError::Full { .. } | VolumeFileError::Name(FileError::Full { .. }) => {
            with_code(ErrorCode::DiskExceeded)
                .hint("remove files from the volume, or increase its quota")
        }
        VolumeFileError::NotFound { .. } => with_code(ErrorCode::FileNotFound),
        VolumeFileError::Name(_) | VolumeFileError::NameConflict { .. } => {
            with_code(ErrorCode::FileUnsupported)
        }
        VolumeFileError::Io(_) | VolumeFileError::Timeout => {
            with_code(ErrorCode::DatabaseUnavailable)
        }
    }
}

impl Engine {
    /// Runs `work` with a volume while no other change of that volume runs.
    pub async fn with_volume<T: Send + 'static>(
        &self,
        directory: String,
        work: impl FnOnce(&VolumeDirectory) -> Result<T, VolumeFileError> + Send + 'static,
    ) -> Result<T, Error> {
        let volume = self.volume_base()?.volume(&directory);
        let writing = self.volume_locks.lock_for(&directory).lock_owned().await;
        run_blocking(move || {
            let _writing = writing;
            work(&volume)
        })
        .await
    }

    /// Moves every unknown volume into a directory of this name, before any volume is used. Returns
    /// their number.
    pub async fn set_aside_volumes(
        &self,
        is_known: impl Fn(&str) -> bool + Send + 'static,
        name: String,
    ) -> Result<usize, Error> {
        let base = self.volume_base()?.clone();
        run_blocking(move || Ok(base.set_aside(is_known, &name)?)).await
    }

    /// Removes directories of volumes that were set aside, by their names.
    pub async fn remove_volumes_set_aside(
        &self,
        is_over: impl Fn(&str) -> bool + Send + 'static,
    ) -> Result<(), Error> {
        let base = self.volume_base()?.clone();
        run_blocking(move || Ok(base.remove_set_aside(is_over)?)).await
    }

    pub(crate) fn volume_base(&self) -> Result<&VolumeBase, Error> {
        let none = || Error::new(ErrorCode::DatabaseUnavailable, "this server has no volumes");
        self.config.volumes.as_ref().ok_or_else(none)
    }
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, VolumeFileError> + Send + 'static,
) -> Result<T, Error> {
    match spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| volume_file_error(&error)),
        Err(error) => Err(volume_file_error(&VolumeFileError::Io(error.into()))),
    }
}

impl UnsavedFiles {
    /// A file that was not persisted makes the execution's own success report wrong.
    pub(crate) fn report_in(self, execution: &mut Execution) {
        let warnings = self.skipped.into_iter().map(|message| Warning {
            code: ErrorCode::FileUnsupported.to_string(),
            message: format!("not saved: {message}"),
        });
        execution.warnings.extend(warnings);
        let Some(error) = self.failed else { return };
        if execution.status == ExecutionStatus::Succeeded {
            execution.status = ExecutionStatus::Failed;
            execution.error = Some(error);
        } else {
            let warning = Warning { code: error.code.to_string(), message: error.message };
            execution.warnings.push(warning);
        }
    }
}

fn lost_error() -> Error {
    Error::new(ErrorCode::DatabaseUnavailable, "the session has lost its volumes")
        .hint("reset the session; files that were saved before still exist")
}
