//! A Run Python code tool whose code is part of the specification.

use super::code_execution::approval_action;
use crate::error::{RequestError, invalid_field};
use serde_json::{Map, Value};
use std::sync::Arc;
use types::ApprovalAction;

/// Fields that Belljar adds to such a tool.
const EXTENSION_FIELDS: [&str; 2] = ["approval_action", "environment"];
/// The fields that are stored besides the contract.
const DEFINITION: [&str; 2] = ["type", "configuration"];

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EmbeddedTool {
    /// The JSON pointer of the tool in the specification.
    pub(super) path: String,
    pub(crate) contract: Arc<contract::CodeTool>,
    /// The original text of the author.
    pub(crate) definition: Map<String, Value>,
    /// Default: that of its kind.
    pub(crate) environment: Option<String>,
    /// Default `confirm`: calls need a confirmation.
    pub(crate) approval_action: ApprovalAction,
}

impl EmbeddedTool {
    /// The tool without the fields of Belljar, as input for its contract.
    pub(super) fn without_extensions(entry: &Value) -> Value {
        let fields = entry.as_object().into_iter().flatten();
        let others = fields.filter(|(key, _)| !EXTENSION_FIELDS.contains(&key.as_str()));
        others.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    pub(super) fn read(
        path: &str,
        contract: contract::CodeTool,
        entry: &Value,
    ) -> Result<Self, RequestError> {
        let definition = DEFINITION
            .iter()
            .filter_map(|key| Some(((*key).to_owned(), entry.get(*key)?.clone())))
            .collect();
        let approval_action = match entry.get("approval_action") {
            None | Some(Value::Null) => ApprovalAction::Confirm,
            Some(action) => approval_action(&format!("{path}/approval_action"), action)?,
        };
        let environment = match entry.get("environment") {
            None | Some(Value::Null) => None,
            Some(Value::String(name)) => Some(name.clone()),
            Some(_) => return Err(invalid_field(&format!("{path}/environment"), "must be a name")),
        };
        let (path, contract) = (path.to_owned(), Arc::new(contract));
        Ok(Self { path, contract, definition, environment, approval_action })
    }
}
