//! What a call runs: a tool of the workspace, or code that somebody sends along.

use crate::executions::EntryKind;
use crate::refused::{Refused, about, invalid};
use engine::{Code as SourceCode, Entry};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use types::{Tool, ToolId};
use uuid::Uuid;

/// As a model calls it, in whichever door.
pub const EXECUTE_PYTHON: &str = "execute_python";

#[derive(Debug, Clone)]
pub(crate) enum Callee {
    Tool {
        tool: Box<Tool>,
        checked: Arc<contract::Tool>,
    },
    /// Its code is one of the arguments.
    Python {
        environment: String,
    },
}

/// The arguments of `execute_python`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Script {
    pub(crate) code: String,
    pub(crate) entry: EntryKind,
    pub(crate) argv: Vec<String>,
    /// Of a fresh sandbox.
    pub(crate) environment: Option<String>,
}

impl Script {
    /// None if they are no arguments of `execute_python`.
    pub(crate) fn of(arguments: &Value) -> Option<Self> {
        Self::deserialize(arguments).ok()
    }

    pub(crate) fn arguments(&self) -> Value {
        json!(self)
    }

    pub(crate) fn entry(self) -> Result<Entry, Refused> {
        let code = SourceCode::new(self.code.into_bytes())
            .map_err(|error| invalid("/code", error.to_string()))?;
        match self.entry {
            EntryKind::Script => Ok(Entry::Script { code, argv: self.argv }),
            _ if !self.argv.is_empty() => Err(invalid("/argv", "only a script has arguments")),
            EntryKind::Cell => Ok(Entry::Cell(code)),
            EntryKind::Answer => Ok(Entry::Answer(code)),
        }
    }
}

impl Callee {
    /// Of no tool that anybody has made.
    pub(crate) fn python_id() -> ToolId {
        ToolId::new(Uuid::nil())
    }

    pub(crate) fn id(&self) -> ToolId {
        match self {
            Self::Tool { tool, .. } => tool.id,
            Self::Python { .. } => Self::python_id(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Tool { tool, .. } => &tool.name,
            Self::Python { .. } => EXECUTE_PYTHON,
        }
    }

    pub(crate) fn environment(&self) -> &str {
        match self {
            Self::Tool { tool, .. } => &tool.environment,
            Self::Python { environment } => environment,
        }
    }

    /// Hosts that the code could reach.
    pub(crate) fn network(&self) -> Vec<String> {
        match self {
            Self::Tool { checked, .. } if checked.allow_network => vec!["internet".to_owned()],
            Self::Tool { .. } | Self::Python { .. } => Vec::new(),
        }
    }

    /// As its author wrote it; code that is sent along is no part of it.
    pub(crate) fn definition(&self) -> String {
        match self {
            Self::Tool { tool, .. } => {
                json!([tool.name, tool.description, tool.definition]).to_string()
            }
            Self::Python { .. } => EXECUTE_PYTHON.to_owned(),
        }
    }

    /// What would run with these arguments, which are held against the contract.
    pub(crate) fn entry(&self, arguments: &Value) -> Result<Entry, Refused> {
        match self {
            Self::Tool { checked, .. } => {
                let call = checked.call(arguments.clone());
                Ok(Entry::Call(Box::new(call.map_err(|fault| about("/arguments", fault))?)))
            }
            Self::Python { .. } => {
                let script = Script::of(arguments);
                script.ok_or_else(|| invalid("/code", "cannot be read"))?.entry()
            }
        }
    }

    /// The arguments as they are shown to a person, who is shown the code besides.
    pub(crate) fn shown(&self, arguments: &Value) -> Value {
        match self {
            Self::Tool { .. } => arguments.clone(),
            Self::Python { .. } => json!({"argv": arguments["argv"]}),
        }
    }
}
