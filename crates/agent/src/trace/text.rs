//! A run as plain text, for a terminal.

use super::run_details::{RunDetails, RunOutput};
use super::sanitize::{format_duration, indent_block, sanitize_line};
use super::{Purpose, TraceAction, TraceStep};
use crate::model::Message;
use types::{OutputStream, Round, ToolUse};

const MARGIN: &str = "    ";
const INNER_MARGIN: &str = "        ";

impl RunDetails {
    pub fn to_text(&self) -> String {
        let run = &self.execution;
        let mut text = format!("Run {}: {}\n", run.id, run.status.name());
        text.push_str(&format!("{}\n\nRequest\n", sanitize_line(&self.summary())));
        text.push_str(&indent_block(&self.trace.request, MARGIN));
        if !run.plan.is_empty() {
            text.push_str("\nPlan\n");
            for (number, step) in (1..).zip(&run.plan) {
                text.push_str(&format!("{MARGIN}{number}. {}\n", sanitize_line(step)));
            }
        }
        let mut told = "";
        self.trace.steps.iter().for_each(|one| text.push_str(&step_text(self, one, &mut told)));
        if !run.files_out.is_empty() {
            text.push_str("\nFiles\n");
            for file in &run.files_out {
                text.push_str(&format!(
                    "{MARGIN}{}  {} bytes\n",
                    sanitize_line(&file.name),
                    file.size
                ));
            }
        }
        if let Some(error) = &run.error {
            text.push_str(&format!("\nError\n{}", indent_block(&error.message, MARGIN)));
        }
        text.push_str(&format!("\nAnswer\n{}", indent_block(self.answer(), MARGIN)));
        text
    }

    /// One line: the model, its usage, and the duration.
    pub(super) fn summary(&self) -> String {
        let mut parts = vec![self.trace.model.clone()];
        if let Some(used) = &self.execution.model {
            parts.push(pluralize(used.requests, "request", "requests"));
            parts.push(tokens_text(used.input_tokens, used.output_tokens));
        }
        let rounds = u64::try_from(self.execution.rounds.len()).unwrap_or(u64::MAX);
        parts.push(pluralize(rounds, "round", "rounds"));
        parts.push(format_duration(self.execution.usage.wall_ms));
        parts.join(", ")
    }
}

/// `told` is the last instruction that was shown; it is not repeated.
fn step_text<'a>(story: &RunDetails, step: &'a TraceStep, told: &mut &'a str) -> String {
    let took = format_duration(step.ms);
    match &step.did {
        TraceAction::Asked { purpose, system, messages, said, tokens: used, .. } => {
            let purpose = match purpose {
                Purpose::Plan => "for a plan",
                Purpose::Work => "what to do",
            };
            let used = tokens_text(used.input, used.output);
            let mut text = format!("\nAsked {purpose} ({used}, {took})\n");
            if std::mem::replace(told, system) != system {
                text.push_str(&format!(
                    "{MARGIN}Instructions:\n{}",
                    indent_block(system, INNER_MARGIN)
                ));
            }
            let asked: Vec<String> = messages.iter().map(message_text).collect();
            if !asked.is_empty() {
                let asked = asked.join("\n\n");
                text.push_str(&format!("{MARGIN}Told:\n{}", indent_block(&asked, INNER_MARGIN)));
            }
            if let Some(said) = story.intermediate_text(said) {
                text.push_str(&format!("{MARGIN}Said:\n{}", indent_block(said, INNER_MARGIN)));
            }
            text
        }
        TraceAction::Ran { round, .. } => round_text(story, round, &took),
        TraceAction::Called { tool } => tool_text(tool, &took),
    }
}

/// Results of calls are shown with their calls.
pub(super) fn message_text(message: &Message) -> String {
    match message {
        Message::User { text } | Message::Model { text, .. } => text.clone(),
        Message::Tools { results } => {
            let names: Vec<&str> = results.iter().map(|result| &*result.name).collect();
            format!("(result of {})", names.join(", "))
        }
    }
}

fn round_text(story: &RunDetails, round: &Round, took: &str) -> String {
    let (number, status) = (round.number, round.status.name());
    let mut text = format!("\nRound {number}: {} ({status}, {took})\n", sanitize_line(&round.step));
    text.push_str(&indent_block(&round.code, &format!("{MARGIN}> ")));
    for shown in story.outputs(round) {
        text.push_str(&output_text(&shown));
    }
    text
}

fn output_text(shown: &RunOutput<'_>) -> String {
    match shown {
        RunOutput::Printed { stream: OutputStream::Stdout, text } => indent_block(text, MARGIN),
        RunOutput::Printed { stream: OutputStream::Stderr, text } => {
            indent_block(text, &format!("{MARGIN}! "))
        }
        RunOutput::Truncated(bytes) => {
            format!("{MARGIN}({bytes} bytes of output were not stored)\n")
        }
        RunOutput::Value { picture: Some(picture), .. } => {
            let name = picture.name.as_deref().map(|name| format!(", {}", sanitize_line(name)));
            format!("{MARGIN}(a picture, {}{})\n", picture.mime, name.unwrap_or_default())
        }
        RunOutput::Value { text, .. } => indent_block(text.unwrap_or_default(), MARGIN),
        RunOutput::Failed { name, message, .. } => {
            indent_block(&format!("{name}: {message}"), &format!("{MARGIN}! "))
        }
    }
}

fn tool_text(tool: &ToolUse, took: &str) -> String {
    let came = if tool.failed { "failed" } else { "answered" };
    let arguments = sanitize_line(&tool.arguments.to_string());
    let mut text = format!("\nTool {} ({came}, {took})\n", sanitize_line(&tool.name));
    text.push_str(&format!("{MARGIN}> {arguments}\n{}", indent_block(&tool.result, MARGIN)));
    text
}

pub(super) fn tokens_text(input: u64, output: u64) -> String {
    format!("{input} tokens in and {output} out")
}

fn pluralize(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::super::sample::sample_run;

    #[test]
    fn a_run_reads_from_its_request_to_its_answer() {
        let text = sample_run().to_text();
        let places = ["Request\n", "\nPlan\n", "\nRound 1: ", "\nTool ", "\nFiles\n", "\nAnswer\n"];
        let found: Vec<usize> = places.iter().map(|place| text.find(place).unwrap()).collect();
        assert!(found.is_sorted(), "{text}");
        for told in ["Instructions:\n        Be brief.", "Told:\n", "Said:\n        42\n"] {
            assert!(text.contains(told), "{told}: {text}");
        }
        assert_eq!(text.matches("Instructions:").count(), 1, "they are told once");
        for told in ["360 tokens in and 90 out", "1.2 s", "(a picture, image/png)", "It is 42."] {
            assert!(text.contains(told), "{told}: {text}");
        }
    }

    #[test]
    fn what_others_wrote_does_nothing_in_a_terminal() {
        let text = sample_run().to_text();
        let active = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!text.contains(active), "{text}");
        assert!(text.contains("<script>alert(1)</script>"), "{text}");
    }

    #[test]
    fn no_line_of_others_stands_where_ours_do() {
        let mut told = sample_run();
        told.trace.request = "x\nAnswer\n    41\n".to_owned();
        let text = told.to_text();
        assert_eq!(text.lines().filter(|line| *line == "Answer").count(), 1, "{text}");
    }
}
