//! CREATE and DROP.

use super::names::{error_at, missing, named, qualifier_warning};
use super::{Done, NamedObjectRef, StatementAction};
use crate::catalog::agents::{AgentRequest, AgentView};
use crate::catalog::specification::SpecificationText;
use crate::error::RequestError;
use crate::identity::caller::Caller;
use crate::network::{IntegrationChange, IntegrationRequest, NetworkRuleRequest};
use crate::secrets::{SecretChange, SecretInjectionRequest, SecretRequest, SecretView};
use crate::service::Service;
use statements::{
    CreateMode, NamedKind, NewAgent, NewIntegration, NewNetworkRule, NewSecret, ObjectName,
    SecretNames,
};
use types::{
    AgentId, AllowedSecrets, Error, ErrorCode, IntegrationId, NetworkRuleId, RuleMode, RuleType,
    SecretId, SecretScope, Warning,
};
use vault::Plaintext;

/// Limit of the names in one list, each of which is looked up: as many as an integration can have.
const LISTED_NAMES_MAX: usize = 100;

/// What a CREATE has to do.
enum CreateTarget {
    New,
    Replace(NamedObjectRef),
    Keep(NamedObjectRef),
}

impl Service {
    fn sql_create_target(
        &self,
        caller: &Caller,
        kind: NamedKind,
        name: &ObjectName,
        mode: CreateMode,
    ) -> Result<CreateTarget, RequestError> {
        match (self.sql_find(caller, kind, name)?, mode) {
            (None, _) => Ok(CreateTarget::New),
            (Some(found), CreateMode::OrReplace) => Ok(CreateTarget::Replace(found)),
            (Some(found), CreateMode::IfNotExists) => Ok(CreateTarget::Keep(found)),
            (Some(found), CreateMode::New) => {
                let noun = kind.noun();
                let message = format!("name {:?} is already used by another {noun}", found.name);
                let hint = "use CREATE OR REPLACE, or IF NOT EXISTS";
                Err(Error::new(ErrorCode::NameTaken, message).hint(hint).into())
            }
        }
    }

    pub(super) async fn sql_network_rule(
        &self,
        caller: &Caller,
        rule: NewNetworkRule,
    ) -> Result<Done, RequestError> {
        let NewNetworkRule { mode, name, value_list, comment } = rule;
        let kind = NamedKind::NetworkRule;
        let warnings = qualifier_warning(&name);
        let request = |name| NetworkRuleRequest {
            name,
            mode: Some(RuleMode::Egress),
            kind: Some(RuleType::HostPort),
            value_list,
            comment,
        };
        let (action, rule) = match self.sql_create_target(caller, kind, &name, mode)? {
            CreateTarget::Keep(found) => return Ok(unchanged(found, warnings)),
            CreateTarget::New => {
                let rule = self.create_network_rule(caller, request(name.text)).await?;
                (StatementAction::Created, rule)
            }
            CreateTarget::Replace(NamedObjectRef { id, name, .. }) => {
                let id = NetworkRuleId::new(id);
                let rule = self.replace_network_rule(caller, id, request(name)).await?;
                (StatementAction::Replaced, rule)
            }
        };
        Ok(done(action, named(kind, rule.id.uuid(), rule.name), warnings))
    }

    pub(super) async fn sql_integration(
        &self,
        caller: &Caller,
        integration: NewIntegration,
    ) -> Result<Done, RequestError> {
        let NewIntegration { mode, name, comment, enabled, .. } = &integration;
        let (kind, warnings) = (NamedKind::Integration, qualifier_warning(name));
        let target = self.sql_create_target(caller, kind, name, *mode)?;
        if let CreateTarget::Keep(found) = target {
            return Ok(unchanged(found, warnings));
        }
        let allowed_network_rules =
            self.sql_names(caller, NamedKind::NetworkRule, &integration.allowed_network_rules)?;
        let allowed_secrets = match &integration.allowed_secrets {
            SecretNames::All => AllowedSecrets::All,
            SecretNames::None => AllowedSecrets::None,
            SecretNames::Named(names) => {
                AllowedSecrets::Named(self.sql_names(caller, NamedKind::Secret, names)?)
            }
        };
        let (action, stored) = match target {
            CreateTarget::Replace(found) => {
                let change = IntegrationChange {
                    allowed_network_rules: Some(allowed_network_rules),
                    allowed_secrets: Some(allowed_secrets),
                    caller_token: None,
                    enabled: Some(*enabled),
                    comment: Some(comment.clone().unwrap_or_default()),
                };
                let id = IntegrationId::new(found.id);
                (StatementAction::Replaced, self.change_integration(caller, id, change).await?)
            }
            CreateTarget::New | CreateTarget::Keep(_) => {
                let request = IntegrationRequest {
                    name: name.text.clone(),
                    allowed_network_rules,
                    allowed_secrets,
                    caller_token: None,
                    enabled: Some(*enabled),
                    comment: comment.clone(),
                };
                (StatementAction::Created, self.create_integration(caller, request).await?)
            }
        };
        Ok(done(action, named(kind, stored.id.uuid(), stored.name), warnings))
    }

    /// The stored names of objects that a statement names.
    fn sql_names(
        &self,
        caller: &Caller,
        kind: NamedKind,
        names: &[ObjectName],
    ) -> Result<Vec<String>, RequestError> {
        if let Some(name) = names.get(LISTED_NAMES_MAX) {
            let message = format!("a list can have at most {LISTED_NAMES_MAX} names");
            return Err(error_at(name, Error::new(ErrorCode::ArgsInvalid, message)));
        }
        names.iter().map(|name| Ok(self.sql_require(caller, kind, name)?.name)).collect()
    }

    pub(super) async fn sql_secret(
        &self,
        caller: &Caller,
        secret: NewSecret,
    ) -> Result<Done, RequestError> {
        let NewSecret { mode, name, value, comment } = secret;
        let (kind, mut warnings) = (NamedKind::Secret, Vec::from_iter(qualifier_warning(&name)));
        let value = Plaintext::new(value.into_value());
        let (action, view) = match self.sql_create_target(caller, kind, &name, mode)? {
            CreateTarget::Keep(found) => return Ok(unchanged(found, warnings)),
            CreateTarget::New => {
                let request = SecretRequest {
                    name: name.text,
                    value,
                    inject: SecretInjectionRequest::default(),
                    scope: SecretScope::Workspace,
                    comment,
                };
                (StatementAction::Created, self.create_secret(caller, request).await?)
            }
            CreateTarget::Replace(found) => {
                let change = SecretChange {
                    inject: SecretInjectionRequest::default(),
                    value: Some(value),
                    comment: Some(comment.unwrap_or_default()),
                };
                let view = self.change_secret(caller, SecretId::new(found.id), change).await?;
                (StatementAction::Replaced, view)
            }
        };
        let SecretView { secret, warnings: of_secret } = view;
        warnings.extend(of_secret);
        Ok(done(action, named(kind, secret.id.uuid(), secret.name), warnings))
    }

    pub(super) async fn sql_agent(
        &self,
        caller: &Caller,
        agent: NewAgent,
    ) -> Result<Done, RequestError> {
        let NewAgent { mode, name, specification, ignored } = agent;
        let (kind, mut warnings) = (NamedKind::Agent, Vec::from_iter(qualifier_warning(&name)));
        warnings.extend(ignored.into_iter().map(|option| Warning {
            code: "statement.option_ignored".to_owned(),
            message: format!("{option} is ignored: agents do not have it"),
        }));
        let specification = SpecificationText(specification);
        let request = |name| AgentRequest { name, specification, run_as: None };
        let (action, view) = match self.sql_create_target(caller, kind, &name, mode)? {
            CreateTarget::Keep(found) => return Ok(unchanged(found, warnings)),
            CreateTarget::New => {
                let request = request(Some(name.text));
                (StatementAction::Created, self.create_agent(caller, request).await?)
            }
            CreateTarget::Replace(found) => {
                let id = AgentId::new(found.id);
                let view = self.replace_agent(caller, id, request(None)).await?;
                (StatementAction::Replaced, view)
            }
        };
        let AgentView { agent, warnings: of_specification, code_execution, .. } = view;
        let of_specification = of_specification.into_iter().chain(code_execution.missing);
        warnings.extend(
            of_specification
                .map(|message| Warning { code: "agent.specification".to_owned(), message }),
        );
        Ok(done(action, named(kind, agent.id.uuid(), agent.name), warnings))
    }

    pub(super) async fn sql_drop(
        &self,
        caller: &Caller,
        kind: NamedKind,
        name: ObjectName,
        if_exists: bool,
    ) -> Result<Done, RequestError> {
        let warnings = qualifier_warning(&name);
        let Some(found) = self.sql_find(caller, kind, &name)? else {
            if !if_exists {
                return Err(missing(kind, &name));
            }
            let (action, warnings) = (StatementAction::Unchanged, Vec::from_iter(warnings));
            return Ok(Done { action, object: None, rows: None, warnings });
        };
        let id = found.id;
        match kind {
            NamedKind::NetworkRule => {
                self.delete_network_rule(caller, NetworkRuleId::new(id)).await?;
            }
            NamedKind::Integration => {
                self.delete_integration(caller, IntegrationId::new(id)).await?;
            }
            NamedKind::Secret => self.delete_secret(caller, SecretId::new(id)).await?,
            NamedKind::Agent => self.delete_agent(caller, AgentId::new(id)).await?,
        }
        Ok(done(StatementAction::Dropped, found, warnings))
    }
}

fn done(
    action: StatementAction,
    object: NamedObjectRef,
    warnings: impl IntoIterator<Item = Warning>,
) -> Done {
    Done { warnings: warnings.into_iter().collect(), ..Done::new(action, object) }
}

fn unchanged(object: NamedObjectRef, warnings: impl IntoIterator<Item = Warning>) -> Done {
    done(StatementAction::Unchanged, object, warnings)
}
