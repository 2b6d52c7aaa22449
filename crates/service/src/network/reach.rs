//! What code could reach and use, as it is shown to the person who is asked about it, and sealed.
//!
//! Names alone would not do: a rule, a secret or a specification can be replaced under its name
//! after the question was asked. So the answer is bound to a hash over what the names stand for.

use super::leave::{Grounds, Resolved};
use crate::refused::Refused;
use crate::secrets::Borrower;
use crate::service::Service;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use types::{Agent, Integration, Principal, Session, WorkspaceId};

/// Of one sandbox, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reach {
    /// The names of the integrations that it has or asks for.
    pub(crate) integrations: Vec<String>,
    /// The names of the secrets that it could use.
    pub(crate) secrets: Vec<String>,
    /// SHA-256 over what these names stand for.
    pub(crate) digest: [u8; 32],
}

impl Service {
    /// Of a sandbox of its own.
    pub(crate) async fn reach_of_fresh(
        &self,
        workspace: WorkspaceId,
        caller: &Principal,
        grounds: &Grounds,
    ) -> Result<Reach, Refused> {
        self.reach(workspace, caller, grounds, None).await
    }

    /// Of a session: what its owner or its agent has given it, whoever sends code into it.
    pub(crate) async fn reach_of_session(
        &self,
        workspace: WorkspaceId,
        session: &Session,
    ) -> Result<Reach, Refused> {
        let owner = self.known(workspace, session.owner)?;
        let agent = match session.agent {
            Some(id) => self.store.read(|rows| rows.agent(workspace, id))?,
            None => None,
        };
        self.reach(workspace, &owner, &Grounds::of(session), agent.as_ref()).await
    }

    async fn reach(
        &self,
        workspace: WorkspaceId,
        caller: &Principal,
        grounds: &Grounds,
        agent: Option<&Agent>,
    ) -> Result<Reach, Refused> {
        let Resolved { integrations: names, run_as, author } =
            self.named(workspace, caller, grounds).await?;
        let integrations = &self.held_integrations(workspace, &run_as, &names)?;
        let caller = caller.id;
        let borrower = Borrower { workspace, run_as: &run_as, caller, author, integrations };
        // A new value under the same name, for the same use, is still what the person was shown.
        let secrets = self.lendable(borrower)?;
        let used =
            secrets.iter().map(|it| json!([it.id, it.name, it.scope, it.inject, it.exposed]));
        let opened = integrations.iter().map(|it| self.opened_by(workspace, it));
        let opened = opened.collect::<Result<Vec<Value>, Refused>>()?;
        let agent = agent.map(|it| json!([it.id, it.run_as, it.owner, it.specification]));
        let stands_for = json!([run_as.id, opened, used.collect::<Vec<_>>(), agent]);
        Ok(Reach {
            integrations: names,
            secrets: secrets.iter().map(|secret| secret.name.clone()).collect(),
            digest: Sha256::digest(stands_for.to_string()).into(),
        })
    }

    fn opened_by(
        &self,
        workspace: WorkspaceId,
        integration: &Integration,
    ) -> Result<Value, Refused> {
        let rules = self.store.read(|rows| {
            let rules = integration.allowed_network_rules.iter();
            let rules = rules.map(|name| rows.network_rule_by_name(workspace, name));
            rules.collect::<Result<Vec<_>, _>>()
        })?;
        let hosts = rules.into_iter().flatten().map(|rule| json!([rule.id, rule.value_list]));
        let Integration { id, name, allowed_secrets, .. } = integration;
        Ok(json!([id, name, allowed_secrets, hosts.collect::<Vec<_>>()]))
    }
}
