//! The database file: how it is opened, and how it comes to have its tables.
//!
//! Migrations only ever go up, all of them or none. A file of a newer Belljar is not touched.

use crate::DatabaseError;
use crate::audit::AuditSigner;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// In order; the version of a file is how many of them it has had.
const MIGRATIONS: &[&str] = &[
    include_str!("../migrations/0001_begin.sql"),
    include_str!("../migrations/0002_external_ids.sql"),
    include_str!("../migrations/0003_permission.sql"),
    include_str!("../migrations/0004_stores.sql"),
    include_str!("../migrations/0005_packages.sql"),
    include_str!("../migrations/0006_functions.sql"),
    include_str!("../migrations/0007_network.sql"),
    include_str!("../migrations/0008_secrets.sql"),
    include_str!("../migrations/0009_runs.sql"),
    include_str!("../migrations/0010_execution_events.sql"),
    include_str!("../migrations/0011_ownership.sql"),
    include_str!("../migrations/0012_questions.sql"),
    include_str!("../migrations/0013_safety.sql"),
    include_str!("../migrations/0014_origin.sql"),
    include_str!("../migrations/0015_volumes.sql"),
    include_str!("../migrations/0016_names.sql"),
    include_str!("../migrations/0017_inputs.sql"),
];

/// The version whose audit log has a signature; only older ones may be without.
const SIGNED_SINCE: usize = 13;
/// More than there are statements in this crate, so that each is compiled once a connection.
const CACHED_STATEMENTS: usize = 256;
/// There is no other writer; this is for the moment in which another process recovers the log.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The size of the write-ahead log after a checkpoint: as much as it has before the next one. Without a bound
/// one large transaction would keep the log at its size.
const LOG_BYTES_MAX: i64 = 4 * 1024 * 1024;

/// The schema version of the database; 0 if there is none, or it has no tables. Creates nothing.
pub(crate) fn found_version(database: &Path) -> Result<usize, DatabaseError> {
    if !database.metadata().is_ok_and(|file| file.len() > 0) {
        return Ok(0);
    }
    Ok(open_to_read(database)?.pragma_query_value(None, "user_version", |row| row.get(0))?)
}

/// Whether a database of this version would be migrated, and must have a signature before that.
pub(crate) fn is_signed_and_older(version: usize) -> bool {
    (SIGNED_SINCE..MIGRATIONS.len()).contains(&version)
}

/// The audit log of a database that is new, or older than signatures, is signed with the key in
/// `audit_key`.
pub(crate) fn open_to_write(
    database: &Path,
    audit_key: &Path,
) -> Result<Connection, DatabaseError> {
    // SQLite would make it readable for everybody, and gives its log the mode of the file.
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(database)
        .map_err(DatabaseError::io(database))?;
    let mut connection = open(database, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let version: usize = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version == 0 {
        // Lets the file shrink when rows are forgotten; it must be said before there are tables.
        connection.pragma_update(None, "auto_vacuum", "incremental")?;
    }
    migrate(&mut connection, database, audit_key)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES_MAX)?;
    Ok(connection)
}

pub(crate) fn open_to_read(database: &Path) -> Result<Connection, DatabaseError> {
    open(database, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

fn open(database: &Path, access: OpenFlags) -> Result<Connection, DatabaseError> {
    let connection =
        Connection::open_with_flags(database, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    // Where a table has a partial index, SQLite would otherwise compile a statement again for every
    // value that is bound to it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

fn migrate(
    connection: &mut Connection,
    database: &Path,
    audit_key: &Path,
) -> Result<(), DatabaseError> {
    let tx = connection.transaction()?;
    let found: usize = tx.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let known = MIGRATIONS.len();
    let Some(missing) = MIGRATIONS.get(found..) else {
        return Err(DatabaseError::NewerSchema { path: database.to_owned(), found, known });
    };
    // A disk that takes nothing any more can still be read.
    if missing.is_empty() {
        return Ok(());
    }
    for migration in missing {
        tx.execute_batch(migration)?;
    }
    if found < SIGNED_SINCE {
        AuditSigner::begin(audit_key, &tx)?;
    }
    tx.pragma_update(None, "user_version", known)?;
    Ok(tx.commit()?)
}

/// Moves what it can without waiting for readers.
pub(crate) fn checkpoint(connection: &Connection) -> Result<(), DatabaseError> {
    Ok(connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?)
}
