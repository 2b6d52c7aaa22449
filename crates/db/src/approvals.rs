//! Approvals, and remembered decisions that cover further calls.
//!
//! An approval is decided once and used once: the single writer makes the check and the change in
//! one transaction. The code of an approval is stored with its execution and its arguments in a row
//! of their own, because both can be long, and a change of the state would otherwise rewrite them.

use crate::columns::{
    from_json_column, from_nanos, parse_variant, to_json, to_nanos, variant_name,
};
use crate::executions::ExecutionInputs;
use crate::{DatabaseError, PageRequest, Reader, RowPage, Tx};
use chrono::{DateTime, Utc};
use rusqlite::Row;
use rusqlite::types::Type;
use serde::Deserialize;
use serde_json::Value;
use types::{
    AgentId, Approval, ApprovalId, ApprovalScope, ApprovalState, ExecutionId, KeyId, PrincipalId,
    SandboxId, ToolId, WorkspaceId,
};
use uuid::Uuid;

/// Approvals with their arguments, and with the code of their execution if that exists.
const WITH_INPUTS: &str = "SELECT a.id, a.body, a.mac, e.summary, i.body AS inputs, \
    g.body AS arguments FROM approvals a \
    LEFT JOIN executions e ON e.workspace = a.workspace AND e.id = a.execution_id \
    LEFT JOIN execution_inputs i ON i.workspace = a.workspace AND i.execution = a.execution_id \
    LEFT JOIN approval_arguments g ON g.workspace = a.workspace AND g.approval = a.id";

/// The data that binds a decision to exactly one request.
pub type ApprovalMac = [u8; 32];

/// An approval that is to be stored, with the columns beside it.
#[derive(Debug, Clone, Copy)]
pub struct NewApproval<'a> {
    pub approval: &'a Approval,
    pub mac: &'a ApprovalMac,
    /// The API key of the request; absent for an access token.
    pub key: Option<KeyId>,
    /// Bytes that are stored beside the approval while it is open: the pending call and its code.
    pub extra_bytes: u64,
}

/// The fields of an approval that decide who may see it, without its long ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApprovalHeader {
    pub id: ApprovalId,
    pub requester: PrincipalId,
    pub tool: ToolId,
    pub agent: Option<AgentId>,
}

/// An approval that is pending, or allowed and not used yet.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenApproval {
    pub workspace: WorkspaceId,
    /// The approval without its code and arguments.
    pub approval: Approval,
}

/// The decision of a principal.
#[derive(Debug, Clone)]
pub struct DecisionRecord {
    /// `Allowed` or `Denied`.
    pub state: ApprovalState,
    pub by: PrincipalId,
    pub at: DateTime<Utc>,
    pub reason: Option<String>,
    pub scope: ApprovalScope,
    /// MAC over the subject and the decision.
    pub mac: ApprovalMac,
}

/// An earlier decision that covers later calls of the same code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RememberedApproval {
    pub id: Uuid,
    pub requester: PrincipalId,
    pub tool: ToolId,
    pub agent: Option<AgentId>,
    /// Absent if it applies to all sessions.
    pub sandbox_id: Option<SandboxId>,
    pub scope: ApprovalScope,
    pub mac: ApprovalMac,
    pub approval_id: ApprovalId,
    pub created_at: DateTime<Utc>,
}

/// The approval that an execution waits for. If its state is final, the server stopped between two
/// writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AwaitedApproval {
    pub workspace: WorkspaceId,
    pub id: ApprovalId,
    pub execution: ExecutionId,
    pub state: ApprovalState,
}

impl Tx<'_> {
    /// Fails with `QuotaExceeded` if the workspace would then have more than `most` bytes.
    pub fn insert_approval(
        &self,
        workspace: WorkspaceId,
        approval: &NewApproval<'_>,
        most: u64,
    ) -> Result<(), DatabaseError> {
        let NewApproval { approval, mac, key, extra_bytes } = *approval;
        let (body, arguments) =
            (json_without_inputs(approval)?, to_json("approval", &approval.arguments)?);
        let bytes = extra_bytes.saturating_add((body.len() + arguments.len()) as u64);
        if bytes > most.saturating_sub(self.file_bytes(workspace)?) {
            return Err(DatabaseError::QuotaExceeded { most });
        }
        self.execute(
            "INSERT INTO approvals (workspace, id, state, execution_id, requester, tool_id, \
             agent_id, expires_at, mac, body, bytes, key) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            (
                workspace.uuid(),
                approval.id.uuid(),
                variant_name("approval", &approval.state)?,
                approval.execution_id.uuid(),
                approval.requester.uuid(),
                approval.tool_id.uuid(),
                approval.agent_id.map(AgentId::uuid),
                to_nanos(approval.expires_at),
                mac,
                body,
                bytes,
                key.map(KeyId::uuid),
            ),
        )?;
        self.execute(
            "INSERT INTO approval_arguments (workspace, approval, body) VALUES (?1, ?2, ?3)",
            (workspace.uuid(), approval.id.uuid(), arguments),
        )?;
        Ok(())
    }

    /// Marks an open approval as void, because its subject has changed or its requester has lost
    /// the right to request it. Returns it without its code and arguments; `None` if there is no
    /// open approval with this id.
    pub fn void_approval(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
        at: DateTime<Utc>,
        reason: String,
    ) -> Result<Option<Approval>, DatabaseError> {
        let open = |approval: &Approval| {
            matches!(approval.state, ApprovalState::Pending | ApprovalState::Allowed)
        };
        let Some(approval) = self.approval_without_inputs(workspace, id)?.filter(open) else {
            return Ok(None);
        };
        let (state, decided_at, reason) = (ApprovalState::Void, Some(at), Some(reason));
        let void = Approval { state, decided_at, reason, ..approval };
        self.update_approval(workspace, &void)?;
        Ok(Some(void))
    }

    /// Stores a decision. `None` if there is no pending approval with this id, or if it has
    /// expired.
    pub fn decide_approval(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
        decision: DecisionRecord,
    ) -> Result<Option<Approval>, DatabaseError> {
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

    /// Withdraws an approval that is pending or allowed. `None` if there is none, or if it has
    /// ended or was used, because the execution has then started.
    pub fn withdraw_approval(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
        decision: DecisionRecord,
    ) -> Result<Option<Approval>, DatabaseError> {
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
        decision: DecisionRecord,
    ) -> Result<Approval, DatabaseError> {
        let decided = Approval {
            state: decision.state,
            decided_by: Some(decision.by),
            decided_at: Some(decision.at),
            reason: decision.reason,
            scope: decision.scope,
            ..approval
        };
        self.update_approval(workspace, &decided)?;
        self.set_approval_mac(workspace, decided.id, decision.mac)?;
        Ok(decided)
    }

    /// Uses an allowed approval that has not expired; true for at most one call per approval.
    pub fn consume_approval(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
        now: DateTime<Utc>,
    ) -> Result<bool, DatabaseError> {
        let is_usable = |approval: &Approval| {
            approval.state == ApprovalState::Allowed && approval.expires_at > now
        };
        let Some(approval) = self.approval_without_inputs(workspace, id)?.filter(is_usable) else {
            return Ok(false);
        };
        self.update_approval(workspace, &Approval { state: ApprovalState::Used, ..approval })?;
        Ok(true)
    }

    /// Ends an open approval; false if it has changed since it was read.
    pub fn end_open_approval(
        &self,
        workspace: WorkspaceId,
        open: &OpenApproval,
        ended: &Approval,
    ) -> Result<bool, DatabaseError> {
        let found = self.approval_without_inputs(workspace, ended.id)?;
        if found.is_none_or(|found| found != open.approval) {
            return Ok(false);
        }
        self.update_approval(workspace, ended)?;
        Ok(true)
    }

    fn update_approval(
        &self,
        workspace: WorkspaceId,
        approval: &Approval,
    ) -> Result<(), DatabaseError> {
        self.execute(
            "UPDATE approvals SET state = ?3, body = ?4 WHERE workspace = ?1 AND id = ?2",
            (
                workspace.uuid(),
                approval.id.uuid(),
                variant_name("approval", &approval.state)?,
                json_without_inputs(approval)?,
            ),
        )?;
        Ok(())
    }

    fn set_approval_mac(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
        mac: ApprovalMac,
    ) -> Result<(), DatabaseError> {
        let sql = "UPDATE approvals SET mac = ?3 WHERE workspace = ?1 AND id = ?2";
        self.execute(sql, (workspace.uuid(), id.uuid(), mac)).map(drop)
    }

    pub fn insert_remembered_approval(
        &self,
        workspace: WorkspaceId,
        remembered: &RememberedApproval,
    ) -> Result<(), DatabaseError> {
        self.execute(
            "INSERT INTO remembered (id, workspace, requester, tool, agent, sandbox_id, scope, \
             mac, approval_id, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            (
                remembered.id,
                workspace.uuid(),
                remembered.requester.uuid(),
                remembered.tool.uuid(),
                remembered.agent.map(AgentId::uuid),
                remembered.sandbox_id.map(SandboxId::uuid),
                variant_name("approval", &remembered.scope)?,
                remembered.mac,
                remembered.approval_id.uuid(),
                to_nanos(remembered.created_at),
            ),
        )?;
        Ok(())
    }

    /// Deletes remembered decisions about a tool that was changed or deleted.
    pub fn delete_remembered_approvals_of_tool(
        &self,
        workspace: WorkspaceId,
        tool: ToolId,
    ) -> Result<usize, DatabaseError> {
        let sql = "DELETE FROM remembered WHERE workspace = ?1 AND tool = ?2";
        self.execute(sql, (workspace.uuid(), tool.uuid()))
    }

    /// Deletes remembered decisions about a deleted agent.
    pub fn delete_remembered_approvals_of_agent(
        &self,
        workspace: WorkspaceId,
        agent: AgentId,
    ) -> Result<usize, DatabaseError> {
        let sql = "DELETE FROM remembered WHERE workspace = ?1 AND agent = ?2";
        self.execute(sql, (workspace.uuid(), agent.uuid()))
    }

    /// Deletes remembered decisions of a deleted principal.
    pub fn delete_remembered_approvals_of_requester(
        &self,
        workspace: WorkspaceId,
        requester: PrincipalId,
    ) -> Result<usize, DatabaseError> {
        let sql = "DELETE FROM remembered WHERE workspace = ?1 AND requester = ?2";
        self.execute(sql, (workspace.uuid(), requester.uuid()))
    }
}

impl Reader<'_> {
    pub fn approval(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
    ) -> Result<Option<(Approval, ApprovalMac)>, DatabaseError> {
        let sql = format!("{WITH_INPUTS} WHERE a.workspace = ?1 AND a.id = ?2");
        self.query_one(&sql, (workspace.uuid(), id.uuid()), |row| {
            Ok((approval_from_row(row)?, row.get("mac")?))
        })
    }

    /// Without its code and arguments, which can be megabytes.
    fn approval_without_inputs(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
    ) -> Result<Option<Approval>, DatabaseError> {
        let sql = "SELECT body FROM approvals WHERE workspace = ?1 AND id = ?2";
        self.query_one(sql, (workspace.uuid(), id.uuid()), |row| {
            from_json_column("approval", row, "body")
        })
    }

    /// Open approvals of all workspaces that have expired, at most `limit`.
    pub fn overdue_approvals(
        &self,
        now: DateTime<Utc>,
        limit: usize,
    ) -> Result<Vec<OpenApproval>, DatabaseError> {
        self.query_many(
            "SELECT workspace, body FROM approvals \
             WHERE state IN ('pending', 'allowed') AND expires_at <= ?1 LIMIT ?2",
            (to_nanos(now), limit),
            open_approval_from_row,
        )
    }

    /// The API key that requested an approval.
    pub fn requesting_key(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
    ) -> Result<Option<KeyId>, DatabaseError> {
        let sql = "SELECT key FROM approvals WHERE workspace = ?1 AND id = ?2";
        let key = self.query_one(sql, (workspace.uuid(), id.uuid()), |row| Ok(row.get("key")?))?;
        Ok(key.flatten().map(KeyId::new))
    }

    /// Pending approvals, oldest first, after the given one.
    pub fn pending_approvals(
        &self,
        workspace: WorkspaceId,
        after: Option<ApprovalId>,
        limit: usize,
    ) -> Result<Vec<ApprovalHeader>, DatabaseError> {
        self.query_many(
            "SELECT id, requester, tool_id, agent_id FROM approvals \
             WHERE state = 'pending' AND workspace = ?1 AND id > ?2 ORDER BY id LIMIT ?3",
            (workspace.uuid(), after.map_or(Uuid::nil(), ApprovalId::uuid), limit),
            header_from_row,
        )
    }

    pub fn approval_header(
        &self,
        workspace: WorkspaceId,
        id: ApprovalId,
    ) -> Result<Option<ApprovalHeader>, DatabaseError> {
        let sql = "SELECT id, requester, tool_id, agent_id FROM approvals \
                   WHERE workspace = ?1 AND id = ?2";
        self.query_one(sql, (workspace.uuid(), id.uuid()), header_from_row)
    }

    /// The number of a principal's pending approvals.
    pub fn count_pending_approvals(
        &self,
        workspace: WorkspaceId,
        requester: PrincipalId,
    ) -> Result<u64, DatabaseError> {
        let sql = "SELECT count(*) FROM approvals WHERE state = 'pending' AND workspace = ?1 \
                   AND requester = ?2";
        let count =
            self.query_one(sql, (workspace.uuid(), requester.uuid()), |row| Ok(row.get(0)?))?;
        Ok(count.unwrap_or(0))
    }

    /// The approvals of all workspaces whose execution waits.
    pub fn awaited_approvals(&self) -> Result<Vec<AwaitedApproval>, DatabaseError> {
        self.query_many(
            "SELECT approvals.workspace, approvals.id, execution_id, state FROM approvals \
             JOIN executions ON executions.workspace = approvals.workspace \
             AND executions.id = execution_id WHERE status = 'waiting_approval'",
            [],
            |row| {
                let state: String = row.get("state")?;
                Ok(AwaitedApproval {
                    workspace: WorkspaceId::new(row.get("workspace")?),
                    id: ApprovalId::new(row.get("id")?),
                    execution: ExecutionId::new(row.get("execution_id")?),
                    state: parse_variant("approval", &state)?,
                })
            },
        )
    }

    pub fn approvals(
        &self,
        workspace: WorkspaceId,
        state: Option<ApprovalState>,
        page: PageRequest,
    ) -> Result<RowPage<Approval>, DatabaseError> {
        let state = state.map(|state| variant_name("approval", &state)).transpose()?;
        let sql = format!(
            "{WITH_INPUTS} WHERE a.workspace = ?3 AND a.id < ?1 \
             AND (?4 IS NULL OR a.state = ?4) ORDER BY a.id DESC LIMIT ?2"
        );
        self.query_page(page, &sql, &[&workspace.uuid(), &state], approval_from_row)
    }

    /// Remembered decisions that could cover such a call; their MACs decide whether they do.
    pub fn remembered_approvals_for(
        &self,
        workspace: WorkspaceId,
        requester: PrincipalId,
        tool: ToolId,
        agent: Option<AgentId>,
        sandbox: Option<SandboxId>,
    ) -> Result<Vec<RememberedApproval>, DatabaseError> {
        self.query_many(
            "SELECT * FROM remembered WHERE workspace = ?1 AND requester = ?2 AND tool = ?3 \
             AND agent IS ?4 AND (sandbox_id IS NULL OR sandbox_id = ?5) ORDER BY id DESC",
            (
                workspace.uuid(),
                requester.uuid(),
                tool.uuid(),
                agent.map(AgentId::uuid),
                sandbox.map(SandboxId::uuid),
            ),
            remembered_approval_from_row,
        )
    }
}

/// The JSON of an approval without its code and arguments, which have rows of their own.
fn json_without_inputs(approval: &Approval) -> Result<String, DatabaseError> {
    let short = Approval { code: String::new(), arguments: Value::Null, ..approval.clone() };
    to_json("approval", &short)
}

/// The part of an execution's record that an approval needs.
#[derive(Deserialize)]
struct ExecutionCode {
    code: String,
}

/// Reads an approval from a row of [`WITH_INPUTS`].
fn approval_from_row(row: &Row<'_>) -> Result<Approval, DatabaseError> {
    let mut approval: Approval = from_json_column("approval", row, "body")?;
    let is_present =
        |column| Ok::<_, DatabaseError>(row.get_ref(column)?.data_type() != Type::Null);
    if is_present("arguments")? {
        approval.arguments = from_json_column("approval", row, "arguments")?;
    }
    if is_present("inputs")? {
        let ExecutionInputs { code, .. } = from_json_column("execution", row, "inputs")?;
        approval.code = code.into_owned();
    } else if is_present("summary")? {
        let ExecutionCode { code } = from_json_column("execution", row, "summary")?;
        approval.code = code;
    }
    Ok(approval)
}

pub(crate) fn open_approval_from_row(row: &Row<'_>) -> Result<OpenApproval, DatabaseError> {
    Ok(OpenApproval {
        workspace: WorkspaceId::new(row.get("workspace")?),
        approval: from_json_column("approval", row, "body")?,
    })
}

fn header_from_row(row: &Row<'_>) -> Result<ApprovalHeader, DatabaseError> {
    Ok(ApprovalHeader {
        id: ApprovalId::new(row.get("id")?),
        requester: PrincipalId::new(row.get("requester")?),
        tool: ToolId::new(row.get("tool_id")?),
        agent: row.get::<_, Option<Uuid>>("agent_id")?.map(AgentId::new),
    })
}

fn remembered_approval_from_row(row: &Row<'_>) -> Result<RememberedApproval, DatabaseError> {
    let scope: String = row.get("scope")?;
    Ok(RememberedApproval {
        id: row.get("id")?,
        requester: PrincipalId::new(row.get("requester")?),
        tool: ToolId::new(row.get("tool")?),
        agent: row.get::<_, Option<Uuid>>("agent")?.map(AgentId::new),
        sandbox_id: row.get::<_, Option<Uuid>>("sandbox_id")?.map(SandboxId::new),
        scope: parse_variant("approval", &scope)?,
        mac: row.get("mac")?,
        approval_id: ApprovalId::new(row.get("approval_id")?),
        created_at: from_nanos(row.get("created_at")?),
    })
}
