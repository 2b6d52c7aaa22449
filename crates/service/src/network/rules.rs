//! Network rules: named lists of hosts and ports. A rule allows nothing until an integration uses
//! it.

use super::OBJECTS_MAX;
use crate::error::{RequestError, invalid_field, not_found};
use crate::identity::caller::Caller;
use crate::identity::ownership::ObjectQuery;
use crate::names;
use crate::page::{Page, page_request};
use crate::service::Service;
use db::ObjectFilter;
use policy::{BroadAccess, HostPort};
use serde::Deserialize;
use types::{
    Error, ErrorCode, NetworkRule, NetworkRuleId, ObjectRef, Privilege, RuleMode, RuleType,
};
use utoipa::ToSchema;
use uuid::Uuid;

/// Maximum number of values of a rule, because each is compared with every destination that code
/// tries.
const VALUES_MAX: usize = 1_000;

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkRuleRequest {
    pub name: String,
    /// Default EGRESS.
    pub mode: Option<RuleMode>,
    /// Default HOST_PORT.
    #[serde(rename = "type")]
    pub kind: Option<RuleType>,
    /// `host`, `host:port` or `host:first-last`. The default port is 443; port 0 means all ports. A
    /// `*` matches letters, digits and hyphens within one label. `0.0.0.0` means every public host,
    /// on ports 80 and 443.
    pub value_list: Vec<String>,
    pub comment: Option<String>,
}

impl NetworkRuleRequest {
    /// Returns the values in their stored form, or all errors in them.
    fn checked_values(&self) -> Result<Vec<String>, RequestError> {
        if self.value_list.is_empty() {
            return Err(invalid_field(
                "/value_list",
                "must have at least one host, such as api.github.com",
            ));
        }
        if self.value_list.len() > VALUES_MAX {
            return Err(invalid_field(
                "/value_list",
                format!("must have at most {VALUES_MAX} values"),
            ));
        }
        let (mut values, mut refused) = (Vec::new(), None::<RequestError>);
        for (index, text) in self.value_list.iter().enumerate() {
            match text.parse::<HostPort>() {
                Ok(value) => values.push(value.to_string()),
                Err(error) => {
                    let one = invalid_field(&format!("/value_list/{index}"), error.to_string());
                    match &mut refused {
                        Some(refused) => refused.details.extend(one.details),
                        None => refused = Some(one),
                    }
                }
            }
        }
        refused.map_or(Ok(values), Err)
    }
}

impl Service {
    pub async fn create_network_rule(
        &self,
        caller: &Caller,
        request: NetworkRuleRequest,
    ) -> Result<NetworkRule, RequestError> {
        self.require_create(caller)?;
        names::check_name("/name", &request.name)?;
        let values = request.checked_values()?;
        let comment = names::check_comment(request.comment)?;
        self.check_broad_values(caller, &values)?;
        let now = self.now();
        let rule = NetworkRule {
            id: NetworkRuleId::new(Uuid::now_v7()),
            value_list: values,
            name: request.name,
            owner: caller.id(),
            mode: request.mode.unwrap_or(RuleMode::Egress),
            kind: request.kind.unwrap_or(RuleType::HostPort),
            comment,
            created_at: now,
            updated_at: now,
        };
        let object = ObjectRef::NetworkRule(rule.id);
        let grant = caller.ownership_grant(object, now);
        let entry = caller.audit_entry("network_rule.create", object, &rule.name);
        let workspace = caller.workspace;
        let written = self.db.write(move |tx| {
            if tx.count_network_rules(workspace)? >= OBJECTS_MAX {
                let message = format!("a workspace has at most {OBJECTS_MAX} network rules");
                return Ok(Err(Error::new(ErrorCode::QuotaExceeded, message)
                    .hint("delete one")
                    .into()));
            }
            tx.insert_network_rule(workspace, &rule)?;
            tx.insert_grant(workspace, &grant)?;
            tx.append_audit_entry(&entry)?;
            Ok(Ok(rule))
        });
        written.await?
    }

    /// Newest first.
    pub async fn network_rules(
        &self,
        caller: &Caller,
        query: ObjectQuery,
    ) -> Result<Page<NetworkRule>, RequestError> {
        let page = page_request(query.limit, query.cursor.as_deref())?;
        let filter = ObjectFilter { search: query.search, seen_by: self.viewers(caller)? };
        let workspace = caller.workspace;
        let listed =
            self.db.read_off_thread(move |rows| rows.network_rules(workspace, &filter, page));
        Ok(listed.await?.into())
    }

    pub fn network_rule(
        &self,
        caller: &Caller,
        id: NetworkRuleId,
    ) -> Result<NetworkRule, RequestError> {
        self.usable_rule(caller, id, Privilege::Usage)
    }

    /// Applies to the next connection of every session that uses the rule.
    pub async fn replace_network_rule(
        &self,
        caller: &Caller,
        id: NetworkRuleId,
        request: NetworkRuleRequest,
    ) -> Result<NetworkRule, RequestError> {
        let before = self.usable_rule(caller, id, Privilege::Modify)?;
        if request.name != before.name {
            return Err(invalid_field(
                "/name",
                "cannot be changed, because integrations refer to a rule by its name",
            ));
        }
        let (values, workspace) = (request.checked_values()?, caller.workspace);
        let comment = names::check_comment(request.comment)?;
        self.check_broad_values(caller, &values)?;
        let entry =
            caller.audit_entry("network_rule.replace", ObjectRef::NetworkRule(id), &request.name);
        let clock = self.config.clock.clone();
        let written = self.db.write(move |tx| {
            let Some(current) = tx.network_rule(workspace, id)? else {
                return Ok(Err(not_found("network rule", id)));
            };
            let updated_at = clock.now();
            let rule = NetworkRule { value_list: values, comment, updated_at, ..current };
            tx.update_network_rule(workspace, &rule)?;
            tx.append_audit_entry(&entry)?;
            Ok(Ok(rule))
        });
        written.await?
    }

    /// Fails while an integration uses the rule.
    pub async fn delete_network_rule(
        &self,
        caller: &Caller,
        id: NetworkRuleId,
    ) -> Result<(), RequestError> {
        let rule = self.usable_rule(caller, id, Privilege::Ownership)?;
        let (object, workspace) = (ObjectRef::NetworkRule(id), caller.workspace);
        let entry = caller.audit_entry("network_rule.delete", object, &rule.name);
        let deleted = self.db.write(move |tx| {
            let users = tx.integrations_with_rule(workspace, &rule.name)?;
            if !users.is_empty() {
                let message =
                    format!("network rule {:?} is used by {}", rule.name, users.join(", "));
                let hint = "remove it from these integrations first";
                return Ok(Err(Error::new(ErrorCode::ObjectInUse, message).hint(hint).into()));
            }
            tx.delete_network_rule(workspace, id)?;
            tx.delete_grants_on(workspace, object)?;
            tx.append_audit_entry(&entry)?;
            Ok(Ok(()))
        });
        deleted.await?
    }

    /// Only an owner of the workspace may allow the whole internet, or addresses in the operator's
    /// own network.
    fn check_broad_values(&self, caller: &Caller, values: &[String]) -> Result<(), RequestError> {
        let read = values.iter().filter_map(|value| value.parse::<HostPort>().ok());
        let mut broad = read.filter_map(|value| Some((value.broad_access()?, value)));
        let Some((access, value)) = broad.next() else {
            return Ok(());
        };
        let all = ObjectRef::Workspace(caller.workspace);
        let Err(mut refused) = self.require_privilege(caller, Privilege::Ownership, all) else {
            return Ok(());
        };
        let reason = match access {
            BroadAccess::ManyOwners => "allows public hosts of more than one owner",
            BroadAccess::InternalAddress => "is not a public address",
        };
        refused.error.message = format!("`{value}` {reason}: {}", refused.error.message);
        Err(refused)
    }

    fn usable_rule(
        &self,
        caller: &Caller,
        id: NetworkRuleId,
        privilege: Privilege,
    ) -> Result<NetworkRule, RequestError> {
        let object = ObjectRef::NetworkRule(id);
        let found = self.db.read(|rows| rows.network_rule(caller.workspace, id))?;
        let rule = match found {
            Some(rule) if self.can_see(caller, object)? => rule,
            _ => return Err(not_found("network rule", id)),
        };
        self.require_privilege(caller, privilege, object)?;
        Ok(rule)
    }
}
