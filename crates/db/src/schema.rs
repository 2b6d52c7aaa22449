//! The database file: opening it, and creating and migrating its tables.
//!
//! All migrations of an upgrade are one transaction. A file of a newer Belljar is not changed.

use crate::DatabaseError;
use crate::audit::AuditSigner;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// In order; the schema version of a file is the number of applied migrations.
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
    include_str!("../migrations/0018_skills.sql"),
];

/// The first version with a signed audit log; only older ones may be without a signature.
const SIGNED_SINCE: usize = 13;
/// More than the number of statements in this crate, so that each is compiled once per connection.
const CACHED_STATEMENTS: usize = 256;
/// There is no other writer; the timeout is for another process that recovers the log.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The size limit of the write-ahead log after a checkpoint, about as much as it has before the
/// next one. Without it, the log would keep the size of the largest transaction.
const LOG_BYTES_MAX: i64 = 4 * 1024 * 1024;

/// The schema version of the database; 0 if there is none, or it has no tables. Creates nothing.
pub(crate) fn found_version(database: &Path) -> Result<usize, DatabaseError> {
    if !database.metadata().is_ok_and(|file| file.len() > 0) {
        return Ok(0);
    }
    Ok(open_to_read(database)?.pragma_query_value(None, "user_version", |row| row.get(0))?)
}

/// Whether a database of this version would be migrated, and must already have a signature.
pub(crate) fn is_signed_and_older(version: usize) -> bool {
    (SIGNED_SINCE..MIGRATIONS.len()).contains(&version)
}

/// Opens the database for writing, and creates or migrates it. The audit log of a database that is
/// new, or older than signatures, is signed with the key in `audit_key`.
pub(crate) fn open_to_write(
    database: &Path,
    audit_key: &Path,
) -> Result<Connection, DatabaseError> {
    // SQLite would make the file readable for all users, and gives its write-ahead log the same
    // mode.
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(database)
        .map_err(DatabaseError::io(database))?;
    let mut connection = open(database, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let version: usize = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version == 0 {
        // Lets the file shrink after rows are deleted; must be set before there are tables.
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
    // Otherwise SQLite would compile a statement on a table with a partial index again for every
    // bound value.
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
    // A database on a full disk can still be read.
    if missing.is_empty() {
        return Ok(());
    }
    for migration in missing {
        tx.execute_batch(migration)?;
    }
    if found < SIGNED_SINCE {
        AuditSigner::sign_first(audit_key, &tx)?;
    }
    tx.pragma_update(None, "user_version", known)?;
    Ok(tx.commit()?)
}

/// Moves pages of the write-ahead log into the database, as far as no reader prevents it.
pub(crate) fn checkpoint(connection: &Connection) -> Result<(), DatabaseError> {
    Ok(connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?)
}
