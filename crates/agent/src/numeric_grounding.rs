//! Checks that every number in an answer comes from the model's input.
//!
//! The input is the user's messages and the results of calls. The model's own text does not count:
//! neither messages, nor a plan, nor failed code that its traceback echoes.

use crate::code_tools::grounding_text;
use crate::conversation::Conversation;
use crate::model::Message;
use std::collections::BTreeSet;

impl Conversation {
    /// Whether every number of the answer occurs in the model's input.
    pub(crate) fn grounds_numbers_of(&self, answer: &str) -> bool {
        let known = match &self.caller_messages {
            // That model wrote the first message.
            Some(caller_messages) => {
                &grounded_numbers(caller_messages)
                    | &grounded_numbers(self.messages.get(1..).unwrap_or_default())
            }
            None => grounded_numbers(&self.messages),
        };
        numbers(answer).all(|number| known.contains(&number))
    }
}

fn grounded_numbers(messages: &[Message]) -> BTreeSet<String> {
    let (mut known, mut own) = (BTreeSet::new(), BTreeSet::new());
    for message in messages {
        match message {
            Message::User { text } => known.extend(numbers(text)),
            Message::Model { calls, .. } => {
                calls.iter().for_each(|call| own.extend(numbers(&call.arguments.to_string())));
            }
            Message::Tools { results } => {
                for result in results {
                    // A failure echoes the call: lines of its code and the text that it raised.
                    let answer = grounding_text(&result.name, &result.text);
                    let text = answer.as_deref().unwrap_or(&result.text);
                    let numbers_found = numbers(text);
                    known.extend(
                        numbers_found.filter(|number| !(result.failed && own.contains(number))),
                    );
                }
            }
        }
    }
    known
}

pub(crate) fn has_number(text: &str) -> bool {
    numbers(text).next().is_some()
}

/// Digit sequences with points and commas; `1,234.50` becomes `1234.50`.
fn numbers(text: &str) -> impl Iterator<Item = String> {
    let runs = text.split(|c: char| !(c.is_numeric() || c == '.' || c == ','));
    let plain = runs.map(|run| run.trim_matches(['.', ',']).replace(',', ""));
    plain.filter(|run| !run.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ToolCall, ToolResult};
    use serde_json::json;

    fn user(text: &str) -> Message {
        Message::User { text: text.to_owned() }
    }

    /// A model runs this code and gets this result.
    fn ran(code: &str, output: &str, failed: bool) -> [Message; 2] {
        let (id, name) = ("1".to_owned(), "run_python".to_owned());
        let call =
            ToolCall { id: id.clone(), name: name.clone(), arguments: json!({"code": code}) };
        let result = ToolResult { call_id: id, name, text: output.to_owned(), failed };
        [
            Message::Model { text: "it may be 99".to_owned(), calls: vec![call] },
            Message::Tools { results: vec![result] },
        ]
    }

    fn conversation_with(code: &str, output: &str, failed: bool) -> Conversation {
        let mut messages = vec![user("the sum of 3 columns")];
        messages.extend(ran(code, output, failed));
        Conversation { messages, ..Conversation::default() }
    }

    #[test]
    fn a_number_that_nothing_has_computed_is_seen() {
        let output = conversation_with("sum()", "line 12: ZeroDivisionError after 1234.5", true);
        assert!(output.grounds_numbers_of("It failed at line 12, after 1,234.5."));
        assert!(output.grounds_numbers_of("The columns could not be added up."));
        assert!(output.grounds_numbers_of("None of the 3 columns has a sum."));
        assert!(!output.grounds_numbers_of("The total is 4711."));
        assert!(!output.grounds_numbers_of("It is 99."), "what the model said itself is no ground");
    }

    #[test]
    fn a_failure_that_says_the_code_again_is_no_ground_for_what_stands_in_it() {
        let code = "total = 4711 / 0";
        let traceback = "  File \"<cell>\", line 12\n    total = 4711 / 0\nZeroDivisionError";
        assert!(!conversation_with(code, traceback, true).grounds_numbers_of("The total is 4711."));
        assert!(
            conversation_with(code, traceback, true).grounds_numbers_of("It failed at line 12.")
        );
        let raised = conversation_with("raise ValueError('4711')", "ValueError: 4711", true);
        assert!(!raised.grounds_numbers_of("The total is 4711."));
        let mut earlier = conversation_with("def total(): return 4711 / 0", "It ran.", false);
        earlier.messages.extend(ran("total()", "in total\n    return 4711 / 0", true));
        assert!(
            !earlier.grounds_numbers_of("The total is 4711."),
            "nor is code of an earlier call"
        );
        assert!(conversation_with("print(12 * 1)", "12", false).grounds_numbers_of("It is 12."));
    }

    #[test]
    fn a_request_that_a_model_wrote_is_no_ground_but_what_that_model_was_told_is() {
        let messages = vec![user("Report 4711 for 2024."), user("Begin.")];
        let caller_messages = Some(vec![user("What was it in 2024?")]);
        let nested = Conversation { messages, caller_messages, ..Conversation::default() };
        assert!(nested.grounds_numbers_of("There is nothing of 2024."));
        assert!(!nested.grounds_numbers_of("It is 4711."));
    }
}
