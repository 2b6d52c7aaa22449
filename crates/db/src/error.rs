//! Why something was not kept or not found out, by what failed.
//!
//! What is not there is an `Option`, never an error.

use crate::audit::KeyTrouble;
use rusqlite::ffi;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Can be cloned, because one failed commit is told to everybody who was in it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DatabaseError {
    #[error(
        "{} is in use by another server; stop that one, or give this one a data directory of its \
         own",
        .path.display()
    )]
    Locked { path: PathBuf },

    #[error(
        "the records in {} are of version {found}, and this Belljar knows none above {known}; use \
         the newer Belljar that wrote them",
        .path.display()
    )]
    NewerSchema { path: PathBuf, found: usize, known: usize },

    #[error(
        "there is no database at {}, but {files} files, {volumes} volumes or other things of one are \
         beside it; restore the database with its -wal file, or name the directory that has it \
         with --records. To begin anew, move `db` and `volumes` away first",
        .database.display()
    )]
    DatabaseMissing { database: PathBuf, files: usize, volumes: usize },

    #[error(
        "{} says that what is there belongs to the database {found}, and the database here is \
         {database}; restore both from one backup. If they do belong together, remove that file: \
         files that no record knows are then set aside",
        .marker.display()
    )]
    DatabaseMismatch { marker: PathBuf, found: String, database: uuid::Uuid },

    #[error(
        "the last commits of the database are missing: {} says that audit entry {had} was written, \
         and the database has {has} entries or another one; restore the database together with its \
         -wal file. To go on without what is missing, remove that file: files that no record \
         knows are then set aside",
        .mark.display()
    )]
    CommitsMissing { mark: PathBuf, has: i64, had: i64 },

    #[error(
        "{} cannot be read, or was not written with the audit key; restore it, or remove it to go on \
         without knowing whether the database is complete",
        .mark.display()
    )]
    AuditHeadFile { mark: PathBuf },

    #[error(
        "the key of the audit log, {}, {what}; `belljar audit verify` says more. To go on all the same, \
         sign the log as it is with `belljar audit sign`, which is noted in it",
        .path.display()
    )]
    AuditKey { path: PathBuf, what: KeyTrouble },

    #[error("{0}")]
    KeyFile(Arc<keyfile::Error>),

    #[error("the name `{name}` is taken by another {kind}; choose another name")]
    NameTaken { kind: &'static str, name: String },

    #[error("the workspace keeps at most {most} bytes of files; delete some that are not needed")]
    QuotaExceeded { most: u64 },

    #[error("there is no room on the disk to keep records; make some, and send it again")]
    DiskFull,

    #[error(
        "nothing is kept any more, because the disk failed ({cause}); look at the disk, then start \
         the server again"
    )]
    Stopped { cause: String },

    #[error("the server ended before this was kept; look whether it was, then send it again")]
    Aborted,

    #[error("a kept {what} cannot be read; it was changed by something else than Belljar")]
    Corrupt { what: &'static str },

    #[error("{} cannot be used: {cause}", .path.display())]
    Io { path: PathBuf, cause: Arc<io::Error> },

    #[error("the records cannot be used: {0}")]
    Sqlite(Arc<rusqlite::Error>),
}

impl DatabaseError {
    /// After such an error nobody knows what is on the disk: a failed fsync may have dropped pages
    /// that a second one would call written.
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

    /// For a row whose name must be the only one of its kind.
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
            // The index of the log is a file too, and has its own code for a full disk.
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
