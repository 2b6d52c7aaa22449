//! Network rules, the integrations that name them, and the history of what code tried to reach.

use crate::column::{body, from_body, moment};
use crate::{Listed, ObjectFilter, Page, Reader, StoreError, Tx};
use types::{
    ExecutionId, Integration, IntegrationId, NetworkEntry, NetworkRule, NetworkRuleId, PrincipalId,
    SandboxId, WorkspaceId,
};
use uuid::Uuid;

/// Which lines of the history are wanted; what is absent does not matter.
#[derive(Debug, Clone, Default)]
pub struct NetworkFilter {
    pub principal: Option<PrincipalId>,
    pub execution_id: Option<ExecutionId>,
    pub sandbox_id: Option<SandboxId>,
    pub host: Option<String>,
    pub allowed: Option<bool>,
}

impl Tx<'_> {
    pub fn insert_network_rule(
        &self,
        workspace: WorkspaceId,
        rule: &NetworkRule,
    ) -> Result<(), StoreError> {
        let row = (
            workspace.uuid(),
            rule.id.uuid(),
            &rule.name,
            rule.owner.uuid(),
            body("network rule", rule)?,
        );
        let sql = "INSERT INTO network_rules (workspace, id, name, owner, body) \
                   VALUES (?1, ?2, ?3, ?4, ?5)";
        self.change(sql, row)
            .map_err(|error| error.or_name_taken("network rule", &rule.name))
            .map(drop)
    }

    pub fn update_network_rule(
        &self,
        workspace: WorkspaceId,
        rule: &NetworkRule,
    ) -> Result<(), StoreError> {
        let row =
            (workspace.uuid(), rule.id.uuid(), rule.owner.uuid(), body("network rule", rule)?);
        let sql = "UPDATE network_rules SET owner = ?3, body = ?4 WHERE workspace = ?1 AND id = ?2";
        self.change(sql, row).map(drop)
    }

    pub fn delete_network_rule(
        &self,
        workspace: WorkspaceId,
        id: NetworkRuleId,
    ) -> Result<(), StoreError> {
        let key = (workspace.uuid(), id.uuid());
        self.change("DELETE FROM network_rules WHERE workspace = ?1 AND id = ?2", key).map(drop)
    }

    pub fn insert_integration(
        &self,
        workspace: WorkspaceId,
        integration: &Integration,
    ) -> Result<(), StoreError> {
        let row = (
            workspace.uuid(),
            integration.id.uuid(),
            &integration.name,
            integration.owner.uuid(),
            body("integration", integration)?,
        );
        let sql = "INSERT INTO integrations (workspace, id, name, owner, body) \
                   VALUES (?1, ?2, ?3, ?4, ?5)";
        self.change(sql, row)
            .map_err(|error| error.or_name_taken("integration", &integration.name))
            .map(drop)
    }

    pub fn update_integration(
        &self,
        workspace: WorkspaceId,
        integration: &Integration,
    ) -> Result<(), StoreError> {
        let row = (
            workspace.uuid(),
            integration.id.uuid(),
            integration.owner.uuid(),
            body("integration", integration)?,
        );
        let sql = "UPDATE integrations SET owner = ?3, body = ?4 WHERE workspace = ?1 AND id = ?2";
        self.change(sql, row).map(drop)
    }

    pub fn delete_integration(
        &self,
        workspace: WorkspaceId,
        id: IntegrationId,
    ) -> Result<(), StoreError> {
        let key = (workspace.uuid(), id.uuid());
        self.change("DELETE FROM integrations WHERE workspace = ?1 AND id = ?2", key).map(drop)
    }

    pub fn log_network(
        &self,
        workspace: WorkspaceId,
        entry: &NetworkEntry,
    ) -> Result<(), StoreError> {
        let sql = "INSERT INTO network_log \
                   (workspace, id, at, principal, execution_id, sandbox_id, host, allowed, body) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        let row = (
            workspace.uuid(),
            Uuid::now_v7(),
            moment(entry.at),
            entry.principal.uuid(),
            entry.execution_id.map(ExecutionId::uuid),
            entry.sandbox_id.uuid(),
            &entry.host,
            entry.allowed,
            body("network entry", entry)?,
        );
        self.note(sql, row).map(drop)
    }
}

impl Reader<'_> {
    pub fn network_rule(
        &self,
        workspace: WorkspaceId,
        id: NetworkRuleId,
    ) -> Result<Option<NetworkRule>, StoreError> {
        let sql = "SELECT body FROM network_rules WHERE workspace = ?1 AND id = ?2";
        let key = (workspace.uuid(), id.uuid());
        self.one(sql, key, |row| from_body("network rule", row, "body"))
    }

    pub fn network_rule_by_name(
        &self,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<Option<NetworkRule>, StoreError> {
        let sql = "SELECT body FROM network_rules WHERE workspace = ?1 AND name = ?2";
        self.one(sql, (workspace.uuid(), name), |row| from_body("network rule", row, "body"))
    }

    pub fn count_network_rules(&self, workspace: WorkspaceId) -> Result<u64, StoreError> {
        let sql = "SELECT count(*) FROM network_rules WHERE workspace = ?1";
        Ok(self.one(sql, [workspace.uuid()], |row| Ok(row.get(0)?))?.unwrap_or_default())
    }

    /// A search is in their names.
    pub fn network_rules(
        &self,
        workspace: WorkspaceId,
        filter: &ObjectFilter,
        page: Page,
    ) -> Result<Listed<NetworkRule>, StoreError> {
        self.list(
            page,
            "SELECT id, body FROM network_rules WHERE workspace = ?3 AND id < ?1 \
             AND (?4 IS NULL OR instr(lower(name), lower(?4)) > 0) \
             AND (?5 IS NULL OR EXISTS (SELECT 1 FROM grants \
                  WHERE grants.workspace = network_rules.workspace \
                  AND object_kind = 'network_rule' AND object_id = network_rules.id \
                  AND privilege <> 'INSTALL' \
                  AND principal IN (SELECT unhex(value) FROM json_each(?5)))) \
             ORDER BY id DESC LIMIT ?2",
            &[&workspace.uuid(), &filter.search, &filter.viewers()],
            |row| from_body("network rule", row, "body"),
        )
    }

    pub fn integration(
        &self,
        workspace: WorkspaceId,
        id: IntegrationId,
    ) -> Result<Option<Integration>, StoreError> {
        let sql = "SELECT body FROM integrations WHERE workspace = ?1 AND id = ?2";
        let key = (workspace.uuid(), id.uuid());
        self.one(sql, key, |row| from_body("integration", row, "body"))
    }

    pub fn integration_by_name(
        &self,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<Option<Integration>, StoreError> {
        let sql = "SELECT body FROM integrations WHERE workspace = ?1 AND name = ?2";
        self.one(sql, (workspace.uuid(), name), |row| from_body("integration", row, "body"))
    }

    pub fn count_integrations(&self, workspace: WorkspaceId) -> Result<u64, StoreError> {
        let sql = "SELECT count(*) FROM integrations WHERE workspace = ?1";
        Ok(self.one(sql, [workspace.uuid()], |row| Ok(row.get(0)?))?.unwrap_or_default())
    }

    pub fn integration_names(&self, workspace: WorkspaceId) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT name FROM integrations WHERE workspace = ?1 ORDER BY name";
        self.many(sql, [workspace.uuid()], |row| Ok(row.get(0)?))
    }

    /// The names of those that name a rule.
    pub fn integrations_with_rule(
        &self,
        workspace: WorkspaceId,
        rule: &str,
    ) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT name FROM integrations WHERE workspace = ?1 AND EXISTS \
                   (SELECT 1 FROM json_each(body, '$.allowed_network_rules') WHERE value = ?2) \
                   ORDER BY name";
        self.many(sql, (workspace.uuid(), rule), |row| Ok(row.get(0)?))
    }

    /// A search is in their names.
    pub fn integrations(
        &self,
        workspace: WorkspaceId,
        filter: &ObjectFilter,
        page: Page,
    ) -> Result<Listed<Integration>, StoreError> {
        self.list(
            page,
            "SELECT id, body FROM integrations WHERE workspace = ?3 AND id < ?1 \
             AND (?4 IS NULL OR instr(lower(name), lower(?4)) > 0) \
             AND (?5 IS NULL OR EXISTS (SELECT 1 FROM grants \
                  WHERE grants.workspace = integrations.workspace \
                  AND object_kind = 'integration' AND object_id = integrations.id \
                  AND privilege <> 'INSTALL' \
                  AND principal IN (SELECT unhex(value) FROM json_each(?5)))) \
             ORDER BY id DESC LIMIT ?2",
            &[&workspace.uuid(), &filter.search, &filter.viewers()],
            |row| from_body("integration", row, "body"),
        )
    }

    /// Newest first.
    pub fn network_log(
        &self,
        workspace: WorkspaceId,
        filter: &NetworkFilter,
        page: Page,
    ) -> Result<Listed<NetworkEntry>, StoreError> {
        self.list(
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
            |row| from_body("network entry", row, "body"),
        )
    }
}
