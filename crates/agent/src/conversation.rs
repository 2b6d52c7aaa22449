//! A conversation with a model: what was said so far, and what it waits for.

use crate::model::{Message, ToolCall, ToolResult};
use crate::toolbox::CallOutcome;
use serde::{Deserialize, Serialize};
use types::{ApprovalId, Error, ExecutionId};

/// Of the conversation that a run goes on from. Older parts are left out, whole requests at a time.
const HISTORY_BYTES_MAX: usize = 256 * 1024;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Conversation {
    pub(crate) messages: Vec<Message>,
    /// Calls of the last message that wait for somebody's answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) pending: Vec<PendingApproval>,
    /// What came of the other calls of that message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) answered: Vec<ToolResult>,
    /// Calls of that message that were begun, by their ids.
    #[serde(skip)]
    pub(crate) begun: Vec<String>,
    /// Whether those that wait are of an earlier run, and this one has their replies.
    #[serde(skip)]
    pub(crate) settling: bool,
    /// What failed before the run ended, if nothing was computed since: it is not forgotten while
    /// somebody is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) doubt: Option<Error>,
    /// For a request that another model wrote: what that one was told.
    #[serde(skip)]
    pub(crate) asker: Option<Vec<Message>>,
}

/// A call that somebody is asked about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PendingApproval {
    pub(crate) call: ToolCall,
    pub(crate) approval_id: ApprovalId,
    pub(crate) execution_id: ExecutionId,
    /// What kind of tool it is, for whoever shows the question.
    pub(crate) kind: String,
    pub(crate) description: String,
}

impl Conversation {
    /// One that cannot be read is from another version, and nobody goes on from it.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(crate) fn push_user(&mut self, text: impl Into<String>) {
        self.messages.push(Message::User { text: text.into() });
    }

    pub(crate) fn record_outcome(&mut self, came: CallOutcome) {
        match came {
            CallOutcome::Done(result) => self.answered.push(result),
            CallOutcome::NeedsApproval(pending) => self.pending.push(pending),
        }
        // As they were called, whichever came first.
        if let Some(Message::Model { calls, .. }) = self.messages.last() {
            let place = |id: &str| calls.iter().position(|call| call.id == id);
            self.answered.sort_by_key(|result| place(&result.call_id));
            self.pending.sort_by_key(|pending| place(&pending.call.id));
        }
    }

    /// Tells the model what came of its last calls, in their order.
    pub(crate) fn push_tool_results(&mut self) {
        let mut results = std::mem::take(&mut self.answered);
        self.begun.clear();
        if let Some(Message::Model { calls, .. }) = self.messages.last() {
            results.sort_by_key(|result| calls.iter().position(|call| call.id == result.call_id));
        }
        self.messages.push(Message::Tools { results });
    }

    /// The newest part of it that is not too long, from a request on; the last one in any case, for
    /// what waits belongs to it.
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
        let mut talk = Conversation::default();
        for number in 0..5 {
            talk.push_user(format!("request {number} {}", "x".repeat(HISTORY_BYTES_MAX / 4)));
            talk.messages.push(Message::Model { text: "answer".into(), calls: Vec::new() });
        }
        let recent = talk.truncate_to_recent();
        assert_eq!(recent.messages.len(), 6);
        let Message::User { text } = &recent.messages[0] else { panic!("{recent:?}") };
        assert!(text.starts_with("request 2"));
    }
}
