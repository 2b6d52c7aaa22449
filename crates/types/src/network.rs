//! Network access of code: rules, integrations that consist of them, and logged attempts.

use crate::{ExecutionId, IntegrationId, NetworkRuleId, PrincipalId, SandboxId};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The direction of a rule. The only one is egress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RuleMode {
    Egress,
}

/// The notation of a rule's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RuleType {
    HostPort,
}

/// A named list of hosts and ports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NetworkRule {
    pub id: NetworkRuleId,
    pub name: String,
    pub owner: PrincipalId,
    pub mode: RuleMode,
    #[serde(rename = "type")]
    pub kind: RuleType,
    /// Each as `host`, `host:port` or `host:first-last`; the default port is 443.
    pub value_list: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub comment: Option<String>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// The secrets of the workspace that code may use through an integration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AllowedSecrets {
    All,
    #[default]
    None,
    #[serde(untagged)]
    Named(Vec<String>),
}

impl AllowedSecrets {
    pub fn allows(&self, secret: &str) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Named(names) => names.iter().any(|name| name == secret),
        }
    }
}

/// The service that gets the access token of the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CallerTokenUse {
    pub client: CallerTokenClient,
    /// The project of Cognite Data Fusion.
    pub project: String,
}

/// The client whose requests get the token. The only one is that of Cognite Data Fusion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallerTokenClient {
    Cognite,
}

/// Permission to reach the network, for the code of principals with USAGE on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Integration {
    pub id: IntegrationId,
    pub name: String,
    pub owner: PrincipalId,
    /// The names of network rules. The built-in `internet` has no rules and allows every public host on
    /// ports 80 and 443.
    pub allowed_network_rules: Vec<String>,
    pub allowed_secrets: AllowedSecrets,
    /// Set if requests of code to the service that the operator has named get the access token of the
    /// caller.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub caller_token: Option<CallerTokenUse>,
    pub enabled: bool,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub comment: Option<String>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// One attempt of code to reach a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NetworkAttempt {
    /// In milliseconds after the start of the execution.
    pub t: u64,
    pub host: String,
    pub port: u16,
    /// The source of the permission: an integration, or `secret:` and the name of a secret.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub integration: Option<String>,
    pub allowed: bool,
    /// Why it was denied, or why it failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
}

/// An attempt in the network log of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NetworkLogEntry {
    pub at: DateTime<Utc>,
    /// The principal whose code it was.
    pub principal: PrincipalId,
    pub sandbox_id: SandboxId,
    /// Absent if the session had no execution at that moment.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub execution_id: Option<ExecutionId>,
    pub host: String,
    pub port: u16,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub integration: Option<String>,
    pub allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_are_all_none_or_those_that_are_named() {
        for (text, secrets) in [
            (json!("all"), AllowedSecrets::All),
            (json!("none"), AllowedSecrets::None),
            (json!(["a", "b"]), AllowedSecrets::Named(vec!["a".into(), "b".into()])),
        ] {
            assert_eq!(serde_json::to_value(&secrets).unwrap(), text);
            assert_eq!(serde_json::from_value::<AllowedSecrets>(text).unwrap(), secrets);
        }
        assert!(serde_json::from_value::<AllowedSecrets>(json!("some")).is_err());
    }
}
