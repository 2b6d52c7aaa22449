//! Agents, and the tools that are attached to them.

use crate::columns::{from_json_column, from_nanos, parse_variant, to_json, to_nanos};
use crate::{DatabaseError, ObjectFilter, PageRequest, Reader, RowPage, Tx};
use chrono::{DateTime, Utc};
use rusqlite::Row;
use types::{Agent, AgentId, ApprovalAction, ToolBinding, ToolId, WorkspaceId};

impl Tx<'_> {
    pub fn insert_agent(&self, workspace: WorkspaceId, agent: &Agent) -> Result<(), DatabaseError> {
        self.execute(
            "INSERT INTO agents (workspace, id, name, owner, body) VALUES (?1, ?2, ?3, ?4, ?5)",
            (
                workspace.uuid(),
                agent.id.uuid(),
                &agent.name,
                agent.owner.uuid(),
                to_json("agent", agent)?,
            ),
        )
        .map_err(|error| error.or_name_taken("agent", &agent.name))?;
        Ok(())
    }

    /// False if there is none.
    pub fn update_agent(
        &self,
        workspace: WorkspaceId,
        agent: &Agent,
    ) -> Result<bool, DatabaseError> {
        let changed = self
            .execute(
                "UPDATE agents SET name = ?3, owner = ?4, body = ?5 \
                 WHERE workspace = ?1 AND id = ?2",
                (
                    workspace.uuid(),
                    agent.id.uuid(),
                    &agent.name,
                    agent.owner.uuid(),
                    to_json("agent", agent)?,
                ),
            )
            .map_err(|error| error.or_name_taken("agent", &agent.name))?;
        Ok(changed == 1)
    }

    /// Deletes an agent with its bindings. Its grants stay.
    pub fn delete_agent(&self, workspace: WorkspaceId, id: AgentId) -> Result<bool, DatabaseError> {
        let key = (workspace.uuid(), id.uuid());
        Ok(self.execute("DELETE FROM agents WHERE workspace = ?1 AND id = ?2", key)? == 1)
    }

    /// Keeps which objects the specification of an agent names, by kind and name, so that none of them is
    /// deleted while it is named.
    pub fn replace_agent_references(
        &self,
        workspace: WorkspaceId,
        agent: AgentId,
        uses: &[(&str, &str)],
    ) -> Result<(), DatabaseError> {
        let key = (workspace.uuid(), agent.uuid());
        self.execute("DELETE FROM agent_uses WHERE workspace = ?1 AND agent = ?2", key)?;
        for (kind, name) in uses {
            self.execute(
                "INSERT OR IGNORE INTO agent_uses (workspace, agent, kind, name) \
                 VALUES (?1, ?2, ?3, ?4)",
                (workspace.uuid(), agent.uuid(), kind, name),
            )?;
        }
        Ok(())
    }

    /// Both must exist. A tool that is attached already keeps its moment and gets this action.
    pub fn attach_tool(
        &self,
        workspace: WorkspaceId,
        agent: AgentId,
        tool: ToolId,
        action: ApprovalAction,
        now: DateTime<Utc>,
    ) -> Result<(), DatabaseError> {
        self.execute(
            "INSERT INTO agent_tools (workspace, agent, tool, approval_action, created_at) \
             VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (workspace, agent, tool) \
             DO UPDATE SET approval_action = excluded.approval_action",
            (workspace.uuid(), agent.uuid(), tool.uuid(), action.name(), to_nanos(now)),
        )?;
        Ok(())
    }

    /// False if it is not attached.
    pub fn set_tool_action(
        &self,
        workspace: WorkspaceId,
        agent: AgentId,
        tool: ToolId,
        action: ApprovalAction,
    ) -> Result<bool, DatabaseError> {
        let changed = self.execute(
            "UPDATE agent_tools SET approval_action = ?4 \
             WHERE workspace = ?1 AND agent = ?2 AND tool = ?3",
            (workspace.uuid(), agent.uuid(), tool.uuid(), action.name()),
        )?;
        Ok(changed == 1)
    }

    pub fn detach_tool(
        &self,
        workspace: WorkspaceId,
        agent: AgentId,
        tool: ToolId,
    ) -> Result<bool, DatabaseError> {
        let changed = self.execute(
            "DELETE FROM agent_tools WHERE workspace = ?1 AND agent = ?2 AND tool = ?3",
            (workspace.uuid(), agent.uuid(), tool.uuid()),
        )?;
        Ok(changed == 1)
    }
}

impl Reader<'_> {
    /// The names of the agents whose specification names an object.
    pub fn agents_referencing(
        &self,
        workspace: WorkspaceId,
        kind: &str,
        name: &str,
    ) -> Result<Vec<String>, DatabaseError> {
        self.query_many(
            "SELECT a.name FROM agent_uses u \
             JOIN agents a ON a.workspace = u.workspace AND a.id = u.agent \
             WHERE u.workspace = ?1 AND u.kind = ?2 AND u.name = ?3 ORDER BY a.name",
            (workspace.uuid(), kind, name),
            |row| Ok(row.get(0)?),
        )
    }

    pub fn agent(
        &self,
        workspace: WorkspaceId,
        id: AgentId,
    ) -> Result<Option<Agent>, DatabaseError> {
        let sql = "SELECT body FROM agents WHERE workspace = ?1 AND id = ?2";
        let key = (workspace.uuid(), id.uuid());
        self.query_one(sql, key, |row| from_json_column("agent", row, "body"))
    }

    pub fn agent_by_name(
        &self,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<Option<Agent>, DatabaseError> {
        let sql = "SELECT body FROM agents WHERE workspace = ?1 AND name = ?2";
        self.query_one(sql, (workspace.uuid(), name), |row| from_json_column("agent", row, "body"))
    }

    pub fn count_agents(&self, workspace: WorkspaceId) -> Result<u64, DatabaseError> {
        let sql = "SELECT count(*) FROM agents WHERE workspace = ?1";
        Ok(self.query_one(sql, [workspace.uuid()], |row| Ok(row.get(0)?))?.unwrap_or_default())
    }

    /// A search is in their names.
    pub fn agents(
        &self,
        workspace: WorkspaceId,
        filter: &ObjectFilter,
        page: PageRequest,
    ) -> Result<RowPage<Agent>, DatabaseError> {
        self.query_page(
            page,
            "SELECT id, body FROM agents WHERE workspace = ?3 AND id < ?1 \
             AND (?4 IS NULL OR instr(lower(name), lower(?4)) > 0) \
             AND (?5 IS NULL OR EXISTS (SELECT 1 FROM grants \
                  WHERE grants.workspace = agents.workspace AND object_kind = 'agent' \
                  AND object_id = agents.id AND privilege <> 'INSTALL' \
                  AND principal IN (SELECT unhex(value) FROM json_each(?5)))) \
             ORDER BY id DESC LIMIT ?2",
            &[&workspace.uuid(), &filter.search, &filter.viewers_json()],
            |row| from_json_column("agent", row, "body"),
        )
    }

    /// In the order in which they were attached.
    pub fn tool_bindings(
        &self,
        workspace: WorkspaceId,
        agent: AgentId,
    ) -> Result<Vec<ToolBinding>, DatabaseError> {
        self.query_many(
            "SELECT b.tool, t.name, b.approval_action, b.created_at FROM agent_tools b \
             JOIN tools t ON t.workspace = b.workspace AND t.id = b.tool \
             WHERE b.workspace = ?1 AND b.agent = ?2 ORDER BY b.created_at, b.tool",
            (workspace.uuid(), agent.uuid()),
            |row| {
                let action: String = row.get("approval_action")?;
                Ok(ToolBinding {
                    agent_id: agent,
                    tool_id: ToolId::new(row.get("tool")?),
                    tool_name: row.get("name")?,
                    approval_action: parse_variant("binding", &action)?,
                    created_at: from_nanos(row.get("created_at")?),
                })
            },
        )
    }

    /// The approval action for calls of a tool: by the tool itself, and by an agent that it is attached to. None
    /// where there is no such tool, or it is not attached.
    pub fn approval_actions(
        &self,
        workspace: WorkspaceId,
        tool: ToolId,
        agent: AgentId,
    ) -> Result<(Option<ApprovalAction>, Option<ApprovalAction>), DatabaseError> {
        let read = |row: &Row<'_>| parse_variant("approval action", &row.get::<_, String>(0)?);
        let own = "SELECT body ->> '$.approval_action' FROM tools WHERE workspace = ?1 AND id = ?2";
        let of_agent = "SELECT approval_action FROM agent_tools \
                        WHERE workspace = ?1 AND tool = ?2 AND agent = ?3";
        let key = (workspace.uuid(), tool.uuid());
        Ok((
            self.query_one(own, key, read)?,
            self.query_one(of_agent, (key.0, key.1, agent.uuid()), read)?,
        ))
    }

    /// Including their names.
    pub fn agents_using(
        &self,
        workspace: WorkspaceId,
        tool: ToolId,
    ) -> Result<Vec<(AgentId, String)>, DatabaseError> {
        self.query_many(
            "SELECT a.id, a.name FROM agent_tools b \
             JOIN agents a ON a.workspace = b.workspace AND a.id = b.agent \
             WHERE b.workspace = ?1 AND b.tool = ?2 ORDER BY a.name",
            (workspace.uuid(), tool.uuid()),
            |row| Ok((AgentId::new(row.get("id")?), row.get("name")?)),
        )
    }
}
