//! Who did what, in a chain: each entry has the hash of the one before it in its own.
//!
//! An entry is written in the transaction of what it tells of, so that neither is there without
//! the other. Nothing here changes or deletes one. The head is kept beside the chain, so that a
//! tail that was cut off is missed as well.

use crate::column::{at, moment};
use crate::page::Cursor;
use crate::reader::Readers;
use crate::store::database;
use crate::{Listed, Page, Reader, StoreError, Tx};
use chrono::{DateTime, Utc};
use rusqlite::Row;
use sha2::{Digest, Sha256};
use std::fmt;
use std::path::Path;
use types::{AuditEntry, KeyId, PrincipalId, WorkspaceId};
use uuid::Uuid;

/// Entries that are looked at together when the whole chain is: some hundred kilobytes.
const STEP: u32 = 1000;
/// Says what is hashed, and in which form.
const FORM: &[u8] = b"belljar audit 1";

type Hash = [u8; 32];

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
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    Changed,
    Missing,
    Unlinked,
    Added,
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Changed => "is not what was written",
            Self::Missing => "is missing",
            Self::Unlinked => "does not follow the one before it",
            Self::Added => "was not written by Belljar",
        })
    }
}

/// Where the next entry goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    sequence: i64,
    hash: Hash,
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
        let head = self.audit_head()?;
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
        self.note("UPDATE audit_head SET sequence = ?1, hash = ?2", (sequence, hash))?;
        Ok(sequence)
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

    fn audit_head(&self) -> Result<Head, StoreError> {
        let head = self.one("SELECT sequence, hash FROM audit_head", [], |row| {
            Ok(Head { sequence: row.get("sequence")?, hash: row.get("hash")? })
        })?;
        head.ok_or(StoreError::Corrupt { what: "audit head" })
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

/// Goes through the whole chain, also beside a running server, and tells how many entries it has.
pub fn verify_audit(data: &Path) -> Result<i64, AuditError> {
    Readers::new(database(data)).read(|reader| Ok(verify(reader)))?
}

fn verify(reader: &Reader<'_>) -> Result<i64, AuditError> {
    let head = reader.audit_head()?;
    let mut last = Head { sequence: 0, hash: Hash::default() };
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
    let what = match last.sequence.cmp(&head.sequence) {
        _ if last == head => return Ok(last.sequence),
        std::cmp::Ordering::Less => Break::Missing,
        std::cmp::Ordering::Equal => Break::Changed,
        std::cmp::Ordering::Greater => Break::Added,
    };
    let sequence = if what == Break::Missing { last.sequence + 1 } else { last.sequence };
    Err(AuditError::Broken { sequence, what })
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

fn hex(hash: &Hash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
