//! Errors of the database, by the step that failed.
//!
//! A missing row is an `Option`, never an error.

use crate::audit::KeyTrouble;
use rusqlite::ffi;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An error of the database. It can be cloned, because every job of a failed commit gets it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DatabaseError {
    #[error(
        "{} is in use by another server; stop that server, or use another data directory",
        .path.display()
    )]
    Locked { path: PathBuf },

    #[error(
        "database {} has schema version {found}, and this Belljar supports up to {known}; use the \
         newer Belljar that wrote it",
        .path.display()
    )]
    NewerSchema { path: PathBuf, found: usize, known: usize },

    #[error(
        "database {} is missing, but its directory has {files} files, {volumes} volumes or other \
         data of a database; restore the database with its -wal file, or pass its directory with \
         --records. To start with an empty database, move `db` and `volumes` away first",
        .database.display()
    )]
    DatabaseMissing { database: PathBuf, files: usize, volumes: usize },

    #[error(
        "files and database do not belong together: {} names the database {found}, and this one is \
         {database}; restore both from one backup. If they do belong together, remove that file: \
         files without a record are then moved to db/aside and volumes/all/.aside",
        .marker.display()
    )]
    DatabaseMismatch { marker: PathBuf, found: String, database: uuid::Uuid },

    #[error(
        "the last commits of the database are missing: according to {} audit entry {had} was \
         written, and the database has {has} entries or a different one; restore the database \
         together with its -wal file. To continue without the missing commits, remove that file: \
         files without a record are then moved to db/aside and volumes/all/.aside",
        .head_file.display()
    )]
    CommitsMissing { head_file: PathBuf, has: i64, had: i64 },

    #[error(
        "{} is invalid or was not signed with the audit key; restore it, or remove it to continue \
         without the check that the database is complete",
        .head_file.display()
    )]
    AuditHeadFile { head_file: PathBuf },

    #[error(
        "audit key {} {what}; see `belljar audit verify`. To continue, sign the log as it is with \
         `belljar audit sign`, which adds an entry",
        .path.display()
    )]
    AuditKey { path: PathBuf, what: KeyTrouble },

    #[error("{0}")]
    KeyFile(Arc<keyfile::Error>),

    #[error("name `{name}` is already used by another {kind}; choose another")]
    NameTaken { kind: &'static str, name: String },

    #[error("files of the workspace exceed its quota of {most} bytes; delete some")]
    QuotaExceeded { most: u64 },

    #[error("disk is full; free some space and send the request again")]
    DiskFull,

    #[error(
        "database is stopped after a disk error ({cause}); check the disk, then restart the server"
    )]
    Stopped { cause: String },

    #[error(
        "the server stopped before the data was stored; check whether it was, then send the \
         request again"
    )]
    Aborted,

    #[error("a stored {what} is invalid: it was changed by another program than Belljar")]
    Corrupt { what: &'static str },

    #[error("{} cannot be used: {cause}", .path.display())]
    Io { path: PathBuf, cause: Arc<io::Error> },

    #[error("database error: {0}")]
    Sqlite(Arc<rusqlite::Error>),
}

impl DatabaseError {
    /// Whether the content of the disk is unknown after this error: a failed fsync may have dropped
    /// pages that a second one would report as written.
    pub(crate) fn is_fatal(&self) -> bool {
        let Self::Sqlite(error) = self else {
            return matches!(self, Self::Stopped { .. });
        };
        error.sqlite_error().is_some_and(|error| {
            matches!(
                error.code,
                ffi::ErrorCode::SystemIoFailure
                    | ffi::ErrorCode::DatabaseCorrupt
                    | ffi::ErrorCode::NotADatabase
            )
        })
    }

    /// For a row whose name must be unique among objects of its kind.
    pub(crate) fn or_name_taken(self, kind: &'static str, name: &str) -> Self {
        match &self {
            Self::Sqlite(error) if extended_code(error) == Some(ffi::SQLITE_CONSTRAINT_UNIQUE) => {
                Self::NameTaken { kind, name: name.to_owned() }
            }
            _ => self,
        }
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        |cause| Self::Io { path: path.to_owned(), cause: Arc::new(cause) }
    }
}

impl From<rusqlite::Error> for DatabaseError {
    fn from(error: rusqlite::Error) -> Self {
        match extended_code(&error) {
            // The index of the write-ahead log is a file too, and has its own code for a full disk.
            Some(ffi::SQLITE_FULL | ffi::SQLITE_IOERR_SHMSIZE) => Self::DiskFull,
            _ => Self::Sqlite(Arc::new(error)),
        }
    }
}

impl From<keyfile::Error> for DatabaseError {
    fn from(error: keyfile::Error) -> Self {
        Self::KeyFile(Arc::new(error))
    }
}

fn extended_code(error: &rusqlite::Error) -> Option<i32> {
    error.sqlite_error().map(|error| error.extended_code)
}
