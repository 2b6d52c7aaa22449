//! Network rules, the integrations that name them, and the history of what code tried to reach.

use crate::column::{body, from_body, moment};
use crate::named::{Kind, Tag};
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

const RULES: Kind = Kind { table: "network_rules", granted: "network_rule", word: "network rule" };
const INTEGRATIONS: Kind =
    Kind { table: "integrations", granted: "integration", word: "integration" };

fn tag_of_rule(rule: &NetworkRule) -> Tag<'_> {
    Tag { id: rule.id.uuid(), name: &rule.name, owner: rule.owner }
}

fn tag_of(integration: &Integration) -> Tag<'_> {
    Tag { id: integration.id.uuid(), name: &integration.name, owner: integration.owner }
}

impl Tx<'_> {
    pub fn insert_network_rule(
        &self,
        workspace: WorkspaceId,
        rule: &NetworkRule,
    ) -> Result<(), StoreError> {
        self.insert_named(RULES, workspace, tag_of_rule(rule), rule)
    }

    /// False if there is none. Its name stays.
    pub fn update_network_rule(
        &self,
        workspace: WorkspaceId,
        rule: &NetworkRule,
    ) -> Result<bool, StoreError> {
        self.update_named(RULES, workspace, tag_of_rule(rule), rule)
    }

    pub fn delete_network_rule(
        &self,
        workspace: WorkspaceId,
        id: NetworkRuleId,
    ) -> Result<bool, StoreError> {
        self.delete_named(RULES, workspace, id.uuid())
    }

    pub fn insert_integration(
        &self,
        workspace: WorkspaceId,
        integration: &Integration,
    ) -> Result<(), StoreError> {
        self.insert_named(INTEGRATIONS, workspace, tag_of(integration), integration)
    }

    /// False if there is none. Its name stays.
    pub fn update_integration(
        &self,
        workspace: WorkspaceId,
        integration: &Integration,
    ) -> Result<bool, StoreError> {
        self.update_named(INTEGRATIONS, workspace, tag_of(integration), integration)
    }

    pub fn delete_integration(
        &self,
        workspace: WorkspaceId,
        id: IntegrationId,
    ) -> Result<bool, StoreError> {
        self.delete_named(INTEGRATIONS, workspace, id.uuid())
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
        self.with_id(RULES, workspace, id.uuid())
    }

    pub fn network_rule_by_name(
        &self,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<Option<NetworkRule>, StoreError> {
        self.with_name(RULES, workspace, name)
    }

    pub fn count_network_rules(&self, workspace: WorkspaceId) -> Result<u64, StoreError> {
        self.count_of(RULES, workspace)
    }

    /// A search is in their names.
    pub fn network_rules(
        &self,
        workspace: WorkspaceId,
        filter: &ObjectFilter,
        page: Page,
    ) -> Result<Listed<NetworkRule>, StoreError> {
        self.list_of(RULES, workspace, filter, page)
    }

    pub fn integration(
        &self,
        workspace: WorkspaceId,
        id: IntegrationId,
    ) -> Result<Option<Integration>, StoreError> {
        self.with_id(INTEGRATIONS, workspace, id.uuid())
    }

    pub fn integration_by_name(
        &self,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<Option<Integration>, StoreError> {
        self.with_name(INTEGRATIONS, workspace, name)
    }

    pub fn count_integrations(&self, workspace: WorkspaceId) -> Result<u64, StoreError> {
        self.count_of(INTEGRATIONS, workspace)
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

    /// The names of those that name a secret.
    pub fn integrations_with_secret(
        &self,
        workspace: WorkspaceId,
        secret: &str,
    ) -> Result<Vec<String>, StoreError> {
        // `all` and `none` are texts, and names are in a list.
        let sql = "SELECT name FROM integrations WHERE workspace = ?1 AND EXISTS \
                   (SELECT 1 FROM json_each(body, '$.allowed_secrets') AS allowed \
                    WHERE allowed.key IS NOT NULL AND value = ?2) ORDER BY name";
        self.many(sql, (workspace.uuid(), secret), |row| Ok(row.get(0)?))
    }

    /// Whether code that leaves by any of them may use a secret of this name.
    pub fn is_allowed_secret(
        &self,
        workspace: WorkspaceId,
        secret: &str,
    ) -> Result<bool, StoreError> {
        // `all` is a text, and names are in a list.
        let sql = "SELECT EXISTS (SELECT 1 FROM integrations, \
                   json_each(body, '$.allowed_secrets') AS allowed WHERE workspace = ?1 AND \
                   CASE WHEN allowed.key IS NULL THEN value = 'all' ELSE value = ?2 END)";
        let key = (workspace.uuid(), secret);
        Ok(self.one(sql, key, |row| Ok(row.get(0)?))?.unwrap_or_default())
    }

    /// A search is in their names.
    pub fn integrations(
        &self,
        workspace: WorkspaceId,
        filter: &ObjectFilter,
        page: Page,
    ) -> Result<Listed<Integration>, StoreError> {
        self.list_of(INTEGRATIONS, workspace, filter, page)
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
