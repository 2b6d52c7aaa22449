//! The one way to the records: who writes, who reads, and that no second server does.

use crate::audit::{AuditSeal, usual_key};
use crate::belonging::{self, Mark};
use crate::blobs::{Blobs, SetAside};
use crate::clock::Clock;
use crate::reader::{Reader, Readers};
use crate::writer::{Durability, Tx, Writer};
use crate::{Revision, StoreError, schema};
use chrono::{DateTime, Utc};
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use types::FileId;

/// Everything that a server keeps. Dropping it writes what was asked for and lets the directory go.
pub struct Store {
    // The lock is last: it is let go when nobody writes any more.
    writer: Writer,
    readers: Arc<Readers>,
    blobs: Blobs,
    clock: Mutex<Clock>,
    set_aside: Option<SetAside>,
    _lock: File,
}

impl Store {
    /// Makes a database where nothing is kept. Where something is, the database must be the one that it
    /// belongs to, with its last commits; otherwise nothing is changed.
    pub fn open(data: &Path) -> Result<Arc<Self>, StoreError> {
        Self::open_with(data, None)
    }

    /// With the key of the audit log in another file than that beside the database.
    pub fn open_with(data: &Path, audit_key: Option<&Path>) -> Result<Arc<Self>, StoreError> {
        let home = data.join("store");
        make_private(&home)?;
        let lock = lock(&home)?;
        let database = database(data);
        if !schema::has_tables(&database)? {
            belonging::check_nothing_is_kept(&database, data)?;
        }
        let usual = usual_key(data);
        let audit_key = audit_key.unwrap_or(&usual);
        let connection = schema::open_to_write(&database, audit_key)?;
        belonging::check_and_mark(data, Reader::new(&connection).database_id()?)?;
        let seal = AuditSeal::open(audit_key, &connection)?;
        let mark = {
            let reader = Reader::new(&connection);
            let (id, key, head) = (seal.database, seal.key.clone(), reader.audit_head()?);
            Mark::open(&home, id, key, head, |sequence| reader.audit_hash(sequence))?
        };
        let writer = Writer::start(connection, &database, seal, mark)?;
        let readers = Arc::new(Readers::new(database));
        let blobs = Blobs::open(&home)?;
        let (known, trusted) = readers.read(|rows| Ok((rows.file_ids()?, rows.trusted_at()?)))?;
        // A clock that is behind would have them removed too early.
        let now = trusted.map_or_else(Utc::now, |trusted| trusted.max(Utc::now()));
        let set_aside = blobs.set_aside_unknown(&known, now)?;
        sync_directory(&home)?;
        let clock = Mutex::default();
        Ok(Arc::new(Self { writer, readers, blobs, clock, set_aside, _lock: lock }))
    }

    /// Files without a record that were found at the start.
    pub fn set_aside(&self) -> Option<&SetAside> {
        self.set_aside.as_ref()
    }

    pub(crate) fn clock(&self) -> MutexGuard<'_, Clock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes something that means nothing, and answers when it is on the disk.
    pub async fn probe(&self) -> Result<(), StoreError> {
        self.write(|tx| tx.note("UPDATE server SET probes = probes + 1", []).map(drop)).await
    }

    /// Answers when all of `job` is on the disk. A job that fails has changed nothing, and one
    /// whose caller went away is still done.
    pub async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.writer.write(Durability::Full, job).await
    }

    /// Answers when `job` survives the end of this process, and does not wait for the disk: for
    /// rows whose loss with the power harms nobody, such as that something has begun.
    pub async fn write_soon<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.writer.write(Durability::Soon, job).await
    }

    /// Whether the last that was written could be.
    pub fn is_well(&self) -> bool {
        self.writer.is_well()
    }

    /// To be asked before the first row of a decision is read.
    pub fn revision(&self) -> Revision {
        self.writer.revision()
    }

    /// For a few rows by their keys. It runs on the calling thread, also an async one: such a
    /// look-up takes microseconds, less than the way to another thread.
    pub fn read<T>(
        &self,
        job: impl FnOnce(&Reader<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.readers.read(job)
    }

    /// For lists and large rows.
    pub async fn read_long<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Reader<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let _turn = self.readers.long.acquire().await.map_err(|_| StoreError::Abandoned)?;
        let readers = Arc::clone(&self.readers);
        aside(move || readers.read(job)).await
    }

    pub fn blobs(&self) -> &Blobs {
        &self.blobs
    }

    /// Makes staged bytes durable; only then a row may speak of them.
    pub async fn keep_blob(&self, staged: PathBuf, id: FileId) -> Result<(), StoreError> {
        let blobs = self.blobs.clone();
        aside(move || blobs.keep(&staged, id)).await
    }

    pub(crate) async fn remove_set_aside(&self, before: DateTime<Utc>) -> Result<(), StoreError> {
        let blobs = self.blobs.clone();
        aside(move || blobs.remove_set_aside(before).map(drop)).await
    }

    /// The rows must be gone.
    pub async fn remove_blobs(&self, ids: Vec<FileId>) -> Result<(), StoreError> {
        let blobs = self.blobs.clone();
        aside(move || ids.into_iter().try_for_each(|id| blobs.remove(id))).await
    }
}

/// On a thread that may wait for the disk.
async fn aside<T: Send + 'static>(
    job: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(job).await.map_err(|_| StoreError::Abandoned)?
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

pub(crate) fn database(data: &Path) -> PathBuf {
    data.join("store/belljar.sqlite3")
}

/// Held until the process ends, however it ends.
pub(crate) fn lock(home: &Path) -> Result<File, StoreError> {
    let path = home.join("lock");
    let file = File::create(&path).map_err(StoreError::io(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked { path: home.to_owned() }),
        Err(TryLockError::Error(cause)) => Err(StoreError::io(&path)(cause)),
    }
}

/// Also closes one that was open to others.
pub(crate) fn make_private(directory: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::PermissionsExt;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.and_then(|()| fs::set_permissions(directory, fs::Permissions::from_mode(0o700)))
        .map_err(StoreError::io(directory))
}

/// Without it a new name in a directory can be lost with the power, though its file was synced.
pub(crate) fn sync_directory(directory: &Path) -> Result<(), StoreError> {
    File::open(directory)
        .and_then(|directory: File| -> io::Result<()> { directory.sync_all() })
        .map_err(StoreError::io(directory))
}
