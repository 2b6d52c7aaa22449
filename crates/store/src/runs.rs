//! Runs of language models: what each leaves besides its execution.

use crate::{Reader, StoreError, Tx};
use rusqlite::Row;
use types::{AgentId, ExecutionId, PrincipalId, SandboxId, WorkspaceId};
use uuid::Uuid;

/// A run, and where the next one goes on from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub id: ExecutionId,
    pub principal: PrincipalId,
    pub agent: Option<AgentId>,
    pub sandbox_id: Option<SandboxId>,
    /// The run that has gone on from it.
    pub next: Option<ExecutionId>,
    /// Absent while it has not ended.
    pub conversation: Option<Vec<u8>>,
}

impl Tx<'_> {
    /// Its execution has to be there.
    pub fn insert_run(&self, workspace: WorkspaceId, run: &Run) -> Result<(), StoreError> {
        self.change(
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

    /// False if somebody has gone on from it before, or there is nothing to go on from.
    pub fn go_on_from(
        &self,
        workspace: WorkspaceId,
        before: ExecutionId,
        next: ExecutionId,
    ) -> Result<bool, StoreError> {
        let changed = self.change(
            "UPDATE runs SET next = ?3 \
             WHERE workspace = ?1 AND id = ?2 AND next IS NULL AND conversation IS NOT NULL",
            (workspace.uuid(), before.uuid(), next.uuid()),
        )?;
        Ok(changed == 1)
    }

    /// One that has left nothing to go on from gives back where it went on from.
    pub fn give_back_cursor(
        &self,
        workspace: WorkspaceId,
        id: ExecutionId,
    ) -> Result<(), StoreError> {
        let sql = "UPDATE runs SET next = NULL WHERE workspace = ?1 AND next = ?2";
        self.change(sql, (workspace.uuid(), id.uuid())).map(drop)
    }

    /// The same at the start of a server for all that died with the last one.
    pub fn give_back_cursors(&self) -> Result<(), StoreError> {
        let sql = "UPDATE runs SET next = NULL WHERE next IN \
                   (SELECT id FROM runs WHERE conversation IS NULL)";
        self.change(sql, []).map(drop)
    }

    pub fn finish_run(
        &self,
        workspace: WorkspaceId,
        id: ExecutionId,
        sandbox_id: Option<SandboxId>,
        conversation: &[u8],
        trace: &[u8],
    ) -> Result<(), StoreError> {
        self.change(
            "UPDATE runs SET sandbox_id = ?3, conversation = ?4, trace = ?5 \
             WHERE workspace = ?1 AND id = ?2",
            (workspace.uuid(), id.uuid(), sandbox_id.map(SandboxId::uuid), conversation, trace),
        )?;
        Ok(())
    }
}

impl Reader<'_> {
    pub fn run(&self, workspace: WorkspaceId, id: ExecutionId) -> Result<Option<Run>, StoreError> {
        let sql = "SELECT * FROM runs WHERE workspace = ?1 AND id = ?2";
        self.one(sql, (workspace.uuid(), id.uuid()), run)
    }

    pub fn run_trace(
        &self,
        workspace: WorkspaceId,
        id: ExecutionId,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let sql = "SELECT trace FROM runs WHERE workspace = ?1 AND id = ?2";
        let trace = self.one(sql, (workspace.uuid(), id.uuid()), |row| Ok(row.get("trace")?))?;
        Ok(trace.flatten())
    }

    /// Somebody's newest in a session that has ended, and is no agent's.
    pub fn last_run_in(
        &self,
        workspace: WorkspaceId,
        sandbox: SandboxId,
        principal: PrincipalId,
    ) -> Result<Option<Run>, StoreError> {
        let sql = "SELECT * FROM runs WHERE workspace = ?1 AND sandbox_id = ?2 \
                   AND principal = ?3 AND agent IS NULL AND conversation IS NOT NULL \
                   ORDER BY id DESC LIMIT 1";
        self.one(sql, (workspace.uuid(), sandbox.uuid(), principal.uuid()), run)
    }
}

fn run(row: &Row<'_>) -> Result<Run, StoreError> {
    let optional = |name: &str| row.get::<_, Option<Uuid>>(name);
    Ok(Run {
        id: ExecutionId::new(row.get("id")?),
        principal: PrincipalId::new(row.get("principal")?),
        agent: optional("agent")?.map(AgentId::new),
        sandbox_id: optional("sandbox_id")?.map(SandboxId::new),
        next: optional("next")?.map(ExecutionId::new),
        conversation: row.get("conversation")?,
    })
}
