//! The one way to the records: who writes, who reads, and that no second server does.

use crate::audit::{AuditSigner, usual_key};
use crate::blobs::{Blobs, QuarantinedFiles};
use crate::clock::TrustedClock;
use crate::integrity::{self, AuditHeadFile};
use crate::reader::{Reader, ReaderPool};
use crate::writer::{Durability, Priority, Tx, Writer};
use crate::{DatabaseError, Revision, schema};
use chrono::{DateTime, Utc};
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;
use types::FileId;

/// Everything that a server keeps. Dropping it writes what was asked for and lets the directory go.
pub struct Database {
    // The lock is the last field: it is released after the writer has ended.
    writer: Writer,
    readers: Arc<ReaderPool>,
    blobs: Blobs,
    clock: Mutex<TrustedClock>,
    set_aside: Option<QuarantinedFiles>,
    _lock: File,
}

impl Database {
    /// Makes a database where nothing is kept. Where something is, the database must be the one that it
    /// belongs to, with its last commits; otherwise nothing is changed.
    pub fn open(data: &Path) -> Result<Arc<Self>, DatabaseError> {
        Self::open_with(data, None)
    }

    /// Opens the database with the audit key in another file than the default.
    pub fn open_with(data: &Path, audit_key: Option<&Path>) -> Result<Arc<Self>, DatabaseError> {
        let home = data.join("db");
        create_private_directory(&home)?;
        let lock = lock_directory(&home)?;
        let database = database_path(data);
        let usual = usual_key(data);
        let audit_key = audit_key.unwrap_or(&usual);
        match schema::found_version(&database)? {
            0 => integrity::check_no_data_without_database(&database, data)?,
            found if schema::is_signed_and_older(found) => {
                check_before_migration(data, &home, audit_key)?;
            }
            // Without a signature yet, or without anything to migrate: checked below.
            _ => {}
        }
        let connection = schema::open_to_write(&database, audit_key)?;
        integrity::check_database_markers(data, Reader::new(&connection).database_id()?)?;
        let seal = AuditSigner::open(audit_key, &connection)?;
        let mark = {
            let reader = Reader::new(&connection);
            let (id, key, head) = (seal.database, seal.key.clone(), reader.audit_head()?);
            AuditHeadFile::open(&home, id, key, head, |sequence| reader.audit_hash(sequence))?
        };
        let writer = Writer::start(connection, &database, seal, mark)?;
        let readers = Arc::new(ReaderPool::new(database));
        let blobs = Blobs::open(&home)?;
        let (known, trusted) = readers.read(|rows| Ok((rows.file_ids()?, rows.trusted_at()?)))?;
        // A clock that is behind would have them removed too early.
        let now = trusted.map_or_else(Utc::now, |trusted| trusted.max(Utc::now()));
        let set_aside = blobs.quarantine_orphans(&known, now)?;
        sync_directory(&home)?;
        let clock = Mutex::default();
        Ok(Arc::new(Self { writer, readers, blobs, clock, set_aside, _lock: lock }))
    }

    /// Files without a record that were found at the start.
    pub fn quarantined(&self) -> Option<&QuarantinedFiles> {
        self.set_aside.as_ref()
    }

    pub(crate) fn clock(&self) -> MutexGuard<'_, TrustedClock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes something that means nothing, and answers when it is on the disk.
    pub async fn probe_write(&self) -> Result<(), DatabaseError> {
        self.write(|tx| {
            tx.execute_unversioned("UPDATE server SET probes = probes + 1", []).map(drop)
        })
        .await
    }

    /// Answers when all of `job` is on the disk. A job that fails has changed nothing, and one
    /// whose caller went away is still done.
    pub async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Tx<'_>) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        self.writer.write(Durability::Full, Priority::Interactive, job).await
    }

    /// Answers when `job` survives the end of this process, and does not wait for the disk: for
    /// rows that may be lost with the power, such as the start of an execution.
    pub async fn write_unsynced<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Tx<'_>) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        self.writer.write(Durability::Normal, Priority::Interactive, job).await
    }

    /// Like [`Database::write_unsynced`], for many bytes, such as the output of an execution: it
    /// waits until the jobs of others are written.
    pub async fn write_bulk<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Tx<'_>) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        self.writer.write(Durability::Normal, Priority::Bulk, job).await
    }

    /// Whether the last write succeeded.
    pub fn is_healthy(&self) -> bool {
        self.writer.is_healthy()
    }

    /// The current revision. Read it before the first row of a decision.
    pub fn revision(&self) -> Revision {
        self.writer.revision()
    }

    /// Reads a few small rows by their keys. It runs on the calling thread, also an async one: for
    /// rows of some kilobytes a look-up takes microseconds, less than the way to another thread.
    pub fn read<T>(
        &self,
        job: impl FnOnce(&Reader<'_>) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        self.readers.read(job)
    }

    /// Reads lists and large rows on another thread.
    pub async fn read_off_thread<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Reader<'_>) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        let _turn = self.readers.long_reads.acquire().await.map_err(|_| DatabaseError::Aborted)?;
        let readers = Arc::clone(&self.readers);
        run_blocking(move || readers.read(job)).await
    }

    pub fn blobs(&self) -> &Blobs {
        &self.blobs
    }

    /// Makes staged bytes durable; only then a row may speak of them.
    pub async fn persist_blob(&self, staged: PathBuf, id: FileId) -> Result<(), DatabaseError> {
        let blobs = self.blobs.clone();
        run_blocking(move || blobs.persist(&staged, id)).await
    }

    pub(crate) async fn remove_quarantined(
        &self,
        before: DateTime<Utc>,
    ) -> Result<(), DatabaseError> {
        let blobs = self.blobs.clone();
        run_blocking(move || blobs.remove_quarantined(before).map(drop)).await
    }

    /// The rows must be gone.
    pub async fn remove_blobs(&self, ids: Vec<FileId>) -> Result<(), DatabaseError> {
        let blobs = self.blobs.clone();
        run_blocking(move || ids.into_iter().try_for_each(|id| blobs.remove(id))).await
    }
}

/// What a start refuses by, looked at while nothing is changed: a database that is refused can still be
/// opened by the Belljar that it is of.
fn check_before_migration(data: &Path, home: &Path, audit_key: &Path) -> Result<(), DatabaseError> {
    let connection = schema::open_to_read(&database_path(data))?;
    let reader = Reader::new(&connection);
    integrity::compare_database_markers(data, reader.database_id()?)?;
    let AuditSigner { key, database } = AuditSigner::open(audit_key, &connection)?;
    let head = reader.audit_head()?;
    integrity::check_audit_head(home, database, &key, head, |it| reader.audit_hash(it))
}

/// On a thread that may wait for the disk.
async fn run_blocking<T: Send + 'static>(
    job: impl FnOnce() -> Result<T, DatabaseError> + Send + 'static,
) -> Result<T, DatabaseError> {
    let (sender, receiver) = oneshot::channel();
    spawn_blocking(Box::new(move || {
        // The caller may have stopped waiting.
        let _ = sender.send(job());
    }));
    receiver.await.map_err(|_| DatabaseError::Aborted)?
}

/// Starts a job of any kind; the task of the runtime is compiled once for all of them.
fn spawn_blocking(job: Box<dyn FnOnce() + Send>) {
    tokio::task::spawn_blocking(job);
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").finish_non_exhaustive()
    }
}

pub(crate) fn database_path(data: &Path) -> PathBuf {
    data.join("db/belljar.sqlite3")
}

/// Held until the process ends, however it ends.
pub(crate) fn lock_directory(home: &Path) -> Result<File, DatabaseError> {
    let path = home.join("lock");
    let file = File::create(&path).map_err(DatabaseError::io(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(DatabaseError::Locked { path: home.to_owned() }),
        Err(TryLockError::Error(cause)) => Err(DatabaseError::io(&path)(cause)),
    }
}

/// Also closes one that was open to others.
pub(crate) fn create_private_directory(directory: &Path) -> Result<(), DatabaseError> {
    use std::os::unix::fs::PermissionsExt;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.and_then(|()| fs::set_permissions(directory, fs::Permissions::from_mode(0o700)))
        .map_err(DatabaseError::io(directory))
}

/// Without it a new name in a directory can be lost with the power, though its file was synced.
pub(crate) fn sync_directory(directory: &Path) -> Result<(), DatabaseError> {
    File::open(directory)
        .and_then(|directory: File| -> io::Result<()> { directory.sync_all() })
        .map_err(DatabaseError::io(directory))
}
