//! The conversation as JSON files, which the code of an agent can read: the messages, the results of
//! calls, and the files of the session.

use crate::agent_loop::AgentLoop;
use crate::conversation::Conversation;
use crate::model::{Message, ToolResult};
use serde_json::{Value, json};
use service::RequestError;
use std::collections::{BTreeMap, HashMap};
use types::{Error, ErrorCode, SandboxId};

/// Limit of the messages and results that are shown; the oldest ones are left out.
const BYTES_MAX: usize = 4 * 1024 * 1024;
const WORKING_DIRECTORY: &str = "/workspace";

/// Shows the conversation to the code of its session.
pub(crate) async fn show(
    agent_loop: &AgentLoop<'_>,
    session: SandboxId,
    conversation: &Conversation,
) -> Result<(), Error> {
    let (service, caller) = (agent_loop.service, &agent_loop.caller);
    let failed = |error: RequestError| Error {
        message: format!("the conversation cannot be shown to code: {}", error.error.message),
        ..*error.error
    };
    let mut files = conversation.to_files();
    let listed = service.session_files(caller, session).await.map_err(failed)?;
    let listed = listed.files.into_iter().map(|file| {
        let path = format!("{WORKING_DIRECTORY}/{}", file.name);
        json!({"name": file.name, "path": path, "size": file.size})
    });
    files.insert("files.json".to_owned(), to_bytes(&Value::from_iter(listed))?);
    service.show_conversation(caller, session, files).await.map_err(failed)
}

fn to_bytes(value: &Value) -> Result<Vec<u8>, Error> {
    let unwritten = |error: serde_json::Error| {
        Error::new(ErrorCode::ExecutionInterrupted, format!("cannot write JSON: {error}"))
    };
    serde_json::to_vec_pretty(value).map_err(unwritten)
}

impl Conversation {
    /// `messages.json` and `tool_results.json`, as they are before the next call.
    fn to_files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut arguments = HashMap::new();
        for message in &self.messages {
            if let Message::Model { calls, .. } = message {
                arguments.extend(calls.iter().map(|call| (call.id.as_str(), &call.arguments)));
            }
        }
        let result = |result: &ToolResult| {
            json!({
                "call_id": result.call_id,
                "tool": result.name,
                "arguments": arguments.get(result.call_id.as_str()),
                "result": result.text,
                "failed": result.failed,
            })
        };
        let (mut messages, mut results) = (Vec::new(), Vec::new());
        for message in &self.messages {
            match message {
                Message::User { text } => messages.push(json!({"role": "user", "text": text})),
                Message::Model { text, .. } if text.is_empty() => {}
                Message::Model { text, .. } => {
                    messages.push(json!({"role": "assistant", "text": text}));
                }
                Message::Tools { results: of_calls } => {
                    results.extend(of_calls.iter().map(result));
                }
            }
        }
        // Calls of the same message that have ended already.
        results.extend(self.answered.iter().map(result));
        let file = |name: &str, items: Vec<Value>| {
            let bytes = to_bytes(&Value::Array(newest(items))).unwrap_or_default();
            (name.to_owned(), bytes)
        };
        BTreeMap::from([file("messages.json", messages), file("tool_results.json", results)])
    }
}

/// The newest items that fit.
fn newest(items: Vec<Value>) -> Vec<Value> {
    let mut left = BYTES_MAX;
    let fits = |item: &&Value| match left.checked_sub(item.to_string().len()) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    };
    let count = items.iter().rev().take_while(fits).count();
    items.into_iter().rev().take(count).rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ToolCall;

    fn file(conversation: &Conversation, name: &str) -> Value {
        serde_json::from_slice(&conversation.to_files()[name]).unwrap()
    }

    #[test]
    fn the_files_have_what_was_said_and_what_calls_returned() {
        let call =
            ToolCall { id: "1".into(), name: "probe".into(), arguments: json!({"of": "tea"}) };
        let result = |id: &str| ToolResult {
            call_id: id.into(),
            name: "probe".into(),
            text: "7".into(),
            failed: false,
        };
        let mut conversation = Conversation::default();
        conversation.push_user("How much tea?");
        conversation.messages.push(Message::Model { text: String::new(), calls: vec![call] });
        conversation.messages.push(Message::Tools { results: vec![result("1")] });
        conversation.messages.push(Message::Model { text: "7".into(), calls: Vec::new() });
        conversation.answered.push(result("2"));
        let messages = json!([
            {"role": "user", "text": "How much tea?"}, {"role": "assistant", "text": "7"}
        ]);
        assert_eq!(file(&conversation, "messages.json"), messages);
        let results = file(&conversation, "tool_results.json");
        assert_eq!(results[0]["arguments"], json!({"of": "tea"}));
        assert_eq!((&results[1]["call_id"], &results[1]["result"]), (&json!("2"), &json!("7")));
    }

    #[test]
    fn t251_a_long_conversation_is_shown_without_its_oldest_messages() {
        let mut conversation = Conversation::default();
        for number in 0..6 {
            conversation.push_user(format!("{number}{}", "x".repeat(BYTES_MAX / 4)));
        }
        let messages = file(&conversation, "messages.json");
        let first = messages[0]["text"].as_str().unwrap();
        assert_eq!((messages.as_array().unwrap().len(), &first[..1]), (3, "3"));
    }
}
