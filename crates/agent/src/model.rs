//! The model interface of the loop: requests and responses. All differences between vendors are
//! behind [`Model`].

use crate::models::ProviderSettingNames;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use types::{Error, ErrorCode};
use utoipa::ToSchema;

/// Called with each piece of text while a model writes.
pub type TextListener<'a> = &'a (dyn Fn(&str) + Send + Sync);

pub trait Model: Send + Sync + fmt::Debug {
    /// The name that users choose: `provider/model`.
    fn name(&self) -> &str;

    /// Requests one response. Dropping the future cancels it.
    fn respond<'a>(
        &'a self,
        ask: &'a ModelRequest,
        on_text: TextListener<'a>,
    ) -> BoxFuture<'a, Result<ModelResponse, ModelError>>;
}

#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequest {
    pub system: String,
    pub messages: Vec<Message>,
    pub tools: Vec<ToolDefinition>,
    pub call_mode: ToolCallMode,
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
    /// Results of all calls of the previous message.
    Tools {
        results: Vec<ToolResult>,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// Text if the model wrote invalid JSON; no schema accepts that.
    pub arguments: Value,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ToolResult {
    pub call_id: String,
    pub name: String,
    pub text: String,
    /// Whether the call failed in a way that the model may repair.
    pub failed: bool,
}

/// A tool that a model may call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ToolDefinition {
    pub name: String,
    pub description: String,
    pub input_schema: Value,
}

/// Whether the model must call a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolCallMode {
    #[default]
    Auto,
    Required,
    /// The model must call this tool.
    Tool(String),
}

#[derive(Debug, Clone, PartialEq)]
pub struct ModelResponse {
    pub text: String,
    pub calls: Vec<ToolCall>,
    pub tokens: TokenUsage,
    pub stop_reason: ModelStopReason,
}

/// Why a response ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelStopReason {
    #[default]
    Done,
    /// The length limit was reached.
    Length,
    /// The provider refused to answer.
    Refusal,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenUsage {
    pub input: u64,
    pub output: u64,
}

impl std::ops::AddAssign for TokenUsage {
    fn add_assign(&mut self, more: Self) {
        self.input += more.input;
        self.output += more.output;
    }
}

/// Why there is no response, after all retries.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    #[error("model provider {provider} is unavailable: {reason}")]
    Unavailable { provider: String, reason: String },
    #[error("model provider {provider} is rate limited or overloaded: {message}")]
    Busy { provider: String, message: String },
    /// A permanent error of the provider or of the request.
    #[error("model provider {provider} rejected the request ({status}): {message}")]
    Rejected { provider: String, status: u16, message: String },
    #[error("model provider {provider} sent an invalid response: {reason}")]
    InvalidResponse { provider: String, reason: String },
}

impl ModelError {
    pub fn to_error(&self) -> Error {
        let hint = match self {
            Self::Unavailable { provider, .. } => format!(
                "check that it is running, and its address in the environment of the server: {}",
                ProviderSettingNames::for_provider(provider).address
            ),
            Self::Busy { .. } => "wait a while, or choose another model".to_owned(),
            Self::Rejected { provider, status: 401 | 403, .. } => {
                format!(
                    "check the key in {} in the environment of the server",
                    ProviderSettingNames::for_provider(provider).key
                )
            }
            Self::Rejected { .. } => {
                "check the name of the model, or choose another one: --model, BELLJAR_MODEL, or \
                 preferences.code_model"
                    .to_owned()
            }
            Self::InvalidResponse { .. } => "try again, or choose another model".to_owned(),
        };
        let passes = !matches!(self, Self::Rejected { .. });
        Error {
            retryable: passes,
            ..Error::new(ErrorCode::ModelUnavailable, self.to_string()).hint(hint)
        }
    }
}
