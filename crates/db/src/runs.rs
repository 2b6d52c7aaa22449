//! Runs of language models: their conversations and traces. The rest of a run is its execution.

use crate::{DatabaseError, Reader, Tx};
use rusqlite::Row;
use types::{AgentId, ExecutionId, PrincipalId, SandboxId, WorkspaceId};
use uuid::Uuid;

/// A run, and the conversation that the next run continues from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRow {
    pub id: ExecutionId,
    pub principal: PrincipalId,
    pub agent: Option<AgentId>,
    pub sandbox_id: Option<SandboxId>,
    /// The run that continues this one.
    pub next: Option<ExecutionId>,
    /// Absent until the run has ended.
    pub conversation: Option<Vec<u8>>,
}

impl Tx<'_> {
    /// Inserts a run; its execution must exist.
    pub fn insert_run(&self, workspace: WorkspaceId, run: &RunRow) -> Result<(), DatabaseError> {
        self.execute(
            "INSERT INTO runs (workspace, id, principal, agent, sandbox_id) \
             VALUES (?1, ?2, ?3, ?4, ?5)",
            (
                workspace.uuid(),
                run.id.uuid(),
                run.principal.uuid(),
                run.agent.map(AgentId::uuid),
                run.sandbox_id.map(SandboxId::uuid),
            ),
        )?;
        Ok(())
    }

    /// Marks a run as continued. False if it was continued before, or does not exist.
    pub fn continue_run(
        &self,
        workspace: WorkspaceId,
        before: ExecutionId,
        next: ExecutionId,
    ) -> Result<bool, DatabaseError> {
        let changed = self.execute(
            "UPDATE runs SET next = ?3 \
             WHERE workspace = ?1 AND id = ?2 AND next IS NULL AND conversation IS NOT NULL",
            (workspace.uuid(), before.uuid(), next.uuid()),
        )?;
        Ok(changed == 1)
    }

    /// Makes the run that `id` continues available again, because `id` ended without a
    /// conversation.
    pub fn release_run_cursor(
        &self,
        workspace: WorkspaceId,
        id: ExecutionId,
    ) -> Result<(), DatabaseError> {
        let sql = "UPDATE runs SET next = NULL WHERE workspace = ?1 AND next = ?2";
        self.execute(sql, (workspace.uuid(), id.uuid())).map(drop)
    }

    /// Does the same at the start of a server for all runs that died with the last one.
    pub fn release_interrupted_cursors(&self) -> Result<(), DatabaseError> {
        let sql = "UPDATE runs SET next = NULL WHERE next IN \
                   (SELECT id FROM runs WHERE conversation IS NULL)";
        self.execute(sql, []).map(drop)
    }

    pub fn finish_run(
        &self,
        workspace: WorkspaceId,
        id: ExecutionId,
        sandbox_id: Option<SandboxId>,
        conversation: &[u8],
        trace: &[u8],
    ) -> Result<(), DatabaseError> {
        self.execute(
            "UPDATE runs SET sandbox_id = ?3, conversation = ?4, trace = ?5 \
             WHERE workspace = ?1 AND id = ?2",
            (workspace.uuid(), id.uuid(), sandbox_id.map(SandboxId::uuid), conversation, trace),
        )?;
        Ok(())
    }
}

impl Reader<'_> {
    pub fn run(
        &self,
        workspace: WorkspaceId,
        id: ExecutionId,
    ) -> Result<Option<RunRow>, DatabaseError> {
        let sql = "SELECT * FROM runs WHERE workspace = ?1 AND id = ?2";
        self.query_one(sql, (workspace.uuid(), id.uuid()), run_from_row)
    }

    pub fn run_trace(
        &self,
        workspace: WorkspaceId,
        id: ExecutionId,
    ) -> Result<Option<Vec<u8>>, DatabaseError> {
        let sql = "SELECT trace FROM runs WHERE workspace = ?1 AND id = ?2";
        let trace =
            self.query_one(sql, (workspace.uuid(), id.uuid()), |row| Ok(row.get("trace")?))?;
        Ok(trace.flatten())
    }

    /// The principal's newest run in a session that has ended and belongs to no agent.
    pub fn last_run_in_session(
        &self,
        workspace: WorkspaceId,
        sandbox: SandboxId,
        principal: PrincipalId,
    ) -> Result<Option<RunRow>, DatabaseError> {
        let sql = "SELECT * FROM runs WHERE workspace = ?1 AND sandbox_id = ?2 \
                   AND principal = ?3 AND agent IS NULL AND conversation IS NOT NULL \
                   ORDER BY id DESC LIMIT 1";
        self.query_one(sql, (workspace.uuid(), sandbox.uuid(), principal.uuid()), run_from_row)
    }
}

fn run_from_row(row: &Row<'_>) -> Result<RunRow, DatabaseError> {
    let optional = |name: &str| row.get::<_, Option<Uuid>>(name);
    Ok(RunRow {
        id: ExecutionId::new(row.get("id")?),
        principal: PrincipalId::new(row.get("principal")?),
        agent: optional("agent")?.map(AgentId::new),
        sandbox_id: optional("sandbox_id")?.map(SandboxId::new),
        next: optional("next")?.map(ExecutionId::new),
        conversation: row.get("conversation")?,
    })
}
