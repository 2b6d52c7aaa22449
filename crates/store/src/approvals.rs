//! Questions to people, and answers that are good for more than one call.
//!
//! An answer is given once and used once: nobody else writes between the look and the change. The code
//! of a question stands in the record of its execution alone, since it can be long.

use crate::column::{at, body, from_body, moment, variant, word};
use crate::{Listed, Page, Reader, StoreError, Tx};
use chrono::{DateTime, Utc};
use rusqlite::Row;
use rusqlite::types::Type;
use serde::Deserialize;
use types::{
    AgentId, Approval, ApprovalId, ApprovalScope, ApprovalState, ExecutionId, KeyId, PrincipalId,
    SandboxId, ToolId, WorkspaceId,
};
use uuid::Uuid;

/// With the code of its execution, if that is there.
const WITH_CODE: &str = "SELECT a.id, a.body, a.seal, e.summary FROM approvals a \
    LEFT JOIN executions e ON e.workspace = a.workspace AND e.id = a.execution_id";

/// What binds an answer to exactly what was asked.
pub type Seal = [u8; 32];

/// A question as it is written down.
#[derive(Debug, Clone, Copy)]
pub struct NewQuestion<'a> {
    pub approval: &'a Approval,
    pub seal: &'a Seal,
    /// The key that it was asked with; absent for a token.
    pub key: Option<KeyId>,
    /// Bytes that are kept beside it while it is open: the plan of its execution, and its code.
    pub beside: u64,
}

/// By what it is decided who may see a question, without what is long about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject {
    pub id: ApprovalId,
    pub requester: PrincipalId,
    pub tool: ToolId,
    pub agent: Option<AgentId>,
}

/// What somebody answered.
#[derive(Debug, Clone)]
pub struct Decision {
    /// `Allowed` or `Denied`.
    pub state: ApprovalState,
    pub by: PrincipalId,
    pub at: DateTime<Utc>,
    pub reason: Option<String>,
    pub scope: ApprovalScope,
    /// Over what was agreed to, and by whom.
    pub seal: Seal,
}

/// An answer that holds for later calls of the same code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered {
    pub id: Uuid,
    pub requester: PrincipalId,
    pub tool: ToolId,
    pub agent: Option<AgentId>,
    /// Absent when it holds in every session.
    pub sandbox_id: Option<SandboxId>,
    pub scope: ApprovalScope,
    pub seal: Seal,
    pub approval_id: ApprovalId,
    pub created_at: DateTime<Utc>,
}

/// What an execution waits for. One that is over was left by a server that ended between two writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    pub workspace: WorkspaceId,
    pub id: ApprovalId,
    pub execution: ExecutionId,
    pub state: ApprovalState,
}

impl Tx<'_> {
    /// `OverQuota` if the workspace would have more than `most` bytes then.
    pub fn insert_approval(
        &self,
        workspace: WorkspaceId,
        question: &NewQuestion<'_>,
        most: u64,
    ) -> Result<(), StoreError> {
        let NewQuestion { approval, seal, key, beside } = *question;
        let body = short_body(approval)?;
        let bytes = beside.saturating_add(body.len() as u64);
        if bytes > most.saturating_sub(self.file_bytes(workspace)?) {
            return Err(StoreError::OverQuota { most });
        }
        self.change(
            "INSERT INTO approvals (workspace, id, state, execution_id, requester, tool_id, \
             agent_id, expires_at, seal, body, bytes, key) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            (
                workspace.uuid(),
                approval.id.uuid(),
                word("approval", &approval.state)?,
                approval.execution_id.uuid(),
                approval.requester.uuid(),
                approval.tool_id.uuid(),
                approval.agent_id.map(AgentId::uuid),
                moment(approval.expires_at),
                seal,
                body,
                bytes,
                key.map(KeyId::uuid),
            ),
        )?;
        Ok(())
    }

    /// What it was about has changed, or whoever asked may not ask any more. None if there is none, or
    /// it is over.
    pub fn void_approval(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
        at: DateTime<Utc>,
        reason: String,
    ) -> Result<Option<Approval>, StoreError> {
        let open = |approval: &Approval| {
            matches!(approval.state, ApprovalState::Pending | ApprovalState::Allowed)
        };
        let Some((approval, _)) = self.approval(workspace, id)?.filter(|(it, _)| open(it)) else {
            return Ok(None);
        };
        let (state, decided_at, reason) = (ApprovalState::Void, Some(at), Some(reason));
        let void = Approval { state, decided_at, reason, ..approval };
        self.move_approval(workspace, &void)?;
        Ok(Some(void))
    }

    /// None if there is none that waits, or its time is over.
    pub fn decide_approval(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
        decision: Decision,
    ) -> Result<Option<Approval>, StoreError> {
        match self.approval(workspace, id)? {
            Some((approval, _))
                if approval.state == ApprovalState::Pending
                    && approval.expires_at > decision.at =>
            {
                self.write_decision(workspace, approval, decision).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Takes back what was asked, answered or not. None if there is none, or it is over, or was
    /// used: then what it was for has begun.
    pub fn withdraw_approval(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
        decision: Decision,
    ) -> Result<Option<Approval>, StoreError> {
        match self.approval(workspace, id)? {
            Some((approval, _))
                if matches!(approval.state, ApprovalState::Pending | ApprovalState::Allowed) =>
            {
                self.write_decision(workspace, approval, decision).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn write_decision(
        &self,
        workspace: WorkspaceId,
        approval: Approval,
        decision: Decision,
    ) -> Result<Approval, StoreError> {
        let decided = Approval {
            state: decision.state,
            decided_by: Some(decision.by),
            decided_at: Some(decision.at),
            reason: decision.reason,
            scope: decision.scope,
            ..approval
        };
        self.move_approval(workspace, &decided)?;
        self.seal_approval(workspace, decided.id, decision.seal)?;
        Ok(decided)
    }

    /// True once for each that was allowed, while its time is not over.
    pub fn consume_approval(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let good = |approval: &Approval| {
            approval.state == ApprovalState::Allowed && approval.expires_at > now
        };
        let Some((approval, _)) = self.approval(workspace, id)?.filter(|(found, _)| good(found))
        else {
            return Ok(false);
        };
        self.move_approval(workspace, &Approval { state: ApprovalState::Used, ..approval })?;
        Ok(true)
    }

    /// Ends some of those whose time is over and that were not used, in all workspaces. They come without
    /// their code.
    pub fn expire_approvals(
        &self,
        now: DateTime<Utc>,
        limit: usize,
    ) -> Result<Vec<(WorkspaceId, Approval)>, StoreError> {
        let over = self.many(
            "SELECT workspace, body FROM approvals \
             WHERE state IN ('pending', 'allowed') AND expires_at <= ?1 LIMIT ?2",
            (moment(now), limit),
            |row| {
                let workspace = WorkspaceId::new(row.get("workspace")?);
                Ok((workspace, from_body::<Approval>("approval", row, "body")?))
            },
        )?;
        let expire = |(workspace, approval)| {
            let expired = Approval { state: ApprovalState::Expired, ..approval };
            self.move_approval(workspace, &expired)?;
            Ok((workspace, expired))
        };
        over.into_iter().map(expire).collect()
    }

    fn move_approval(&self, workspace: WorkspaceId, to: &Approval) -> Result<(), StoreError> {
        self.change(
            "UPDATE approvals SET state = ?3, body = ?4 WHERE workspace = ?1 AND id = ?2",
            (workspace.uuid(), to.id.uuid(), word("approval", &to.state)?, short_body(to)?),
        )?;
        Ok(())
    }

    fn seal_approval(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
        seal: Seal,
    ) -> Result<(), StoreError> {
        let sql = "UPDATE approvals SET seal = ?3 WHERE workspace = ?1 AND id = ?2";
        self.change(sql, (workspace.uuid(), id.uuid(), seal)).map(drop)
    }

    pub fn remember(
        &self,
        workspace: WorkspaceId,
        remembered: &Remembered,
    ) -> Result<(), StoreError> {
        self.change(
            "INSERT INTO remembered (id, workspace, requester, tool, agent, sandbox_id, scope, \
             seal, approval_id, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            (
                remembered.id,
                workspace.uuid(),
                remembered.requester.uuid(),
                remembered.tool.uuid(),
                remembered.agent.map(AgentId::uuid),
                remembered.sandbox_id.map(SandboxId::uuid),
                word("approval", &remembered.scope)?,
                remembered.seal,
                remembered.approval_id.uuid(),
                moment(remembered.created_at),
            ),
        )?;
        Ok(())
    }

    /// For a tool that changes or goes.
    pub fn forget_tool(&self, workspace: WorkspaceId, tool: ToolId) -> Result<usize, StoreError> {
        let sql = "DELETE FROM remembered WHERE workspace = ?1 AND tool = ?2";
        self.change(sql, (workspace.uuid(), tool.uuid()))
    }

    /// For an agent that goes.
    pub fn forget_agent(
        &self,
        workspace: WorkspaceId,
        agent: AgentId,
    ) -> Result<usize, StoreError> {
        let sql = "DELETE FROM remembered WHERE workspace = ?1 AND agent = ?2";
        self.change(sql, (workspace.uuid(), agent.uuid()))
    }

    /// For a principal that goes.
    pub fn forget_requester(
        &self,
        workspace: WorkspaceId,
        requester: PrincipalId,
    ) -> Result<usize, StoreError> {
        let sql = "DELETE FROM remembered WHERE workspace = ?1 AND requester = ?2";
        self.change(sql, (workspace.uuid(), requester.uuid()))
    }
}

impl Reader<'_> {
    pub fn approval(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
    ) -> Result<Option<(Approval, Seal)>, StoreError> {
        let sql = format!("{WITH_CODE} WHERE a.workspace = ?1 AND a.id = ?2");
        self.one(&sql, (workspace.uuid(), id.uuid()), |row| Ok((with_code(row)?, row.get("seal")?)))
    }

    /// The key that a question was asked with.
    pub fn asking_key(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
    ) -> Result<Option<KeyId>, StoreError> {
        let sql = "SELECT key FROM approvals WHERE workspace = ?1 AND id = ?2";
        let key = self.one(sql, (workspace.uuid(), id.uuid()), |row| Ok(row.get("key")?))?;
        Ok(key.flatten().map(KeyId::new))
    }

    /// Those that wait for an answer, oldest first, after one of them.
    pub fn pending_questions(
        &self,
        workspace: WorkspaceId,
        after: Option<ApprovalId>,
        limit: usize,
    ) -> Result<Vec<Subject>, StoreError> {
        self.many(
            "SELECT id, requester, tool_id, agent_id FROM approvals \
             WHERE state = 'pending' AND workspace = ?1 AND id > ?2 ORDER BY id LIMIT ?3",
            (workspace.uuid(), after.map_or(Uuid::nil(), ApprovalId::uuid), limit),
            subject,
        )
    }

    pub fn question_subject(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
    ) -> Result<Option<Subject>, StoreError> {
        let sql = "SELECT id, requester, tool_id, agent_id FROM approvals \
                   WHERE workspace = ?1 AND id = ?2";
        self.one(sql, (workspace.uuid(), id.uuid()), subject)
    }

    /// How many of somebody's questions wait for an answer.
    pub fn open_questions_of(
        &self,
        workspace: WorkspaceId,
        requester: PrincipalId,
    ) -> Result<u64, StoreError> {
        let sql = "SELECT count(*) FROM approvals WHERE state = 'pending' AND workspace = ?1 \
                   AND requester = ?2";
        let count = self.one(sql, (workspace.uuid(), requester.uuid()), |row| Ok(row.get(0)?))?;
        Ok(count.unwrap_or(0))
    }

    /// Those whose execution waits, in all workspaces.
    pub fn questions(&self) -> Result<Vec<Question>, StoreError> {
        self.many(
            "SELECT approvals.workspace, approvals.id, execution_id, state FROM approvals \
             JOIN executions ON executions.workspace = approvals.workspace \
             AND executions.id = execution_id WHERE status = 'waiting_approval'",
            [],
            |row| {
                let state: String = row.get("state")?;
                Ok(Question {
                    workspace: WorkspaceId::new(row.get("workspace")?),
                    id: ApprovalId::new(row.get("id")?),
                    execution: ExecutionId::new(row.get("execution_id")?),
                    state: variant("approval", &state)?,
                })
            },
        )
    }

    pub fn approvals(
        &self,
        workspace: WorkspaceId,
        state: Option<ApprovalState>,
        page: Page,
    ) -> Result<Listed<Approval>, StoreError> {
        let state = state.map(|state| word("approval", &state)).transpose()?;
        let sql = format!(
            "{WITH_CODE} WHERE a.workspace = ?3 AND a.id < ?1 \
             AND (?4 IS NULL OR a.state = ?4) ORDER BY a.id DESC LIMIT ?2"
        );
        self.list(page, &sql, &[&workspace.uuid(), &state], with_code)
    }

    /// What may hold for such a call. Its seal says whether it does.
    pub fn remembered_for(
        &self,
        workspace: WorkspaceId,
        requester: PrincipalId,
        tool: ToolId,
        agent: Option<AgentId>,
        sandbox: Option<SandboxId>,
    ) -> Result<Vec<Remembered>, StoreError> {
        self.many(
            "SELECT * FROM remembered WHERE workspace = ?1 AND requester = ?2 AND tool = ?3 \
             AND agent IS ?4 AND (sandbox_id IS NULL OR sandbox_id = ?5) ORDER BY id DESC",
            (
                workspace.uuid(),
                requester.uuid(),
                tool.uuid(),
                agent.map(AgentId::uuid),
                sandbox.map(SandboxId::uuid),
            ),
            remembered,
        )
    }
}

/// Without the code, which the record of the execution has.
fn short_body(approval: &Approval) -> Result<String, StoreError> {
    body("approval", &Approval { code: String::new(), ..approval.clone() })
}

/// What a question needs of the record of its execution.
#[derive(Deserialize)]
struct Record {
    code: String,
}

fn with_code(row: &Row<'_>) -> Result<Approval, StoreError> {
    let approval: Approval = from_body("approval", row, "body")?;
    if row.get_ref("summary")?.data_type() == Type::Null {
        return Ok(approval);
    }
    let Record { code } = from_body("execution", row, "summary")?;
    Ok(Approval { code, ..approval })
}

fn subject(row: &Row<'_>) -> Result<Subject, StoreError> {
    Ok(Subject {
        id: ApprovalId::new(row.get("id")?),
        requester: PrincipalId::new(row.get("requester")?),
        tool: ToolId::new(row.get("tool_id")?),
        agent: row.get::<_, Option<Uuid>>("agent_id")?.map(AgentId::new),
    })
}

fn remembered(row: &Row<'_>) -> Result<Remembered, StoreError> {
    let scope: String = row.get("scope")?;
    Ok(Remembered {
        id: row.get("id")?,
        requester: PrincipalId::new(row.get("requester")?),
        tool: ToolId::new(row.get("tool")?),
        agent: row.get::<_, Option<Uuid>>("agent")?.map(AgentId::new),
        sandbox_id: row.get::<_, Option<Uuid>>("sandbox_id")?.map(SandboxId::new),
        scope: variant("approval", &scope)?,
        seal: row.get("seal")?,
        approval_id: ApprovalId::new(row.get("approval_id")?),
        created_at: at(row.get("created_at")?),
    })
}
