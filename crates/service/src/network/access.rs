//! The hosts and secrets that code could use, as an approver sees them, with a digest that an
//! approval is bound to.
//!
//! Names alone are not enough: a rule, a secret or a specification can be replaced under its name
//! after the approval was requested. So the approval is bound to a digest of the contents behind
//! the names.

use super::sandbox_grants::{IntegrationSource, ResolvedIntegrations};
use crate::error::RequestError;
use crate::secrets::SecretConsumer;
use crate::service::Service;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use types::{Agent, Integration, Principal, Session, WorkspaceId};

/// The access of one sandbox at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SandboxAccess {
    /// The names of the integrations that it has or requests.
    pub(crate) integrations: Vec<String>,
    /// The names of the secrets that it could use.
    pub(crate) secrets: Vec<String>,
    /// SHA-256 of the contents behind these names.
    pub(crate) digest: [u8; 32],
}

impl Service {
    /// The access of a fresh sandbox.
    pub(crate) async fn fresh_sandbox_access(
        &self,
        workspace: WorkspaceId,
        caller: &Principal,
        source: &IntegrationSource,
    ) -> Result<SandboxAccess, RequestError> {
        self.sandbox_access(workspace, caller, source, None).await
    }

    /// The access of a session: what its owner or its agent has granted, whichever principal sends
    /// code to it.
    pub(crate) async fn session_access(
        &self,
        workspace: WorkspaceId,
        session: &Session,
    ) -> Result<SandboxAccess, RequestError> {
        let owner = self.find_principal(workspace, session.owner)?;
        let agent = match session.agent {
            Some(id) => self.db.read(|rows| rows.agent(workspace, id))?,
            None => None,
        };
        self.sandbox_access(
            workspace,
            &owner,
            &IntegrationSource::from_session(session),
            agent.as_ref(),
        )
        .await
    }

    #[boxed::future]
    async fn sandbox_access(
        &self,
        workspace: WorkspaceId,
        caller: &Principal,
        source: &IntegrationSource,
        agent: Option<&Agent>,
    ) -> Result<SandboxAccess, RequestError> {
        let ResolvedIntegrations { integrations: names, run_as, author } =
            self.resolve_integrations(workspace, caller, source).await?;
        let integrations = &self.enabled_integrations(workspace, &run_as, &names)?;
        let caller = caller.id;
        let consumer = SecretConsumer { workspace, run_as: &run_as, caller, author, integrations };
        // A new value under the same name and for the same use does not change what the approver
        // saw.
        let secrets = self.usable_secrets(consumer)?;
        let secret_ids =
            secrets.iter().map(|it| json!([it.id, it.name, it.scope, it.inject, it.exposed]));
        let contents = integrations.iter().map(|it| self.integration_content(workspace, it));
        let contents = contents.collect::<Result<Vec<Value>, RequestError>>()?;
        let agent = agent.map(|it| json!([it.id, it.run_as, it.owner, it.specification]));
        let digested = json!([run_as.id, contents, secret_ids.collect::<Vec<_>>(), agent]);
        Ok(SandboxAccess {
            integrations: names,
            secrets: secrets.iter().map(|secret| secret.name.clone()).collect(),
            digest: Sha256::digest(digested.to_string()).into(),
        })
    }

    fn integration_content(
        &self,
        workspace: WorkspaceId,
        integration: &Integration,
    ) -> Result<Value, RequestError> {
        let rules = self.db.read(|rows| {
            let rules = integration.allowed_network_rules.iter();
            let rules = rules.map(|name| rows.network_rule_by_name(workspace, name));
            rules.collect::<Result<Vec<_>, _>>()
        })?;
        let hosts = rules.into_iter().flatten().map(|rule| json!([rule.id, rule.value_list]));
        let Integration { id, name, allowed_secrets, caller_token, .. } = integration;
        Ok(json!([id, name, allowed_secrets, caller_token, hosts.collect::<Vec<_>>()]))
    }
}
