//! Stores in sessions: directories that outlive them.
//!
//! A store that code may read is shown as it is. One that it may write is held: a copy in memory
//! that is bounded by the quota, brought up to date before each execution, and kept after it, file by
//! file. So the quota is the kernel's to enforce, and code never touches the disk of the host. Of two
//! sessions that write the same file, the one that ends its execution later wins.

mod directory;

use directory::Change;
pub use directory::{STORE_FILES_MAX, Stamp, StoreBase, StoreDirectory, StoreFileError};

use crate::engine::Engine;
use sandbox::{Entry, FileError, Files, Listing, Sandbox, StoreContent, StoreMount};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::spawn_blocking;
use types::{Code, Execution, Fault, Status, StoreAccess, Warning};

/// For the files of one execution: whoever waits for its answer waits for this.
const KEEPING_MAX: Duration = Duration::from_secs(10);

/// Of what is not kept; code can make it as much as it likes.
const TOLD_MAX: usize = 20;

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
            StoreAccess::Read => sandbox::shown(&self.directory),
            StoreAccess::Write => {
                StoreContent::Held { bytes: self.quota_bytes, inodes: STORE_FILES_MAX as u64 }
            }
        };
        StoreMount { path: self.path.clone(), content }
    }
}

/// The stores of one sandbox that are held.
#[derive(Debug, Default)]
pub(crate) struct Held {
    stores: Vec<HeldStore>,
    /// They went in the middle of something, and nobody knows what is in them.
    lost: bool,
}

#[derive(Debug)]
struct HeldStore {
    name: String,
    kept: StoreDirectory,
    quota_bytes: u64,
    inside: Files,
    /// Each file as it was when both sides were the same.
    same: BTreeMap<String, Pair>,
    /// So that nobody else changes the store meanwhile.
    writing: Arc<AsyncMutex<()>>,
}

#[derive(Debug, Clone)]
struct Pair {
    inside: Entry,
    kept: Stamp,
}

/// What could not be kept, and why.
#[derive(Debug, Default)]
pub(crate) struct Unkept {
    failed: Option<Fault>,
    skipped: Vec<String>,
}

impl Held {
    pub(crate) fn of(
        sandbox: &Sandbox,
        stores: &[StoreIn],
        base: &StoreBase,
        writers: &Writers,
    ) -> io::Result<Self> {
        let asked = stores.iter().filter(|store| store.access == StoreAccess::Write);
        let directories = sandbox.stores()?;
        if asked.clone().count() != directories.len() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let held = asked.zip(directories).map(|(store, inside)| HeldStore {
            name: store.name.clone(),
            kept: base.store(&store.directory),
            quota_bytes: store.quota_bytes,
            inside,
            same: BTreeMap::new(),
            writing: writers.of(&store.directory),
        });
        Ok(Self { stores: held.collect(), lost: false })
    }

    /// What others have kept since is seen from now on.
    pub(crate) async fn refresh(&mut self) -> Result<(), Fault> {
        let refreshed = self.each(|store| store.refresh().map_err(|error| store.fault(&error)));
        refreshed.await?.into_iter().collect()
    }

    /// What code has changed is on the disk from now on.
    pub(crate) async fn keep(&mut self) -> Unkept {
        let mut unkept = Unkept::default();
        match self.each(HeldStore::keep).await {
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
        work: impl Fn(&mut HeldStore) -> T + Copy + Send + 'static,
    ) -> Result<Vec<T>, Fault> {
        if self.lost {
            return Err(lost());
        }
        let mut done = Vec::with_capacity(self.stores.len());
        for mut store in std::mem::take(&mut self.stores) {
            self.lost = true;
            let writing = Arc::clone(&store.writing).lock_owned().await;
            let worked = spawn_blocking(move || {
                let _writing = writing;
                let result = work(&mut store);
                (store, result)
            });
            let (store, result) = worked.await.map_err(|_| lost())?;
            self.stores.push(store);
            done.push(result);
        }
        self.lost = false;
        Ok(done)
    }
}

impl HeldStore {
    fn refresh(&mut self) -> Result<(), StoreFileError> {
        let kept = self.kept.list()?;
        let stale: Vec<String> =
            self.same.keys().filter(|name| !kept.contains_key(*name)).cloned().collect();
        for name in stale {
            match self.inside.remove(&name) {
                Ok(()) | Err(FileError::NotFound { .. }) => drop(self.same.remove(&name)),
                Err(error) => return Err(error.into()),
            }
        }
        let mut fresh = BTreeMap::new();
        for (name, stamp) in kept {
            if self.same.get(&name).is_none_or(|pair| pair.kept != stamp) {
                let (mut file, _) = self.kept.open(&name)?;
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
                self.same.insert(name, Pair { inside: entry, kept });
            }
        }
        Ok(())
    }

    /// All that can be kept, whatever becomes of the rest.
    fn keep(&mut self) -> Unkept {
        let now = self.inside.snapshot();
        let mut left_out = Vec::new();
        let store = self.kept.clone();
        let changed = match Change::begin(&store, self.quota_bytes) {
            Ok(mut change) => {
                self.forget_gone(&now, &mut change, &mut left_out);
                self.keep_changed(now.files, &mut change, &mut left_out);
                change.finish()
            }
            Err(error) => Err(error),
        };
        left_out.extend(changed.err().map(|error| ("/".to_owned(), error.into())));
        let others = now.skipped.len().saturating_sub(TOLD_MAX);
        let more = (others > 0).then(|| ("…".to_owned(), format!("and {others} more")));
        let skipped = now.skipped.into_iter().take(TOLD_MAX).chain(more);
        Unkept {
            failed: self.left_out(&left_out),
            skipped: skipped
                .map(|(file, why)| format!("store {}: {file}: {why}", self.name))
                .collect(),
        }
    }

    /// Code has removed them; unless somebody else has changed one meanwhile, it goes.
    fn forget_gone(&mut self, now: &Listing, change: &mut Change<'_>, left_out: &mut LeftOut) {
        // A directory that cannot be read hides its files, and takes none of them away.
        let all_hidden = now.skipped.contains_key(".");
        let hidden = |name: &str| {
            all_hidden
                || Path::new(name)
                    .ancestors()
                    .any(|path| path.to_str().is_some_and(|path| now.skipped.contains_key(path)))
        };
        let is_gone = |name: &&String| !now.files.contains_key(*name) && !hidden(name);
        let gone: Vec<String> = self.same.keys().filter(is_gone).cloned().collect();
        for name in gone {
            let Some(pair) = self.same.remove(&name) else { continue };
            if change.kept().get(&name) != Some(&pair.kept) {
                continue;
            }
            match change.remove(&name) {
                Ok(()) | Err(StoreFileError::NotFound { .. }) => {}
                Err(error) => left_out.push((name, error)),
            }
        }
    }

    fn keep_changed(
        &mut self,
        files: BTreeMap<String, Entry>,
        change: &mut Change<'_>,
        left_out: &mut LeftOut,
    ) {
        let until = Instant::now() + KEEPING_MAX;
        let is_same = |name: &str, entry: &Entry| {
            self.same.get(name).is_some_and(|pair| pair.inside.is_same_as(entry))
        };
        let mut changed: Vec<(String, Entry)> =
            files.into_iter().filter(|(name, entry)| !is_same(name, entry)).collect();
        // What shrinks makes room for what grows.
        let before = |name: &str| change.kept().get(name).map_or(0, |stamp| stamp.size);
        changed.sort_by_key(|(name, entry)| i128::from(entry.size) - i128::from(before(name)));
        for (name, entry) in changed {
            if Instant::now() > until {
                left_out.push((name, StoreFileError::Late));
                continue;
            }
            match self.keep_one(&name, change) {
                Ok(kept) => drop(self.same.insert(name, Pair { inside: entry, kept })),
                Err(error) => left_out.push((name, error)),
            }
        }
    }

    fn keep_one(&self, name: &str, change: &mut Change<'_>) -> Result<Stamp, StoreFileError> {
        let (file, _) = self.inside.open(name)?;
        // It may still be growing.
        change.put(name, &mut file.take(self.quota_bytes.saturating_add(1)))
    }

    fn left_out(&self, left_out: &LeftOut) -> Option<Fault> {
        let (name, first) = left_out.first()?;
        let fault = self.fault(first);
        let others = left_out.len() - 1;
        let more = if others == 0 { String::new() } else { format!(" (and {others} more)") };
        Some(Fault { message: format!("{}: {name}{more} was not kept", fault.message), ..fault })
    }

    fn fault(&self, error: &StoreFileError) -> Fault {
        let fault = fault(error);
        Fault { message: format!("the store {:?}: {}", self.name, fault.message), ..fault }
    }
}

/// Files that could not be kept.
type LeftOut = Vec<(String, StoreFileError)>;

/// Who changes which store, by its directory.
#[derive(Debug, Default)]
pub(crate) struct Writers(Mutex<HashMap<String, Arc<AsyncMutex<()>>>>);

impl Writers {
    fn of(&self, directory: &str) -> Arc<AsyncMutex<()>> {
        let mut writers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that nobody holds are forgotten.
        writers.retain(|_, writer| Arc::strong_count(writer) > 1);
        Arc::clone(writers.entry(directory.to_owned()).or_default())
    }
}

/// Memory for copies of stores, which is the server's own and no sandbox's.
#[derive(Debug)]
pub(crate) struct Budget(Mutex<u64>);

/// A part of it, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Reserved {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Budget {
    pub(crate) fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(bytes)))
    }

    fn left(&self) -> MutexGuard<'_, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn reserve(self: &Arc<Self>, stores: &[StoreIn]) -> Result<Reserved, Fault> {
        let held = stores.iter().filter(|store| store.access == StoreAccess::Write);
        let bytes = held.map(|store| store.quota_bytes).sum();
        let mut left = self.left();
        *left = left.checked_sub(bytes).ok_or_else(|| {
            let message = format!("there is no memory for another copy of {bytes} bytes of stores");
            Fault::new(Code::CapacityExhausted, message)
                .hint("close sessions that write to stores, or give the stores smaller quotas")
        })?;
        Ok(Reserved { budget: Arc::clone(self), bytes })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        *self.budget.left() += self.bytes;
    }
}

fn fault(error: &StoreFileError) -> Fault {
    let fault = |code| Fault::new(code, error.to_string());
    match error {
        StoreFileError::Full { .. } | StoreFileError::Name(FileError::Full { .. }) => {
            fault(Code::DiskExceeded).hint("remove files from the store, or give it a larger quota")
        }
        StoreFileError::NotFound { .. } => fault(Code::FileNotFound),
        StoreFileError::Name(_) | StoreFileError::Clash { .. } => fault(Code::FileUnsupported),
        StoreFileError::Io(_) | StoreFileError::Late => fault(Code::StoreUnavailable),
    }
}

impl Engine {
    /// Does something with a store while nobody else changes any.
    pub async fn with_store<T: Send + 'static>(
        &self,
        directory: String,
        work: impl FnOnce(&StoreDirectory) -> Result<T, StoreFileError> + Send + 'static,
    ) -> Result<T, Fault> {
        let store = self.store_base()?.store(&directory);
        let writing = self.writers.of(&directory).lock_owned().await;
        blocking(move || {
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
    ) -> Result<usize, Fault> {
        let base = self.store_base()?.clone();
        blocking(move || Ok(base.set_aside(is_known, &name)?)).await
    }

    /// Removes directories of volumes that were set aside, by their names.
    pub async fn remove_stores_set_aside(
        &self,
        is_over: impl Fn(&str) -> bool + Send + 'static,
    ) -> Result<(), Fault> {
        let base = self.store_base()?.clone();
        blocking(move || Ok(base.remove_set_aside(is_over)?)).await
    }

    pub(crate) fn store_base(&self) -> Result<&StoreBase, Fault> {
        let none = || Fault::new(Code::StoreUnavailable, "there are no stores here");
        self.config.stores.as_ref().ok_or_else(none)
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreFileError> + Send + 'static,
) -> Result<T, Fault> {
    match spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| fault(&error)),
        Err(error) => Err(fault(&StoreFileError::Io(error.into()))),
    }
}

impl Unkept {
    /// What was not kept is not to be believed, whatever the code itself has said.
    pub(crate) fn tell(self, execution: &mut Execution) {
        let warnings = self.skipped.into_iter().map(|message| Warning {
            code: Code::FileUnsupported.to_string(),
            message: format!("not kept: {message}"),
        });
        execution.warnings.extend(warnings);
        let Some(fault) = self.failed else { return };
        if execution.status == Status::Succeeded {
            execution.status = Status::Failed;
            execution.error = Some(fault);
        } else {
            let warning = Warning { code: fault.code.to_string(), message: fault.message };
            execution.warnings.push(warning);
        }
    }
}

fn lost() -> Fault {
    Fault::new(Code::StoreUnavailable, "the session has lost its stores")
        .hint("reset the session; what was kept before is there")
}
