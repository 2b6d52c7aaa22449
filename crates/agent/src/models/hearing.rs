//! Hears one answer to its end, and not a byte or a second longer than somebody would wait for it.
//!
//! What a provider sends is bounded by whole events. Of an event that never ends, or the text of an
//! error, genai holds what has come, and only time bounds it.

use super::calls::Calls;
use super::endpoint::Endpoint;
use super::failure::{Again, Failure};
use super::provider::Patience;
use super::wiretap::Wiretap;
use crate::model::{Answer, Ask, Listener, Stop, Tokens};
use futures_util::StreamExt;
use genai::chat::{ChatStream, ChatStreamEvent, MessageContent, StopReason, StreamEnd};
use tokio::time::timeout;
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

/// The most that models write today, 128,000 tokens, is less than 1 MB.
const ANSWER_BYTES_MAX: usize = 2 << 20;
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
                Ok(ChatStreamEvent::Chunk(piece)) if !piece.content.is_empty() => {
                    text.push_str(&piece.content);
                    said(&piece.content);
                }
                Ok(ChatStreamEvent::ToolCallChunk(piece)) => {
                    calls.add(piece.tool_call, self.endpoint.wire);
                }
                Ok(ChatStreamEvent::End(end)) => break end,
                Ok(_) => {}
                // Refused before the first word, which genai takes for an error.
                Err(_) if text.is_empty() && self.wiretap.refusal().is_some() => {
                    break StreamEnd::default();
                }
                Err(failure) => return Err(failure),
            }
            if text.len() + calls.bytes() > ANSWER_BYTES_MAX || calls.too_many() {
                return Err(self.too_much());
            }
        };
        let stop = self.stop(&end)?;
        if let Some(words) = self.wiretap.refusal().filter(|words| !words.is_empty()) {
            text.push_str(&words);
            said(&words);
        }
        let tokens = tokens(&end);
        calls.add_whole(
            end.captured_content.map(MessageContent::into_tool_calls).unwrap_or_default(),
        );
        if calls.too_many() {
            return Err(self.too_much());
        }
        Ok(Answer { text, calls: calls.finish(ask), tokens, stop })
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
                () = self.wiretap.flooded() => return Err(self.too_much()),
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

    fn stop(&self, end: &StreamEnd) -> Result<Stop, Failure> {
        match &end.captured_stop_reason {
            _ if self.wiretap.refusal().is_some() => Ok(Stop::Refusal),
            Some(StopReason::ContentFilter(_)) => Ok(Stop::Refusal),
            Some(StopReason::MaxTokens(_)) => Ok(Stop::Length),
            Some(_) => Ok(Stop::Done),
            // genai makes an end of its own where a connection was cut.
            None => Err(self.cut()),
        }
    }

    fn cut(&self) -> Failure {
        let reason = "the connection ended in the middle";
        Failure::unreadable(self.endpoint, reason, Again::Soon)
    }

    fn too_much(&self) -> Failure {
        Failure::unreadable(self.endpoint, "it is larger than an answer can be", Again::Never)
    }
}

fn tokens(end: &StreamEnd) -> Tokens {
    let count = |tokens: Option<i32>| tokens.unwrap_or(0).try_into().unwrap_or(0);
    let usage = end.captured_usage.as_ref();
    Tokens {
        input: count(usage.and_then(|usage| usage.prompt_tokens)),
        output: count(usage.and_then(|usage| usage.completion_tokens)),
    }
}
