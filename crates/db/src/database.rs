//! [`Database`]: one writer, several readers, and the lock that keeps a second server away.

use crate::audit::{AuditSigner, default_audit_key};
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
use types::{FileId, PrincipalId};

/// All records and files of a server. Dropping it completes the queued writes and releases the lock
/// of the directory.
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
    /// Opens the database of a data directory, or creates one in a directory without data. An
    /// existing database must be the one that the data belongs to and have its last commits;
    /// otherwise nothing is changed.
    pub fn open(data: &Path) -> Result<Arc<Self>, DatabaseError> {
        Self::open_with(data, None)
    }

    /// Opens the database with the audit key in another file than the default.
    pub fn open_with(data: &Path, audit_key: Option<&Path>) -> Result<Arc<Self>, DatabaseError> {
        let directory = data.join("db");
        create_private_directory(&directory)?;
        let lock = lock_directory(&directory)?;
        let database = database_path(data);
        let default_key = default_audit_key(data);
        let audit_key = audit_key.unwrap_or(&default_key);
        match schema::found_version(&database)? {
            0 => integrity::check_no_data_without_database(&database, data)?,
            version if schema::is_signed_and_older(version) => {
                check_before_migration(data, &directory, audit_key)?;
            }
            // Without a signature yet, or without anything to migrate: checked below.
            _ => {}
        }
        let connection = schema::open_to_write(&database, audit_key)?;
        integrity::check_database_markers(data, Reader::new(&connection).database_id()?)?;
        let signer = AuditSigner::open(audit_key, &connection)?;
        let audit_head_file = {
            let reader = Reader::new(&connection);
            let (id, key, head) = (signer.database, signer.key.clone(), reader.audit_head()?);
            AuditHeadFile::open(&directory, id, key, head, |sequence| reader.audit_hash(sequence))?
        };
        let writer = Writer::start(connection, &database, signer, audit_head_file)?;
        let readers = Arc::new(ReaderPool::new(database));
        let blobs = Blobs::open(&directory)?;
        let (known_files, trusted_at) =
            readers.read(|rows| Ok((rows.file_ids()?, rows.trusted_at()?)))?;
        // With a clock that is behind, the files would be removed too early.
        let now = trusted_at.map_or_else(Utc::now, |trusted_at| trusted_at.max(Utc::now()));
        let set_aside = blobs.quarantine_orphans(&known_files, now)?;
        sync_directory(&directory)?;
        let clock = Mutex::default();
        Ok(Arc::new(Self { writer, readers, blobs, clock, set_aside, _lock: lock }))
    }

    /// Files without a record that were moved aside at the start.
    pub fn quarantined(&self) -> Option<&QuarantinedFiles> {
        self.set_aside.as_ref()
    }

    pub(crate) fn clock(&self) -> MutexGuard<'_, TrustedClock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a write without effect, and returns when it is on the disk.
    pub async fn probe_write(&self) -> Result<(), DatabaseError> {
        self.write(|tx| {
            tx.execute_unversioned("UPDATE server SET probes = probes + 1", []).map(drop)
        })
        .await
    }

    /// Returns when all of `job` is on the disk. A job that fails changes nothing, and a job whose
    /// caller disconnects is still done.
    pub async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Tx<'_>) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        self.writer.write(Durability::Full, Priority::Interactive, job).await
    }

    /// Returns when `job` survives the end of this process, without waiting for the disk: for rows
    /// that a power failure may lose, such as the start of an execution.
    pub async fn write_unsynced<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Tx<'_>) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        self.writer.write(Durability::Normal, Priority::Interactive, job).await
    }

    /// Like [`Database::write_unsynced`], for many bytes, such as the output of an execution: waits
    /// until the queued interactive jobs are written, and takes turns with the bulk jobs of other
    /// callers.
    pub async fn write_bulk<T: Send + 'static>(
        &self,
        caller: Option<PrincipalId>,
        job: impl FnOnce(&Tx<'_>) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        self.writer.write(Durability::Normal, Priority::Bulk { caller }, job).await
    }

    /// Whether the last write succeeded.
    pub fn is_healthy(&self) -> bool {
        self.writer.is_healthy()
    }

    /// The current revision. Read it before the first row that a decision depends on.
    pub fn revision(&self) -> Revision {
        self.writer.revision()
    }

    /// Reads a few small rows by their keys, on the calling thread, even an async one: a look-up of
    /// rows of some kilobytes takes microseconds, less than switching to another thread.
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
        let _permit =
            self.readers.long_reads.acquire().await.map_err(|_| DatabaseError::Aborted)?;
        let readers = Arc::clone(&self.readers);
        run_blocking(move || readers.read(job)).await
    }

    pub fn blobs(&self) -> &Blobs {
        &self.blobs
    }

    /// Makes staged bytes durable; a row may refer to them only after that.
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

    /// Removes the bytes of files whose rows are gone.
    pub async fn remove_blobs(&self, ids: Vec<FileId>) -> Result<(), DatabaseError> {
        let blobs = self.blobs.clone();
        run_blocking(move || ids.into_iter().try_for_each(|id| blobs.remove(id))).await
    }
}

/// The checks of a start, before anything is changed: a database that is rejected can still be
/// opened by the version of Belljar that it belongs to.
fn check_before_migration(
    data: &Path,
    directory: &Path,
    audit_key: &Path,
) -> Result<(), DatabaseError> {
    let connection = schema::open_to_read(&database_path(data))?;
    let reader = Reader::new(&connection);
    integrity::compare_database_markers(data, reader.database_id()?)?;
    let AuditSigner { key, database } = AuditSigner::open(audit_key, &connection)?;
    let head = reader.audit_head()?;
    integrity::check_audit_head(directory, database, &key, head, |it| reader.audit_hash(it))
}

/// Runs `job` on a thread that may wait for the disk.
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

/// Starts a job of any kind, so that the tokio task is compiled only once.
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

/// Locks the directory until the process ends, even if it is killed.
pub(crate) fn lock_directory(directory: &Path) -> Result<File, DatabaseError> {
    let path = directory.join("lock");
    let file = File::create(&path).map_err(DatabaseError::io(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(DatabaseError::Locked { path: directory.to_owned() }),
        Err(TryLockError::Error(cause)) => Err(DatabaseError::io(&path)(cause)),
    }
}

/// Creates a directory that only its owner can enter, or makes an existing one so.
pub(crate) fn create_private_directory(directory: &Path) -> Result<(), DatabaseError> {
    use std::os::unix::fs::PermissionsExt;
    let created = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    created
        .and_then(|()| fs::set_permissions(directory, fs::Permissions::from_mode(0o700)))
        .map_err(DatabaseError::io(directory))
}

/// Syncs a directory. Without this, a power failure can lose a new name although the file was
/// synced.
pub(crate) fn sync_directory(directory: &Path) -> Result<(), DatabaseError> {
    File::open(directory)
        .and_then(|directory: File| -> io::Result<()> { directory.sync_all() })
        .map_err(DatabaseError::io(directory))
}
