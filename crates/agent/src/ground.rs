//! Whether an answer has numbers in it that nothing has computed and nobody has said.

use crate::model::Message;
use std::collections::BTreeSet;

/// Whether every number of the answer stands in what the model was told. What it said itself is no
/// ground.
pub(crate) fn is_grounded(answer: &str, messages: &[Message]) -> bool {
    let mut known = BTreeSet::new();
    for message in messages {
        match message {
            Message::User { text } => known.extend(numbers(text)),
            Message::Tools { results } => {
                results.iter().for_each(|result| known.extend(numbers(&result.text)));
            }
            Message::Model { .. } => {}
        }
    }
    numbers(answer).all(|number| known.contains(&number))
}

/// Digits, with the points and commas between them; `1,234.50` is `1234.50`.
fn numbers(text: &str) -> impl Iterator<Item = String> {
    let runs = text.split(|c: char| !(c.is_numeric() || c == '.' || c == ','));
    let plain = runs.map(|run| run.trim_matches(['.', ',']).replace(',', ""));
    plain.filter(|run| !run.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ToolResult;

    fn told(text: &str) -> Vec<Message> {
        let (call_id, name) = ("1".to_owned(), "run_python".to_owned());
        let result = ToolResult { call_id, name, text: text.to_owned(), failed: true };
        vec![
            Message::User { text: "the sum of 3 columns".to_owned() },
            Message::Model { text: "it may be 99".to_owned(), calls: Vec::new() },
            Message::Tools { results: vec![result] },
        ]
    }

    #[test]
    fn a_number_that_nothing_has_computed_is_seen() {
        let told = told("line 12: ZeroDivisionError after 1234.5");
        assert!(is_grounded("It failed at line 12, after 1,234.5.", &told));
        assert!(is_grounded("The columns could not be added up.", &told));
        assert!(is_grounded("None of the 3 columns has a sum.", &told));
        assert!(!is_grounded("The total is 4711.", &told));
        assert!(!is_grounded("It is 99.", &told), "what the model said itself is no ground");
    }
}
