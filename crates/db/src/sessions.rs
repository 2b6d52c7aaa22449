//! Sessions: their records, which outlive their interpreters.

use crate::columns::{from_json_column, to_json, to_nanos, variant_name};
use crate::{DatabaseError, PageRequest, Reader, RowPage, Tx};
use chrono::{DateTime, Utc};
use types::{KeyId, PrincipalId, SandboxId, Session, SessionStatus, WorkspaceId};

/// A filter; absent fields match everything.
#[derive(Debug, Clone, Default)]
pub struct SessionFilter {
    pub owner: Option<PrincipalId>,
    pub status: Option<SessionStatus>,
    pub key: Option<String>,
}

impl Tx<'_> {
    /// Fails with `NameTaken` if the owner has an open session with this key.
    pub fn insert_session(
        &self,
        workspace: WorkspaceId,
        session: &Session,
        opened_with: Option<KeyId>,
    ) -> Result<(), DatabaseError> {
        self.execute(
            "INSERT INTO sessions (workspace, sandbox_id, owner, key, status, body, ended_at, \
             opened_with) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            (
                workspace.uuid(),
                session.sandbox_id.uuid(),
                session.owner.uuid(),
                &session.key,
                variant_name("session", &session.status)?,
                to_json("session", session)?,
                ended_at(session),
                opened_with.map(KeyId::uuid),
            ),
        )
        .map_err(|error| key_taken(error, session))?;
        Ok(())
    }

    /// False if there is no such session. Its owner does not change.
    pub fn update_session(
        &self,
        workspace: WorkspaceId,
        session: &Session,
    ) -> Result<bool, DatabaseError> {
        let changed = self
            .execute(
                "UPDATE sessions SET status = ?3, key = ?4, body = ?5, ended_at = ?6 \
                 WHERE workspace = ?1 AND sandbox_id = ?2",
                (
                    workspace.uuid(),
                    session.sandbox_id.uuid(),
                    variant_name("session", &session.status)?,
                    &session.key,
                    to_json("session", session)?,
                    ended_at(session),
                ),
            )
            .map_err(|error| key_taken(error, session))?;
        Ok(changed == 1)
    }

    /// Marks a session of any workspace as expired. False if it had already ended.
    pub fn expire_session(&self, id: SandboxId, now: DateTime<Utc>) -> Result<bool, DatabaseError> {
        let found = self.query_one(
            "SELECT workspace, body FROM sessions WHERE sandbox_id = ?1 \
             AND status IN ('ready', 'busy')",
            [id.uuid()],
            |row| {
                let workspace = WorkspaceId::new(row.get("workspace")?);
                Ok((workspace, from_json_column::<Session>("session", row, "body")?))
            },
        )?;
        let Some((workspace, session)) = found else { return Ok(false) };
        let expired = Session { status: SessionStatus::Expired, updated_at: now, ..session };
        self.update_session(workspace, &expired)
    }

    /// Marks a session as closed, also an expired one. False if there is none, or if it was already
    /// closed.
    pub fn close_session(
        &self,
        workspace: WorkspaceId,
        id: SandboxId,
        now: DateTime<Utc>,
    ) -> Result<bool, DatabaseError> {
        match self.session(workspace, id)? {
            Some(session) if session.status != SessionStatus::Closed => {
                let status = SessionStatus::Closed;
                self.update_session(workspace, &Session { status, updated_at: now, ..session })
            }
            _ => Ok(false),
        }
    }

    /// Updates the generation after an execution, in which the state may have been lost. The
    /// generation never decreases: a reset may be recorded before the end of the execution that ran
    /// until then.
    pub fn set_session_generation(
        &self,
        workspace: WorkspaceId,
        id: SandboxId,
        generation: u64,
    ) -> Result<(), DatabaseError> {
        match self.session(workspace, id)? {
            Some(session) if session.generation < generation => {
                self.update_session(workspace, &Session { generation, ..session }).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Marks all open sessions as lost at the start of a server, because interpreters end with
    /// their server.
    pub fn mark_all_sessions_lost(&self, now: DateTime<Utc>) -> Result<usize, DatabaseError> {
        let open = self.query_many(
            "SELECT workspace, body FROM sessions WHERE status IN ('ready', 'busy')",
            [],
            |row| {
                let workspace = WorkspaceId::new(row.get("workspace")?);
                Ok((workspace, from_json_column::<Session>("session", row, "body")?))
            },
        )?;
        for (workspace, session) in &open {
            let lost = Session { status: SessionStatus::Lost, updated_at: now, ..session.clone() };
            self.update_session(*workspace, &lost)?;
        }
        Ok(open.len())
    }
}

impl Reader<'_> {
    pub fn session(
        &self,
        workspace: WorkspaceId,
        id: SandboxId,
    ) -> Result<Option<Session>, DatabaseError> {
        let sql = "SELECT body FROM sessions WHERE workspace = ?1 AND sandbox_id = ?2";
        let key = (workspace.uuid(), id.uuid());
        self.query_one(sql, key, |row| from_json_column("session", row, "body"))
    }

    /// The open session with this key: ready, busy, or lost and not reset yet.
    pub fn session_by_key(
        &self,
        workspace: WorkspaceId,
        owner: PrincipalId,
        key: &str,
    ) -> Result<Option<Session>, DatabaseError> {
        self.query_one(
            "SELECT body FROM sessions WHERE workspace = ?1 AND owner = ?2 AND key = ?3 \
             AND status IN ('ready', 'busy', 'lost')",
            (workspace.uuid(), owner.uuid(), key),
            |row| from_json_column("session", row, "body"),
        )
    }

    pub fn sessions(
        &self,
        workspace: WorkspaceId,
        filter: &SessionFilter,
        page: PageRequest,
    ) -> Result<RowPage<Session>, DatabaseError> {
        let status = filter.status.map(|status| variant_name("session", &status)).transpose()?;
        // An index is used only if the condition is always part of the statement.
        let of_status = if status.is_some() { "status = ?5" } else { "?5 IS NULL" };
        self.query_page(
            page,
            &format!(
                "SELECT sandbox_id AS id, body FROM sessions WHERE workspace = ?3 \
                 AND sandbox_id < ?1 AND (?4 IS NULL OR owner = ?4) \
                 AND {of_status} AND (?6 IS NULL OR key = ?6) \
                 ORDER BY sandbox_id DESC LIMIT ?2"
            ),
            &[&workspace.uuid(), &filter.owner.map(PrincipalId::uuid), &status, &filter.key],
            |row| from_json_column("session", row, "body"),
        )
    }
}

/// The time at which a session ended or lost its interpreter.
fn ended_at(session: &Session) -> Option<i64> {
    match session.status {
        SessionStatus::Ready | SessionStatus::Busy => None,
        SessionStatus::Closed | SessionStatus::Expired | SessionStatus::Lost => {
            Some(to_nanos(session.updated_at))
        }
    }
}

fn key_taken(error: DatabaseError, session: &Session) -> DatabaseError {
    error.or_name_taken("session", session.key.as_deref().unwrap_or_default())
}
