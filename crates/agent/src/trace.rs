//! What a run has done, step by step, for people: every question to the model and its answer, all
//! code with what came of it, and how long each took.

mod inert;
mod notebook;
mod plain;
mod report;
#[cfg(test)]
mod sample;
mod story;

pub use story::Story;

use crate::model::{Answer, Message, ModelError, Stop, Tokens, ToolCall};
use serde::{Deserialize, Serialize};
use std::time::Instant;
use types::{ExecutionId, FileOut, Round, ToolUse};
use utoipa::ToSchema;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Trace {
    pub run: ExecutionId,
    /// `agent` or `code_execution`.
    pub kind: String,
    pub request: String,
    /// `provider/model`.
    pub model: String,
    pub steps: Vec<Step>,
}

/// One step, `at_ms` after the beginning of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Step {
    pub at_ms: u64,
    pub ms: u64,
    #[serde(flatten)]
    pub did: Did,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Did {
    /// The model was asked.
    Asked {
        purpose: Purpose,
        system: String,
        /// Those that it had not been told before.
        messages: Vec<Message>,
        said: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ToolCall>,
        tokens: Tokens,
    },
    /// Code that it wrote has run.
    Ran { round: Round, files: Vec<FileOut> },
    /// Another tool has answered.
    Called { tool: ToolUse },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    Plan,
    Work,
}

impl Trace {
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Writes a trace while its run goes on.
#[derive(Debug)]
pub(crate) struct Scribe {
    pub(crate) trace: Trace,
    began: Instant,
}

impl Scribe {
    pub(crate) fn new(trace: Trace) -> Self {
        Self { trace, began: Instant::now() }
    }

    pub(crate) fn asked(
        &mut self,
        since: Instant,
        purpose: Purpose,
        system: &str,
        new: &[Message],
        answer: &Answer,
    ) {
        let (said, calls) = (answer.text.clone(), answer.calls.clone());
        let (system, messages, tokens) = (system.to_owned(), new.to_vec(), answer.tokens);
        self.did(since, Did::Asked { purpose, system, messages, said, calls, tokens });
    }

    /// A question that nobody has answered.
    pub(crate) fn unanswered(
        &mut self,
        since: Instant,
        purpose: Purpose,
        system: &str,
        new: &[Message],
        error: &ModelError,
    ) {
        let text = format!("(no answer: {error})");
        let (calls, tokens, stop) = (Vec::new(), Tokens::default(), Stop::Done);
        self.asked(since, purpose, system, new, &Answer { text, calls, tokens, stop });
    }

    pub(crate) fn did(&mut self, since: Instant, did: Did) {
        let at_ms = millis(since.duration_since(self.began));
        self.trace.steps.push(Step { at_ms, ms: millis(since.elapsed()), did });
    }
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
