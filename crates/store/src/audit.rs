//! Who did what, in a chain: each entry has the hash of the one before it in its own.
//!
//! An entry is written in the transaction of what it tells of, so that neither is there without
//! the other. Nothing here changes one. The head is kept beside the chain with a MAC, whose key is
//! not in the database, so that a tail that was cut off is missed, also where the head was set back.
//! What is older than its retention goes from the beginning, and the chain then begins after the
//! floor, which is under the same MAC.

use crate::belonging::{self, unhex};
use crate::column::{at, moment};
use crate::page::Cursor;
use crate::reader::Readers;
use crate::store::{database, lock};
use crate::{Listed, Page, Reader, StoreError, Tx, schema};
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
const STEP: u32 = 1000;
/// Says what is hashed, and in which form.
const FORM: &[u8] = b"belljar audit 1";
const HEAD_FORM: &[u8] = b"belljar audit head 1";
const MARK_FORM: &[u8] = b"belljar audit mark 1";

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
    fn read(path: &Path) -> Result<Option<Self>, StoreError> {
        Ok(keyfile::read_key(path, Self::BYTES)?.map(|kept| {
            let mut bytes = [0; Self::BYTES];
            bytes.copy_from_slice(&kept);
            Self(bytes)
        }))
    }

    fn read_or_make(path: &Path) -> Result<Self, StoreError> {
        if let Some(key) = Self::read(path)? {
            return Ok(key);
        }
        let mut bytes = [0; Self::BYTES];
        File::open("/dev/urandom")
            .and_then(|mut random| random.read_exact(&mut bytes))
            .map_err(StoreError::io(path))?;
        keyfile::create(path, &bytes)?;
        Ok(Self(bytes))
    }

    /// Over what the database says of the log.
    fn head(&self, database: Uuid, head: Head, floor: Head) -> Hash {
        self.mac(HEAD_FORM, database, &[head, floor])
    }

    /// Over what is written beside the database.
    pub(crate) fn mark(&self, database: Uuid, head: Head) -> Hash {
        self.mac(MARK_FORM, database, &[head])
    }

    /// Every field has a length that its form says.
    fn mac(&self, form: &[u8], database: Uuid, heads: &[Head]) -> Hash {
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

/// What the writer needs to add to the log.
#[derive(Debug, Clone)]
pub(crate) struct AuditSeal {
    pub(crate) key: AuditKey,
    pub(crate) database: Uuid,
}

impl AuditSeal {
    /// Signs the log of a database for the first time, in the transaction that makes the column for it:
    /// whatever is found without a signature later has lost it. A stop before the commit leaves a key
    /// that nothing was signed with.
    pub(crate) fn begin(path: &Path, connection: &Connection) -> Result<(), StoreError> {
        Self::sign(AuditKey::read_or_make(path)?, connection).map(drop)
    }

    fn sign(key: AuditKey, connection: &Connection) -> Result<Self, StoreError> {
        let reader = Reader::new(connection);
        let (database, state) = (reader.database_id()?, reader.audit_state()?);
        let mac = key.head(database, state.head, state.floor);
        connection.execute("UPDATE audit_head SET mac = ?1", [mac])?;
        Ok(Self { key, database })
    }

    /// Of a log that is signed with the key in this file. No other is gone on with: somebody may have
    /// taken key and signature away to have a log of their own signed.
    pub(crate) fn open(path: &Path, connection: &Connection) -> Result<Self, StoreError> {
        let reader = Reader::new(connection);
        let (database, state) = (reader.database_id()?, reader.audit_state()?);
        let wrong = |what| StoreError::AuditKey { path: path.to_owned(), what };
        let key = AuditKey::read(path)?.ok_or_else(|| wrong(KeyTrouble::Missing))?;
        match state.mac {
            None => Err(wrong(KeyTrouble::Unsigned)),
            Some(mac) if mac != key.head(database, state.head, state.floor) => {
                Err(wrong(KeyTrouble::Misfit))
            }
            Some(_) => Ok(Self { key, database }),
        }
    }

    fn mac(&self, head: Head, floor: Head) -> Hash {
        self.key.head(self.database, head, floor)
    }
}

/// What is wrong with the key of the audit log, or with what was signed with it.
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
                "is not there; restore it from a backup, or name the file that has it with --audit-key"
            }
            Self::Unsigned => "is there, but the signature in the records is missing",
            Self::Misfit => {
                "does not fit the audit log: the log was changed, or this is another key"
            }
        })
    }
}

/// Where the key of the audit log is, if it is not given: beside the database.
pub(crate) fn usual_key(data: &Path) -> PathBuf {
    data.join("store/audit.key")
}

/// An entry before it has its place in the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditLine {
    pub at: DateTime<Utc>,
    pub workspace: WorkspaceId,
    /// Absent when the server does it by itself.
    pub principal: Option<PrincipalId>,
    pub key: Option<KeyId>,
    pub action: String,
    pub object: String,
    pub detail: String,
}

/// What is absent is not asked for.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    pub action: Option<String>,
    pub principal: Option<PrincipalId>,
}

#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error("the audit log is broken: entry {sequence} {what}")]
    Broken { sequence: i64, what: Break },
    #[error(
        "the audit log is broken: no entry has the hash {hash}; the log was changed after that hash \
         was noted, or the entry is older than the first one that is kept ({first})"
    )]
    OtherHead { hash: String, first: i64 },
    #[error("`{0}` is not the hash of an audit entry, which has 64 hexadecimal digits")]
    NotAHash(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    Changed,
    Missing,
    Unlinked,
    Added,
    /// The head is not one that the server has written.
    Unsealed,
    /// It had been written and made durable.
    CutOff,
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Changed => "is not what was written",
            Self::Missing => "is missing",
            Self::Unlinked => "does not follow the one before it",
            Self::Added => "was not written by Belljar",
            Self::Unsealed => "is said to be the last one, and the server has not signed that",
            Self::CutOff => "had been written, and is missing",
        })
    }
}

/// One place in the chain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) sequence: i64,
    pub(crate) hash: Hash,
}

/// What the database says of the log as a whole.
#[derive(Debug)]
struct State {
    /// The last entry.
    head: Head,
    /// The last entry that was forgotten; the log begins after it.
    floor: Head,
    mac: Option<Hash>,
}

/// What a verification has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// How many entries there are.
    pub entries: i64,
    /// How many were before them, and were forgotten after their retention.
    pub forgotten: i64,
    /// The hash of the last entry, to be noted elsewhere.
    pub head: String,
}

struct Link {
    sequence: i64,
    line: AuditLine,
    previous: Hash,
    hash: Hash,
}

impl Tx<'_> {
    /// Tells its number.
    pub fn audit(&self, line: &AuditLine) -> Result<i64, StoreError> {
        let State { head, floor, .. } = self.audit_state()?;
        let sequence = head.sequence + 1;
        let hash = hash(sequence, line, &head.hash);
        self.note(
            "INSERT INTO audit (sequence, at, workspace, principal, key, action, object, detail, \
             previous_hash, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            (
                sequence,
                moment(line.at),
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
        let mac = self.seal.mac(Head { sequence, hash }, floor);
        let head = "UPDATE audit_head SET sequence = ?1, hash = ?2, mac = ?3";
        self.note(head, (sequence, hash, mac))?;
        Ok(sequence)
    }

    /// Forgets entries from the beginning, up to the first that is younger, and at most so many. Tells
    /// how many.
    pub(crate) fn forget_audit(
        &self,
        before: DateTime<Utc>,
        most: usize,
    ) -> Result<usize, StoreError> {
        let State { head, floor, .. } = self.audit_state()?;
        let oldest = self.many(
            "SELECT sequence, at, hash FROM audit WHERE sequence > ?1 ORDER BY sequence LIMIT ?2",
            (floor.sequence, most),
            |row| {
                let head = Head { sequence: row.get("sequence")?, hash: row.get("hash")? };
                Ok((head, row.get::<_, i64>("at")?))
            },
        )?;
        let old = oldest.iter().take_while(|(_, at)| *at <= moment(before));
        let Some((last, _)) = old.last() else { return Ok(0) };
        let gone = self.note("DELETE FROM audit WHERE sequence <= ?1", [last.sequence])?;
        self.note(
            "UPDATE audit_head SET floor_sequence = ?1, floor_hash = ?2, mac = ?3",
            (last.sequence, last.hash, self.seal.mac(head, *last)),
        )?;
        Ok(gone)
    }
}

impl Reader<'_> {
    pub fn audit_entries(
        &self,
        workspace: WorkspaceId,
        filter: &AuditFilter,
        page: Page,
    ) -> Result<Listed<AuditEntry>, StoreError> {
        let before = i64::try_from(page.before().as_u128()).unwrap_or(i64::MAX);
        let rows = self.many(
            "SELECT * FROM audit WHERE workspace = ?1 AND sequence < ?2 \
             AND (?3 IS NULL OR action = ?3) AND (?4 IS NULL OR principal = ?4) \
             ORDER BY sequence DESC LIMIT ?5",
            (
                workspace.uuid(),
                before,
                &filter.action,
                filter.principal.map(PrincipalId::uuid),
                page.rows(),
            ),
            |row| {
                let entry = entry(link(row)?)?;
                Ok((Cursor(Uuid::from_u128(entry.sequence.into())), entry))
            },
        )?;
        Ok(Listed::cut(rows, page))
    }

    pub(crate) fn audit_head(&self) -> Result<Head, StoreError> {
        Ok(self.audit_state()?.head)
    }

    fn audit_state(&self) -> Result<State, StoreError> {
        let state = self.one("SELECT * FROM audit_head", [], |row| {
            Ok(State {
                head: Head { sequence: row.get("sequence")?, hash: row.get("hash")? },
                floor: Head { sequence: row.get("floor_sequence")?, hash: row.get("floor_hash")? },
                mac: row.get("mac")?,
            })
        })?;
        state.ok_or(StoreError::Corrupt { what: "audit head" })
    }

    /// Absent if it was forgotten, or never was.
    pub(crate) fn audit_hash(&self, sequence: i64) -> Result<Option<Hash>, StoreError> {
        let sql = "SELECT hash FROM audit WHERE sequence = ?1";
        self.one(sql, [sequence], |row| Ok(row.get("hash")?))
    }

    fn has_audit_hash(&self, hash: &Hash) -> Result<bool, StoreError> {
        let found = self.one("SELECT 1 FROM audit WHERE hash = ?1", [hash], |_| Ok(()))?;
        Ok(found.is_some())
    }

    pub(crate) fn database_id(&self) -> Result<Uuid, StoreError> {
        let id = self.one("SELECT database_id FROM server", [], |row| Ok(row.get(0)?))?;
        id.ok_or(StoreError::Corrupt { what: "database id" })
    }

    fn audit_after(&self, sequence: i64) -> Result<Vec<Result<Link, AuditError>>, StoreError> {
        self.many(
            "SELECT * FROM audit WHERE sequence > ?1 ORDER BY sequence LIMIT ?2",
            (sequence, STEP),
            |row| {
                let sequence = row.get("sequence")?;
                // What does not even have the form of an entry is a finding, not a failure.
                Ok(link(row).map_err(|_| AuditError::Broken { sequence, what: Break::Changed }))
            },
        )
    }
}

/// Goes through the whole chain, also beside a running server. With `noted`, the hash of an entry that
/// somebody has noted elsewhere, that entry must be in it. The key is beside the database unless `key_file`
/// names it.
pub fn verify_audit(
    data: &Path,
    key_file: Option<&Path>,
    noted: Option<&str>,
) -> Result<Verified, AuditError> {
    let noted = match noted {
        Some(text) => {
            Some(unhex(text).ok_or_else(|| AuditError::NotAHash(text.chars().take(80).collect()))?)
        }
        None => None,
    };
    let (store, readers) = (data.join("store"), Readers::new(database(data)));
    // Before the database, which a running server writes first.
    let id = readers.read(|reader| reader.database_id())?;
    let key = AuditKey::read(key_file.unwrap_or(&usual_key(data)))?;
    let mark = match &key {
        Some(key) => belonging::mark_of(&store, id, key)?,
        None => None,
    };
    readers.read(|reader| Ok(verify(reader, id, key.as_ref(), mark, noted)))?
}

/// What became of a log that was to be signed anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignedAnew {
    /// There was nothing wrong with it, and nothing was changed.
    Whole,
    /// What was wrong with it, which the new entry says, too.
    Signed { found: String, entry: i64 },
}

/// Signs the audit log as it is, with the key that is there or a new one, and adds an entry that says
/// so. It repairs nothing: entries that are missing or were changed are still found. No server may be
/// running, and somebody must have said that they want this.
pub fn sign_audit(data: &Path, key_file: Option<&Path>) -> Result<SignedAnew, AuditError> {
    let (home, usual) = (data.join("store"), usual_key(data));
    let key_file = key_file.unwrap_or(&usual);
    // Before anything is made: where there are no records, there is nothing to sign.
    let found = match verify_audit(data, Some(key_file), None) {
        Ok(_) => return Ok(SignedAnew::Whole),
        Err(AuditError::Store(
            found @ (StoreError::Mark { .. } | StoreError::OtherDatabase { .. }),
        )) => found.to_string(),
        Err(error @ AuditError::Store(_)) => return Err(error),
        Err(found) => found.to_string(),
    };
    let _lock = lock(&home)?;
    let mut connection = schema::open_to_write(&database(data), key_file)?;
    let tx = connection.transaction().map_err(StoreError::from)?;
    let last = "UPDATE audit_head SET sequence = last.sequence, hash = last.hash FROM \
                (SELECT sequence, hash FROM audit ORDER BY sequence DESC LIMIT 1) AS last";
    tx.execute(last, []).map_err(StoreError::from)?;
    let seal = AuditSeal::sign(AuditKey::read_or_make(key_file)?, &tx)?;
    let rows = Tx::new(&tx, &seal);
    let workspace = rows.workspaces()?.first().map(|first| first.id);
    let line = AuditLine {
        at: Utc::now(),
        workspace: workspace.ok_or(StoreError::Corrupt { what: "workspace" })?,
        principal: None,
        key: None,
        action: "audit.sign".to_owned(),
        object: "audit log".to_owned(),
        detail: found.clone(),
    };
    let entry = rows.audit(&line)?;
    drop(rows);
    belonging::remove_mark(&home)?;
    tx.commit().map_err(StoreError::from)?;
    Ok(SignedAnew::Signed { found, entry })
}

fn verify(
    reader: &Reader<'_>,
    database: Uuid,
    key: Option<&AuditKey>,
    mark: Option<Head>,
    noted: Option<Hash>,
) -> Result<Verified, AuditError> {
    let State { head, floor, mac } = reader.audit_state()?;
    let mut last = floor;
    let mut after = i64::MIN;
    loop {
        let links = reader.audit_after(after)?;
        if links.is_empty() {
            break;
        }
        for link in links {
            last = follow(last, &link?)?;
        }
        after = last.sequence;
    }
    let broken = |sequence, what| Err(AuditError::Broken { sequence, what });
    match last.sequence.cmp(&head.sequence) {
        _ if last == head => {}
        std::cmp::Ordering::Less => return broken(last.sequence + 1, Break::Missing),
        std::cmp::Ordering::Equal => return broken(last.sequence, Break::Changed),
        std::cmp::Ordering::Greater => return broken(last.sequence, Break::Added),
    }
    if mac != key.map(|key| key.head(database, head, floor)) || mac.is_none() {
        return broken(head.sequence, Break::Unsealed);
    }
    match mark {
        Some(mark) if mark.sequence > head.sequence => {
            return broken(mark.sequence, Break::CutOff);
        }
        Some(mark)
            if mark.sequence > floor.sequence
                && reader.audit_hash(mark.sequence)? != Some(mark.hash) =>
        {
            return broken(mark.sequence, Break::Changed);
        }
        _ => {}
    }
    if let Some(noted) = noted
        && noted != head.hash
        && noted != floor.hash
        && !reader.has_audit_hash(&noted)?
    {
        return Err(AuditError::OtherHead { hash: hex(&noted), first: floor.sequence + 1 });
    }
    let (entries, forgotten) = (head.sequence - floor.sequence, floor.sequence);
    Ok(Verified { entries, forgotten, head: hex(&head.hash) })
}

fn follow(last: Head, link: &Link) -> Result<Head, AuditError> {
    let next = last.sequence + 1;
    let broken = |sequence, what| Err(AuditError::Broken { sequence, what });
    if link.sequence < next {
        return broken(link.sequence, Break::Added);
    }
    if link.sequence > next {
        return broken(next, Break::Missing);
    }
    if link.hash != hash(link.sequence, &link.line, &link.previous) {
        return broken(next, Break::Changed);
    }
    if link.previous != last.hash {
        return broken(next, Break::Unlinked);
    }
    Ok(Head { sequence: next, hash: link.hash })
}

/// Each field with its length before it, so that no two entries are the same bytes.
fn hash(sequence: i64, line: &AuditLine, previous: &Hash) -> Hash {
    let workspace = line.workspace.uuid();
    let principal = line.principal.map(PrincipalId::uuid);
    let key = line.key.map(KeyId::uuid);
    let fields: [&[u8]; 10] = [
        FORM,
        &sequence.to_be_bytes(),
        &moment(line.at).to_be_bytes(),
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

fn link(row: &Row<'_>) -> Result<Link, StoreError> {
    Ok(Link {
        sequence: row.get("sequence")?,
        line: AuditLine {
            at: at(row.get("at")?),
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

fn entry(link: Link) -> Result<AuditEntry, StoreError> {
    let sequence = link.sequence.try_into();
    Ok(AuditEntry {
        sequence: sequence.map_err(|_| StoreError::Corrupt { what: "audit entry" })?,
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
