//! Observes the frames that genai reads: their arrival, their size, and refusals, which genai does
//! not report.

use genai::chat::{ChatFrameSink, FrameCtx, RawFrameRef};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;

/// The longest responses today, 128,000 tokens, are about 32 MB in frames.
const WIRE_BYTES_MAX: usize = 64 << 20;

#[derive(Debug, Default)]
pub(super) struct FrameObserver {
    frames: AtomicUsize,
    bytes: AtomicUsize,
    limit_exceeded: Notify,
    refusal: Mutex<Option<String>>,
}

impl ChatFrameSink for FrameObserver {
    fn on_frame(&self, _: &FrameCtx, frame: RawFrameRef<'_>) {
        self.frames.fetch_add(1, Ordering::Relaxed);
        let before = self.bytes.fetch_add(frame.data.len(), Ordering::Relaxed);
        if before + frame.data.len() > WIRE_BYTES_MAX {
            self.limit_exceeded.notify_one();
        }
        let markers = ["refusal", "blockReason", "content_filter"];
        if markers.iter().any(|marker| frame.data.contains(marker))
            && let Some(event) = frame.json()
            && let Some(text) = refusal(&event)
        {
            let mut refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
            refusal.get_or_insert_default().push_str(text);
        }
    }
}

/// The text of a refusal, which genai does not add to the response.
fn refusal(event: &Value) -> Option<&str> {
    if event["type"] == "response.refusal.delta" {
        return event["delta"].as_str();
    }
    if event.pointer("/response/incomplete_details/reason") == Some(&json!("content_filter")) {
        return Some("");
    }
    let paths = ["/choices/0/delta/refusal", "/promptFeedback/blockReason"];
    paths.iter().find_map(|path| event.pointer(path)?.as_str())
}

impl FrameObserver {
    pub(super) fn frames(&self) -> usize {
        self.frames.load(Ordering::Relaxed)
    }

    /// Completes when the response exceeds the maximum size.
    pub(super) async fn limit_exceeded(&self) {
        self.limit_exceeded.notified().await;
    }

    /// The text of the refusal; empty if it has none.
    pub(super) fn refusal(&self) -> Option<String> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
