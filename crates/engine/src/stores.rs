//! Stores in sessions: directories that outlive them.
//!
//! A store that code may read is shown as it is. One that it may write is held: a copy in memory
//! that is bounded by the quota, brought up to date before each execution, and kept after it, file by
//! file. So the quota is the kernel's to enforce, and code never touches the disk of the host. Of two
//! sessions that write the same file, the one that ends its execution later wins.

mod directory;

pub use directory::{STORE_FILES_MAX, Stamp, StoreBase, StoreDirectory, StoreFileError};

use crate::engine::Engine;
use sandbox::{Entry, FileError, Files, Sandbox, StoreContent, StoreMount};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use types::{Code, Execution, Fault, Status, StoreAccess, Warning};

/// A store that a session is given.
#[derive(Debug, Clone)]
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
pub(crate) struct Held(Vec<HeldStore>);

#[derive(Debug)]
struct HeldStore {
    name: String,
    kept: StoreDirectory,
    quota_bytes: u64,
    inside: Files,
    /// Each file as it was when both sides were the same.
    same: BTreeMap<String, Pair>,
    /// So that nobody else changes the store meanwhile.
    writing: Arc<Mutex<()>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
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
        writing: &Arc<Mutex<()>>,
    ) -> io::Result<Self> {
        let held = stores.iter().filter(|store| store.access == StoreAccess::Write);
        let pairs = held.zip(sandbox.stores()?).map(|(store, inside)| HeldStore {
            name: store.name.clone(),
            kept: base.store(&store.directory),
            quota_bytes: store.quota_bytes,
            inside,
            same: BTreeMap::new(),
            writing: Arc::clone(writing),
        });
        Ok(Self(pairs.collect()))
    }

    /// What others have kept since is seen from now on.
    pub(crate) async fn refresh(&mut self) -> Result<(), Fault> {
        self.each(|store| store.refresh().map_err(|error| store.fault(&error))).await
    }

    /// What code has changed is on the disk from now on.
    pub(crate) async fn keep(&mut self) -> Unkept {
        let mut unkept = Unkept::default();
        let done: Result<Vec<_>, Fault> = self
            .each(|store| {
                let kept = store.keep();
                Ok((store.name.clone(), kept.map_err(|error| store.fault(&error))))
            })
            .await;
        match done {
            Err(fault) => unkept.failed = Some(fault),
            Ok(stores) => stores.into_iter().for_each(|(name, kept)| match kept {
                Ok(skipped) => unkept.skipped.extend(
                    skipped.into_iter().map(|(file, why)| format!("store {name}: {file}: {why}")),
                ),
                Err(fault) => unkept.failed = Some(fault),
            }),
        }
        unkept
    }

    async fn each<T: Send + 'static, All: FromIterator<T> + Send + 'static>(
        &mut self,
        work: impl Fn(&mut HeldStore) -> Result<T, Fault> + Send + 'static,
    ) -> Result<All, Fault> {
        let mut stores = std::mem::take(&mut self.0);
        let Some(first) = stores.first() else { return Ok(std::iter::empty().collect()) };
        let writing = Arc::clone(&first.writing).lock_owned().await;
        let done = spawn_blocking(move || {
            let _writing = writing;
            let done = stores.iter_mut().map(work).collect();
            (stores, done)
        });
        match done.await {
            Ok((stores, done)) => {
                self.0 = stores;
                done
            }
            Err(error) => Err(unusable(&error.into())),
        }
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
        let mut inside = self.inside.list().files;
        for (name, kept) in fresh {
            if let Some(entry) = inside.remove(&name) {
                self.same.insert(name, Pair { inside: entry, kept });
            }
        }
        Ok(())
    }

    /// Gives what is left out, and why.
    fn keep(&mut self) -> Result<Vec<(String, String)>, StoreFileError> {
        let now = self.inside.list();
        let gone: Vec<String> =
            self.same.keys().filter(|name| !now.files.contains_key(*name)).cloned().collect();
        for name in gone {
            // A directory that cannot be read hides its files, and takes none of them away.
            if matches!(self.inside.open(&name), Err(FileError::NotFound { .. })) {
                self.forget(&name)?;
            }
        }
        for (name, entry) in now.files {
            if self.same.get(&name).is_some_and(|pair| pair.inside == entry) {
                continue;
            }
            let (file, _) = self.inside.open(&name)?;
            // It may still be growing.
            let mut content = file.take(self.quota_bytes.saturating_add(1));
            let kept = self.kept.write(&name, &mut content, self.quota_bytes)?;
            self.same.insert(name, Pair { inside: entry, kept });
        }
        Ok(now.skipped.into_iter().collect())
    }

    /// Code has removed it; unless somebody else has changed it meanwhile, it goes.
    fn forget(&mut self, name: &str) -> Result<(), StoreFileError> {
        let Some(pair) = self.same.remove(name) else { return Ok(()) };
        if self.kept.list()?.get(name) != Some(&pair.kept) {
            return Ok(());
        }
        match self.kept.remove(name) {
            Err(StoreFileError::NotFound { .. }) => Ok(()),
            removed => removed,
        }
    }

    fn fault(&self, error: &StoreFileError) -> Fault {
        let fault = fault(error);
        Fault { message: format!("the store {:?}: {}", self.name, fault.message), ..fault }
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
        StoreFileError::Io(_) => fault(Code::StoreUnavailable),
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
        self.while_nobody_writes(move || work(&store)).await
    }

    /// Removes every store that is not known.
    pub async fn sweep_stores(
        &self,
        is_known: impl Fn(&str) -> bool + Send + 'static,
    ) -> Result<(), Fault> {
        let base = self.store_base()?.clone();
        self.while_nobody_writes(move || Ok(base.sweep(is_known)?)).await
    }

    pub(crate) fn store_base(&self) -> Result<&StoreBase, Fault> {
        let none = || Fault::new(Code::StoreUnavailable, "there are no stores here");
        self.config.stores.as_ref().ok_or_else(none)
    }

    async fn while_nobody_writes<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, StoreFileError> + Send + 'static,
    ) -> Result<T, Fault> {
        let writing = Arc::clone(&self.stores_writing).lock_owned().await;
        let done = spawn_blocking(move || {
            let _writing = writing;
            work()
        });
        match done.await {
            Ok(done) => done.map_err(|error| fault(&error)),
            Err(error) => Err(unusable(&error.into())),
        }
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

fn unusable(error: &io::Error) -> Fault {
    Fault::new(Code::StoreUnavailable, format!("the stores cannot be used: {error}"))
}
