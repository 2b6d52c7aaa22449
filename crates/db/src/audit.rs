//! The audit log, a hash chain: the hash of each entry includes the hash of the entry before it.
//!
//! An entry is written in the transaction of what it tells of, so that neither is there without
//! the other. Nothing here changes one. The head is kept beside the chain with a MAC, whose key is
//! not in the database, so that a tail that was cut off is missed, also where the head was set back.
//! Entries older than the retention are deleted from the beginning, and the chain then begins after the
//! floor, which is under the same MAC.

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

/// Entries that are looked at together when the whole chain is: some hundred kilobytes.
const VERIFY_BATCH: u32 = 1000;
/// Says what is hashed, and in which form.
const ENTRY_DOMAIN: &[u8] = b"belljar audit 1";
const HEAD_DOMAIN: &[u8] = b"belljar audit head 1";
const HEAD_FILE_DOMAIN: &[u8] = b"belljar audit mark 1";

type Hash = [u8; 32];

/// The key of the MAC over the head of the audit log: in a file beside the database, and not in it.
#[derive(Clone)]
pub(crate) struct AuditKey([u8; Self::BYTES]);

impl fmt::Debug for AuditKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuditKey(..)")
    }
}

impl AuditKey {
    /// As many as the block of the hash, so that none is padding.
    const BYTES: usize = 64;

    /// Absent if there is none.
    fn read(path: &Path) -> Result<Option<Self>, DatabaseError> {
        Ok(keyfile::read_key(path, Self::BYTES)?.map(|kept| {
            let mut bytes = [0; Self::BYTES];
            bytes.copy_from_slice(&kept);
            Self(bytes)
        }))
    }

    fn read_or_make(path: &Path) -> Result<Self, DatabaseError> {
        if let Some(key) = Self::read(path)? {
            return Ok(key);
        }
        let key = Self::generate(path)?;
        keyfile::create(path, &key.0)?;
        Ok(key)
    }

    /// A new one, for that file, in which it is not yet.
    fn generate(path: &Path) -> Result<Self, DatabaseError> {
        let mut bytes = [0; Self::BYTES];
        File::open("/dev/urandom")
            .and_then(|mut random| random.read_exact(&mut bytes))
            .map_err(DatabaseError::io(path))?;
        Ok(Self(bytes))
    }

    /// Over what the database says of the log.
    fn head_mac(&self, database: Uuid, head: ChainHead, floor: ChainHead) -> Hash {
        self.mac(HEAD_DOMAIN, database, &[head, floor])
    }

    /// Over what is written beside the database.
    pub(crate) fn head_file_mac(&self, database: Uuid, head: ChainHead) -> Hash {
        self.mac(HEAD_FILE_DOMAIN, database, &[head])
    }

    /// Every field has a length that its form says.
    fn mac(&self, form: &[u8], database: Uuid, heads: &[ChainHead]) -> Hash {
        let mut mac = Hmac::<Sha256>::new(&self.0.into());
        mac.update(form);
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
    /// Signs the log of a database for the first time, in the transaction that makes the column for it:
    /// whatever is found without a signature later has lost it. A stop before the commit leaves a key
    /// that nothing was signed with.
    pub(crate) fn begin(path: &Path, connection: &Connection) -> Result<(), DatabaseError> {
        Self::sign(AuditKey::read_or_make(path)?, connection).map(drop)
    }

    fn sign(key: AuditKey, connection: &Connection) -> Result<Self, DatabaseError> {
        let reader = Reader::new(connection);
        let (database, state) = (reader.database_id()?, reader.audit_state()?);
        let mac = key.head_mac(database, state.head, state.floor);
        connection.execute("UPDATE audit_head SET mac = ?1", [mac])?;
        Ok(Self { key, database })
    }

    /// Opens a log that is signed with the key in this file. It refuses every other log: an attacker may have
    /// taken key and signature away to have a log of their own signed.
    pub(crate) fn open(path: &Path, connection: &Connection) -> Result<Self, DatabaseError> {
        let reader = Reader::new(connection);
        let (database, state) = (reader.database_id()?, reader.audit_state()?);
        let wrong = |what| DatabaseError::AuditKey { path: path.to_owned(), what };
        let key = AuditKey::read(path)?.ok_or_else(|| wrong(KeyTrouble::Missing))?;
        match state.mac {
            None => Err(wrong(KeyTrouble::Unsigned)),
            Some(mac) if mac != key.head_mac(database, state.head, state.floor) => {
                Err(wrong(KeyTrouble::Misfit))
            }
            Some(_) => Ok(Self { key, database }),
        }
    }

    fn mac(&self, head: ChainHead, floor: ChainHead) -> Hash {
        self.key.head_mac(self.database, head, floor)
    }
}

/// Why the audit key, or a signature with it, is refused.
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
pub(crate) fn usual_key(data: &Path) -> PathBuf {
    data.join("db/audit.key")
}

/// An entry before it has its place in the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAuditEntry {
    pub at: DateTime<Utc>,
    pub workspace: WorkspaceId,
    /// Absent when the server does it by itself.
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

/// One place in the chain.
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
    /// The last entry that was forgotten; the log begins after it.
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
    /// The hash of the last entry, to be noted elsewhere.
    pub head: String,
}

struct AuditRow {
    sequence: i64,
    line: NewAuditEntry,
    previous: Hash,
    hash: Hash,
}

impl Tx<'_> {
    /// Tells its number.
    pub fn append_audit_entry(&self, line: &NewAuditEntry) -> Result<i64, DatabaseError> {
        let AuditState { head, floor, .. } = self.audit_state()?;
        let sequence = head.sequence + 1;
        let hash = entry_hash(sequence, line, &head.hash);
        self.execute_unversioned(
            "INSERT INTO audit (sequence, at, workspace, principal, key, action, object, detail, \
             previous_hash, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            (
                sequence,
                to_nanos(line.at),
                line.workspace.uuid(),
                line.principal.map(PrincipalId::uuid),
                line.key.map(KeyId::uuid),
                &line.action,
                &line.object,
                &line.detail,
                head.hash,
                hash,
            ),
        )?;
        let mac = self.audit_signer.mac(ChainHead { sequence, hash }, floor);
        let head = "UPDATE audit_head SET sequence = ?1, hash = ?2, mac = ?3";
        self.execute_unversioned(head, (sequence, hash, mac))?;
        Ok(sequence)
    }

    /// Forgets entries from the beginning, up to the first that is younger, and at most so many. Tells
    /// how many.
    pub(crate) fn prune_audit_log(
        &self,
        before: DateTime<Utc>,
        most: usize,
    ) -> Result<usize, DatabaseError> {
        let AuditState { head, floor, .. } = self.audit_state()?;
        let oldest = self.query_many(
            "SELECT sequence, at, hash FROM audit WHERE sequence > ?1 ORDER BY sequence LIMIT ?2",
            (floor.sequence, most),
            |row| {
                let head = ChainHead { sequence: row.get("sequence")?, hash: row.get("hash")? };
                Ok((head, row.get::<_, i64>("at")?))
            },
        )?;
        let old = oldest.iter().take_while(|(_, at)| *at <= to_nanos(before));
        let Some((last, _)) = old.last() else { return Ok(0) };
        let gone =
            self.execute_unversioned("DELETE FROM audit WHERE sequence <= ?1", [last.sequence])?;
        self.execute_unversioned(
            "UPDATE audit_head SET floor_sequence = ?1, floor_hash = ?2, mac = ?3",
            (last.sequence, last.hash, self.audit_signer.mac(head, *last)),
        )?;
        Ok(gone)
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

    /// Absent if it was forgotten, or never was.
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
                // What does not even have the form of an entry is a finding, not a failure.
                Ok(row_from_sql(row)
                    .map_err(|_| AuditError::Broken { sequence, what: ChainBreak::Changed }))
            },
        )
    }
}

/// Goes through the whole chain, also beside a running server. With `noted`, the hash of an entry that
/// an auditor has recorded elsewhere, that entry must be in it. The key is beside the database unless `key_file`
/// names it.
pub fn verify_audit(
    data: &Path,
    key_file: Option<&Path>,
    noted: Option<&str>,
) -> Result<AuditVerification, AuditError> {
    let noted = match noted {
        Some(text) => Some(
            unhex(text).ok_or_else(|| AuditError::InvalidHash(text.chars().take(80).collect()))?,
        ),
        None => None,
    };
    let (directory, readers) = (data.join("db"), ReaderPool::new(database_path(data)));
    // Before the database, which a running server writes first.
    let id = readers.read(|reader| reader.database_id())?;
    let key = AuditKey::read(key_file.unwrap_or(&usual_key(data)))?;
    let mark = match &key {
        Some(key) => integrity::read_audit_head(&directory, id, key)?,
        None => None,
    };
    readers.read(|reader| Ok(verify(reader, id, key.as_ref(), mark, noted)))?
}

/// The result of signing a log again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignedAnew {
    /// There was nothing wrong with it, and nothing was changed.
    Whole,
    /// Why the log was refused before; also in the new entry.
    Signed { found: String, entry: i64 },
}

/// Signs the audit log as it is, with the key that is there or a new one, and adds an entry that says
/// so. It repairs nothing: entries that are missing or were changed are still found. No server may be
/// running, and the operator must have requested it.
pub fn sign_audit(data: &Path, key_file: Option<&Path>) -> Result<SignedAnew, AuditError> {
    let (home, usual) = (data.join("db"), usual_key(data));
    let key_file = key_file.unwrap_or(&usual);
    // Before anything is made: where there are no records, there is nothing to sign.
    let found = match verify_audit(data, Some(key_file), None) {
        Ok(_) => return Ok(SignedAnew::Whole),
        Err(AuditError::Database(
            found @ (DatabaseError::AuditHeadFile { .. } | DatabaseError::DatabaseMismatch { .. }),
        )) => found.to_string(),
        Err(error @ AuditError::Database(_)) => return Err(error),
        Err(found) => found.to_string(),
    };
    let _lock = lock_directory(&home)?;
    let database = database_path(data);
    let mut connection = schema::open_to_write(&database, key_file)?;
    let (key, is_new) = match AuditKey::read(key_file)? {
        Some(key) => (key, false),
        None => (AuditKey::generate(key_file)?, true),
    };
    let tx = connection.transaction().map_err(DatabaseError::from)?;
    let last = "UPDATE audit_head SET sequence = last.sequence, hash = last.hash FROM \
                (SELECT sequence, hash FROM audit ORDER BY sequence DESC LIMIT 1) AS last";
    tx.execute(last, []).map_err(DatabaseError::from)?;
    let seal = AuditSigner::sign(key.clone(), &tx)?;
    let rows = Tx::new(&tx, &seal);
    let workspace = rows.workspaces()?.first().map(|first| first.id);
    let line = NewAuditEntry {
        at: Utc::now(),
        workspace: workspace.ok_or(DatabaseError::Corrupt { what: "workspace" })?,
        principal: None,
        key: None,
        action: "audit.sign".to_owned(),
        object: "audit log".to_owned(),
        detail: found.clone(),
    };
    let entry = rows.append_audit_entry(&line)?;
    // Last, for the user whose server reads it; a sign that fails leaves no key behind.
    if is_new {
        keyfile::create_beside(key_file, &key.0, &database).map_err(DatabaseError::from)?;
    }
    let committed = integrity::remove_mark(&home).and_then(|()| Ok(tx.commit()?));
    if let Err(error) = committed {
        if is_new {
            std::fs::remove_file(key_file).map_err(DatabaseError::io(key_file))?;
        }
        return Err(error.into());
    }
    Ok(SignedAnew::Signed { found, entry })
}

fn verify(
    reader: &Reader<'_>,
    database: Uuid,
    key: Option<&AuditKey>,
    mark: Option<ChainHead>,
    noted: Option<Hash>,
) -> Result<AuditVerification, AuditError> {
    let AuditState { head, floor, mac } = reader.audit_state()?;
    let mut last = floor;
    let mut after = i64::MIN;
    loop {
        let links = reader.audit_rows_after(after)?;
        if links.is_empty() {
            break;
        }
        for link in links {
            last = verify_row(last, &link?)?;
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
    match mark {
        Some(mark) if mark.sequence > head.sequence => {
            return broken(mark.sequence, ChainBreak::Truncated);
        }
        Some(mark)
            if mark.sequence > floor.sequence
                && reader.audit_hash(mark.sequence)? != Some(mark.hash) =>
        {
            return broken(mark.sequence, ChainBreak::Changed);
        }
        _ => {}
    }
    if let Some(noted) = noted
        && noted != head.hash
        && noted != floor.hash
        && !reader.has_audit_hash(&noted)?
    {
        return Err(AuditError::HashNotFound { hash: hex(&noted), first: floor.sequence + 1 });
    }
    let (entries, forgotten) = (head.sequence - floor.sequence, floor.sequence);
    Ok(AuditVerification { entries, forgotten, head: hex(&head.hash) })
}

fn verify_row(last: ChainHead, link: &AuditRow) -> Result<ChainHead, AuditError> {
    let next = last.sequence + 1;
    let broken = |sequence, what| Err(AuditError::Broken { sequence, what });
    if link.sequence < next {
        return broken(link.sequence, ChainBreak::Added);
    }
    if link.sequence > next {
        return broken(next, ChainBreak::Missing);
    }
    if link.hash != entry_hash(link.sequence, &link.line, &link.previous) {
        return broken(next, ChainBreak::Changed);
    }
    if link.previous != last.hash {
        return broken(next, ChainBreak::Unlinked);
    }
    Ok(ChainHead { sequence: next, hash: link.hash })
}

/// Each field with its length before it, so that no two entries are the same bytes.
fn entry_hash(sequence: i64, line: &NewAuditEntry, previous: &Hash) -> Hash {
    let workspace = line.workspace.uuid();
    let principal = line.principal.map(PrincipalId::uuid);
    let key = line.key.map(KeyId::uuid);
    let fields: [&[u8]; 10] = [
        ENTRY_DOMAIN,
        &sequence.to_be_bytes(),
        &to_nanos(line.at).to_be_bytes(),
        workspace.as_bytes(),
        principal.as_ref().map_or(&[], |id| id.as_bytes()),
        key.as_ref().map_or(&[], |id| id.as_bytes()),
        line.action.as_bytes(),
        line.object.as_bytes(),
        line.detail.as_bytes(),
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
        line: NewAuditEntry {
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

fn to_audit_entry(link: AuditRow) -> Result<AuditEntry, DatabaseError> {
    let sequence = link.sequence.try_into();
    Ok(AuditEntry {
        sequence: sequence.map_err(|_| DatabaseError::Corrupt { what: "audit entry" })?,
        at: link.line.at,
        workspace: link.line.workspace,
        principal: link.line.principal,
        key: link.line.key,
        action: link.line.action,
        object: link.line.object,
        detail: link.line.detail,
        previous_hash: hex(&link.previous),
        hash: hex(&link.hash),
    })
}

pub(crate) fn hex(hash: &Hash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
