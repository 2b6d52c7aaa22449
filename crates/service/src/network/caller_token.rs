//! The access token of the caller as the credential of one service: code has a placeholder, and the
//! proxy replaces it by the newest token of the principal that has requested the running code.
//!
//! All of these must agree: the operator, who names the service and its audience; an owner of the
//! workspace, who marks an integration; the author and the caller, who must both have USAGE on it; the
//! issuer, which has signed the token for the service as well. Code that runs with the rights of
//! another principal than its caller gets no token.

use super::credentials::client_variables;
use crate::error::RequestError;
use crate::identity::{CallerToken, CallerTokenService, MissingToken};
use crate::secrets::{CodeAuthor, SecretConsumer};
use crate::service::Service;
use egress::{Credential, HeaderName, Scheme};
use policy::{Destination, IntegrationRules};
use redact::{SecretText, SecretVersion};
use std::sync::Arc;
use types::{
    CallerTokenUse, ClientInjection, ClientKind, Error, ErrorCode, ExecutionId, Integration,
    IntegrationId, PrincipalId, SecretId, SecretInjection, WorkspaceId,
};
use url::Url;

/// What is needed to pass on the token of a caller.
#[derive(Debug)]
pub(crate) struct CallerTokenGrant {
    integration: IntegrationId,
    name: String,
    service: CallerTokenService,
    project: String,
}

impl CallerTokenGrant {
    fn placeholder(&self) -> String {
        format!("belljar-{}", self.integration.uuid().simple())
    }

    /// The variables of the client, with a placeholder for the token.
    pub(super) fn variables(&self) -> Vec<(String, String)> {
        let client = ClientInjection {
            client: ClientKind::Cognite,
            base_url: Some(self.service.base_url().to_owned()),
            project: Some(self.project.clone()),
        };
        client_variables(&client, self.placeholder())
    }

    fn destination(&self) -> Option<Destination> {
        let url = Url::parse(self.service.base_url()).ok()?;
        Destination::new(url.host_str()?, url.port_or_known_default()?).ok()
    }

    /// The rule that allows the host of the service.
    pub(crate) fn rules(&self) -> Option<IntegrationRules> {
        let to = self.destination()?;
        Some(IntegrationRules { integration: self.name.clone(), values: vec![(&to).into()] })
    }

    /// The credential, or one that makes each request fail with the reason.
    pub(super) fn credential(
        &self,
        token: &Result<Arc<CallerToken>, MissingToken>,
    ) -> Option<Credential> {
        let (value, unavailable) = match token {
            Ok(token) => (token.value.clone(), None),
            Err(missing) => (SecretText::new(self.placeholder()), Some(missing.to_string())),
        };
        let id = token.as_ref().map_or(SecretId::new(self.integration.uuid()), |it| it.id);
        Some(Credential {
            secret: SecretVersion { id, version: 1, name: self.name.clone(), value },
            placeholder: self.placeholder(),
            destination: self.destination()?,
            grants_access: false,
            scheme: Scheme::Https,
            header: ClientKind::Cognite.header().parse::<HeaderName>().ok()?,
            prefix: ClientKind::Cognite.prefix().to_owned(),
            unavailable,
        })
    }
}

impl Service {
    /// The grant to pass on the caller's token, if everyone agrees. A secret for the same client takes
    /// precedence.
    pub(crate) fn caller_token_grant<'s>(
        &self,
        consumer: SecretConsumer<'_>,
        mut secrets: impl Iterator<Item = &'s SecretInjection>,
    ) -> Option<CallerTokenGrant> {
        let service = self.config.caller_token_service.as_ref()?;
        let SecretConsumer { run_as, caller, author, integrations, .. } = consumer;
        let has_values = matches!(author, CodeAuthor::Other { has_values: true, .. });
        let has_secret = secrets.any(|inject| {
            matches!(inject, SecretInjection::Client(client) if client.client == ClientKind::Cognite)
        });
        if run_as.id != caller || has_values || has_secret {
            return None;
        }
        let marked = |integration: &Integration| {
            let CallerTokenUse { project, .. } = integration.caller_token.clone()?;
            Some(CallerTokenGrant {
                integration: integration.id,
                name: integration.name.clone(),
                service: service.clone(),
                project,
            })
        };
        integrations.iter().find_map(marked)
    }

    /// Refuses code of another principal in a session that passes on the access token of its owner.
    pub(crate) fn check_no_caller_token(
        &self,
        workspace: WorkspaceId,
        names: &[String],
    ) -> Result<(), RequestError> {
        if self.config.caller_token_service.is_none() {
            return Ok(());
        }
        for name in names {
            let found = self.db.read(|rows| rows.integration_by_name(workspace, name))?;
            if found.is_some_and(|integration| integration.caller_token.is_some()) {
                let message = "the session can use the access token of its owner";
                let hint = "have its owner run the code, or open another session";
                return Err(Error::new(ErrorCode::GrantMissing, message).hint(hint).into());
            }
        }
        Ok(())
    }

    /// The newest token of a principal, if the principal has requested the running code with a token.
    pub(super) fn caller_token(
        &self,
        caller: PrincipalId,
        running: Option<ExecutionId>,
    ) -> Result<Arc<CallerToken>, MissingToken> {
        let active = running.and_then(|id| self.active_executions().get(&id).map(Arc::clone));
        let requester = active.and_then(|active| active.requester());
        match requester {
            Some(requester) if requester.principal == caller && requester.key.is_none() => {
                self.caller_tokens.newest(caller, self.now())
            }
            _ => Err(MissingToken::NotPresented),
        }
    }
}
