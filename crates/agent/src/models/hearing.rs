//! Hears one answer to its end, and not a byte or a second longer than somebody would wait for it.
//!
//! What a provider sends is bounded by whole events. An event that never ends is held by genai, and
//! bounded by time alone.

use super::endpoint::{Endpoint, Wire};
use super::failure::{Again, Failure};
use super::provider::Patience;
use crate::model::{Answer, Ask, Listener, Message, Stop, Tokens, ToolCall};
use futures_util::StreamExt;
use genai::chat::{
    ChatFrameSink, ChatStream, ChatStreamEvent, FrameCtx, RawFrameRef, StopReason, StreamEnd,
};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;
use tokio::time::timeout;
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;
use uuid::Uuid;

/// The most that models write today, 128,000 tokens, is about 32 MB on the wire.
const WIRE_BYTES_MAX: usize = 64 << 20;
/// The same in words and arguments is less than 1 MB.
const ANSWER_BYTES_MAX: usize = 2 << 20;
/// More at once than anybody runs.
const CALLS_MAX: usize = 128;

/// What goes by on the wire: that something does, how much, and what genai does not tell.
#[derive(Debug, Default)]
pub(super) struct Wiretap {
    frames: AtomicUsize,
    bytes: AtomicUsize,
    flooded: Notify,
    refusal: Mutex<Option<String>>,
}

impl ChatFrameSink for Wiretap {
    fn on_frame(&self, _: &FrameCtx, frame: RawFrameRef<'_>) {
        self.frames.fetch_add(1, Ordering::Relaxed);
        let before = self.bytes.fetch_add(frame.data.len(), Ordering::Relaxed);
        if before + frame.data.len() > WIRE_BYTES_MAX {
            self.flooded.notify_one();
        }
        let telling = ["refusal", "blockReason", "content_filter"];
        if telling.iter().any(|word| frame.data.contains(word))
            && let Some(event) = frame.json()
            && let Some(words) = refusal(&event)
        {
            let mut refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
            refusal.get_or_insert_default().push_str(words);
        }
    }
}

/// The words of a refusal, none of which reach the answer by themselves.
fn refusal(event: &Value) -> Option<&str> {
    if event["type"] == "response.refusal.delta" {
        return event["delta"].as_str();
    }
    if event.pointer("/response/incomplete_details/reason") == Some(&json!("content_filter")) {
        return Some("");
    }
    let words = ["/choices/0/delta/refusal", "/promptFeedback/blockReason"];
    words.iter().find_map(|path| event.pointer(path)?.as_str())
}

impl Wiretap {
    fn frames(&self) -> usize {
        self.frames.load(Ordering::Relaxed)
    }

    fn take_refusal(&self) -> Option<String> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

pub(super) struct Hearing<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) patience: Patience,
    pub(super) wiretap: &'a Wiretap,
    pub(super) stream: ChatStream,
}

impl Hearing<'_> {
    pub(super) async fn answer(mut self, ask: &Ask, said: Listener<'_>) -> Result<Answer, Failure> {
        let mut text = String::new();
        let mut calls = Calls::default();
        let end = loop {
            match self.next().await {
                Ok(ChatStreamEvent::Chunk(piece)) => {
                    text.push_str(&piece.content);
                    said(&piece.content);
                }
                Ok(ChatStreamEvent::ToolCallChunk(piece)) if self.endpoint.wire == Wire::Chat => {
                    calls.add(piece.tool_call);
                }
                Ok(ChatStreamEvent::End(end)) => break end,
                Ok(_) => {}
                // Refused before the first word, which genai takes for an error.
                Err(_) if text.is_empty() && self.has_refused() => break StreamEnd::default(),
                Err(failure) => return Err(failure),
            }
            if text.len() + calls.bytes > ANSWER_BYTES_MAX || calls.found.len() > CALLS_MAX {
                return Err(self.too_much());
            }
        };
        self.whole(ask, text, calls, end, said)
    }

    /// The next event. Some say with comments that they are still at work, of which genai makes no
    /// event.
    async fn next(&mut self) -> Result<ChatStreamEvent, Failure> {
        loop {
            let heard = self.wiretap.frames();
            let limit = if heard == 0 { self.patience.first } else { self.patience.between };
            // genai logs what a provider says, and what it says may have our key in it.
            let next = self.stream.next().with_subscriber(NoSubscriber::new());
            let event = tokio::select! {
                biased;
                () = self.wiretap.flooded.notified() => return Err(self.too_much()),
                event = timeout(limit, next) => event,
            };
            return match event {
                Ok(Some(Ok(event))) => Ok(event),
                Ok(Some(Err(error))) => Err(Failure::of(&error, self.endpoint)),
                Ok(None) => Err(self.cut()),
                Err(_) if self.wiretap.frames() > heard => continue,
                Err(_) => {
                    let reason = format!("it has said nothing for {} seconds", limit.as_secs_f32());
                    Err(Failure::unreachable(self.endpoint, &reason, Again::Never))
                }
            };
        }
    }

    fn whole(
        &self,
        ask: &Ask,
        mut text: String,
        calls: Calls,
        end: StreamEnd,
        said: Listener<'_>,
    ) -> Result<Answer, Failure> {
        let refusal = self.wiretap.take_refusal();
        let stop = match (&end.captured_stop_reason, &refusal) {
            (_, Some(_)) | (Some(StopReason::ContentFilter(_)), None) => Stop::Refusal,
            (Some(StopReason::MaxTokens(_)), None) => Stop::Length,
            (Some(_), None) => Stop::Done,
            // genai makes an end of its own where a connection was cut.
            (None, None) => return Err(self.cut()),
        };
        if let Some(words) = refusal.filter(|words| !words.is_empty()) {
            said(&words);
            text.push_str(&words);
        }
        let usage = end.captured_usage.clone().unwrap_or_default();
        let count = |tokens: Option<i32>| tokens.unwrap_or(0).try_into().unwrap_or(0);
        let tokens =
            Tokens { input: count(usage.prompt_tokens), output: count(usage.completion_tokens) };
        let captured = end.captured_content.map(|content| content.into_tool_calls());
        let found = if calls.found.is_empty() { captured.unwrap_or_default() } else { calls.found };
        if found.len() > CALLS_MAX {
            return Err(self.too_much());
        }
        Ok(Answer { text, calls: tool_calls(found, ask), tokens, stop })
    }

    fn has_refused(&self) -> bool {
        self.wiretap.refusal.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn cut(&self) -> Failure {
        let reason = "the connection ended in the middle";
        Failure::unreadable(self.endpoint, reason, Again::Soon)
    }

    fn too_much(&self) -> Failure {
        Failure::unreadable(self.endpoint, "it is larger than an answer can be", Again::Never)
    }
}

/// The calls of a chat completion, piece by piece. genai would do it too, and would make room for as
/// many calls as a provider says that there are.
#[derive(Debug, Default)]
struct Calls {
    found: Vec<genai::chat::ToolCall>,
    bytes: usize,
}

impl Calls {
    fn add(&mut self, piece: genai::chat::ToolCall) {
        let written = piece.fn_arguments.as_str().unwrap_or_default();
        self.bytes += piece.call_id.len() + piece.fn_name.len() + written.len();
        match self.meant(&piece) {
            Some(Value::String(arguments)) => arguments.push_str(written),
            _ => self.found.push(piece),
        }
    }

    /// A piece that goes on has the id of its call, or none; then genai writes `call_` and which one
    /// it is.
    fn meant(&mut self, piece: &genai::chat::ToolCall) -> Option<&mut Value> {
        let same = |call: &genai::chat::ToolCall| {
            !piece.call_id.is_empty() && call.call_id == piece.call_id
        };
        let last = self.found.len().checked_sub(1);
        let index = match self.found.iter().position(same) {
            Some(index) => Some(index),
            None if !piece.fn_name.is_empty() => None,
            None => piece.call_id.strip_prefix("call_").and_then(|n| n.parse().ok()).or(last),
        };
        self.found.get_mut(index?).map(|call| &mut call.fn_arguments)
    }
}

/// With ids that name one call each in the whole conversation, also where a provider gives none.
fn tool_calls(found: Vec<genai::chat::ToolCall>, ask: &Ask) -> Vec<ToolCall> {
    let mut taken: HashSet<String> = ask
        .messages
        .iter()
        .filter_map(|message| match message {
            Message::Model { calls, .. } => Some(calls.iter().map(|call| call.id.clone())),
            _ => None,
        })
        .flatten()
        .collect();
    let mut calls = Vec::new();
    for call in found {
        let mut id = call.call_id;
        if id.is_empty() || taken.contains(&id) {
            id = format!("call_{}", Uuid::now_v7().simple());
        }
        taken.insert(id.clone());
        calls.push(ToolCall { id, name: call.fn_name, arguments: arguments(call.fn_arguments) });
    }
    calls
}

fn arguments(written: Value) -> Value {
    match written {
        Value::Null => json!({}),
        Value::String(text) if text.trim().is_empty() => json!({}),
        Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        value => value,
    }
}
