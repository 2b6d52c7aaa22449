//! Functions: their definitions, and the source of the deployed version.

use crate::columns::{from_json_column, to_json};
use crate::executions::{WITH_INPUTS, summary_from_row};
use crate::named_objects::NamedTable;
use crate::{DatabaseError, ObjectFilter, PageRequest, Reader, RowPage, Tx};
use types::{Execution, Function, FunctionId, PrincipalId, WorkspaceId};

const FUNCTIONS: NamedTable =
    NamedTable { table: "functions", grant_kind: "function", noun: "function" };

impl Tx<'_> {
    /// `source` is the deployed source; absent until the first deployment is done.
    pub fn insert_function(
        &self,
        workspace: WorkspaceId,
        function: &Function,
        source: Option<&[u8]>,
    ) -> Result<(), DatabaseError> {
        self.execute(
            "INSERT INTO functions \
             (workspace, id, name, owner, environment, preparing, body, source) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            (
                workspace.uuid(),
                function.id.uuid(),
                &function.name,
                function.owner.uuid(),
                function.deployed.as_ref().map(|deployed| &deployed.environment),
                &function.preparing,
                to_json("function", function)?,
                source,
            ),
        )
        .map_err(|error| error.or_name_taken("function", &function.name))?;
        Ok(())
    }

    /// Without `source`, the stored one stays. False if there is no such function.
    pub fn update_function(
        &self,
        workspace: WorkspaceId,
        function: &Function,
        source: Option<&[u8]>,
    ) -> Result<bool, DatabaseError> {
        let changed = self.execute(
            "UPDATE functions SET owner = ?3, environment = ?4, preparing = ?5, body = ?6, \
             source = coalesce(?7, source) WHERE workspace = ?1 AND id = ?2",
            (
                workspace.uuid(),
                function.id.uuid(),
                function.owner.uuid(),
                function.deployed.as_ref().map(|deployed| &deployed.environment),
                &function.preparing,
                to_json("function", function)?,
                source,
            ),
        )?;
        Ok(changed == 1)
    }

    pub fn delete_function(
        &self,
        workspace: WorkspaceId,
        id: FunctionId,
    ) -> Result<bool, DatabaseError> {
        self.delete_named(FUNCTIONS, workspace, id.uuid())
    }
}

impl Reader<'_> {
    /// All functions of a workspace, which has at most a hundred.
    pub fn all_functions(&self, workspace: WorkspaceId) -> Result<Vec<Function>, DatabaseError> {
        let sql = "SELECT body FROM functions WHERE workspace = ?1 ORDER BY name";
        self.query_many(sql, [workspace.uuid()], |row| from_json_column("function", row, "body"))
    }

    pub fn function(
        &self,
        workspace: WorkspaceId,
        id: FunctionId,
    ) -> Result<Option<Function>, DatabaseError> {
        self.find_by_id(FUNCTIONS, workspace, id.uuid())
    }

    pub fn function_by_name(
        &self,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<Option<Function>, DatabaseError> {
        self.find_by_name(FUNCTIONS, workspace, name)
    }

    /// A function and its deployed source, read together; `None` if nothing is deployed.
    pub fn deployed_function(
        &self,
        workspace: WorkspaceId,
        id: FunctionId,
    ) -> Result<Option<(Function, Vec<u8>)>, DatabaseError> {
        let sql = "SELECT body, source FROM functions \
                   WHERE workspace = ?1 AND id = ?2 AND source IS NOT NULL";
        self.query_one(sql, (workspace.uuid(), id.uuid()), |row| {
            Ok((from_json_column("function", row, "body")?, row.get("source")?))
        })
    }

    pub fn count_functions(&self, workspace: WorkspaceId) -> Result<u64, DatabaseError> {
        self.count_named(FUNCTIONS, workspace)
    }

    /// Whether a function of any workspace uses this environment, or is being deployed with it.
    pub fn is_environment_of_function(&self, environment: &str) -> Result<bool, DatabaseError> {
        let sql = "SELECT 1 FROM functions WHERE environment = ?1 OR preparing = ?1 LIMIT 1";
        Ok(self.query_one(sql, [environment], |_| Ok(()))?.is_some())
    }

    /// The functions of all workspaces whose deployment is in progress.
    pub fn deploying_functions(&self) -> Result<Vec<(WorkspaceId, Function)>, DatabaseError> {
        let sql = "SELECT workspace, body FROM functions WHERE preparing IS NOT NULL";
        self.query_many(sql, [], |row| {
            Ok((
                WorkspaceId::new(row.get("workspace")?),
                from_json_column("function", row, "body")?,
            ))
        })
    }

    /// Lists functions; `search` looks in their names.
    pub fn functions(
        &self,
        workspace: WorkspaceId,
        filter: &ObjectFilter,
        page: PageRequest,
    ) -> Result<RowPage<Function>, DatabaseError> {
        self.list_named(FUNCTIONS, workspace, filter, page)
    }

    /// Summaries of the calls of a function, or of one principal's calls.
    pub fn function_calls(
        &self,
        workspace: WorkspaceId,
        function: FunctionId,
        principal: Option<PrincipalId>,
        page: PageRequest,
    ) -> Result<RowPage<Execution>, DatabaseError> {
        self.query_page(
            page,
            &format!(
                "{WITH_INPUTS} WHERE executions.workspace = ?3 AND function = ?4 AND id < ?1 \
                 AND (?5 IS NULL OR principal = ?5) ORDER BY id DESC LIMIT ?2"
            ),
            &[&workspace.uuid(), &function.uuid(), &principal.map(PrincipalId::uuid)],
            summary_from_row,
        )
    }
}
