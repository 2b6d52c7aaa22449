//! Reads one response to its end, within limits of size and time.
//!
//! The size limit counts whole events. genai buffers an event that never ends, or the body of an
//! error, without a limit; only the timeout bounds it.

use super::endpoint::Endpoint;
use super::frame_observer::FrameObserver;
use super::provider::ProviderRetryPolicy;
use super::provider_error::{ProviderError, RetryAdvice};
use super::tool_calls::ToolCallAssembler;
use crate::model::{ModelRequest, ModelResponse, ModelStopReason, TextListener, TokenUsage};
use futures_util::StreamExt;
use genai::chat::{ChatStream, ChatStreamEvent, MessageContent, StopReason, StreamEnd};
use tokio::time::timeout;
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

/// The longest responses today, 128,000 tokens, are less than 1 MB.
const ANSWER_BYTES_MAX: usize = 2 << 20;
pub(super) struct ResponseReader<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) retry_policy: ProviderRetryPolicy,
    pub(super) frame_observer: &'a FrameObserver,
    pub(super) stream: ChatStream,
}

impl ResponseReader<'_> {
    pub(super) async fn read(
        mut self,
        ask: &ModelRequest,
        on_text: TextListener<'_>,
    ) -> Result<ModelResponse, ProviderError> {
        let mut text = String::new();
        let mut calls = ToolCallAssembler::default();
        let end = loop {
            match self.next_event().await {
                Ok(ChatStreamEvent::Chunk(piece)) if !piece.content.is_empty() => {
                    text.push_str(&piece.content);
                    on_text(&piece.content);
                }
                Ok(ChatStreamEvent::ToolCallChunk(piece)) => {
                    calls.add_piece(piece.tool_call, self.endpoint.api);
                }
                Ok(ChatStreamEvent::End(end)) => break end,
                Ok(_) => {}
                // A refusal before the first text, which genai reports as an error.
                Err(_) if text.is_empty() && self.frame_observer.refusal().is_some() => {
                    break StreamEnd::default();
                }
                Err(failure) => return Err(failure),
            }
            if text.len() + calls.bytes() > ANSWER_BYTES_MAX || calls.too_many() {
                return Err(self.too_large_error());
            }
        };
        let stop = self.stop_reason(&end)?;
        if let Some(refusal) = self.frame_observer.refusal().filter(|refusal| !refusal.is_empty()) {
            text.push_str(&refusal);
            on_text(&refusal);
        }
        let tokens = token_usage(&end);
        calls.add_complete(
            end.captured_content.map(MessageContent::into_tool_calls).unwrap_or_default(),
        );
        if calls.too_many() {
            return Err(self.too_large_error());
        }
        Ok(ModelResponse { text, calls: calls.finish(ask), tokens, stop_reason: stop })
    }

    /// The next event. Some providers send comments while they work, for which genai yields no
    /// event.
    async fn next_event(&mut self) -> Result<ChatStreamEvent, ProviderError> {
        loop {
            let frames = self.frame_observer.frames();
            let limit = if frames == 0 {
                self.retry_policy.first_event_timeout
            } else {
                self.retry_policy.event_timeout
            };
            // genai logs provider messages, which may contain our key.
            let next = self.stream.next().with_subscriber(NoSubscriber::new());
            let event = tokio::select! {
                biased;
                () = self.frame_observer.limit_exceeded() => return Err(self.too_large_error()),
                event = timeout(limit, next) => event,
            };
            return match event {
                Ok(Some(Ok(event))) => Ok(event),
                Ok(Some(Err(error))) => Err(ProviderError::from_genai(&error, self.endpoint)),
                Ok(None) => Err(self.truncated_error()),
                Err(_) if self.frame_observer.frames() > frames => continue,
                Err(_) => {
                    let reason = format!("no data for {} seconds", limit.as_secs_f32());
                    Err(ProviderError::unreachable(self.endpoint, &reason, RetryAdvice::Never))
                }
            };
        }
    }

    fn stop_reason(&self, end: &StreamEnd) -> Result<ModelStopReason, ProviderError> {
        match &end.captured_stop_reason {
            _ if self.frame_observer.refusal().is_some() => Ok(ModelStopReason::Refusal),
            Some(StopReason::ContentFilter(_)) => Ok(ModelStopReason::Refusal),
            Some(StopReason::MaxTokens(_)) => Ok(ModelStopReason::Length),
            Some(_) => Ok(ModelStopReason::Done),
            // genai adds an end event of its own if the connection was cut.
            None => Err(self.truncated_error()),
        }
    }

    fn truncated_error(&self) -> ProviderError {
        let reason = "the connection closed before the end of the response";
        ProviderError::unreadable(self.endpoint, reason, RetryAdvice::Soon)
    }

    fn too_large_error(&self) -> ProviderError {
        ProviderError::unreadable(
            self.endpoint,
            "the response exceeds the size limit",
            RetryAdvice::Never,
        )
    }
}

fn token_usage(end: &StreamEnd) -> TokenUsage {
    let count = |tokens: Option<i32>| tokens.unwrap_or(0).try_into().unwrap_or(0);
    let usage = end.captured_usage.as_ref();
    TokenUsage {
        input: count(usage.and_then(|usage| usage.prompt_tokens)),
        output: count(usage.and_then(|usage| usage.completion_tokens)),
    }
}
