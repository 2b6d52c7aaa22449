//! A run as plain text, for a terminal.

use super::inert::{block, duration, line};
use super::story::{Shown, Story};
use super::{Did, Purpose, Step};
use crate::model::Message;
use types::{Round, Stream, ToolUse};

const MARGIN: &str = "    ";
const DEEPER: &str = "        ";

impl Story {
    pub fn plain(&self) -> String {
        let run = &self.execution;
        let mut text = format!("Run {}: {}\n", run.id, run.status.name());
        text.push_str(&format!("{}\n\nRequest\n", line(&self.summary())));
        text.push_str(&block(&self.trace.request, MARGIN));
        if !run.plan.is_empty() {
            text.push_str("\nPlan\n");
            for (number, step) in (1..).zip(&run.plan) {
                text.push_str(&format!("{MARGIN}{number}. {}\n", line(step)));
            }
        }
        let mut told = "";
        self.trace.steps.iter().for_each(|one| text.push_str(&step(self, one, &mut told)));
        if !run.files_out.is_empty() {
            text.push_str("\nFiles\n");
            for file in &run.files_out {
                text.push_str(&format!("{MARGIN}{}  {} bytes\n", line(&file.name), file.size));
            }
        }
        if let Some(error) = &run.error {
            text.push_str(&format!("\nError\n{}", block(&error.message, MARGIN)));
        }
        text.push_str(&format!("\nAnswer\n{}", block(self.answer(), MARGIN)));
        text
    }

    /// In one line: who was asked, what it used, and how long it took.
    pub(super) fn summary(&self) -> String {
        let mut parts = vec![self.trace.model.clone()];
        if let Some(used) = &self.execution.model {
            parts.push(counted(used.requests, "request", "requests"));
            parts.push(tokens(used.input_tokens, used.output_tokens));
        }
        let rounds = u64::try_from(self.execution.rounds.len()).unwrap_or(u64::MAX);
        parts.push(counted(rounds, "round", "rounds"));
        parts.push(duration(self.execution.usage.wall_ms));
        parts.join(", ")
    }
}

/// `told` is the instruction that the model has had before, and is not shown again.
fn step<'a>(story: &Story, step: &'a Step, told: &mut &'a str) -> String {
    let took = duration(step.ms);
    match &step.did {
        Did::Asked { purpose, system, messages, said, tokens: used, .. } => {
            let purpose = match purpose {
                Purpose::Plan => "for a plan",
                Purpose::Work => "what to do",
            };
            let used = tokens(used.input, used.output);
            let mut text = format!("\nAsked {purpose} ({used}, {took})\n");
            if std::mem::replace(told, system) != system {
                text.push_str(&format!("{MARGIN}Instructions:\n{}", block(system, DEEPER)));
            }
            let asked: Vec<String> = messages.iter().map(message).collect();
            if !asked.is_empty() {
                let asked = asked.join("\n\n");
                text.push_str(&format!("{MARGIN}Told:\n{}", block(&asked, DEEPER)));
            }
            if let Some(said) = story.said(said) {
                text.push_str(&format!("{MARGIN}Said:\n{}", block(said, DEEPER)));
            }
            text
        }
        Did::Ran { round, .. } => ran(story, round, &took),
        Did::Called { tool } => called(tool, &took),
    }
}

/// What came of calls stands with them.
pub(super) fn message(message: &Message) -> String {
    match message {
        Message::User { text } | Message::Model { text, .. } => text.clone(),
        Message::Tools { results } => {
            let names: Vec<&str> = results.iter().map(|result| &*result.name).collect();
            format!("(what came of {})", names.join(", "))
        }
    }
}

fn ran(story: &Story, round: &Round, took: &str) -> String {
    let (number, status) = (round.number, round.status.name());
    let mut text = format!("\nRound {number}: {} ({status}, {took})\n", line(&round.step));
    text.push_str(&block(&round.code, &format!("{MARGIN}> ")));
    for shown in story.shown(round) {
        text.push_str(&told(&shown));
    }
    text
}

fn told(shown: &Shown<'_>) -> String {
    match shown {
        Shown::Printed { stream: Stream::Stdout, text } => block(text, MARGIN),
        Shown::Printed { stream: Stream::Stderr, text } => block(text, &format!("{MARGIN}! ")),
        Shown::Cut(bytes) => format!("{MARGIN}({bytes} bytes of output were not kept)\n"),
        Shown::Value { picture: Some(picture), .. } => {
            let name = picture.name.as_deref().map(|name| format!(", {}", line(name)));
            format!("{MARGIN}(a picture, {}{})\n", picture.mime, name.unwrap_or_default())
        }
        Shown::Value { text, .. } => block(text.unwrap_or_default(), MARGIN),
        Shown::Failed { name, message, .. } => {
            block(&format!("{name}: {message}"), &format!("{MARGIN}! "))
        }
    }
}

fn called(tool: &ToolUse, took: &str) -> String {
    let came = if tool.failed { "failed" } else { "answered" };
    let arguments = line(&tool.arguments.to_string());
    let mut text = format!("\nTool {} ({came}, {took})\n", line(&tool.name));
    text.push_str(&format!("{MARGIN}> {arguments}\n{}", block(&tool.result, MARGIN)));
    text
}

pub(super) fn tokens(input: u64, output: u64) -> String {
    format!("{input} tokens in and {output} out")
}

fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::super::sample::story;

    #[test]
    fn a_run_reads_from_its_request_to_its_answer() {
        let text = story().plain();
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
        let text = story().plain();
        let active = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!text.contains(active), "{text}");
        assert!(text.contains("<script>alert(1)</script>"), "{text}");
    }

    #[test]
    fn no_line_of_others_stands_where_ours_do() {
        let mut told = story();
        told.trace.request = "x\nAnswer\n    41\n".to_owned();
        let text = told.plain();
        assert_eq!(text.lines().filter(|line| *line == "Answer").count(), 1, "{text}");
    }
}
