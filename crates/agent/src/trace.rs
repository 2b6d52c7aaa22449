//! The trace of a run for people, step by step: each request to the model with its response, all
//! code with its results, and how long each step took.

mod html;
mod notebook;
mod run_details;
#[cfg(test)]
mod sample;
mod sanitize;
mod text;

pub use run_details::RunDetails;

use crate::model::{Message, ModelError, ModelResponse, ModelStopReason, TokenUsage, ToolCall};
use serde::{Deserialize, Serialize};
use std::time::Instant;
use types::{ExecutionId, OutputFile, Round, ToolUse};
use utoipa::ToSchema;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Trace {
    pub run: ExecutionId,
    /// `agent` or `code_execution`.
    pub kind: String,
    pub request: String,
    /// `provider/model`.
    pub model: String,
    pub steps: Vec<TraceStep>,
}

/// One step, `at_ms` after the start of the run
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TraceStep {
    pub at_ms: u64,
    pub ms: u64,
    #[serde(flatten)]
    pub action: TraceAction,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum TraceAction {
    /// A request to the model
    Asked {
        purpose: Purpose,
        system: String,
        /// Messages that no earlier request contained
        messages: Vec<Message>,
        #[serde(rename = "said")]
        response: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ToolCall>,
        tokens: TokenUsage,
    },
    /// Code of the model that ran
    Ran { round: Round, files: Vec<OutputFile> },
    /// A call of another tool
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

/// Records the trace of a run in progress.
#[derive(Debug)]
pub(crate) struct TraceRecorder {
    pub(crate) trace: Trace,
    started_at: Instant,
}

impl TraceRecorder {
    pub(crate) fn new(trace: Trace) -> Self {
        Self { trace, started_at: Instant::now() }
    }

    pub(crate) fn record_ask(
        &mut self,
        since: Instant,
        purpose: Purpose,
        system: &str,
        new: &[Message],
        answer: &ModelResponse,
    ) {
        let (response, calls) = (answer.text.clone(), answer.calls.clone());
        let (system, messages, tokens) = (system.to_owned(), new.to_vec(), answer.tokens);
        self.record(
            since,
            TraceAction::Asked { purpose, system, messages, response, calls, tokens },
        );
    }

    /// Records a request that got no response.
    pub(crate) fn record_failed_ask(
        &mut self,
        since: Instant,
        purpose: Purpose,
        system: &str,
        new: &[Message],
        error: &ModelError,
    ) {
        let text = format!("(no answer: {error})");
        let (calls, tokens, stop) = (Vec::new(), TokenUsage::default(), ModelStopReason::Done);
        self.record_ask(
            since,
            purpose,
            system,
            new,
            &ModelResponse { text, calls, tokens, stop_reason: stop },
        );
    }

    pub(crate) fn record(&mut self, since: Instant, action: TraceAction) {
        let at_ms = millis(since.duration_since(self.started_at));
        self.trace.steps.push(TraceStep { at_ms, ms: millis(since.elapsed()), action });
    }
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
