//! Assembles the tool calls of a response from stream pieces.

use super::endpoint::ProviderApi;
use crate::model::{Message, ModelRequest, ToolCall};
use genai::chat::ToolCall as Piece;
use serde_json::{Value, json};
use std::collections::HashSet;
use uuid::Uuid;

/// Maximum calls of one response: more than any run executes at once.
const CALLS_MAX: usize = 128;

#[derive(Debug, Default)]
pub(super) struct ToolCallAssembler {
    found: Vec<Piece>,
    bytes: usize,
}

impl ToolCallAssembler {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn too_many(&self) -> bool {
        self.found.len() > CALLS_MAX
    }

    /// Calls of chat completions are assembled here: genai would allocate as many as the provider's
    /// index claims. For other APIs a piece is the call so far, and genai returns all of them at
    /// the end.
    pub(super) fn add_piece(&mut self, piece: Piece, wire: ProviderApi) {
        let text = piece.fn_arguments.as_str().unwrap_or_default();
        if wire != ProviderApi::ChatCompletions {
            self.bytes = self.bytes.max(text.len());
            return;
        }
        self.bytes += piece.call_id.len() + piece.fn_name.len() + text.len();
        match self.matching_call(&piece) {
            Some(Value::String(arguments)) => arguments.push_str(text),
            _ => self.found.push(piece),
        }
    }

    pub(super) fn add_complete(&mut self, calls: Vec<Piece>) {
        self.found.extend(calls);
    }

    /// A continuation has the id of its call, or none; then genai fills in `call_` and the index.
    fn matching_call(&mut self, piece: &Piece) -> Option<&mut Value> {
        let same = |call: &Piece| !piece.call_id.is_empty() && call.call_id == piece.call_id;
        let last = self.found.len().checked_sub(1);
        let index = match self.found.iter().position(same) {
            Some(index) => Some(index),
            None if !piece.fn_name.is_empty() => None,
            None => piece.call_id.strip_prefix("call_").and_then(|n| n.parse().ok()).or(last),
        };
        self.found.get_mut(index?).map(|call| &mut call.fn_arguments)
    }

    /// Gives each call an id that is unique in the conversation, even if the provider sends none.
    pub(super) fn finish(self, ask: &ModelRequest) -> Vec<ToolCall> {
        let mut taken = earlier_ids(ask);
        let finish = |call: Piece| {
            let mut id = call.call_id;
            if id.is_empty() || taken.contains(&id) {
                id = format!("call_{}", Uuid::now_v7().simple());
            }
            taken.insert(id.clone());
            ToolCall { id, name: call.fn_name, arguments: parse_arguments(call.fn_arguments) }
        };
        self.found.into_iter().map(finish).collect()
    }
}

fn earlier_ids(ask: &ModelRequest) -> HashSet<String> {
    let calls = ask.messages.iter().flat_map(|message| match message {
        Message::Model { calls, .. } => calls.as_slice(),
        Message::User { .. } | Message::Tools { .. } => &[],
    });
    calls.map(|call| call.id.clone()).collect()
}

fn parse_arguments(arguments: Value) -> Value {
    match arguments {
        Value::Null => json!({}),
        Value::String(text) if text.trim().is_empty() => json!({}),
        Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        value => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ToolCallMode;

    fn put_together(pieces: &[(&str, &str, &str)]) -> Vec<(String, Value)> {
        let mut calls = ToolCallAssembler::default();
        for &(call_id, fn_name, arguments) in pieces {
            let piece = Piece {
                call_id: call_id.to_owned(),
                fn_name: fn_name.to_owned(),
                fn_arguments: arguments.into(),
                thought_signatures: None,
            };
            calls.add_piece(piece, ProviderApi::ChatCompletions);
        }
        let ask = ModelRequest {
            system: String::new(),
            messages: Vec::new(),
            tools: Vec::new(),
            call_mode: ToolCallMode::Auto,
        };
        calls.finish(&ask).into_iter().map(|call| (call.name, call.arguments)).collect()
    }

    #[test]
    fn pieces_find_their_call_however_a_server_marks_them() {
        let expected = vec![("a".to_owned(), json!({"x": 1})), ("b".to_owned(), json!({"y": 2}))];
        for pieces in [
            // Like OpenAI: the id once, then only the index.
            [
                ("i", "a", ""),
                ("call_0", "", "{\"x\": 1}"),
                ("j", "b", ""),
                ("call_1", "", "{\"y\": 2}"),
            ],
            // Both begin before either continues.
            [
                ("i", "a", ""),
                ("j", "b", ""),
                ("call_1", "", "{\"y\": 2}"),
                ("call_0", "", "{\"x\": 1}"),
            ],
            // Name and id in each piece.
            [("i", "a", "{\"x\":"), ("i", "a", "1}"), ("j", "b", "{\"y\":"), ("j", "b", "2}")],
            // No id at all.
            [("", "a", "{\"x\":"), ("", "", "1}"), ("", "b", "{\"y\":"), ("", "", "2}")],
        ] {
            assert_eq!(put_together(&pieces), expected, "{pieces:?}");
        }
    }

    #[test]
    fn a_piece_of_no_call_is_a_call_without_a_name() {
        assert_eq!(put_together(&[("call_7", "", "{}")]), [(String::new(), json!({}))]);
        let two = put_together(&[("i", "a", "{}"), ("call_7", "", "{}")]);
        assert_eq!(two.len(), 2);
    }
}
