//! Stores in sessions: directories that outlive them.
//!
//! A store that code may read is shown as it is. One that it may write is held: a copy in memory
//! that is bounded by the quota, brought up to date before each execution, and kept after it, file by
//! file. So the quota is the kernel's to enforce, and code never touches the disk of the host. Of two
//! sessions that write the same file, the one that ends its execution later wins.

mod directory;

use directory::StoreTransaction;
pub use directory::{FileStamp, STORE_FILES_MAX, StoreBase, StoreDirectory, StoreFileError};

use crate::engine::Engine;
use sandbox::{
    DirectoryListing, FileEntry, FileError, Sandbox, SandboxDirectory, StoreContent, StoreMount,
};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::spawn_blocking;
use types::{Error, ErrorCode, Execution, ExecutionStatus, StoreAccess, Warning};

/// For the files of one execution: whoever waits for its answer waits for this.
const PERSIST_TIMEOUT: Duration = Duration::from_secs(10);

/// Of what is not kept; code can make it as much as it likes.
const REPORTED_MAX: usize = 20;

/// A store that a session is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreIn {
    /// As people call it.
    pub name: String,
    /// Its directory, by name.
    pub directory: String,
    /// Where code sees it.
    pub path: PathBuf,
    pub access: StoreAccess,
    pub quota_bytes: u64,
}

impl StoreIn {
    pub(crate) fn mount(&self) -> StoreMount {
        let content = match self.access {
            StoreAccess::Read => sandbox::read_only_store(&self.directory),
            StoreAccess::Write => {
                StoreContent::Held { bytes: self.quota_bytes, inodes: STORE_FILES_MAX as u64 }
            }
        };
        StoreMount { path: self.path.clone(), content }
    }
}

/// The stores of one sandbox that are held.
#[derive(Debug, Default)]
pub(crate) struct WritableStores {
    stores: Vec<WritableStore>,
    /// They went in the middle of something, and nobody knows what is in them.
    lost: bool,
}

#[derive(Debug)]
struct WritableStore {
    name: String,
    directory: StoreDirectory,
    quota_bytes: u64,
    inside: SandboxDirectory,
    /// Each file as it was when both sides were the same.
    synced: BTreeMap<String, SyncedFile>,
    /// So that nobody else changes the store meanwhile.
    lock: Arc<AsyncMutex<()>>,
}

#[derive(Debug, Clone)]
struct SyncedFile {
    inside: FileEntry,
    stored: FileStamp,
}

/// What could not be kept, and why.
#[derive(Debug, Default)]
pub(crate) struct UnsavedFiles {
    failed: Option<Error>,
    skipped: Vec<String>,
}

impl WritableStores {
    pub(crate) fn open(
        sandbox: &Sandbox,
        stores: &[StoreIn],
        base: &StoreBase,
        writers: &StoreLocks,
    ) -> io::Result<Self> {
        let asked = stores.iter().filter(|store| store.access == StoreAccess::Write);
        let directories = sandbox.store_directories()?;
        if asked.clone().count() != directories.len() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let held = asked.zip(directories).map(|(store, inside)| WritableStore {
            name: store.name.clone(),
            directory: base.store(&store.directory),
            quota_bytes: store.quota_bytes,
            inside,
            synced: BTreeMap::new(),
            lock: writers.lock_for(&store.directory),
        });
        Ok(Self { stores: held.collect(), lost: false })
    }

    /// What others have kept since is seen from now on.
    pub(crate) async fn refresh(&mut self) -> Result<(), Error> {
        let refreshed =
            self.each(|store| store.refresh().map_err(|error| store.store_error(&error)));
        refreshed.await?.into_iter().collect()
    }

    /// What code has changed is on the disk from now on.
    pub(crate) async fn persist(&mut self) -> UnsavedFiles {
        let mut unkept = UnsavedFiles::default();
        match self.each(WritableStore::persist).await {
            Err(fault) => unkept.failed = Some(fault),
            Ok(stores) => stores.into_iter().for_each(|store| {
                unkept.failed = unkept.failed.take().or(store.failed);
                unkept.skipped.extend(store.skipped);
            }),
        }
        unkept
    }

    /// One after the other, each while nobody else changes it.
    async fn each<T: Send + 'static>(
        &mut self,
        work: impl Fn(&mut WritableStore) -> T + Copy + Send + 'static,
    ) -> Result<Vec<T>, Error> {
        if self.lost {
            return Err(lost_error());
        }
        let mut done = Vec::with_capacity(self.stores.len());
        for mut store in std::mem::take(&mut self.stores) {
            self.lost = true;
            let writing = Arc::clone(&store.lock).lock_owned().await;
            let worked = spawn_blocking(move || {
                let _writing = writing;
                let result = work(&mut store);
                (store, result)
            });
            let (store, result) = worked.await.map_err(|_| lost_error())?;
            self.stores.push(store);
            done.push(result);
        }
        self.lost = false;
        Ok(done)
    }
}

impl WritableStore {
    fn refresh(&mut self) -> Result<(), StoreFileError> {
        let kept = self.directory.list()?;
        let stale: Vec<String> =
            self.synced.keys().filter(|name| !kept.contains_key(*name)).cloned().collect();
        for name in stale {
            match self.inside.remove(&name) {
                Ok(()) | Err(FileError::NotFound { .. }) => drop(self.synced.remove(&name)),
                Err(error) => return Err(error.into()),
            }
        }
        let mut fresh = BTreeMap::new();
        for (name, stamp) in kept {
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
        for (name, kept) in fresh {
            if let Some(entry) = inside.remove(&name) {
                self.synced.insert(name, SyncedFile { inside: entry, stored: kept });
            }
        }
        Ok(())
    }

    /// All that can be kept, whatever becomes of the rest.
    fn persist(&mut self) -> UnsavedFiles {
        let now = self.inside.snapshot();
        let mut left_out = Vec::new();
        let store = self.directory.clone();
        let changed = match StoreTransaction::begin(&store, self.quota_bytes) {
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
                .map(|(file, why)| format!("store {}: {file}: {why}", self.name))
                .collect(),
        }
    }

    /// Code has removed them; unless somebody else has changed one meanwhile, it goes.
    fn remove_deleted(
        &mut self,
        now: &DirectoryListing,
        change: &mut StoreTransaction<'_>,
        left_out: &mut UnsavedFileErrors,
    ) {
        // A directory that cannot be read hides its files, and takes none of them away.
        let all_hidden = now.skipped.contains_key(".");
        let hidden = |name: &str| {
            all_hidden
                || Path::new(name)
                    .ancestors()
                    .any(|path| path.to_str().is_some_and(|path| now.skipped.contains_key(path)))
        };
        let is_gone = |name: &&String| !now.files.contains_key(*name) && !hidden(name);
        let gone: Vec<String> = self.synced.keys().filter(is_gone).cloned().collect();
        for name in gone {
            let Some(pair) = self.synced.remove(&name) else { continue };
            if change.files().get(&name) != Some(&pair.stored) {
                continue;
            }
            match change.remove(&name) {
                Ok(()) | Err(StoreFileError::NotFound { .. }) => {}
                Err(error) => left_out.push((name, error)),
            }
        }
    }

    fn persist_changed(
        &mut self,
        files: BTreeMap<String, FileEntry>,
        change: &mut StoreTransaction<'_>,
        left_out: &mut UnsavedFileErrors,
    ) {
        let until = Instant::now() + PERSIST_TIMEOUT;
        let is_same = |name: &str, entry: &FileEntry| {
            self.synced.get(name).is_some_and(|pair| pair.inside.is_unchanged_from(entry))
        };
        let mut changed: Vec<(String, FileEntry)> =
            files.into_iter().filter(|(name, entry)| !is_same(name, entry)).collect();
        // What shrinks makes room for what grows.
        let before = |name: &str| change.files().get(name).map_or(0, |stamp| stamp.size);
        changed.sort_by_key(|(name, entry)| i128::from(entry.size) - i128::from(before(name)));
        for (name, entry) in changed {
            if Instant::now() > until {
                left_out.push((name, StoreFileError::Timeout));
                continue;
            }
            match self.persist_file(&name, change) {
                Ok(kept) => {
                    drop(self.synced.insert(name, SyncedFile { inside: entry, stored: kept }))
                }
                Err(error) => left_out.push((name, error)),
            }
        }
    }

    fn persist_file(
        &self,
        name: &str,
        change: &mut StoreTransaction<'_>,
    ) -> Result<FileStamp, StoreFileError> {
        let (file, _) = self.inside.open(name)?;
        // It may still be growing.
        change.write(name, &mut file.take(self.quota_bytes.saturating_add(1)))
    }

    fn unsaved_error(&self, left_out: &UnsavedFileErrors) -> Option<Error> {
        let (name, first) = left_out.first()?;
        let fault = self.store_error(first);
        let others = left_out.len() - 1;
        let more = if others == 0 { String::new() } else { format!(" (and {others} more)") };
        Some(Error { message: format!("{}: {name}{more} was not kept", fault.message), ..fault })
    }

    fn store_error(&self, error: &StoreFileError) -> Error {
        let fault = store_file_error(error);
        Error { message: format!("the store {:?}: {}", self.name, fault.message), ..fault }
    }
}

/// Files that could not be kept.
type UnsavedFileErrors = Vec<(String, StoreFileError)>;

/// Who changes which store, by its directory.
#[derive(Debug, Default)]
pub(crate) struct StoreLocks(Mutex<HashMap<String, Arc<AsyncMutex<()>>>>);

impl StoreLocks {
    fn lock_for(&self, directory: &str) -> Arc<AsyncMutex<()>> {
        let mut writers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that nobody holds are forgotten.
        writers.retain(|_, writer| Arc::strong_count(writer) > 1);
        Arc::clone(writers.entry(directory.to_owned()).or_default())
    }
}

/// Memory for copies of stores, which is the server's own and no sandbox's.
#[derive(Debug)]
pub(crate) struct StoreMemoryBudget(Mutex<u64>);

/// A part of it, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct MemoryReservation {
    budget: Arc<StoreMemoryBudget>,
    bytes: u64,
}

impl StoreMemoryBudget {
    pub(crate) fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(bytes)))
    }

    fn left(&self) -> MutexGuard<'_, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn reserve(
        self: &Arc<Self>,
        stores: &[StoreIn],
    ) -> Result<MemoryReservation, Error> {
        let held = stores.iter().filter(|store| store.access == StoreAccess::Write);
        let bytes = held.map(|store| store.quota_bytes).sum();
        let mut left = self.left();
        *left = left.checked_sub(bytes).ok_or_else(|| {
            let message = format!("there is no memory for another copy of {bytes} bytes of stores");
            Error::new(ErrorCode::CapacityExhausted, message)
                .hint("close sessions that write to stores, or give the stores smaller quotas")
        })?;
        Ok(MemoryReservation { budget: Arc::clone(self), bytes })
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        *self.budget.left() += self.bytes;
    }
}

fn store_file_error(error: &StoreFileError) -> Error {
    let fault = |code| Error::new(code, error.to_string());
    match error {
        StoreFileError::Full { .. } | StoreFileError::Name(FileError::Full { .. }) => {
            fault(ErrorCode::DiskExceeded)
                .hint("remove files from the store, or give it a larger quota")
        }
        StoreFileError::NotFound { .. } => fault(ErrorCode::FileNotFound),
        StoreFileError::Name(_) | StoreFileError::NameConflict { .. } => {
            fault(ErrorCode::FileUnsupported)
        }
        StoreFileError::Io(_) | StoreFileError::Timeout => fault(ErrorCode::StoreUnavailable),
    }
}

impl Engine {
    /// Does something with a store while nobody else changes any.
    pub async fn with_store<T: Send + 'static>(
        &self,
        directory: String,
        work: impl FnOnce(&StoreDirectory) -> Result<T, StoreFileError> + Send + 'static,
    ) -> Result<T, Error> {
        let store = self.store_base()?.store(&directory);
        let writing = self.store_locks.lock_for(&directory).lock_owned().await;
        run_blocking(move || {
            let _writing = writing;
            work(&store)
        })
        .await
    }

    /// Moves every volume that is not known into a directory of this name, before anybody uses one.
    /// Tells how many.
    pub async fn set_aside_stores(
        &self,
        is_known: impl Fn(&str) -> bool + Send + 'static,
        name: String,
    ) -> Result<usize, Error> {
        let base = self.store_base()?.clone();
        run_blocking(move || Ok(base.set_aside(is_known, &name)?)).await
    }

    /// Removes directories of volumes that were set aside, by their names.
    pub async fn remove_stores_set_aside(
        &self,
        is_over: impl Fn(&str) -> bool + Send + 'static,
    ) -> Result<(), Error> {
        let base = self.store_base()?.clone();
        run_blocking(move || Ok(base.remove_set_aside(is_over)?)).await
    }

    pub(crate) fn store_base(&self) -> Result<&StoreBase, Error> {
        let none = || Error::new(ErrorCode::StoreUnavailable, "there are no stores here");
        self.config.stores.as_ref().ok_or_else(none)
    }
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreFileError> + Send + 'static,
) -> Result<T, Error> {
    match spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| store_file_error(&error)),
        Err(error) => Err(store_file_error(&StoreFileError::Io(error.into()))),
    }
}

impl UnsavedFiles {
    /// What was not kept is not to be believed, whatever the code itself has said.
    pub(crate) fn report_in(self, execution: &mut Execution) {
        let warnings = self.skipped.into_iter().map(|message| Warning {
            code: ErrorCode::FileUnsupported.to_string(),
            message: format!("not kept: {message}"),
        });
        execution.warnings.extend(warnings);
        let Some(fault) = self.failed else { return };
        if execution.status == ExecutionStatus::Succeeded {
            execution.status = ExecutionStatus::Failed;
            execution.error = Some(fault);
        } else {
            let warning = Warning { code: fault.code.to_string(), message: fault.message };
            execution.warnings.push(warning);
        }
    }
}

fn lost_error() -> Error {
    Error::new(ErrorCode::StoreUnavailable, "the session has lost its stores")
        .hint("reset the session; what was kept before is there")
}
