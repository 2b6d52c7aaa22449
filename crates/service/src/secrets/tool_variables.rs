//! Environment variables of tools: a definition has their names and the time at which each value
//! was set. The values are encrypted like secrets.
//!
//! A client that reads a definition and sends it back has no values to send, so a variable without
//! a value keeps its stored one.

use crate::error::RequestError;
use crate::secrets::variable_destination;
use crate::service::Service;
use chrono::{DateTime, Utc};
use db::{DatabaseError, Tx};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{Error, ErrorCode, SealContext, SealedValue, Tool, WorkspaceId};
use vault::{Plaintext, Vault};

const FIELD: &str = "env_variables";

/// The time at which each variable of a tool got its value.
pub(crate) type VariableTimes = BTreeMap<String, DateTime<Utc>>;

/// Reads the times from the configuration of a stored tool.
pub(crate) fn variable_times(configuration: Option<&Map<String, Value>>) -> VariableTimes {
    let times = |item: &Value| {
        let at = item.get("updated_at")?.as_str()?.parse().ok()?;
        Some((name_of(item)?.to_owned(), at))
    };
    variable_list(configuration).iter().filter_map(times).collect()
}

/// The values of a new definition, before they are encrypted.
pub(crate) fn given_values(
    configuration: Option<&Map<String, Value>>,
) -> BTreeMap<String, Plaintext> {
    let sent = |item: &Value| {
        let value = item.get("value")?.as_str()?.to_owned();
        Some((name_of(item)?.to_owned(), Plaintext::new(value)))
    };
    variable_list(configuration).iter().filter_map(sent).collect()
}

/// Adds an empty value to each variable that has a stored one, so that the contract can be read.
pub(crate) fn fill_missing_values(configuration: &mut Map<String, Value>, stored: &VariableTimes) {
    for item in variable_list_mut(configuration) {
        let is_stored = name_of(item).is_some_and(|name| stored.contains_key(name));
        if let Some(fields) = item.as_object_mut().filter(|fields| !fields.contains_key("value"))
            && is_stored
        {
            fields.insert("value".to_owned(), "".into());
        }
    }
}

/// Removes the values from a configuration that is to be stored or returned.
pub(crate) fn strip_values(
    configuration: &mut Map<String, Value>,
    stored: &VariableTimes,
    now: DateTime<Utc>,
) {
    for item in variable_list_mut(configuration) {
        let name = name_of(item).unwrap_or_default().to_owned();
        let before = stored.get(&name).filter(|_| item.get("value").is_none());
        *item = json!({"name": name, "updated_at": before.copied().unwrap_or(now)});
    }
}

fn variable_list(configuration: Option<&Map<String, Value>>) -> &[Value] {
    let list = configuration.and_then(|configuration| configuration.get(FIELD)?.as_array());
    list.map_or(&[], Vec::as_slice)
}

fn variable_list_mut(configuration: &mut Map<String, Value>) -> impl Iterator<Item = &mut Value> {
    configuration.get_mut(FIELD).and_then(Value::as_array_mut).into_iter().flatten()
}

fn name_of(item: &Value) -> Option<&str> {
    item.get("name")?.as_str().map(str::trim)
}

/// The variables that a tool has.
pub(crate) fn variable_names(tool: &Tool) -> Vec<String> {
    tool_variable_times(tool).into_keys().collect()
}

fn tool_variable_times(tool: &Tool) -> VariableTimes {
    variable_times(tool.definition.get("configuration").and_then(Value::as_object))
}

fn seal_context(workspace: WorkspaceId, tool: &Tool, name: &str, at: DateTime<Utc>) -> SealContext {
    SealContext {
        workspace,
        holder: tool.id.uuid(),
        name: name.to_owned(),
        version: at.timestamp_micros().unsigned_abs(),
        destination: variable_destination(name),
    }
}

/// Encrypts the values of a tool that is about to be stored.
pub(crate) fn seal_values(
    vault: &Vault,
    workspace: WorkspaceId,
    tool: &Tool,
    sent: &BTreeMap<String, Plaintext>,
) -> Result<Vec<(SealContext, SealedValue)>, RequestError> {
    let times = tool_variable_times(tool);
    let sealed = times.iter().filter_map(|(name, at)| {
        let (context, value) = (seal_context(workspace, tool, name, *at), sent.get(name)?);
        Some(
            vault.seal(&context, value).map(|sealed| (context, sealed)).map_err(RequestError::from),
        )
    });
    sealed.collect()
}

/// Stores the values in the transaction that stores the tool, and deletes those of removed
/// variables.
pub(crate) fn persist_values(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    tool: &Tool,
    sealed: &[(SealContext, SealedValue)],
) -> Result<(), DatabaseError> {
    let times = tool_variable_times(tool);
    for (context, _) in tx.sealed_values(workspace, tool.id.uuid())? {
        if !times.contains_key(&context.name) {
            tx.delete_sealed_value(workspace, tool.id.uuid(), &context.name)?;
        }
    }
    sealed.iter().try_for_each(|(context, sealed)| tx.upsert_sealed_value(context, sealed))
}

impl Service {
    /// Returns the contract with the values of its variables, for a call that is about to run.
    pub(crate) async fn with_variables(
        &self,
        workspace: WorkspaceId,
        tool: &Tool,
        checked: &Arc<contract::CodeTool>,
    ) -> Result<Arc<contract::CodeTool>, RequestError> {
        if checked.variables.0.is_empty() {
            return Ok(Arc::clone(checked));
        }
        let vault = self.vault.read().await;
        let stored = self.db.read(|rows| rows.sealed_values(workspace, tool.id.uuid()))?;
        let mut variables = contract::ToolVariables::default();
        for (name, at) in tool_variable_times(tool) {
            let context = seal_context(workspace, tool, &name, at);
            let found = stored.iter().find(|(it, _)| *it == context);
            let opened = found.and_then(|(context, sealed)| vault.open(context, sealed).ok());
            let value = opened.ok_or_else(|| unreadable(tool, &name))?;
            variables.0.insert(name, value.reveal().to_owned());
        }
        Ok(Arc::new(contract::CodeTool { variables, ..(**checked).clone() }))
    }
}

fn unreadable(tool: &Tool, name: &str) -> RequestError {
    let message = format!("cannot decrypt variable {name} of tool {:?}", tool.name);
    Error::new(ErrorCode::SecretMissing, message)
        .hint("update the tool and set the value again")
        .into()
}
