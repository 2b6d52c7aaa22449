//! The agent loop: asks a model, runs its tool calls, and sends it the results, until the model
//! replies with text, an approval is needed, or the budget is exhausted.

use crate::artifacts::Artifacts;
use crate::budget::{BudgetExceeded, RunBudget, RunUsage};
use crate::conversation::Conversation;
use crate::model::{
    Message, Model, ModelError, ModelRequest, ModelResponse, ModelStopReason, ToolCall,
    ToolCallMode, ToolDefinition, ToolResult,
};
use crate::observation::ToolOutcome;
use crate::prompts;
use crate::toolbox::Toolbox;
use crate::trace::{Purpose, TraceRecorder};
use service::ResultForm;
use service::{Caller, RunHandle, Service};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use types::{Error, ErrorCode, Event, OutputFile, SandboxId, Warning};

/// Streamed text is sent to listeners in pieces of at least this size.
const FLUSH_BYTES: usize = 80;
const NOT_RUN: &str = "This was not run: the run has ended.";
pub(crate) const STOPPED: &str = "This was started and then stopped: its outcome is unknown.";

/// A run, with its usage and its trace so far.
pub(crate) struct AgentLoop<'a> {
    pub(crate) service: &'a Arc<Service>,
    pub(crate) run: &'a RunHandle,
    /// The principal who started the run, with its current privileges.
    pub(crate) caller: Caller,
    pub(crate) model: &'a dyn Model,
    pub(crate) budget: RunBudget,
    pub(crate) usage: RunUsage,
    pub(crate) trace_recorder: TraceRecorder,
    pub(crate) artifacts: Artifacts,
    /// What the model reads of a call of a CodeRunner tool.
    pub(crate) tool_results: ResultForm,
    /// Warnings about tools that ran in the interpreter of the session, by tool name.
    pub(crate) isolation_warnings: BTreeMap<String, Warning>,
    /// The last error, if nothing was computed since. Then the answer may contain only numbers that
    /// are in the model's input.
    pub(crate) unverified_error: Option<Error>,
    /// Whether the run must compute something before its numbers are trusted, and has not done so
    /// yet.
    pub(crate) unverified: bool,
}

/// How the loop ended, unless a [`RunError`] ended it.
#[derive(Debug)]
pub(crate) enum LoopOutcome {
    Answered(String),
    /// A call needs an approval first.
    NeedsApproval,
}

/// Why a run did not finish.
#[derive(Debug)]
pub(crate) enum RunError {
    Model(ModelError),
    /// The model refused.
    ModelRefused,
    BudgetExceeded(BudgetExceeded),
    /// The key of the caller is no longer valid.
    Unauthenticated,
    Cancelled,
}

impl From<BudgetExceeded> for RunError {
    fn from(spent: BudgetExceeded) -> Self {
        Self::BudgetExceeded(spent)
    }
}

impl RunError {
    pub(crate) fn to_error(&self) -> Error {
        match self {
            Self::Model(error) => error.to_error(),
            Self::ModelRefused => {
                Error::new(ErrorCode::ModelUnavailable, "the model refuses to answer this request")
                    .hint("rephrase the request, or choose another model")
            }
            Self::BudgetExceeded(spent) => spent.to_error(),
            Self::Unauthenticated => Error::new(
                ErrorCode::AuthMissing,
                "the API key that started this run was revoked or has expired",
            ),
            Self::Cancelled => Error::new(ErrorCode::Cancelled, "the run was cancelled"),
        }
    }
}

impl AgentLoop<'_> {
    /// Sends one request to the model.
    pub(crate) async fn ask_model(
        &mut self,
        purpose: Purpose,
        system: &str,
        conversation: &Conversation,
        tools: Vec<ToolDefinition>,
        choice: ToolCallMode,
    ) -> Result<ModelResponse, RunError> {
        self.usage.check(&self.budget)?;
        // The key or the privileges may have been revoked since the last request.
        self.caller = self.service.refresh_caller(&self.caller).ok_or(RunError::Unauthenticated)?;
        let since = Instant::now();
        let (system, messages) = (system.to_owned(), conversation.messages.clone());
        let ask = ModelRequest { system, messages, tools, call_mode: choice };
        let streamer = TextStreamer { run: self.run, buffer: Mutex::default() };
        let is_buffered = self.buffers_answer();
        let emit_text = |piece: &str| {
            if !is_buffered {
                streamer.push(piece)
            }
        };
        let answer = self.model.respond(&ask, &emit_text).await;
        streamer.flush();
        let new = ask.messages.get(already_sent(&ask.messages)..).unwrap_or_default();
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                self.trace_recorder.record_failed_ask(since, purpose, &ask.system, new, &error);
                return Err(RunError::Model(error));
            }
        };
        self.usage.record_response(&answer);
        self.trace_recorder.record_ask(since, purpose, &ask.system, new, &answer);
        match answer.stop_reason {
            ModelStopReason::Refusal => Err(RunError::ModelRefused),
            ModelStopReason::Done | ModelStopReason::Length => Ok(answer),
        }
    }

    pub(crate) async fn run(
        &mut self,
        system: &str,
        conversation: &mut Conversation,
        tools: &mut Toolbox,
    ) -> Result<LoopOutcome, RunError> {
        loop {
            let (choice, held_back) = (tools.call_mode(), self.buffers_answer());
            let answer = self
                .ask_model(Purpose::Work, system, conversation, tools.tool_definitions(), choice)
                .await?;
            let ModelResponse { text, calls, stop_reason: stop, .. } = answer;
            if stop == ModelStopReason::Length {
                // A truncated call or answer is unusable.
                self.usage.record_failure("the model's answer was cut off because it was too long");
                conversation.push_user(prompts::CUT.trim_end());
                continue;
            }
            if text.trim().is_empty() && calls.is_empty() {
                self.usage.record_failure("the model's answer was empty");
                conversation.push_user(prompts::EMPTY.trim_end());
                continue;
            }
            let message = Message::Model { text: text.clone(), calls: calls.clone() };
            conversation.messages.push(message);
            if calls.is_empty() {
                return Ok(LoopOutcome::Answered(text));
            }
            if held_back && !text.is_empty() && conversation.grounds_numbers_of(&text) {
                self.run.publish(Event::Text { text });
            }
            tools.call_all(self, conversation, calls).await?;
            if !conversation.pending.is_empty() {
                return Ok(LoopOutcome::NeedsApproval);
            }
            conversation.push_tool_results();
        }
    }

    /// Whether the answer is checked before it is streamed to listeners.
    fn buffers_answer(&self) -> bool {
        self.unverified_error.is_some() || self.unverified
    }

    /// Returns the final answer of the model, or the error because of which it is withheld.
    pub(crate) fn verify_answer(
        &self,
        conversation: &Conversation,
        answer: String,
    ) -> Result<String, Error> {
        match &self.unverified_error {
            Some(error) if !conversation.grounds_numbers_of(&answer) => Err(error.clone()),
            _ => Ok(answer),
        }
    }

    /// Records the files that a call produced.
    pub(crate) fn add_artifacts(&mut self, files: &[OutputFile], sandbox: Option<SandboxId>) {
        self.artifacts.add(files, sandbox);
        files.iter().for_each(|file| self.run.publish(Event::File(file.clone())));
    }

    /// Records the outcome of a call.
    pub(crate) fn record_tool_outcome(&mut self, outcome: &ToolOutcome) {
        if outcome.failed {
            self.usage.record_failure(&outcome.failure_line());
            self.unverified_error = outcome.error.clone().or(self.unverified_error.take());
            return;
        }
        self.usage.reset_failures();
        if outcome.computed {
            self.unverified_error = None;
        }
    }
}

/// Number of these messages that an earlier request already sent.
fn already_sent(messages: &[Message]) -> usize {
    let last = messages.iter().rposition(|message| matches!(message, Message::Model { .. }));
    last.map_or(0, |last| last + 1)
}

/// Every call needs a result before a conversation can continue. Adds one to each open call and
/// returns the calls that had been started.
pub(crate) fn close_open_calls(conversation: &mut Conversation) -> Vec<ToolCall> {
    let Some(Message::Model { calls, .. }) = conversation.messages.last() else {
        return Vec::new();
    };
    if calls.is_empty() || !conversation.pending.is_empty() {
        return Vec::new();
    }
    let mut stopped = Vec::new();
    for call in calls {
        if conversation.answered.iter().any(|result| result.call_id == call.id) {
            continue;
        }
        let was_started = conversation.started_calls.contains(&call.id);
        let text = if was_started { STOPPED } else { NOT_RUN };
        conversation.answered.push(ToolResult {
            call_id: call.id.clone(),
            name: call.name.clone(),
            text: text.to_owned(),
            failed: true,
        });
        stopped.extend(was_started.then(|| call.clone()));
    }
    conversation.push_tool_results();
    stopped
}

/// Streams the text of a model to listeners in larger pieces.
struct TextStreamer<'a> {
    run: &'a RunHandle,
    buffer: Mutex<String>,
}

impl TextStreamer<'_> {
    fn push(&self, piece: &str) {
        let long = {
            let mut held = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
            held.push_str(piece);
            held.len() >= FLUSH_BYTES || held.ends_with('\n')
        };
        if long {
            self.flush();
        }
    }

    fn flush(&self) {
        let mut held = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        if !held.is_empty() {
            self.run.publish(Event::Text { text: std::mem::take(&mut held) });
        }
    }
}
