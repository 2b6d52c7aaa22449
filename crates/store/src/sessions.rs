//! Sessions: what is still known of one when its interpreter is gone.

use crate::column::{body, from_body, moment, word};
use crate::{Listed, Page, Reader, StoreError, Tx};
use chrono::{DateTime, Utc};
use types::{KeyId, PrincipalId, SandboxId, Session, SessionStatus, WorkspaceId};

/// What is absent is not asked for.
#[derive(Debug, Clone, Default)]
pub struct SessionFilter {
    pub owner: Option<PrincipalId>,
    pub status: Option<SessionStatus>,
    pub key: Option<String>,
}

impl Tx<'_> {
    /// `NameTaken` if the owner has a session with this key that is not over.
    pub fn insert_session(
        &self,
        workspace: WorkspaceId,
        session: &Session,
        opened_with: Option<KeyId>,
    ) -> Result<(), StoreError> {
        self.change(
            "INSERT INTO sessions (workspace, sandbox_id, owner, key, status, body, ended_at, \
             opened_with) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            (
                workspace.uuid(),
                session.sandbox_id.uuid(),
                session.owner.uuid(),
                &session.key,
                word("session", &session.status)?,
                body("session", session)?,
                ended_at(session),
                opened_with.map(KeyId::uuid),
            ),
        )
        .map_err(|error| key_taken(error, session))?;
        Ok(())
    }

    /// Its owner stays as it is. False if there is none.
    pub fn update_session(
        &self,
        workspace: WorkspaceId,
        session: &Session,
    ) -> Result<bool, StoreError> {
        let changed = self
            .change(
                "UPDATE sessions SET status = ?3, key = ?4, body = ?5, ended_at = ?6 \
                 WHERE workspace = ?1 AND sandbox_id = ?2",
                (
                    workspace.uuid(),
                    session.sandbox_id.uuid(),
                    word("session", &session.status)?,
                    &session.key,
                    body("session", session)?,
                    ended_at(session),
                ),
            )
            .map_err(|error| key_taken(error, session))?;
        Ok(changed == 1)
    }

    /// Of one that has ended by itself, whichever workspace it is in. False if it was over before.
    pub fn expire_session(&self, id: SandboxId, now: DateTime<Utc>) -> Result<bool, StoreError> {
        let found = self.one(
            "SELECT workspace, body FROM sessions WHERE sandbox_id = ?1 \
             AND status IN ('ready', 'busy')",
            [id.uuid()],
            |row| {
                let workspace = WorkspaceId::new(row.get("workspace")?);
                Ok((workspace, from_body::<Session>("session", row, "body")?))
            },
        )?;
        let Some((workspace, session)) = found else { return Ok(false) };
        let expired = Session { status: SessionStatus::Expired, updated_at: now, ..session };
        self.update_session(workspace, &expired)
    }

    /// Also one that has ended by itself. False if there is none, or it was closed before.
    pub fn close_session(
        &self,
        workspace: WorkspaceId,
        id: SandboxId,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        match self.session(workspace, id)? {
            Some(session) if session.status != SessionStatus::Closed => {
                let status = SessionStatus::Closed;
                self.update_session(workspace, &Session { status, updated_at: now, ..session })
            }
            _ => Ok(false),
        }
    }

    /// After an execution, in which memory may have been lost. It never goes back: a reset may have
    /// been written before the end of what ran until then.
    pub fn set_session_generation(
        &self,
        workspace: WorkspaceId,
        id: SandboxId,
        generation: u64,
    ) -> Result<(), StoreError> {
        match self.session(workspace, id)? {
            Some(session) if session.generation < generation => {
                self.update_session(workspace, &Session { generation, ..session }).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// At the start of a server, in all workspaces: no interpreter outlives the one that had it.
    pub fn lose_all_sessions(&self, now: DateTime<Utc>) -> Result<usize, StoreError> {
        let alive = self.many(
            "SELECT workspace, body FROM sessions WHERE status IN ('ready', 'busy')",
            [],
            |row| {
                let workspace = WorkspaceId::new(row.get("workspace")?);
                Ok((workspace, from_body::<Session>("session", row, "body")?))
            },
        )?;
        for (workspace, session) in &alive {
            let lost = Session { status: SessionStatus::Lost, updated_at: now, ..session.clone() };
            self.update_session(*workspace, &lost)?;
        }
        Ok(alive.len())
    }
}

impl Reader<'_> {
    pub fn session(
        &self,
        workspace: WorkspaceId,
        id: SandboxId,
    ) -> Result<Option<Session>, StoreError> {
        let sql = "SELECT body FROM sessions WHERE workspace = ?1 AND sandbox_id = ?2";
        let key = (workspace.uuid(), id.uuid());
        self.one(sql, key, |row| from_body("session", row, "body"))
    }

    /// The one with this key that is not over: ready, busy, or lost and not yet reset.
    pub fn session_by_key(
        &self,
        workspace: WorkspaceId,
        owner: PrincipalId,
        key: &str,
    ) -> Result<Option<Session>, StoreError> {
        self.one(
            "SELECT body FROM sessions WHERE workspace = ?1 AND owner = ?2 AND key = ?3 \
             AND status IN ('ready', 'busy', 'lost')",
            (workspace.uuid(), owner.uuid(), key),
            |row| from_body("session", row, "body"),
        )
    }

    pub fn sessions(
        &self,
        workspace: WorkspaceId,
        filter: &SessionFilter,
        page: Page,
    ) -> Result<Listed<Session>, StoreError> {
        let status = filter.status.map(|status| word("session", &status)).transpose()?;
        // A condition that is not always there is not looked up by an index.
        let of_status = if status.is_some() { "status = ?5" } else { "?5 IS NULL" };
        self.list(
            page,
            &format!(
                "SELECT sandbox_id AS id, body FROM sessions WHERE workspace = ?3 \
                 AND sandbox_id < ?1 AND (?4 IS NULL OR owner = ?4) \
                 AND {of_status} AND (?6 IS NULL OR key = ?6) \
                 ORDER BY sandbox_id DESC LIMIT ?2"
            ),
            &[&workspace.uuid(), &filter.owner.map(PrincipalId::uuid), &status, &filter.key],
            |row| from_body("session", row, "body"),
        )
    }
}

/// Set while it is over, or has no interpreter.
fn ended_at(session: &Session) -> Option<i64> {
    match session.status {
        SessionStatus::Ready | SessionStatus::Busy => None,
        SessionStatus::Closed | SessionStatus::Expired | SessionStatus::Lost => {
            Some(moment(session.updated_at))
        }
    }
}

fn key_taken(error: StoreError, session: &Session) -> StoreError {
    error.or_name_taken("session", session.key.as_deref().unwrap_or_default())
}
