//! Things by their names: people say names, and the API takes ids.

use super::Failure;
use crate::client::{Client, ClientError};
use serde_json::Value;
use std::collections::HashMap;
use uuid::Uuid;

/// What has a name that is its own in a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Noun {
    Principal,
    Tool,
    Agent,
}

impl Noun {
    /// As in its verb, `belljar tool`.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Principal => "principal",
            Self::Tool => "tool",
            Self::Agent => "agent",
        }
    }

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Principal => "/v1/principals",
            Self::Tool => "/v1/tools",
            Self::Agent => "/v1/agents",
        }
    }
}

impl Client {
    /// The id of what is called so, or the id that was given.
    pub(super) async fn id(&self, noun: Noun, given: &str) -> Result<String, Failure> {
        if given.parse::<Uuid>().is_ok() {
            return Ok(given.to_owned());
        }
        let names = self.names(noun).await?;
        let found = names.into_iter().find(|(_, name)| name == given);
        found.map(|(id, _)| id).ok_or_else(|| {
            let word = noun.word();
            let message = format!("there is no {word} called {given:?}");
            Failure::refused(format!("{message} (`belljar {word} ls` shows those that you see)"))
        })
    }

    /// Where the API has what is called so.
    pub(super) async fn path(&self, noun: Noun, given: &str) -> Result<String, Failure> {
        Ok(format!("{}/{}", noun.path(), self.id(noun, given).await?))
    }

    /// The names of all that can be seen, by their ids.
    pub(super) async fn names(&self, noun: Noun) -> Result<HashMap<String, String>, ClientError> {
        let (items, _) = self.list(noun.path(), &[], usize::MAX).await?;
        let text = |item: &Value, field: &str| item[field].as_str().map(str::to_owned);
        Ok(items.iter().filter_map(|item| Some((text(item, "id")?, text(item, "name")?))).collect())
    }
}
