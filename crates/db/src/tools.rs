//! Tools: their contracts, and their source code exactly as it was written.

use crate::columns::{from_json_column, to_json};
use crate::{Database, DatabaseError, PageRequest, Reader, RowPage, Tx};
use rusqlite::Row;
use types::{PrincipalId, Tool, ToolId, WorkspaceId};

/// Bytes of a tool that is parsed on the thread of its reader; the JSON of a larger one can become a
/// tree of many megabytes.
const READ_HERE_BYTES_MAX: u64 = 16 * 1024;

/// A filter of tools or agents; absent fields match everything.
#[derive(Debug, Clone, Default)]
pub struct ObjectFilter {
    /// Text in the name or the description; ASCII letters in any case.
    pub search: Option<String>,
    /// Only objects on which one of these principals has a grant.
    pub seen_by: Option<Vec<PrincipalId>>,
}

/// Tools in the order of their names.
#[derive(Debug)]
pub struct ToolsByName {
    pub tools: Vec<Tool>,
    /// Whether there are more.
    pub more: bool,
}

impl ObjectFilter {
    /// A list for `json_each`, because SQL has no lists.
    pub(crate) fn viewers_json(&self) -> Option<String> {
        let ids = self.seen_by.as_ref()?.iter().map(|id| format!("\"{}\"", id.uuid().simple()));
        Some(format!("[{}]", ids.collect::<Vec<_>>().join(",")))
    }
}

impl Tx<'_> {
    pub fn insert_tool(
        &self,
        workspace: WorkspaceId,
        tool: &Tool,
        source: &str,
    ) -> Result<(), DatabaseError> {
        self.execute(
            "INSERT INTO tools (workspace, id, name, owner, body, source) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            (
                workspace.uuid(),
                tool.id.uuid(),
                &tool.name,
                tool.owner.uuid(),
                to_json("tool", tool)?,
                source.as_bytes(),
            ),
        )
        .map_err(|error| error.or_name_taken("tool", &tool.name))?;
        Ok(())
    }

    /// False if there is no such tool.
    pub fn update_tool(
        &self,
        workspace: WorkspaceId,
        tool: &Tool,
        source: &str,
    ) -> Result<bool, DatabaseError> {
        let changed = self
            .execute(
                "UPDATE tools SET name = ?3, owner = ?4, body = ?5, source = ?6 \
                 WHERE workspace = ?1 AND id = ?2",
                (
                    workspace.uuid(),
                    tool.id.uuid(),
                    &tool.name,
                    tool.owner.uuid(),
                    to_json("tool", tool)?,
                    source.as_bytes(),
                ),
            )
            .map_err(|error| error.or_name_taken("tool", &tool.name))?;
        Ok(changed == 1)
    }

    /// Deletes a tool with its variables. Fails while an agent has it attached: check
    /// `agents_using` first. Its grants stay.
    pub fn delete_tool(&self, workspace: WorkspaceId, id: ToolId) -> Result<bool, DatabaseError> {
        self.delete_sealed_values(workspace, id.uuid())?;
        let key = (workspace.uuid(), id.uuid());
        Ok(self.execute("DELETE FROM tools WHERE workspace = ?1 AND id = ?2", key)? == 1)
    }
}

impl Reader<'_> {
    /// A tool with its source code.
    pub fn tool(
        &self,
        workspace: WorkspaceId,
        id: ToolId,
    ) -> Result<Option<(Tool, String)>, DatabaseError> {
        let sql = "SELECT body, source FROM tools WHERE workspace = ?1 AND id = ?2";
        self.query_one(sql, (workspace.uuid(), id.uuid()), with_source)
    }

    /// The size of a tool with its source code, without reading either.
    fn tool_bytes(&self, workspace: WorkspaceId, id: ToolId) -> Result<Option<u64>, DatabaseError> {
        let sql = "SELECT octet_length(body) + octet_length(source) FROM tools \
                   WHERE workspace = ?1 AND id = ?2";
        self.query_one(sql, (workspace.uuid(), id.uuid()), |row| Ok(row.get(0)?))
    }

    /// A tool with its source code.
    pub fn tool_by_name(
        &self,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<Option<(Tool, String)>, DatabaseError> {
        let sql = "SELECT body, source FROM tools WHERE workspace = ?1 AND name = ?2";
        self.query_one(sql, (workspace.uuid(), name), with_source)
    }

    /// The names of the tools that use an integration.
    pub fn tools_with_integration(
        &self,
        workspace: WorkspaceId,
        integration: &str,
    ) -> Result<Vec<String>, DatabaseError> {
        let sql = "SELECT name FROM tools WHERE workspace = ?1 AND EXISTS \
                   (SELECT 1 FROM json_each(body, '$.configuration.integrations') \
                    WHERE value = ?2) ORDER BY name";
        self.query_many(sql, (workspace.uuid(), integration), |row| Ok(row.get(0)?))
    }

    /// The names of the tools that call a function.
    pub fn tools_with_function(
        &self,
        workspace: WorkspaceId,
        function: &str,
    ) -> Result<Vec<String>, DatabaseError> {
        let sql = "SELECT name FROM tools WHERE workspace = ?1 \
                   AND body ->> '$.entry' = 'function' \
                   AND body ->> '$.configuration.externalId' = ?2 ORDER BY name";
        self.query_many(sql, (workspace.uuid(), function), |row| Ok(row.get(0)?))
    }

    pub fn count_tools(&self, workspace: WorkspaceId) -> Result<u64, DatabaseError> {
        let sql = "SELECT count(*) FROM tools WHERE workspace = ?1";
        Ok(self.query_one(sql, [workspace.uuid()], |row| Ok(row.get(0)?))?.unwrap_or_default())
    }

    /// Tools after a name, without their definitions. Ends after the tool with which they take
    /// `memory_max` bytes of memory, which may be hundred times their text.
    pub fn tools_after(
        &self,
        workspace: WorkspaceId,
        viewers: &ObjectFilter,
        name: &str,
        memory_max: usize,
    ) -> Result<ToolsByName, DatabaseError> {
        let sql = "SELECT body FROM tools WHERE workspace = ?1 AND name > ?2 \
                   AND (?3 IS NULL OR EXISTS (SELECT 1 FROM grants \
                        WHERE grants.workspace = tools.workspace AND object_kind = 'tool' \
                        AND object_id = tools.id AND privilege <> 'INSTALL' \
                        AND principal IN (SELECT unhex(value) FROM json_each(?3)))) \
                   ORDER BY name";
        let (mut tools, mut bytes) = (Vec::new(), 0);
        let more = self.visit(sql, (workspace.uuid(), name, viewers.viewers_json()), |row| {
            if bytes >= memory_max {
                return Ok(false);
            }
            let mut tool: Tool = from_json_column("tool", row, "body")?;
            tool.definition.clear();
            bytes += tool.memory_bytes();
            tools.push(tool);
            Ok(true)
        })?;
        Ok(ToolsByName { tools, more })
    }

    pub fn tools(
        &self,
        workspace: WorkspaceId,
        filter: &ObjectFilter,
        page: PageRequest,
    ) -> Result<RowPage<Tool>, DatabaseError> {
        self.query_page(
            page,
            "SELECT id, body FROM tools WHERE workspace = ?3 AND id < ?1 \
             AND (?4 IS NULL OR instr(lower(name), lower(?4)) > 0 \
                  OR instr(lower(body ->> 'description'), lower(?4)) > 0) \
             AND (?5 IS NULL OR EXISTS (SELECT 1 FROM grants \
                  WHERE grants.workspace = tools.workspace AND object_kind = 'tool' \
                  AND object_id = tools.id AND privilege <> 'INSTALL' \
                  AND principal IN (SELECT unhex(value) FROM json_each(?5)))) \
             ORDER BY id DESC LIMIT ?2",
            &[&workspace.uuid(), &filter.search, &filter.viewers_json()],
            |row| from_json_column("tool", row, "body"),
        )
    }
}

impl Database {
    /// A tool with its source. A large one is read and parsed on another thread.
    pub async fn tool(
        &self,
        workspace: WorkspaceId,
        id: ToolId,
    ) -> Result<Option<(Tool, String)>, DatabaseError> {
        match self.read(|rows| rows.tool_bytes(workspace, id))? {
            None => Ok(None),
            Some(..=READ_HERE_BYTES_MAX) => self.read(|rows| rows.tool(workspace, id)),
            Some(_) => self.read_off_thread(move |rows| rows.tool(workspace, id)).await,
        }
    }
}

fn with_source(row: &Row<'_>) -> Result<(Tool, String), DatabaseError> {
    let source = String::from_utf8(row.get("source")?);
    let source = source.map_err(|_| DatabaseError::Corrupt { what: "tool" })?;
    Ok((from_json_column("tool", row, "body")?, source))
}
