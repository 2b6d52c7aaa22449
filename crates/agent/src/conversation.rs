//! A conversation with a model: its messages and its pending calls.

use crate::model::{Message, ToolCall, ToolResult};
use crate::toolbox::CallOutcome;
use serde::{Deserialize, Serialize};
use types::{ApprovalId, Error, ExecutionId};

/// Size of the history that a run continues from. Older requests are dropped as a whole.
const HISTORY_BYTES_MAX: usize = 256 * 1024;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Conversation {
    pub(crate) messages: Vec<Message>,
    /// Calls of the last message that wait for an approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) pending: Vec<PendingApproval>,
    /// Results of the other calls of that message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) answered: Vec<ToolResult>,
    /// Ids of the calls of that message that were started.
    #[serde(skip)]
    pub(crate) started_calls: Vec<String>,
    /// Whether the pending calls are from an earlier run, and this run has the replies.
    #[serde(skip)]
    pub(crate) settling: bool,
    /// The last error, if nothing was computed before the run ended. Kept while an approval is
    /// pending.
    #[serde(rename = "doubt", default, skip_serializing_if = "Option::is_none")]
    pub(crate) unverified_error: Option<Error>,
    /// If another model wrote the request: the input of that model.
    #[serde(skip)]
    pub(crate) caller_messages: Option<Vec<Message>>,
}

/// A call that waits for an approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PendingApproval {
    pub(crate) call: ToolCall,
    pub(crate) approval_id: ApprovalId,
    pub(crate) execution_id: ExecutionId,
    /// The kind of tool, for clients that show the approval.
    pub(crate) kind: String,
    pub(crate) description: String,
}

impl Conversation {
    /// A conversation that cannot be parsed is from another version and cannot be continued.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(crate) fn push_user(&mut self, text: impl Into<String>) {
        self.messages.push(Message::User { text: text.into() });
    }

    pub(crate) fn record_call_outcome(&mut self, outcome: CallOutcome) {
        match outcome {
            CallOutcome::Done(result) => self.answered.push(result),
            CallOutcome::NeedsApproval(pending) => self.pending.push(pending),
        }
        // In the order of the calls, whichever ended first.
        if let Some(Message::Model { calls, .. }) = self.messages.last() {
            let place = |id: &str| calls.iter().position(|call| call.id == id);
            self.answered.sort_by_key(|result| place(&result.call_id));
            self.pending.sort_by_key(|pending| place(&pending.call.id));
        }
    }

    /// Adds the results of the last calls to the messages, in the order of the calls.
    pub(crate) fn push_tool_results(&mut self) {
        let mut results = std::mem::take(&mut self.answered);
        self.started_calls.clear();
        if let Some(Message::Model { calls, .. }) = self.messages.last() {
            results.sort_by_key(|result| calls.iter().position(|call| call.id == result.call_id));
        }
        self.messages.push(Message::Tools { results });
    }

    /// Keeps the newest requests that fit; always the last one, since the pending calls belong to
    /// it.
    pub(crate) fn truncate_to_recent(self) -> Self {
        let size = |message: &Message| serde_json::to_string(message).map_or(0, |text| text.len());
        let mut room = HISTORY_BYTES_MAX;
        let is_request = |message: &Message| matches!(message, Message::User { .. });
        let mut first = self.messages.iter().rposition(is_request).unwrap_or_default();
        for (index, message) in self.messages.iter().enumerate().rev() {
            let Some(left) = room.checked_sub(size(message)) else { break };
            room = left;
            if is_request(message) {
                first = index;
            }
        }
        Self { messages: self.messages.into_iter().skip(first).collect(), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_conversation_loses_its_oldest_requests_and_no_half_of_one() {
        let mut conversation = Conversation::default();
        for number in 0..5 {
            conversation
                .push_user(format!("request {number} {}", "x".repeat(HISTORY_BYTES_MAX / 4)));
            conversation.messages.push(Message::Model { text: "answer".into(), calls: Vec::new() });
        }
        let recent = conversation.truncate_to_recent();
        assert_eq!(recent.messages.len(), 6);
        let Message::User { text } = &recent.messages[0] else { panic!("{recent:?}") };
        assert!(text.starts_with("request 2"));
    }
}
