//! Functions: what is known of each, and the files of what serves.

use crate::column::{body, from_body};
use crate::named::Kind;
use crate::{Listed, ObjectFilter, Page, Reader, StoreError, Tx};
use types::{Execution, Function, FunctionId, PrincipalId, WorkspaceId};

const FUNCTIONS: Kind = Kind { table: "functions", granted: "function", word: "function" };

impl Tx<'_> {
    /// `source` are the files of what serves, if something does already.
    pub fn insert_function(
        &self,
        workspace: WorkspaceId,
        function: &Function,
        source: Option<&[u8]>,
    ) -> Result<(), StoreError> {
        self.change(
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
                body("function", function)?,
                source,
            ),
        )
        .map_err(|error| error.or_name_taken("function", &function.name))?;
        Ok(())
    }

    /// Without a source, the one that is there stays. False if there is no such function.
    pub fn update_function(
        &self,
        workspace: WorkspaceId,
        function: &Function,
        source: Option<&[u8]>,
    ) -> Result<bool, StoreError> {
        let changed = self.change(
            "UPDATE functions SET owner = ?3, environment = ?4, preparing = ?5, body = ?6, \
             source = coalesce(?7, source) WHERE workspace = ?1 AND id = ?2",
            (
                workspace.uuid(),
                function.id.uuid(),
                function.owner.uuid(),
                function.deployed.as_ref().map(|deployed| &deployed.environment),
                &function.preparing,
                body("function", function)?,
                source,
            ),
        )?;
        Ok(changed == 1)
    }

    pub fn delete_function(
        &self,
        workspace: WorkspaceId,
        id: FunctionId,
    ) -> Result<bool, StoreError> {
        self.delete_named(FUNCTIONS, workspace, id.uuid())
    }
}

impl Reader<'_> {
    /// Of which a workspace has a hundred.
    pub fn all_functions(&self, workspace: WorkspaceId) -> Result<Vec<Function>, StoreError> {
        let sql = "SELECT body FROM functions WHERE workspace = ?1 ORDER BY name";
        self.many(sql, [workspace.uuid()], |row| from_body("function", row, "body"))
    }

    pub fn function(
        &self,
        workspace: WorkspaceId,
        id: FunctionId,
    ) -> Result<Option<Function>, StoreError> {
        self.with_id(FUNCTIONS, workspace, id.uuid())
    }

    pub fn function_by_name(
        &self,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<Option<Function>, StoreError> {
        self.with_name(FUNCTIONS, workspace, name)
    }

    /// A function and the files of what serves, of the same moment; absent if nothing serves.
    pub fn deployed_function(
        &self,
        workspace: WorkspaceId,
        id: FunctionId,
    ) -> Result<Option<(Function, Vec<u8>)>, StoreError> {
        let sql = "SELECT body, source FROM functions \
                   WHERE workspace = ?1 AND id = ?2 AND source IS NOT NULL";
        self.one(sql, (workspace.uuid(), id.uuid()), |row| {
            Ok((from_body("function", row, "body")?, row.get("source")?))
        })
    }

    pub fn count_functions(&self, workspace: WorkspaceId) -> Result<u64, StoreError> {
        self.count_of(FUNCTIONS, workspace)
    }

    /// Whether a function of any workspace runs in this environment, or soon will.
    pub fn is_functions_environment(&self, environment: &str) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM functions WHERE environment = ?1 OR preparing = ?1 LIMIT 1";
        Ok(self.one(sql, [environment], |_| Ok(()))?.is_some())
    }

    /// Of all workspaces, those whose deployment is under way.
    pub fn deploying_functions(&self) -> Result<Vec<(WorkspaceId, Function)>, StoreError> {
        let sql = "SELECT workspace, body FROM functions WHERE preparing IS NOT NULL";
        self.many(sql, [], |row| {
            Ok((WorkspaceId::new(row.get("workspace")?), from_body("function", row, "body")?))
        })
    }

    /// A search is in their names.
    pub fn functions(
        &self,
        workspace: WorkspaceId,
        filter: &ObjectFilter,
        page: Page,
    ) -> Result<Listed<Function>, StoreError> {
        self.list_of(FUNCTIONS, workspace, filter, page)
    }

    /// Summaries of its calls, those of one principal if one is named.
    pub fn function_calls(
        &self,
        workspace: WorkspaceId,
        function: FunctionId,
        principal: Option<PrincipalId>,
        page: Page,
    ) -> Result<Listed<Execution>, StoreError> {
        self.list(
            page,
            "SELECT id, summary FROM executions \
             WHERE workspace = ?3 AND function = ?4 AND id < ?1 \
             AND (?5 IS NULL OR principal = ?5) ORDER BY id DESC LIMIT ?2",
            &[&workspace.uuid(), &function.uuid(), &principal.map(PrincipalId::uuid)],
            |row| from_body("execution", row, "summary"),
        )
    }
}
