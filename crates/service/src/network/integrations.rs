//! Integrations: permission for code to reach hosts, for principals that may use the integration.
//!
//! Each workspace has one built-in integration, `internet`: it has no rules, allows every public
//! host, and can be disabled and granted like any other.

use super::OBJECTS_MAX;
use crate::error::{RequestError, in_use, invalid_field, missing_privilege, not_found};
use crate::identity::caller::Caller;
use crate::identity::ownership::ObjectQuery;
use crate::names;
use crate::page::{Page, page_request};
use crate::secrets::check_project;
use crate::service::Service;
use chrono::{DateTime, Utc};
use db::{DatabaseError, ObjectFilter, Reader, Tx};
use policy::{HostPort, IntegrationRules};
use serde::Deserialize;
use types::{
    AllowedSecrets, CallerTokenUse, Error, ErrorCode, Integration, IntegrationId, ObjectRef,
    Principal, PrincipalId, Privilege, WorkspaceId,
};
use utoipa::ToSchema;
use uuid::Uuid;

/// The integration that `allow_network: true` requests.
pub(crate) const INTERNET: &str = "internet";
/// Maximum number of rules of an integration. Each rule has up to a thousand values.
const RULES_MAX: usize = 100;
const SECRETS_MAX: usize = 100;

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IntegrationRequest {
    pub name: String,
    /// The names of network rules; code may reach the hosts that any of them lists.
    pub allowed_network_rules: Vec<String>,
    /// `all`, `none`, or the names of secrets that code may use through this integration.
    #[serde(default)]
    pub allowed_secrets: AllowedSecrets,
    /// Passes the access token of the caller to the service that the operator has named. Only an owner
    /// of the workspace can set it.
    pub caller_token: Option<CallerTokenUse>,
    /// Default true.
    pub enabled: Option<bool>,
    pub comment: Option<String>,
}

/// Absent fields stay unchanged.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IntegrationChange {
    pub allowed_network_rules: Option<Vec<String>>,
    pub allowed_secrets: Option<AllowedSecrets>,
    pub caller_token: Option<CallerTokenUse>,
    pub enabled: Option<bool>,
    /// An empty string removes it.
    pub comment: Option<String>,
}

/// The built-in integration of a workspace.
pub(crate) fn internet_integration(owner: PrincipalId, now: DateTime<Utc>) -> Integration {
    Integration {
        id: IntegrationId::new(Uuid::now_v7()),
        name: INTERNET.to_owned(),
        owner,
        allowed_network_rules: Vec::new(),
        allowed_secrets: AllowedSecrets::None,
        caller_token: None,
        enabled: true,
        comment: Some("every public host, on ports 80 and 443".to_owned()),
        created_at: now,
        updated_at: now,
    }
}

impl Service {
    pub async fn create_integration(
        &self,
        caller: &Caller,
        request: IntegrationRequest,
    ) -> Result<Integration, RequestError> {
        self.require_create(caller)?;
        names::check_name("/name", &request.name)?;
        let comment = names::check_comment(request.comment)?;
        self.check_rules(caller, &request.allowed_network_rules)?;
        self.check_allowed_secrets(caller, &request.allowed_secrets)?;
        self.check_caller_token(caller, request.caller_token.as_ref())?;
        let now = self.now();
        let integration = Integration {
            id: IntegrationId::new(Uuid::now_v7()),
            name: request.name,
            owner: caller.id(),
            allowed_network_rules: request.allowed_network_rules,
            allowed_secrets: request.allowed_secrets,
            caller_token: request.caller_token,
            enabled: request.enabled.unwrap_or(true),
            comment,
            created_at: now,
            updated_at: now,
        };
        let object = ObjectRef::Integration(integration.id);
        let grant = caller.ownership_grant(object, now);
        let entry = caller.audit_entry("integration.create", object, &integration.name);
        let workspace = caller.workspace;
        let written = self.db.write(move |tx| {
            if tx.count_integrations(workspace)? >= OBJECTS_MAX {
                let message =
                    format!("limit of {OBJECTS_MAX} integrations in this workspace reached");
                return Ok(Err(Error::new(ErrorCode::QuotaExceeded, message)
                    .hint("delete an integration that is no longer needed")
                    .into()));
            }
            if let Some(error) = missing_rule(tx, workspace, &integration)? {
                return Ok(Err(error));
            }
            tx.insert_integration(workspace, &integration)?;
            tx.insert_grant(workspace, &grant)?;
            tx.append_audit_entry(&entry)?;
            Ok(Ok(integration))
        });
        written.await?
    }

    /// Newest first.
    pub async fn integrations(
        &self,
        caller: &Caller,
        query: ObjectQuery,
    ) -> Result<Page<Integration>, RequestError> {
        let page = page_request(query.limit, query.cursor.as_deref())?;
        let filter = ObjectFilter { search: query.search, seen_by: self.viewers(caller)? };
        let workspace = caller.workspace;
        let listed =
            self.db.read_off_thread(move |rows| rows.integrations(workspace, &filter, page));
        Ok(listed.await?.into())
    }

    pub fn integration(
        &self,
        caller: &Caller,
        id: IntegrationId,
    ) -> Result<Integration, RequestError> {
        self.usable_integration(caller, id, Privilege::Usage)
    }

    /// Applies to the next connection of every session that uses the integration.
    pub async fn change_integration(
        &self,
        caller: &Caller,
        id: IntegrationId,
        change: IntegrationChange,
    ) -> Result<Integration, RequestError> {
        let before = self.usable_integration(caller, id, Privilege::Modify)?;
        let comment = names::check_comment(change.comment)?;
        if let Some(rules) = &change.allowed_network_rules {
            if before.name == INTERNET {
                return Err(invalid_field(
                    "/allowed_network_rules",
                    "internet is built in and cannot have rules",
                ));
            }
            self.check_rules(caller, rules)?;
        }
        if let Some(secrets) = &change.allowed_secrets {
            self.check_allowed_secrets(caller, secrets)?;
        }
        self.check_caller_token(caller, change.caller_token.as_ref())?;
        let entry =
            caller.audit_entry("integration.change", ObjectRef::Integration(id), &before.name);
        let (workspace, clock) = (caller.workspace, self.config.clock.clone());
        let written = self.db.write(move |tx| {
            let Some(current) = tx.integration(workspace, id)? else {
                return Ok(Err(not_found("integration", id)));
            };
            let integration = Integration {
                allowed_network_rules: change
                    .allowed_network_rules
                    .unwrap_or(current.allowed_network_rules),
                allowed_secrets: change.allowed_secrets.unwrap_or(current.allowed_secrets),
                caller_token: change.caller_token.or(current.caller_token),
                enabled: change.enabled.unwrap_or(current.enabled),
                comment: comment.or(current.comment).filter(|comment| !comment.is_empty()),
                updated_at: clock.now(),
                ..current
            };
            if let Some(error) = missing_rule(tx, workspace, &integration)? {
                return Ok(Err(error));
            }
            tx.update_integration(workspace, &integration)?;
            tx.append_audit_entry(&entry)?;
            Ok(Ok(integration))
        });
        written.await?
    }

    pub async fn delete_integration(
        &self,
        caller: &Caller,
        id: IntegrationId,
    ) -> Result<(), RequestError> {
        let integration = self.usable_integration(caller, id, Privilege::Ownership)?;
        if integration.name == INTERNET {
            let message = "the integration \"internet\" is built in and cannot be deleted";
            let hint = "disable it instead: belljar network disable internet";
            return Err(Error::new(ErrorCode::ObjectInUse, message).hint(hint).into());
        }
        let (object, workspace) = (ObjectRef::Integration(id), caller.workspace);
        let entry = caller.audit_entry("integration.delete", object, &integration.name);
        let deleted = self.db.write(move |tx| {
            let users = integration_users(tx, workspace, &integration.name)?;
            if !users.is_empty() {
                let mut error = in_use(&format!("integration {:?}", integration.name), &users);
                let hint = "remove it from these first, or disable it: belljar network disable";
                error.error.hint = Some(hint.to_owned());
                return Ok(Err(error));
            }
            tx.delete_integration(workspace, id)?;
            tx.delete_grants_on(workspace, object)?;
            tx.append_audit_entry(&entry)?;
            Ok(Ok(()))
        });
        deleted.await?
    }

    /// Checks the integrations that the caller names in an object. An integration that the caller
    /// cannot see is reported as missing.
    pub(crate) fn check_named_integrations(
        &self,
        caller: &Caller,
        why: &str,
        names: &[String],
    ) -> Result<(), RequestError> {
        for name in names {
            let found = self.db.read(|rows| rows.integration_by_name(caller.workspace, name))?;
            let integration = found.ok_or_else(|| unknown_integration(name))?;
            if !self.can_see(caller, ObjectRef::Integration(integration.id))? {
                return Err(unknown_integration(name));
            }
        }
        self.check_integrations(caller.workspace, (&caller.principal, why), names)
    }

    /// Checks that a principal may use all of these integrations. `why` says in the error why the
    /// rights of this principal count.
    pub(crate) fn check_integrations(
        &self,
        workspace: WorkspaceId,
        (principal, why): (&Principal, &str),
        names: &[String],
    ) -> Result<(), RequestError> {
        for name in names {
            let found = self.db.read(|rows| rows.integration_by_name(workspace, name))?;
            let integration = found.ok_or_else(|| unknown_integration(name))?;
            let object = ObjectRef::Integration(integration.id);
            if self.permit(workspace, principal, Privilege::Usage, object)?.is_none() {
                let mut error = missing_privilege(Privilege::Usage, object);
                error.error.message = format!(
                    "{:?}, {why}, does not have USAGE on integration {name:?}",
                    principal.name
                );
                error.error.hint = Some(format!(
                    "ask its owner to run `belljar grant add {} USAGE integration:{name}`",
                    principal.name
                ));
                return Err(error);
            }
        }
        Ok(())
    }

    /// The integrations among these names that apply now: existing, enabled, and granted.
    pub(crate) fn enabled_integrations(
        &self,
        workspace: WorkspaceId,
        run_as: &Principal,
        names: &[String],
    ) -> Result<Vec<Integration>, RequestError> {
        Ok(self.granted_integrations(workspace, run_as, names)?.0)
    }

    /// The granted integrations among these names: those that are enabled, and those that are
    /// disabled.
    pub(crate) fn granted_integrations(
        &self,
        workspace: WorkspaceId,
        run_as: &Principal,
        names: &[String],
    ) -> Result<(Vec<Integration>, Vec<Integration>), RequestError> {
        let mut granted = Vec::new();
        for name in names {
            let found = self.db.read(|rows| rows.integration_by_name(workspace, name))?;
            let Some(integration) = found else { continue };
            let object = ObjectRef::Integration(integration.id);
            if self.permit(workspace, run_as, Privilege::Usage, object)?.is_some() {
                granted.push(integration);
            }
        }
        Ok(granted.into_iter().partition(|integration| integration.enabled))
    }

    /// The rules of these integrations.
    pub(crate) fn integration_rules(
        &self,
        workspace: WorkspaceId,
        integrations: &[Integration],
    ) -> Result<Vec<IntegrationRules>, RequestError> {
        let rules = self.db.read(|rows| {
            integrations
                .iter()
                .map(|integration| rules_of_integration(rows, workspace, integration))
                .collect()
        });
        Ok(rules?)
    }

    fn check_rules(&self, caller: &Caller, names: &[String]) -> Result<(), RequestError> {
        let path = "/allowed_network_rules";
        if names.len() > RULES_MAX {
            return Err(invalid_field(path, format!("must have at most {RULES_MAX} rules")));
        }
        for (index, name) in names.iter().enumerate() {
            let workspace = caller.workspace;
            let found = self.db.read(|rows| rows.network_rule_by_name(workspace, name))?;
            let seen = match &found {
                Some(rule) => self.can_see(caller, ObjectRef::NetworkRule(rule.id))?,
                None => false,
            };
            let Some(rule) = found.filter(|_| seen) else {
                let message = format!("network rule {name:?} not found");
                return Err(invalid_field(&format!("{path}/{index}"), message));
            };
            self.require_privilege(caller, Privilege::Usage, ObjectRef::NetworkRule(rule.id))?;
        }
        Ok(())
    }

    /// Checks that the caller can see these secrets of the workspace. `all` also covers secrets
    /// that the caller cannot see, so it requires ownership of the workspace.
    fn check_allowed_secrets(
        &self,
        caller: &Caller,
        secrets: &AllowedSecrets,
    ) -> Result<(), RequestError> {
        let names = match secrets {
            AllowedSecrets::None => return Ok(()),
            AllowedSecrets::All => return self.require_owner(caller).map(drop),
            AllowedSecrets::Named(names) => names,
        };
        let path = "/allowed_secrets";
        if names.len() > SECRETS_MAX {
            return Err(invalid_field(path, format!("must have at most {SECRETS_MAX} secrets")));
        }
        let everything = ObjectFilter { search: None, seen_by: self.viewers(caller)? };
        let known = self.db.read(|rows| rows.workspace_secrets(caller.workspace, &everything))?;
        let unknown = |name: &&String| !known.iter().any(|secret| secret.name == **name);
        match names.iter().enumerate().find(|(_, name)| unknown(name)) {
            None => Ok(()),
            Some((index, name)) => {
                let message = format!("workspace secret {name:?} not found");
                Err(invalid_field(&format!("{path}/{index}"), message))
            }
        }
    }

    /// Code that may use the integration then acts as its caller at the service.
    fn check_caller_token(
        &self,
        caller: &Caller,
        requested: Option<&CallerTokenUse>,
    ) -> Result<(), RequestError> {
        let Some(CallerTokenUse { project, .. }) = requested else { return Ok(()) };
        self.require_owner(caller)?;
        check_project("/caller_token/project", Some(project))?;
        if self.config.caller_token_service.is_none() {
            let message = "this server passes on no access tokens; its operator must start it with \
                           --pass-caller-token";
            return Err(invalid_field("/caller_token", message));
        }
        Ok(())
    }

    fn usable_integration(
        &self,
        caller: &Caller,
        id: IntegrationId,
        privilege: Privilege,
    ) -> Result<Integration, RequestError> {
        let object = ObjectRef::Integration(id);
        let found = self.db.read(|rows| rows.integration(caller.workspace, id))?;
        let integration = match found {
            Some(integration) if self.can_see(caller, object)? => integration,
            _ => return Err(not_found("integration", id)),
        };
        self.require_privilege(caller, privilege, object)?;
        Ok(integration)
    }
}

/// The agents, functions and tools that use an integration, for an error message.
fn integration_users(
    rows: &Reader<'_>,
    workspace: WorkspaceId,
    name: &str,
) -> Result<Vec<String>, DatabaseError> {
    let tools = rows.tools_with_integration(workspace, name)?;
    let agents = rows.agents_referencing(workspace, "integration", name)?;
    let mut users: Vec<_> = tools.iter().map(|tool| format!("tool {tool:?}")).collect();
    users.extend(agents.iter().map(|agent| format!("agent {agent:?}")));
    for function in rows.all_functions(workspace)? {
        let deployed = function.deployed.iter().flat_map(|it| &it.integrations);
        if deployed.chain(&function.preparing_integrations).any(|it| it == name) {
            users.push(format!("function {:?}", function.name));
        }
    }
    Ok(users)
}

pub(crate) fn unknown_integration(name: &str) -> RequestError {
    Error::new(ErrorCode::ObjectNotFound, format!("integration {name:?} not found"))
        .hint("create it with `belljar network integration new`, or remove it from the list")
        .into()
}

/// Returns an error for the first of these integrations that no longer exists. Called in the
/// transaction that stores the object which names them: otherwise any principal could create an
/// integration under the free name, and the object would use it.
pub(crate) fn missing_integration_error(
    rows: &Reader<'_>,
    workspace: WorkspaceId,
    names: &[String],
) -> Result<Option<RequestError>, DatabaseError> {
    for name in names {
        if rows.integration_by_name(workspace, name)?.is_none() {
            return Ok(Some(unknown_integration(name)));
        }
    }
    Ok(None)
}

/// Returns an error for a rule or a secret that was deleted between the check and the change.
fn missing_rule(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    integration: &Integration,
) -> Result<Option<RequestError>, DatabaseError> {
    for name in &integration.allowed_network_rules {
        if tx.network_rule_by_name(workspace, name)?.is_none() {
            let message = format!("network rule {name:?} not found");
            return Ok(Some(invalid_field("/allowed_network_rules", message)));
        }
    }
    let AllowedSecrets::Named(secrets) = &integration.allowed_secrets else { return Ok(None) };
    for name in secrets {
        if !tx.is_workspace_secret(workspace, name)? {
            let message = format!("workspace secret {name:?} not found");
            return Ok(Some(invalid_field("/allowed_secrets", message)));
        }
    }
    Ok(None)
}

fn rules_of_integration(
    rows: &Reader<'_>,
    workspace: WorkspaceId,
    integration: &Integration,
) -> Result<IntegrationRules, DatabaseError> {
    if integration.name == INTERNET {
        return Ok(policy::internet_integration());
    }
    let mut values: Vec<HostPort> = Vec::new();
    for name in &integration.allowed_network_rules {
        let rule = rows.network_rule_by_name(workspace, name)?;
        // Values were valid when they were stored. A value that is no longer valid allows nothing.
        let listed = rule.into_iter().flat_map(|rule| rule.value_list);
        values.extend(listed.filter_map(|value| value.parse().ok()));
    }
    Ok(IntegrationRules { integration: integration.name.clone(), values })
}

#[cfg(test)]
mod tests {
    use super::*;
    use db::Database;
    use tempfile::TempDir;
    use types::{PrincipalKind, Secret, SecretId, SecretInjection, SecretScope, Workspace};

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn secret(name: &str, scope: SecretScope, owner: PrincipalId) -> Secret {
        Secret {
            id: SecretId::new(Uuid::now_v7()),
            name: name.to_owned(),
            owner,
            set_by: owner,
            scope,
            exposed: true,
            inject: SecretInjection::Env { env: name.to_owned() },
            version: 1,
            comment: None,
            created_at: Utc::now(),
            updated_at: Utc::now(),
        }
    }

    /// A rule or a secret that existed when it was checked can be deleted before the change is stored.
    #[tokio::test]
    async fn t148_names_are_looked_for_again_by_the_transaction_that_keeps_them() {
        let data = TempDir::new().unwrap();
        let db = Database::open(data.path()).unwrap();
        let (workspace, now) = (WorkspaceId::new(Uuid::now_v7()), Utc::now());
        let ann = Principal {
            id: PrincipalId::new(Uuid::now_v7()),
            name: "ann".to_owned(),
            kind: PrincipalKind::User,
            roles: Vec::new(),
            preferences: Default::default(),
            external_id: None,
            created_at: now,
            updated_at: now,
        };
        let looked = db.write(move |tx| {
            tx.insert_workspace(&Workspace {
                id: workspace,
                name: "home".to_owned(),
                created_at: now,
            })?;
            tx.insert_principal(workspace, &ann)?;
            let integration =
                Integration { name: "way".to_owned(), ..internet_integration(ann.id, now) };
            tx.insert_integration(workspace, &integration)?;
            let token = secret("TOKEN", SecretScope::Workspace, ann.id);
            tx.insert_secret(workspace, &token)?;
            tx.insert_secret(workspace, &secret("MINE", SecretScope::Caller, ann.id))?;
            let with = |secrets: &[&str]| Integration {
                allowed_secrets: AllowedSecrets::Named(names(secrets)),
                ..integration.clone()
            };
            let is_gone = |secrets: &[&str]| -> Result<bool, DatabaseError> {
                Ok(missing_rule(tx, workspace, &with(secrets))?.is_some())
            };
            let before: Vec<bool> = vec![
                is_gone(&["TOKEN"])?,
                is_gone(&["TOKEN", "MINE"])?,
                missing_integration_error(tx, workspace, &names(&["way"]))?.is_some(),
                missing_integration_error(tx, workspace, &names(&["way", "other"]))?.is_some(),
            ];
            tx.delete_secret(workspace, token.id)?;
            tx.delete_integration(workspace, integration.id)?;
            let after: Vec<bool> = vec![
                is_gone(&["TOKEN"])?,
                missing_integration_error(tx, workspace, &names(&["way"]))?.is_some(),
            ];
            Ok::<_, DatabaseError>((before, after))
        });
        let (before, after) = looked.await.unwrap();
        assert_eq!(before, [false, true, false, true], "one's own is no secret of the workspace");
        assert_eq!(after, [true, true]);
    }
}
