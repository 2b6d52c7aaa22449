//! Who did what, in a chain: each entry has the hash of the one before it in its own.
//!
//! An entry is written in the transaction of what it tells of, so that neither is there without
//! the other. Nothing here changes one. The head is kept beside the chain with a MAC, whose key is
//! not in the database, so that a tail that was cut off is missed, also where the head was set back.
//! What is older than its retention goes from the beginning, and the chain then begins after the
//! floor, which is under the same MAC.

use crate::belonging::{self, unhex, write_new};
use crate::column::{at, moment};
use crate::page::Cursor;
use crate::reader::Readers;
use crate::store::{database, sync_directory};
use crate::{Listed, Page, Reader, StoreError, Tx};
use chrono::{DateTime, Utc};
use hmac::{Hmac, KeyInit, Mac};
use rusqlite::Row;
use sha2::{Digest, Sha256};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
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
    const NAME: &str = "audit.key";

    /// Absent if there is none.
    fn read(store: &Path) -> Result<Option<Self>, StoreError> {
        let path = store.join(Self::NAME);
        let wrong = |what: String| StoreError::AuditKey { path: path.clone(), what };
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(StoreError::io(&path))?,
        };
        if file.metadata().map_err(StoreError::io(&path))?.mode() & 0o077 != 0 {
            return Err(wrong("can be read by others; run chmod 600 on it".to_owned()));
        }
        let mut bytes = Vec::with_capacity(Self::BYTES + 1);
        let read = file.take(Self::BYTES as u64 + 1).read_to_end(&mut bytes);
        let found = read.map_err(StoreError::io(&path))?;
        let key = bytes.try_into().map(Self);
        key.map(Some).map_err(|_| wrong(format!("has {found} bytes, not {}", Self::BYTES)))
    }

    fn make(store: &Path) -> Result<Self, StoreError> {
        let path = store.join(Self::NAME);
        let mut bytes = [0; Self::BYTES];
        File::open("/dev/urandom")
            .and_then(|mut random| random.read_exact(&mut bytes))
            .and_then(|()| write_new(&path, &bytes))
            .map_err(StoreError::io(&path))?;
        sync_directory(store)?;
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
    /// With the key beside the database. A log without a MAC has never had one and is given one; a log
    /// with a MAC and without its key is not used.
    pub(crate) fn open(
        store: &Path,
        connection: &rusqlite::Connection,
    ) -> Result<Self, StoreError> {
        let reader = Reader::new(connection);
        let (database, state) = (reader.database_id()?, reader.audit_state()?);
        let found = AuditKey::read(store)?;
        let key = match (found, &state.mac) {
            (Some(key), Some(mac)) if *mac == key.head(database, state.head, state.floor) => key,
            (None, None) => {
                let key = AuditKey::make(store)?;
                let mac = key.head(database, state.head, state.floor);
                connection.execute("UPDATE audit_head SET mac = ?1", [mac])?;
                key
            }
            // A stop between the two: the key is there, and nothing was ever written with it.
            (Some(key), None) if state.head.sequence == 0 => {
                let mac = key.head(database, state.head, state.floor);
                connection.execute("UPDATE audit_head SET mac = ?1", [mac])?;
                key
            }
            (found, _) => {
                let what = match found {
                    None => "is not there; restore it from a backup",
                    Some(_) => {
                        "does not fit the audit log: the log was changed, or this is another key; \
                         `belljar audit verify` says more"
                    }
                };
                let path = store.join(AuditKey::NAME);
                return Err(StoreError::AuditKey { path, what: what.to_owned() });
            }
        };
        Ok(Self { key, database })
    }

    fn mac(&self, head: Head, floor: Head) -> Hash {
        self.key.head(self.database, head, floor)
    }
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
/// somebody has noted elsewhere, that entry must be in it.
pub fn verify_audit(data: &Path, noted: Option<&str>) -> Result<Verified, AuditError> {
    let noted = match noted {
        Some(text) => {
            Some(unhex(text).ok_or_else(|| AuditError::NotAHash(text.chars().take(80).collect()))?)
        }
        None => None,
    };
    let (store, readers) = (data.join("store"), Readers::new(database(data)));
    // Before the database, which a running server writes first.
    let id = readers.read(|reader| reader.database_id())?;
    let key = AuditKey::read(&store)?;
    let mark = match &key {
        Some(key) => belonging::mark_of(&store, id, key)?,
        None => None,
    };
    readers.read(|reader| Ok(verify(reader, id, key.as_ref(), mark, noted)))?
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
