//! A language model as the loop knows it: what is asked, and what is answered. Everything that
//! differs between vendors stays behind [`Model`].

use crate::models::Settings;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use types::{Code, Fault};
use utoipa::ToSchema;

/// Told piece by piece what a model says, while it says it.
pub type Listener<'a> = &'a (dyn Fn(&str) + Send + Sync);

pub trait Model: Send + Sync + fmt::Debug {
    /// As people choose it: `provider/model`.
    fn name(&self) -> &str;

    /// One answer. Dropping the future gives it up.
    fn answer<'a>(
        &'a self,
        ask: &'a Ask,
        said: Listener<'a>,
    ) -> BoxFuture<'a, Result<Answer, ModelError>>;
}

#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    pub system: String,
    pub messages: Vec<Message>,
    pub tools: Vec<Offer>,
    pub choice: Choice,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    User {
        text: String,
    },
    Model {
        text: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ToolCall>,
    },
    /// What came of the calls of the message before, each of them.
    Tools {
        results: Vec<ToolResult>,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// What is no JSON stands here as text, and no schema allows it.
    pub arguments: Value,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ToolResult {
    pub call_id: String,
    pub name: String,
    pub text: String,
    /// Whether it is a failure that the model may mend.
    pub failed: bool,
}

/// A tool that a model may call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Offer {
    pub name: String,
    pub description: String,
    pub input_schema: Value,
}

/// Whether a tool is called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Choice {
    #[default]
    Auto,
    Required,
    /// This one.
    Tool(String),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub text: String,
    pub calls: Vec<ToolCall>,
    pub tokens: Tokens,
    pub stop: Stop,
}

/// Why an answer ends where it ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    #[default]
    Done,
    /// It would have gone on.
    Length,
    /// The provider does not want to answer.
    Refusal,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tokens {
    pub input: u64,
    pub output: u64,
}

impl std::ops::AddAssign for Tokens {
    fn add_assign(&mut self, more: Self) {
        self.input += more.input;
        self.output += more.output;
    }
}

/// Why there is no answer, after every try that was worth it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    #[error("the model provider {provider} cannot be reached: {reason}")]
    Unreachable { provider: String, reason: String },
    #[error("the model provider {provider} takes no more requests now: {said}")]
    Busy { provider: String, said: String },
    /// Its fault or ours, but not one that passes.
    #[error("the model provider {provider} refuses the request ({status}): {said}")]
    Refused { provider: String, status: u16, said: String },
    #[error("the answer of the model provider {provider} cannot be read: {reason}")]
    Unreadable { provider: String, reason: String },
}

impl ModelError {
    pub fn fault(&self) -> Fault {
        let hint = match self {
            Self::Unreachable { provider, .. } => format!(
                "check that it is running, and its address where the server starts: {}",
                Settings::of(provider).address
            ),
            Self::Busy { .. } => "wait a while, or choose another model".to_owned(),
            Self::Refused { provider, status: 401 | 403, .. } => {
                format!("check the key in {} where the server starts", Settings::of(provider).key)
            }
            Self::Refused { .. } => {
                "check the name of the model, or choose another one: --model, BELLJAR_MODEL, or \
                 preferences.code_model"
                    .to_owned()
            }
            Self::Unreadable { .. } => "try again, or choose another model".to_owned(),
        };
        let passes = !matches!(self, Self::Refused { .. });
        Fault {
            retryable: passes,
            ..Fault::new(Code::ModelUnavailable, self.to_string()).hint(hint)
        }
    }
}
