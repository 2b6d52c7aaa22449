//! Network rules, the integrations that contain them, and the egress log.

use crate::columns::{from_json_column, to_json, to_nanos};
use crate::named_objects::{NamedRow, NamedTable};
use crate::{DatabaseError, ObjectFilter, PageRequest, Reader, RowPage, Tx};
use types::{
    ExecutionId, Integration, IntegrationId, NetworkLogEntry, NetworkRule, NetworkRuleId,
    PrincipalId, SandboxId, WorkspaceId,
};
use uuid::Uuid;

/// A filter of the egress log; absent fields match everything.
#[derive(Debug, Clone, Default)]
pub struct NetworkFilter {
    pub principal: Option<PrincipalId>,
    pub execution_id: Option<ExecutionId>,
    pub sandbox_id: Option<SandboxId>,
    pub host: Option<String>,
    pub allowed: Option<bool>,
}

const RULES: NamedTable =
    NamedTable { table: "network_rules", grant_kind: "network_rule", noun: "network rule" };
const INTEGRATIONS: NamedTable =
    NamedTable { table: "integrations", grant_kind: "integration", noun: "integration" };

fn rule_row(rule: &NetworkRule) -> NamedRow<'_> {
    NamedRow { id: rule.id.uuid(), name: &rule.name, owner: rule.owner }
}

fn integration_row(integration: &Integration) -> NamedRow<'_> {
    NamedRow { id: integration.id.uuid(), name: &integration.name, owner: integration.owner }
}

impl Tx<'_> {
    pub fn insert_network_rule(
        &self,
        workspace: WorkspaceId,
        rule: &NetworkRule,
    ) -> Result<(), DatabaseError> {
        self.insert_named(RULES, workspace, rule_row(rule), rule)
    }

    /// False if there is no such rule. The name does not change.
    pub fn update_network_rule(
        &self,
        workspace: WorkspaceId,
        rule: &NetworkRule,
    ) -> Result<bool, DatabaseError> {
        self.update_named(RULES, workspace, rule_row(rule), rule)
    }

    pub fn delete_network_rule(
        &self,
        workspace: WorkspaceId,
        id: NetworkRuleId,
    ) -> Result<bool, DatabaseError> {
        self.delete_named(RULES, workspace, id.uuid())
    }

    pub fn insert_integration(
        &self,
        workspace: WorkspaceId,
        integration: &Integration,
    ) -> Result<(), DatabaseError> {
        self.insert_named(INTEGRATIONS, workspace, integration_row(integration), integration)
    }

    /// False if there is no such integration. The name does not change.
    pub fn update_integration(
        &self,
        workspace: WorkspaceId,
        integration: &Integration,
    ) -> Result<bool, DatabaseError> {
        self.update_named(INTEGRATIONS, workspace, integration_row(integration), integration)
    }

    pub fn delete_integration(
        &self,
        workspace: WorkspaceId,
        id: IntegrationId,
    ) -> Result<bool, DatabaseError> {
        self.delete_named(INTEGRATIONS, workspace, id.uuid())
    }

    pub fn append_network_log(
        &self,
        workspace: WorkspaceId,
        entry: &NetworkLogEntry,
    ) -> Result<(), DatabaseError> {
        let sql = "INSERT INTO network_log \
                   (workspace, id, at, principal, execution_id, sandbox_id, host, allowed, body) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        let row = (
            workspace.uuid(),
            Uuid::now_v7(),
            to_nanos(entry.at),
            entry.principal.uuid(),
            entry.execution_id.map(ExecutionId::uuid),
            entry.sandbox_id.uuid(),
            &entry.host,
            entry.allowed,
            to_json("network entry", entry)?,
        );
        self.execute_unversioned(sql, row).map(drop)
    }
}

impl Reader<'_> {
    pub fn network_rule(
        &self,
        workspace: WorkspaceId,
        id: NetworkRuleId,
    ) -> Result<Option<NetworkRule>, DatabaseError> {
        self.find_by_id(RULES, workspace, id.uuid())
    }

    pub fn network_rule_by_name(
        &self,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<Option<NetworkRule>, DatabaseError> {
        self.find_by_name(RULES, workspace, name)
    }

    pub fn count_network_rules(&self, workspace: WorkspaceId) -> Result<u64, DatabaseError> {
        self.count_named(RULES, workspace)
    }

    /// Lists network rules; `search` looks in their names.
    pub fn network_rules(
        &self,
        workspace: WorkspaceId,
        filter: &ObjectFilter,
        page: PageRequest,
    ) -> Result<RowPage<NetworkRule>, DatabaseError> {
        self.list_named(RULES, workspace, filter, page)
    }

    pub fn integration(
        &self,
        workspace: WorkspaceId,
        id: IntegrationId,
    ) -> Result<Option<Integration>, DatabaseError> {
        self.find_by_id(INTEGRATIONS, workspace, id.uuid())
    }

    pub fn integration_by_name(
        &self,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<Option<Integration>, DatabaseError> {
        self.find_by_name(INTEGRATIONS, workspace, name)
    }

    pub fn count_integrations(&self, workspace: WorkspaceId) -> Result<u64, DatabaseError> {
        self.count_named(INTEGRATIONS, workspace)
    }

    pub fn integration_names(&self, workspace: WorkspaceId) -> Result<Vec<String>, DatabaseError> {
        let sql = "SELECT name FROM integrations WHERE workspace = ?1 ORDER BY name";
        self.query_many(sql, [workspace.uuid()], |row| Ok(row.get(0)?))
    }

    /// The names of the integrations that contain a rule.
    pub fn integrations_with_rule(
        &self,
        workspace: WorkspaceId,
        rule: &str,
    ) -> Result<Vec<String>, DatabaseError> {
        let sql = "SELECT name FROM integrations WHERE workspace = ?1 AND EXISTS \
                   (SELECT 1 FROM json_each(body, '$.allowed_network_rules') WHERE value = ?2) \
                   ORDER BY name";
        self.query_many(sql, (workspace.uuid(), rule), |row| Ok(row.get(0)?))
    }

    /// The names of the integrations that list a secret.
    pub fn integrations_with_secret(
        &self,
        workspace: WorkspaceId,
        secret: &str,
    ) -> Result<Vec<String>, DatabaseError> {
        // `all` and `none` are strings; names are in an array.
        let sql = "SELECT name FROM integrations WHERE workspace = ?1 AND EXISTS \
                   (SELECT 1 FROM json_each(body, '$.allowed_secrets') AS allowed \
                    WHERE allowed.key IS NOT NULL AND value = ?2) ORDER BY name";
        self.query_many(sql, (workspace.uuid(), secret), |row| Ok(row.get(0)?))
    }

    /// Whether any integration of the workspace allows code to use a secret of this name.
    pub fn is_allowed_secret(
        &self,
        workspace: WorkspaceId,
        secret: &str,
    ) -> Result<bool, DatabaseError> {
        // `all` is a string; names are in an array.
        let sql = "SELECT EXISTS (SELECT 1 FROM integrations, \
                   json_each(body, '$.allowed_secrets') AS allowed WHERE workspace = ?1 AND \
                   CASE WHEN allowed.key IS NULL THEN value = 'all' ELSE value = ?2 END)";
        let key = (workspace.uuid(), secret);
        Ok(self.query_one(sql, key, |row| Ok(row.get(0)?))?.unwrap_or_default())
    }

    /// Lists integrations; `search` looks in their names.
    pub fn integrations(
        &self,
        workspace: WorkspaceId,
        filter: &ObjectFilter,
        page: PageRequest,
    ) -> Result<RowPage<Integration>, DatabaseError> {
        self.list_named(INTEGRATIONS, workspace, filter, page)
    }

    /// Entries of the egress log, newest first.
    pub fn network_log(
        &self,
        workspace: WorkspaceId,
        filter: &NetworkFilter,
        page: PageRequest,
    ) -> Result<RowPage<NetworkLogEntry>, DatabaseError> {
        self.query_page(
            page,
            "SELECT id, body FROM network_log WHERE workspace = ?3 AND id < ?1 \
             AND (?4 IS NULL OR principal = ?4) AND (?5 IS NULL OR execution_id = ?5) \
             AND (?6 IS NULL OR sandbox_id = ?6) AND (?7 IS NULL OR host = ?7) \
             AND (?8 IS NULL OR allowed = ?8) ORDER BY id DESC LIMIT ?2",
            &[
                &workspace.uuid(),
                &filter.principal.map(PrincipalId::uuid),
                &filter.execution_id.map(ExecutionId::uuid),
                &filter.sandbox_id.map(SandboxId::uuid),
                &filter.host,
                &filter.allowed,
            ],
            |row| from_json_column("network entry", row, "body"),
        )
    }
}
