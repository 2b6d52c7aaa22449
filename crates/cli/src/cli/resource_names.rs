//! Resolves names to ids: people use names, and the API takes ids.

use super::CliError;
use crate::client::{ApiClient, ClientError};
use serde_json::Value;
use std::collections::HashMap;
use uuid::Uuid;

/// Kinds of objects that have names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResourceKind {
    Principal,
    Tool,
    Agent,
    Key,
    Session,
    Volume,
    Secret,
    Function,
    NetworkRule,
    Integration,
    Skill,
}

impl ResourceKind {
    /// The name of its command, as in `belljar tool`.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Principal => "principal",
            Self::Tool => "tool",
            Self::Agent => "agent",
            Self::Key => "key",
            Self::Session => "session",
            Self::Volume => "volume",
            Self::Secret => "secret",
            Self::Function => "function",
            Self::NetworkRule => "network_rule",
            Self::Integration => "integration",
            Self::Skill => "skill",
        }
    }

    /// The command that manages it.
    fn command(self) -> &'static str {
        match self {
            Self::NetworkRule => "network rule",
            Self::Integration => "network integration",
            other => other.label(),
        }
    }

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Principal => "/v1/principals",
            Self::Tool => "/v1/tools",
            Self::Agent => "/v1/agents",
            Self::Key => "/v1/keys",
            Self::Session => "/v1/sessions",
            Self::Volume => "/v1/volumes",
            Self::Secret => "/v1/secrets",
            Self::Function => "/v1/functions",
            Self::NetworkRule => "/v1/network-rules",
            Self::Integration => "/v1/integrations",
            Self::Skill => "/v1/skills",
        }
    }

    /// A session is found by the key of its conversation; its name is only displayed.
    fn display_name(self, item: &Value) -> Option<(String, String)> {
        let (id, name) = if self == Self::Session { ("sandbox_id", "key") } else { ("id", "name") };
        Some((item[id].as_str()?.to_owned(), item[name].as_str()?.to_owned()))
    }

    /// Whether the resource has ended: it keeps its name, but only its id finds it.
    fn is_ended(self, item: &Value) -> bool {
        match self {
            Self::Key => !item["revoked_at"].is_null(),
            Self::Session => !matches!(item["status"].as_str(), Some("ready" | "busy" | "lost")),
            _ => false,
        }
    }
}

impl ApiClient {
    /// Returns the id of the object with this name, or the given id.
    pub(super) async fn resolve_id(
        &self,
        noun: ResourceKind,
        name_or_id: &str,
    ) -> Result<String, CliError> {
        if name_or_id.parse::<Uuid>().is_ok() {
            return Ok(name_or_id.to_owned());
        }
        // Filter by key, because a server has many sessions and a conversation only a few.
        let of_key = [("key".to_owned(), name_or_id.to_owned())];
        let query = if noun == ResourceKind::Session { &of_key[..] } else { &[] };
        let names = self.query_names(noun, query).await?;
        let mut ids = names.into_iter().filter(|(_, name)| name == name_or_id).map(|(id, _)| id);
        let (label, verb) = (noun.label().replace('_', " "), noun.command());
        match (ids.next(), ids.next()) {
            (Some(id), None) => Ok(id),
            (Some(_), Some(_)) => Err(CliError::rejected(format!(
                "more than one {label} has the name {name_or_id:?}; use its id (see `belljar {verb} ls`)"
            ))),
            (None, _) => Err(CliError::rejected(format!(
                "no {label} with the name {name_or_id:?} (see `belljar {verb} ls`)"
            ))),
        }
    }

    /// Returns the API path of the object with this name or id.
    pub(super) async fn resolve_path(
        &self,
        noun: ResourceKind,
        name_or_id: &str,
    ) -> Result<String, CliError> {
        Ok(format!("{}/{}", noun.path(), self.resolve_id(noun, name_or_id).await?))
    }

    /// Returns the names of all visible objects by id.
    pub(super) async fn list_names(
        &self,
        noun: ResourceKind,
    ) -> Result<HashMap<String, String>, ClientError> {
        self.query_names(noun, &[]).await
    }

    async fn query_names(
        &self,
        noun: ResourceKind,
        query: &[(String, String)],
    ) -> Result<HashMap<String, String>, ClientError> {
        let (items, _) = self.list(noun.path(), query, usize::MAX).await?;
        let current = items.iter().filter(|item| !noun.is_ended(item));
        Ok(current.filter_map(|item| noun.display_name(item)).collect())
    }
}

/// Replaces ids by names that the caller can see.
pub(super) fn replace_ids(item: &mut Value, fields: &[&str], names: &HashMap<String, String>) {
    for field in fields {
        let name = item[*field].as_str().and_then(|id| names.get(id)).cloned();
        if let Some(name) = name {
            item[*field] = name.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_cannot_be_seen_keeps_its_id() {
        let names = HashMap::from([("1".to_owned(), "ann".to_owned())]);
        let mut item = json!({"requester": "1", "run_as": "2"});
        replace_ids(&mut item, &["requester", "run_as", "decided_by"], &names);
        assert_eq!(item, json!({"requester": "ann", "run_as": "2"}));
    }
}
