//! The origin of executions, sessions and approvals, and what is still open when its rights have
//! ended.

use crate::approvals::{OpenApproval, open_approval_from_row};
use crate::columns::to_nanos;
use crate::{DatabaseError, Reader};
use chrono::{DateTime, Utc};
use rusqlite::Row;
use types::{KeyId, PrincipalId, SandboxId, WorkspaceId};
use uuid::Uuid;

/// The origin of a request: all requests of a principal, or those with one of its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    Key(KeyId),
    Principal(PrincipalId),
}

impl Origin {
    fn uuid(self) -> Uuid {
        match self {
            Self::Key(key) => key.uuid(),
            Self::Principal(principal) => principal.uuid(),
        }
    }
}

impl Reader<'_> {
    /// Approvals of an origin that are pending, or allowed and not used yet.
    pub fn open_approvals_from(
        &self,
        workspace: WorkspaceId,
        origin: Origin,
        limit: usize,
    ) -> Result<Vec<OpenApproval>, DatabaseError> {
        let column = match origin {
            Origin::Key(_) => "key",
            Origin::Principal(_) => "requester",
        };
        self.query_many(
            &format!(
                "SELECT workspace, body FROM approvals \
                 WHERE workspace = ?1 AND {column} = ?2 AND state IN ('pending', 'allowed') LIMIT ?3"
            ),
            (workspace.uuid(), origin.uuid(), limit),
            open_approval_from_row,
        )
    }

    /// Sessions of an origin that have not ended, including lost ones, which a reset would bring
    /// back.
    pub fn open_sessions_from(
        &self,
        workspace: WorkspaceId,
        origin: Origin,
    ) -> Result<Vec<SandboxId>, DatabaseError> {
        let column = match origin {
            Origin::Key(_) => "opened_with",
            Origin::Principal(_) => "owner",
        };
        self.query_many(
            &format!(
                "SELECT sandbox_id FROM sessions WHERE workspace = ?1 AND {column} = ?2 \
                 AND status IN ('ready', 'busy', 'lost')"
            ),
            (workspace.uuid(), origin.uuid()),
            |row| Ok(SandboxId::new(row.get("sandbox_id")?)),
        )
    }

    /// Origins with open sessions or approvals whose rights have ended, in all workspaces: keys
    /// that have expired, were revoked or deleted, and principals that were deleted.
    pub fn ended_origins(
        &self,
        now: DateTime<Utc>,
    ) -> Result<Vec<(WorkspaceId, Origin)>, DatabaseError> {
        let keys = self.query_many(
            "WITH asked (workspace, key) AS ( \
             SELECT workspace, opened_with FROM sessions \
             WHERE opened_with IS NOT NULL AND status IN ('ready', 'busy', 'lost') \
             UNION SELECT workspace, key FROM approvals \
             WHERE key IS NOT NULL AND state IN ('pending', 'allowed')) \
             SELECT workspace, key AS origin FROM asked WHERE NOT EXISTS (SELECT 1 FROM keys \
             WHERE id = asked.key AND (ended_at IS NULL OR ended_at > ?1))",
            [to_nanos(now)],
            |row| Ok((workspace(row)?, Origin::Key(KeyId::new(row.get("origin")?)))),
        )?;
        let principals = self.query_many(
            "WITH asked (workspace, id) AS ( \
             SELECT workspace, owner FROM sessions WHERE status IN ('ready', 'busy') \
             UNION SELECT workspace, requester FROM approvals \
             WHERE state IN ('pending', 'allowed')) \
             SELECT workspace, id AS origin FROM asked WHERE NOT EXISTS (SELECT 1 FROM principals \
             WHERE workspace = asked.workspace AND id = asked.id)",
            [],
            |row| Ok((workspace(row)?, Origin::Principal(PrincipalId::new(row.get("origin")?)))),
        )?;
        Ok([keys, principals].concat())
    }
}

fn workspace(row: &Row<'_>) -> Result<WorkspaceId, DatabaseError> {
    Ok(WorkspaceId::new(row.get("workspace")?))
}
