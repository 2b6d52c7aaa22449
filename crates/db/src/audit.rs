//! The audit log, a hash chain: the hash of each entry includes the hash of the entry before it.
//!
//! An entry is written in the transaction that makes the change, so that neither exists without the
//! other. Entries are never changed. The head of the chain is stored in the database and in a file
//! beside it, each with a MAC, so that missing last entries are detected even if the head was set
//! back too. The key of the MAC is not in the database. Entries older than the retention are
//! deleted from the beginning; the floor, after which the chain then begins, is under the same MAC.

use crate::columns::{from_nanos, to_nanos};
use crate::database::{database_path, lock_directory};
use crate::integrity::{self, unhex};
use crate::page::Cursor;
use crate::reader::ReaderPool;
use crate::{DatabaseError, PageRequest, Reader, RowPage, Tx, schema};
use chrono::{DateTime, Utc};
use hmac::{Hmac, KeyInit, Mac};
use rusqlite::{Connection, Row};
use sha2::{Digest, Sha256};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use types::{AuditEntry, KeyId, PrincipalId, WorkspaceId};
use uuid::Uuid;

/// Entries that a verification reads at once: some hundred kilobytes.
const VERIFY_BATCH: u32 = 1000;
/// Prefixes of what is hashed: its kind and the version of its format.
const ENTRY_DOMAIN: &[u8] = b"belljar audit 1";
const HEAD_DOMAIN: &[u8] = b"belljar audit head 1";
const HEAD_FILE_DOMAIN: &[u8] = b"belljar audit mark 1";

type Hash = [u8; 32];

/// The key of the MAC over the head of the audit log, in a file beside the database.
#[derive(Clone)]
pub(crate) struct AuditKey([u8; Self::BYTES]);

impl fmt::Debug for AuditKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuditKey(..)")
    }
}

impl AuditKey {
    /// The block size of the hash, so that the key is not padded.
    const BYTES: usize = 64;

    /// Reads the key; `None` if the file does not exist.
    fn read(path: &Path) -> Result<Option<Self>, DatabaseError> {
        Ok(keyfile::read_key(path, Self::BYTES)?.map(|stored| {
            let mut bytes = [0; Self::BYTES];
            bytes.copy_from_slice(&stored);
            Self(bytes)
        }))
    }

    fn read_or_create(path: &Path) -> Result<Self, DatabaseError> {
        if let Some(key) = Self::read(path)? {
            return Ok(key);
        }
        let key = Self::generate(path)?;
        keyfile::create(path, &key.0)?;
        Ok(key)
    }

    /// Generates a key for this file without writing it.
    fn generate(path: &Path) -> Result<Self, DatabaseError> {
        let mut bytes = [0; Self::BYTES];
        File::open("/dev/urandom")
            .and_then(|mut random| random.read_exact(&mut bytes))
            .map_err(DatabaseError::io(path))?;
        Ok(Self(bytes))
    }

    /// The MAC over the head and the floor in the database.
    fn head_mac(&self, database: Uuid, head: ChainHead, floor: ChainHead) -> Hash {
        self.mac(HEAD_DOMAIN, database, &[head, floor])
    }

    /// The MAC over the head in the file beside the database.
    pub(crate) fn head_file_mac(&self, database: Uuid, head: ChainHead) -> Hash {
        self.mac(HEAD_FILE_DOMAIN, database, &[head])
    }

    /// A MAC over fields of fixed length, which `domain` determines.
    fn mac(&self, domain: &[u8], database: Uuid, heads: &[ChainHead]) -> Hash {
        let mut mac = Hmac::<Sha256>::new(&self.0.into());
        mac.update(domain);
        mac.update(database.as_bytes());
        for head in heads {
            mac.update(&head.sequence.to_be_bytes());
            mac.update(&head.hash);
        }
        mac.finalize().into_bytes().into()
    }
}

/// The state that the writer needs to append to the log.
#[derive(Debug, Clone)]
pub(crate) struct AuditSigner {
    pub(crate) key: AuditKey,
    pub(crate) database: Uuid,
}

impl AuditSigner {
    /// Signs the log of a database for the first time, in the transaction that creates the column
    /// for it: a log without a signature has lost it from then on. If the server stops before the
    /// commit, an unused key file remains.
    pub(crate) fn sign_first(path: &Path, connection: &Connection) -> Result<(), DatabaseError> {
        Self::sign(AuditKey::read_or_create(path)?, connection).map(drop)
    }

    fn sign(key: AuditKey, connection: &Connection) -> Result<Self, DatabaseError> {
        let reader = Reader::new(connection);
        let (database, state) = (reader.database_id()?, reader.audit_state()?);
        let mac = key.head_mac(database, state.head, state.floor);
        connection.execute("UPDATE audit_head SET mac = ?1", [mac])?;
        Ok(Self { key, database })
    }

    /// Opens a log that is signed with the key in this file. Any other log is an error: an attacker
    /// may have removed key and signature so that the server signs a forged log.
    pub(crate) fn open(path: &Path, connection: &Connection) -> Result<Self, DatabaseError> {
        let reader = Reader::new(connection);
        let (database, state) = (reader.database_id()?, reader.audit_state()?);
        let error = |what| DatabaseError::AuditKey { path: path.to_owned(), what };
        let key = AuditKey::read(path)?.ok_or_else(|| error(KeyTrouble::Missing))?;
        match state.mac {
            None => Err(error(KeyTrouble::Unsigned)),
            Some(mac) if mac != key.head_mac(database, state.head, state.floor) => {
                Err(error(KeyTrouble::Misfit))
            }
            Some(_) => Ok(Self { key, database }),
        }
    }

    fn mac(&self, head: ChainHead, floor: ChainHead) -> Hash {
        self.key.head_mac(self.database, head, floor)
    }
}

/// Why the audit key, or a signature with it, is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyTrouble {
    Missing,
    Unsigned,
    Misfit,
}

impl fmt::Display for KeyTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => {
                "is missing; restore it from a backup, or pass its path with --audit-key"
            }
            Self::Unsigned => "exists, but the signature in the database is missing",
            Self::Misfit => {
                "does not match the audit log: the log was changed, or this is another key"
            }
        })
    }
}

/// The default path of the audit key, beside the database.
pub(crate) fn default_audit_key(data: &Path) -> PathBuf {
    data.join("db/audit.key")
}

/// An audit entry before it is appended to the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAuditEntry {
    pub at: DateTime<Utc>,
    pub workspace: WorkspaceId,
    /// Absent for an action of the server itself.
    pub principal: Option<PrincipalId>,
    pub key: Option<KeyId>,
    pub action: String,
    pub object: String,
    pub detail: String,
}

/// A filter; absent fields match everything.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    pub action: Option<String>,
    pub principal: Option<PrincipalId>,
}

#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error("the audit log is broken: entry {sequence} {what}")]
    Broken { sequence: i64, what: ChainBreak },
    #[error(
        "the audit log is broken: no entry has the hash {hash}; the log was changed after that \
         hash was recorded, or the entry is older than the first stored one ({first})"
    )]
    HashNotFound { hash: String, first: i64 },
    #[error("`{0}` is not the hash of an audit entry; a hash has 64 hexadecimal digits")]
    InvalidHash(String),
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChainBreak {
    Changed,
    Missing,
    Unlinked,
    Added,
    /// The server has not written this head.
    UnsignedHead,
    /// The entry was written and durable.
    Truncated,
}

impl fmt::Display for ChainBreak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Changed => "was changed after it was written",
            Self::Missing => "is missing",
            Self::Unlinked => "does not continue the entry before it",
            Self::Added => "was not written by Belljar",
            Self::UnsignedHead => {
                "is the last one, and the signature of the server is missing or invalid"
            }
            Self::Truncated => "was written and is missing",
        })
    }
}

/// The position and the hash of one entry of the chain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ChainHead {
    pub(crate) sequence: i64,
    pub(crate) hash: Hash,
}

/// The state of the whole log in the database.
#[derive(Debug)]
struct AuditState {
    /// The last entry.
    head: ChainHead,
    /// The last deleted entry; the log begins after it.
    floor: ChainHead,
    mac: Option<Hash>,
}

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditVerification {
    /// The number of entries.
    pub entries: i64,
    /// The number of earlier entries, deleted after their retention.
    pub forgotten: i64,
    /// The hash of the last entry, to be recorded elsewhere.
    pub head: String,
}

struct AuditRow {
    sequence: i64,
    entry: NewAuditEntry,
    previous: Hash,
    hash: Hash,
}

impl Tx<'_> {
    /// Appends an entry and returns its sequence number.
    pub fn append_audit_entry(&self, entry: &NewAuditEntry) -> Result<i64, DatabaseError> {
        let AuditState { head, floor, .. } = self.audit_state()?;
        let sequence = head.sequence + 1;
        let hash = entry_hash(sequence, entry, &head.hash);
        self.execute_unversioned(
            "INSERT INTO audit (sequence, at, workspace, principal, key, action, object, detail, \
             previous_hash, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            (
                sequence,
                to_nanos(entry.at),
                entry.workspace.uuid(),
                entry.principal.map(PrincipalId::uuid),
                entry.key.map(KeyId::uuid),
                &entry.action,
                &entry.object,
                &entry.detail,
                head.hash,
                hash,
            ),
        )?;
        let mac = self.audit_signer.mac(ChainHead { sequence, hash }, floor);
        let head = "UPDATE audit_head SET sequence = ?1, hash = ?2, mac = ?3";
        self.execute_unversioned(head, (sequence, hash, mac))?;
        Ok(sequence)
    }

    /// Deletes entries older than `before` from the beginning, at most `limit`, and returns their
    /// number.
    pub(crate) fn prune_audit_log(
        &self,
        before: DateTime<Utc>,
        limit: usize,
    ) -> Result<usize, DatabaseError> {
        let AuditState { head, floor, .. } = self.audit_state()?;
        let oldest = self.query_many(
            "SELECT sequence, at, hash FROM audit WHERE sequence > ?1 ORDER BY sequence LIMIT ?2",
            (floor.sequence, limit),
            |row| {
                let head = ChainHead { sequence: row.get("sequence")?, hash: row.get("hash")? };
                Ok((head, row.get::<_, i64>("at")?))
            },
        )?;
        let expired = oldest.iter().take_while(|(_, at)| *at <= to_nanos(before));
        let Some((last, _)) = expired.last() else { return Ok(0) };
        let deleted =
            self.execute_unversioned("DELETE FROM audit WHERE sequence <= ?1", [last.sequence])?;
        self.execute_unversioned(
            "UPDATE audit_head SET floor_sequence = ?1, floor_hash = ?2, mac = ?3",
            (last.sequence, last.hash, self.audit_signer.mac(head, *last)),
        )?;
        Ok(deleted)
    }
}

impl Reader<'_> {
    pub fn audit_entries(
        &self,
        workspace: WorkspaceId,
        filter: &AuditFilter,
        page: PageRequest,
    ) -> Result<RowPage<AuditEntry>, DatabaseError> {
        let before = i64::try_from(page.before().as_u128()).unwrap_or(i64::MAX);
        let rows = self.query_many(
            "SELECT * FROM audit WHERE workspace = ?1 AND sequence < ?2 \
             AND (?3 IS NULL OR action = ?3) AND (?4 IS NULL OR principal = ?4) \
             ORDER BY sequence DESC LIMIT ?5",
            (
                workspace.uuid(),
                before,
                &filter.action,
                filter.principal.map(PrincipalId::uuid),
                page.row_limit(),
            ),
            |row| {
                let entry = to_audit_entry(row_from_sql(row)?)?;
                Ok((Cursor(Uuid::from_u128(entry.sequence.into())), entry))
            },
        )?;
        Ok(RowPage::from_rows(rows, page))
    }

    pub(crate) fn audit_head(&self) -> Result<ChainHead, DatabaseError> {
        Ok(self.audit_state()?.head)
    }

    fn audit_state(&self) -> Result<AuditState, DatabaseError> {
        let state = self.query_one("SELECT * FROM audit_head", [], |row| {
            Ok(AuditState {
                head: ChainHead { sequence: row.get("sequence")?, hash: row.get("hash")? },
                floor: ChainHead {
                    sequence: row.get("floor_sequence")?,
                    hash: row.get("floor_hash")?,
                },
                mac: row.get("mac")?,
            })
        })?;
        state.ok_or(DatabaseError::Corrupt { what: "audit head" })
    }

    /// The hash of an entry; `None` if it was deleted or never existed.
    pub(crate) fn audit_hash(&self, sequence: i64) -> Result<Option<Hash>, DatabaseError> {
        let sql = "SELECT hash FROM audit WHERE sequence = ?1";
        self.query_one(sql, [sequence], |row| Ok(row.get("hash")?))
    }

    fn has_audit_hash(&self, hash: &Hash) -> Result<bool, DatabaseError> {
        let found = self.query_one("SELECT 1 FROM audit WHERE hash = ?1", [hash], |_| Ok(()))?;
        Ok(found.is_some())
    }

    pub(crate) fn database_id(&self) -> Result<Uuid, DatabaseError> {
        let id = self.query_one("SELECT database_id FROM server", [], |row| Ok(row.get(0)?))?;
        id.ok_or(DatabaseError::Corrupt { what: "database id" })
    }

    fn audit_rows_after(
        &self,
        sequence: i64,
    ) -> Result<Vec<Result<AuditRow, AuditError>>, DatabaseError> {
        self.query_many(
            "SELECT * FROM audit WHERE sequence > ?1 ORDER BY sequence LIMIT ?2",
            (sequence, VERIFY_BATCH),
            |row| {
                let sequence = row.get("sequence")?;
                // A row that does not have the form of an entry is a finding of the verification,
                // and not a failure to read.
                Ok(row_from_sql(row)
                    .map_err(|_| AuditError::Broken { sequence, what: ChainBreak::Changed }))
            },
        )
    }
}

/// Verifies the whole chain, also while a server is running. With `recorded`, the hash of an entry
/// that an auditor has recorded elsewhere, that entry must be in the chain. The key is beside the
/// database unless `key_file` names another file.
pub fn verify_audit(
    data: &Path,
    key_file: Option<&Path>,
    recorded: Option<&str>,
) -> Result<AuditVerification, AuditError> {
    let recorded = match recorded {
        Some(text) => Some(
            unhex(text).ok_or_else(|| AuditError::InvalidHash(text.chars().take(80).collect()))?,
        ),
        None => None,
    };
    let (directory, readers) = (data.join("db"), ReaderPool::new(database_path(data)));
    // Read before the database, because a running server writes the database first.
    let id = readers.read(|reader| reader.database_id())?;
    let key = AuditKey::read(key_file.unwrap_or(&default_audit_key(data)))?;
    let head_file = match &key {
        Some(key) => integrity::read_audit_head(&directory, id, key)?,
        None => None,
    };
    readers.read(|reader| Ok(verify(reader, id, key.as_ref(), head_file, recorded)))?
}

/// The result of [`sign_audit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditSignOutcome {
    /// The log was valid, and nothing was changed.
    Unchanged,
    /// `found` says why the log was invalid; the new entry has the same text.
    Signed { found: String, entry: i64 },
}

/// Signs the audit log as it is, with the existing key or a new one, and adds an entry that says
/// so. It repairs nothing: missing and changed entries are still found. The operator must have
/// requested it, and no server may be running.
pub fn sign_audit(data: &Path, key_file: Option<&Path>) -> Result<AuditSignOutcome, AuditError> {
    let (directory, default_key) = (data.join("db"), default_audit_key(data));
    let key_file = key_file.unwrap_or(&default_key);
    // Before anything is created: without records there is nothing to sign.
    let found = match verify_audit(data, Some(key_file), None) {
        Ok(_) => return Ok(AuditSignOutcome::Unchanged),
        Err(AuditError::Database(
            found @ (DatabaseError::AuditHeadFile { .. } | DatabaseError::DatabaseMismatch { .. }),
        )) => found.to_string(),
        Err(error @ AuditError::Database(_)) => return Err(error),
        Err(found) => found.to_string(),
    };
    let _lock = lock_directory(&directory)?;
    let database = database_path(data);
    let mut connection = schema::open_to_write(&database, key_file)?;
    let (key, is_new) = match AuditKey::read(key_file)? {
        Some(key) => (key, false),
        None => (AuditKey::generate(key_file)?, true),
    };
    let tx = connection.transaction().map_err(DatabaseError::from)?;
    let set_head = "UPDATE audit_head SET sequence = last.sequence, hash = last.hash FROM \
                (SELECT sequence, hash FROM audit ORDER BY sequence DESC LIMIT 1) AS last";
    tx.execute(set_head, []).map_err(DatabaseError::from)?;
    let signer = AuditSigner::sign(key.clone(), &tx)?;
    let rows = Tx::new(&tx, &signer);
    let workspace = rows.workspaces()?.first().map(|first| first.id);
    let entry = NewAuditEntry {
        at: Utc::now(),
        workspace: workspace.ok_or(DatabaseError::Corrupt { what: "workspace" })?,
        principal: None,
        key: None,
        action: "audit.sign".to_owned(),
        object: "audit log".to_owned(),
        detail: found.clone(),
    };
    let sequence = rows.append_audit_entry(&entry)?;
    // The key file is created last, for the user that the server runs as; if signing fails, no key
    // remains.
    if is_new {
        keyfile::create_beside(key_file, &key.0, &database).map_err(DatabaseError::from)?;
    }
    let result = integrity::remove_audit_head_file(&directory).and_then(|()| Ok(tx.commit()?));
    if let Err(error) = result {
        if is_new {
            std::fs::remove_file(key_file).map_err(DatabaseError::io(key_file))?;
        }
        return Err(error.into());
    }
    Ok(AuditSignOutcome::Signed { found, entry: sequence })
}

fn verify(
    reader: &Reader<'_>,
    database: Uuid,
    key: Option<&AuditKey>,
    recorded_head: Option<ChainHead>,
    recorded: Option<Hash>,
) -> Result<AuditVerification, AuditError> {
    let AuditState { head, floor, mac } = reader.audit_state()?;
    let mut last = floor;
    let mut after = i64::MIN;
    loop {
        let rows = reader.audit_rows_after(after)?;
        if rows.is_empty() {
            break;
        }
        for row in rows {
            last = verify_row(last, &row?)?;
        }
        after = last.sequence;
    }
    let broken = |sequence, what| Err(AuditError::Broken { sequence, what });
    match last.sequence.cmp(&head.sequence) {
        _ if last == head => {}
        std::cmp::Ordering::Less => return broken(last.sequence + 1, ChainBreak::Missing),
        std::cmp::Ordering::Equal => return broken(last.sequence, ChainBreak::Changed),
        std::cmp::Ordering::Greater => return broken(last.sequence, ChainBreak::Added),
    }
    if mac != key.map(|key| key.head_mac(database, head, floor)) || mac.is_none() {
        return broken(head.sequence, ChainBreak::UnsignedHead);
    }
    match recorded_head {
        Some(recorded_head) if recorded_head.sequence > head.sequence => {
            return broken(recorded_head.sequence, ChainBreak::Truncated);
        }
        Some(recorded_head)
            if recorded_head.sequence > floor.sequence
                && reader.audit_hash(recorded_head.sequence)? != Some(recorded_head.hash) =>
        {
            return broken(recorded_head.sequence, ChainBreak::Changed);
        }
        _ => {}
    }
    if let Some(recorded) = recorded
        && recorded != head.hash
        && recorded != floor.hash
        && !reader.has_audit_hash(&recorded)?
    {
        return Err(AuditError::HashNotFound { hash: hex(&recorded), first: floor.sequence + 1 });
    }
    let (entries, forgotten) = (head.sequence - floor.sequence, floor.sequence);
    Ok(AuditVerification { entries, forgotten, head: hex(&head.hash) })
}

fn verify_row(last: ChainHead, row: &AuditRow) -> Result<ChainHead, AuditError> {
    let next = last.sequence + 1;
    let broken = |sequence, what| Err(AuditError::Broken { sequence, what });
    if row.sequence < next {
        return broken(row.sequence, ChainBreak::Added);
    }
    if row.sequence > next {
        return broken(next, ChainBreak::Missing);
    }
    if row.hash != entry_hash(row.sequence, &row.entry, &row.previous) {
        return broken(next, ChainBreak::Changed);
    }
    if row.previous != last.hash {
        return broken(next, ChainBreak::Unlinked);
    }
    Ok(ChainHead { sequence: next, hash: row.hash })
}

/// Hashes each field with its length before it, so that no two entries are the same bytes.
fn entry_hash(sequence: i64, entry: &NewAuditEntry, previous: &Hash) -> Hash {
    let workspace = entry.workspace.uuid();
    let principal = entry.principal.map(PrincipalId::uuid);
    let key = entry.key.map(KeyId::uuid);
    let fields: [&[u8]; 10] = [
        ENTRY_DOMAIN,
        &sequence.to_be_bytes(),
        &to_nanos(entry.at).to_be_bytes(),
        workspace.as_bytes(),
        principal.as_ref().map_or(&[], |id| id.as_bytes()),
        key.as_ref().map_or(&[], |id| id.as_bytes()),
        entry.action.as_bytes(),
        entry.object.as_bytes(),
        entry.detail.as_bytes(),
        previous,
    ];
    let mut hasher = Sha256::new();
    for field in fields {
        hasher.update((field.len() as u64).to_be_bytes());
        hasher.update(field);
    }
    hasher.finalize().into()
}

fn row_from_sql(row: &Row<'_>) -> Result<AuditRow, DatabaseError> {
    Ok(AuditRow {
        sequence: row.get("sequence")?,
        entry: NewAuditEntry {
            at: from_nanos(row.get("at")?),
            workspace: WorkspaceId::new(row.get("workspace")?),
            principal: row.get::<_, Option<Uuid>>("principal")?.map(PrincipalId::new),
            key: row.get::<_, Option<Uuid>>("key")?.map(KeyId::new),
            action: row.get("action")?,
            object: row.get("object")?,
            detail: row.get("detail")?,
        },
        previous: row.get("previous_hash")?,
        hash: row.get("hash")?,
    })
}

fn to_audit_entry(row: AuditRow) -> Result<AuditEntry, DatabaseError> {
    let sequence = row.sequence.try_into();
    Ok(AuditEntry {
        sequence: sequence.map_err(|_| DatabaseError::Corrupt { what: "audit entry" })?,
        at: row.entry.at,
        workspace: row.entry.workspace,
        principal: row.entry.principal,
        key: row.entry.key,
        action: row.entry.action,
        object: row.entry.object,
        detail: row.entry.detail,
        previous_hash: hex(&row.previous),
        hash: hex(&row.hash),
    })
}

pub(crate) fn hex(hash: &Hash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
