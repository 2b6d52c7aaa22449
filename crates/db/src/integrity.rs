//! The id of the database that the files belong to, and its newest audit entry: stored beside the
//! files, so that a missing database, a different one or an older copy is detected before anything
//! is changed.
//!
//! ```text
//! db/files/.database   the id of the database whose files these are
//! volumes/all/.database    the same for volumes
//! db/audit.head        the newest audit entry that is durable, with a MAC
//! db/aside/<date>/     files without a record, until the retention ends
//! ```

use crate::DatabaseError;
use crate::audit::{AuditKey, ChainHead, hex};
use crate::database::{create_private_directory, sync_directory};
use chrono::{DateTime, Utc};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// In a directory of files: the id of their database.
const DATABASE_MARKER: &str = ".database";
/// The first word of the audit head file: the format of the rest.
const HEAD_FILE_FORMAT: &str = "belljar-audit-head-1";
/// More than an audit head file or a marker ever has.
const HEAD_FILE_BYTES_MAX: u64 = 1024;
/// The number of files that an error counts before it says "or more".
const COUNTED_MAX: usize = 10_000;
/// The name of a directory for files that are moved aside: its time, so that names sort by time.
const QUARANTINE_NAME_FORMAT: &str = "%Y-%m-%dT%H-%M-%SZ";

/// The name of a directory for files that are moved aside at this time.
pub fn quarantine_name(now: DateTime<Utc>) -> String {
    now.format(QUARANTINE_NAME_FORMAT).to_string()
}

/// Whether a directory of this name was created before that time. A directory with another name
/// stays.
pub fn was_quarantined_before(name: &str, before: DateTime<Utc>) -> bool {
    let at = chrono::NaiveDateTime::parse_from_str(name, QUARANTINE_NAME_FORMAT);
    at.is_ok_and(|at| at.and_utc() < before)
}

/// Refuses to create a database in a data directory that has data of another one.
pub(crate) fn check_no_data_without_database(
    database: &Path,
    data: &Path,
) -> Result<(), DatabaseError> {
    let directory = data.join("db");
    let shards = list_directory(&directory.join("files"))?;
    let mut files = 0;
    for shard in shards.iter().filter(|shard| shard.is_dir()) {
        files += list_directory(shard)?.len();
        if files >= COUNTED_MAX {
            break;
        }
    }
    let volumes =
        list_directory(&volumes_directory(data))?.iter().filter(|path| !is_hidden(path)).count();
    let wal = wal_path(database);
    let has_log = fs::metadata(&wal).is_ok_and(|wal| wal.len() > 0);
    let was_written = audit_head_path(&directory).exists();
    if files == 0 && volumes == 0 && !has_log && !was_written {
        return Ok(());
    }
    Err(DatabaseError::DatabaseMissing { database: database.to_owned(), files, volumes })
}

/// The write-ahead log beside a database.
fn wal_path(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// The directory of the volumes in a data directory.
pub fn volumes_directory(data: &Path) -> PathBuf {
    data.join("volumes/all")
}

/// Compares the id of the database with the markers beside the files, and creates missing ones: in
/// an empty directory, or where an operator has removed the marker to confirm that the files belong
/// to this database.
pub(crate) fn check_database_markers(data: &Path, database: Uuid) -> Result<(), DatabaseError> {
    for marker in compare_database_markers(data, database)? {
        marker.parent().map_or(Ok(()), ensure_directory)?;
        keyfile::create(&marker, format!("{database}\n").as_bytes())?;
    }
    Ok(())
}

/// The missing markers. Creates nothing.
pub(crate) fn compare_database_markers(
    data: &Path,
    database: Uuid,
) -> Result<Vec<PathBuf>, DatabaseError> {
    let mut missing = Vec::new();
    for directory in [data.join("db/files"), volumes_directory(data)] {
        let marker = directory.join(DATABASE_MARKER);
        match read_text(&marker)? {
            Some(text) if text.trim().parse::<Uuid>().is_ok_and(|found| found == database) => {}
            Some(text) => {
                let found = text.trim().chars().take(64).collect();
                return Err(DatabaseError::DatabaseMismatch { marker, found, database });
            }
            None => missing.push(marker),
        }
    }
    Ok(missing)
}

/// Sandboxes can see volumes through their directory; the engine sets its mode when it opens it.
fn ensure_directory(path: &Path) -> Result<(), DatabaseError> {
    if path.is_dir() { Ok(()) } else { create_private_directory(path) }
}

fn audit_head_path(directory: &Path) -> PathBuf {
    directory.join("audit.head")
}

/// For a log that is signed again: a head file with a MAC of another key would count as a loss.
pub(crate) fn remove_audit_head_file(directory: &Path) -> Result<(), DatabaseError> {
    let path = audit_head_path(directory);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(DatabaseError::io(&path)(error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The newest durable audit entry, in a file outside of the database. It is written after a synced
/// commit and not synced itself, so that it costs no wait: it may be behind the database, and never
/// ahead of it. A database that is behind it has lost commits.
#[derive(Debug)]
pub(crate) struct AuditHeadFile {
    file: File,
    database: Uuid,
    key: AuditKey,
    last_written: ChainHead,
}

impl AuditHeadFile {
    /// Compares the file with `head` of the database. `entry_hash` returns the hash of an entry
    /// that still exists.
    pub(crate) fn open(
        directory: &Path,
        database: Uuid,
        key: AuditKey,
        head: ChainHead,
        entry_hash: impl Fn(i64) -> Result<Option<[u8; 32]>, DatabaseError>,
    ) -> Result<Self, DatabaseError> {
        let path = audit_head_path(directory);
        check_audit_head(directory, database, &key, head, entry_hash)?;
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(DatabaseError::io(&path))?;
        let mut head_file = Self { file, database, key, last_written: ChainHead::default() };
        let text = head_file.encode(head);
        head_file.file.write_all_at(text.as_bytes(), 0).map_err(DatabaseError::io(&path))?;
        head_file.file.set_len(text.len() as u64).map_err(DatabaseError::io(&path))?;
        head_file.file.sync_all().map_err(DatabaseError::io(&path))?;
        head_file.last_written = head;
        sync_directory(directory)?;
        Ok(head_file)
    }

    /// Writes a durable head, in place and always with the same length.
    pub(crate) fn write(&mut self, head: ChainHead) {
        if head == self.last_written {
            return;
        }
        // After a failed write, an older head stays: fewer losses are detected, but none is
        // reported wrongly.
        if self.file.write_all_at(self.encode(head).as_bytes(), 0).is_ok() {
            self.last_written = head;
        }
    }

    fn encode(&self, head: ChainHead) -> String {
        let mac = hex(&self.key.head_file_mac(self.database, head));
        format!(
            "{HEAD_FILE_FORMAT} {} {:020} {} {mac}\n",
            self.database,
            head.sequence,
            hex(&head.hash)
        )
    }
}

/// Compares the file beside a database with `head` of the database. `entry_hash` returns the hash
/// of an entry that still exists.
pub(crate) fn check_audit_head(
    directory: &Path,
    database: Uuid,
    key: &AuditKey,
    head: ChainHead,
    entry_hash: impl Fn(i64) -> Result<Option<[u8; 32]>, DatabaseError>,
) -> Result<(), DatabaseError> {
    let path = audit_head_path(directory);
    let Some(recorded) = parse_audit_head(&path, database, key)? else { return Ok(()) };
    let is_same = match recorded.sequence.cmp(&head.sequence) {
        std::cmp::Ordering::Greater => false,
        std::cmp::Ordering::Equal => recorded.hash == head.hash,
        std::cmp::Ordering::Less => {
            entry_hash(recorded.sequence)?.is_none_or(|hash| hash == recorded.hash)
        }
    };
    if is_same {
        return Ok(());
    }
    let (has, had) = (head.sequence, recorded.sequence);
    Err(DatabaseError::CommitsMissing { head_file: path, has, had })
}

/// The head in the file beside a database, for the verification of the audit log.
pub(crate) fn read_audit_head(
    directory: &Path,
    database: Uuid,
    key: &AuditKey,
) -> Result<Option<ChainHead>, DatabaseError> {
    parse_audit_head(&audit_head_path(directory), database, key)
}

fn parse_audit_head(
    path: &Path,
    database: Uuid,
    key: &AuditKey,
) -> Result<Option<ChainHead>, DatabaseError> {
    let Some(text) = read_text(path)? else { return Ok(None) };
    let unreadable = || DatabaseError::AuditHeadFile { head_file: path.to_owned() };
    let words: Vec<&str> = text.split_whitespace().collect();
    let [HEAD_FILE_FORMAT, found, sequence, hash, mac] = words[..] else {
        return Err(unreadable());
    };
    if found.parse::<Uuid>().ok() != Some(database) {
        let (marker, found) = (path.to_owned(), found.chars().take(64).collect());
        return Err(DatabaseError::DatabaseMismatch { marker, found, database });
    }
    let sequence = sequence.parse().map_err(|_| unreadable())?;
    let head = ChainHead { sequence, hash: unhex(hash).ok_or_else(unreadable)? };
    match unhex(mac) {
        Some(mac) if mac == key.head_file_mac(database, head) => Ok(Some(head)),
        _ => Err(unreadable()),
    }
}

pub(crate) fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    let mut bytes = [0; 32];
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

fn read_text(path: &Path) -> Result<Option<String>, DatabaseError> {
    let mut text = String::new();
    match File::open(path).and_then(|file| file.take(HEAD_FILE_BYTES_MAX).read_to_string(&mut text))
    {
        Ok(_) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(Some(String::new())),
        Err(error) => Err(DatabaseError::io(path)(error)),
    }
}

fn list_directory(directory: &Path) -> Result<Vec<PathBuf>, DatabaseError> {
    let listed = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.map_err(DatabaseError::io(directory))?,
    };
    let paths = listed.take(COUNTED_MAX).map(|entry| entry.map(|entry| entry.path()));
    paths.collect::<io::Result<_>>().map_err(DatabaseError::io(directory))
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_was_set_aside_tells_when() {
        let at = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let name = quarantine_name(at);
        assert!(was_quarantined_before(&name, at + chrono::TimeDelta::seconds(1)), "{name}");
        assert!(!was_quarantined_before(&name, at));
        for other in ["", "mine", "2026-01-01", "../2026-01-01T00-00-00Z"] {
            assert!(!was_quarantined_before(other, at), "{other}");
        }
    }
}
