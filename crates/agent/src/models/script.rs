//! A model that plays a prepared script: for tests, for examples, and to replay recorded responses.

use crate::model::{
    Message, Model, ModelError, ModelRequest, ModelResponse, ModelStopReason, TextListener,
    TokenUsage, ToolCall,
};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Larger than a recording of the longest run.
const BYTES_MAX: u64 = 16 << 20;
/// Length of the actual message that is quoted when an expectation fails.
const ACTUAL_CHARS_MAX: usize = 300;

/// The turns of a script. Immutable once parsed, and shared by all models that play it.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelScript(Arc<[ScriptTurn]>);

/// One response.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptTurn {
    /// Text that the last message of the request must contain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub say: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ScriptedCall>,
    #[serde(skip_serializing_if = "is_default")]
    pub tokens: TokenUsage,
    #[serde(skip_serializing_if = "is_default")]
    pub stop: ModelStopReason,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    pub name: String,
    /// A value that is no mapping is played as it is, like a model that writes invalid JSON.
    #[serde(default = "no_arguments")]
    pub arguments: Value,
    /// Generated from the turn's number if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

fn no_arguments() -> Value {
    Value::Object(Map::new())
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    #[error("cannot read the model script {path}: {error}")]
    File { path: PathBuf, error: std::io::Error },
    #[error("model script {path} has {bytes} bytes; at most {BYTES_MAX} are allowed")]
    TooLarge { path: PathBuf, bytes: u64 },
    #[error("model script is not a list of turns: {0}")]
    Yaml(Box<serde_saphyr::Error>),
}

impl ModelScript {
    pub fn new(turns: impl IntoIterator<Item = ScriptTurn>) -> Self {
        Self(turns.into_iter().collect())
    }

    /// Parses YAML, which includes JSON.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
        let turns: Vec<ScriptTurn> = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| ScriptError::Yaml(Box::new(error)))?;
        Ok(Self::new(turns))
    }

    pub fn read(path: &Path) -> Result<Self, ScriptError> {
        let unread = |error| ScriptError::File { path: path.to_owned(), error };
        let bytes = std::fs::metadata(path).map_err(unread)?.len();
        if bytes > BYTES_MAX {
            return Err(ScriptError::TooLarge { path: path.to_owned(), bytes });
        }
        Self::parse(&std::fs::read_to_string(path).map_err(unread)?)
    }

    pub fn turns(&self) -> &[ScriptTurn] {
        &self.0
    }
}

/// Plays a script once, from its first turn to its last.
#[derive(Debug)]
pub struct ScriptedModel {
    script: ModelScript,
    next_turn: AtomicUsize,
}

impl ScriptedModel {
    pub fn new(script: ModelScript) -> Self {
        Self { script, next_turn: AtomicUsize::new(0) }
    }

    fn play(
        &self,
        ask: &ModelRequest,
        on_text: TextListener<'_>,
    ) -> Result<ModelResponse, ModelError> {
        let number = self.next_turn.fetch_add(1, Ordering::Relaxed);
        let turn =
            self.script.turns().get(number).ok_or_else(|| {
                invalid_response(format!("the model script has only {number} turns"))
            })?;
        turn.check(ask)
            .map_err(|reason| invalid_response(format!("turn {}: {reason}", number + 1)))?;
        if !turn.say.is_empty() {
            on_text(&turn.say);
        }
        Ok(turn.response(number))
    }
}

impl ScriptTurn {
    /// Checks the request against the expectation of this turn.
    fn check(&self, ask: &ModelRequest) -> Result<(), String> {
        let Some(expected) = &self.expect else {
            return Ok(());
        };
        let last_message = ask.messages.last().map(message_text).unwrap_or_default();
        if last_message.contains(expected) {
            return Ok(());
        }
        let last_message: String = last_message.chars().take(ACTUAL_CHARS_MAX).collect();
        Err(format!(
            "the model script expects {expected:?} in the last message, which is {last_message:?}"
        ))
    }

    /// The response of this turn, which has this number in its script.
    pub fn response(&self, number: usize) -> ModelResponse {
        let calls = self.calls.iter().enumerate().map(|(index, call)| ToolCall {
            id: call.id.clone().unwrap_or_else(|| format!("call_{}_{}", number + 1, index + 1)),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
        });
        ModelResponse {
            text: self.say.clone(),
            calls: calls.collect(),
            tokens: self.tokens,
            stop_reason: self.stop,
        }
    }
}

impl From<&ModelResponse> for ScriptTurn {
    fn from(answer: &ModelResponse) -> Self {
        let calls = answer.calls.iter().map(|call| ScriptedCall {
            name: call.name.clone(),
            arguments: call.arguments.clone(),
            id: Some(call.id.clone()),
        });
        Self {
            expect: None,
            say: answer.text.clone(),
            calls: calls.collect(),
            tokens: answer.tokens,
            stop: answer.stop_reason,
        }
    }
}

fn message_text(message: &Message) -> String {
    match message {
        Message::User { text } | Message::Model { text, .. } => text.clone(),
        Message::Tools { results } => {
            results.iter().map(|result| result.text.as_str()).collect::<Vec<_>>().join("\n")
        }
    }
}

fn invalid_response(reason: String) -> ModelError {
    ModelError::InvalidResponse { provider: "script".to_owned(), reason }
}

impl Model for ScriptedModel {
    fn name(&self) -> &'static str {
        "script"
    }

    fn respond<'a>(
        &'a self,
        ask: &'a ModelRequest,
        on_text: TextListener<'a>,
    ) -> BoxFuture<'a, Result<ModelResponse, ModelError>> {
        Box::pin(async move { self.play(ask, on_text) })
    }
}
