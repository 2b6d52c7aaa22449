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
        let mut last_instructions = "";
        self.trace
            .steps
            .iter()
            .for_each(|one| text.push_str(&step_text(self, one, &mut last_instructions)));
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

/// `last_instructions` are those that were shown last; they are not repeated.
fn step_text<'a>(run: &RunDetails, step: &'a TraceStep, last_instructions: &mut &'a str) -> String {
    let duration = format_duration(step.ms);
    match &step.action {
        TraceAction::Asked { purpose, system, messages, response, tokens: used, .. } => {
            let purpose = match purpose {
                Purpose::Plan => "Request for a plan",
                Purpose::Work => "Request for the next step",
            };
            let used = tokens_text(used.input, used.output);
            let mut text = format!("\n{purpose} ({used}, {duration})\n");
            if std::mem::replace(last_instructions, system) != system {
                text.push_str(&format!(
                    "{MARGIN}Instructions:\n{}",
                    indent_block(system, INNER_MARGIN)
                ));
            }
            let sent: Vec<String> = messages.iter().map(message_text).collect();
            if !sent.is_empty() {
                let sent = sent.join("\n\n");
                text.push_str(&format!("{MARGIN}Messages:\n{}", indent_block(&sent, INNER_MARGIN)));
            }
            if let Some(response) = run.intermediate_text(response) {
                text.push_str(&format!(
                    "{MARGIN}Response:\n{}",
                    indent_block(response, INNER_MARGIN)
                ));
            }
            text
        }
        TraceAction::Ran { round, .. } => round_text(run, round, &duration),
        TraceAction::Called { tool } => tool_text(tool, &duration),
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

fn round_text(run: &RunDetails, round: &Round, duration: &str) -> String {
    let (number, status) = (round.number, round.status.name());
    let mut text =
        format!("\nRound {number}: {} ({status}, {duration})\n", sanitize_line(&round.step));
    text.push_str(&indent_block(&round.code, &format!("{MARGIN}> ")));
    for output in run.outputs(round) {
        text.push_str(&output_text(&output));
    }
    text
}

fn output_text(output: &RunOutput<'_>) -> String {
    match output {
        RunOutput::Printed { stream: OutputStream::Stdout, text } => indent_block(text, MARGIN),
        RunOutput::Printed { stream: OutputStream::Stderr, text } => {
            indent_block(text, &format!("{MARGIN}! "))
        }
        RunOutput::Truncated(bytes) => {
            format!("{MARGIN}({bytes} bytes of output were not stored)\n")
        }
        RunOutput::Value { picture: Some(picture), .. } => {
            let name = picture.name.as_deref().map(|name| format!(", {}", sanitize_line(name)));
            format!("{MARGIN}(image: {}{})\n", picture.mime, name.unwrap_or_default())
        }
        RunOutput::Value { text, .. } => indent_block(text.unwrap_or_default(), MARGIN),
        RunOutput::Failed { name, message, .. } => {
            indent_block(&format!("{name}: {message}"), &format!("{MARGIN}! "))
        }
    }
}

fn tool_text(tool: &ToolUse, duration: &str) -> String {
    let outcome = if tool.failed { "failed" } else { "answered" };
    let arguments = sanitize_line(&tool.arguments.to_string());
    let mut text = format!("\nTool {} ({outcome}, {duration})\n", sanitize_line(&tool.name));
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
        for expected in
            ["Instructions:\n        Be brief.", "Messages:\n", "Response:\n        42\n"]
        {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert_eq!(text.matches("Instructions:").count(), 1, "they are told once");
        for expected in ["360 tokens in and 90 out", "1.2 s", "(image: image/png)", "It is 42."] {
            assert!(text.contains(expected), "{expected}: {text}");
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
        let mut expected = sample_run();
        expected.trace.request = "x\nAnswer\n    41\n".to_owned();
        let text = expected.to_text();
        assert_eq!(text.lines().filter(|line| *line == "Answer").count(), 1, "{text}");
    }
}
