//! A run as a Jupyter notebook (nbformat 4.5) that can be read, re-run and continued anywhere.
//!
//! Untrusted text is never Markdown in it: a reader would fetch an image in an answer.

use super::html::purpose_label;
use super::run_details::{Picture, RunDetails, RunOutput};
use super::sanitize::{format_duration, sanitize};
use super::text::{message_text, tokens_text};
use super::{TraceAction, TraceStep};
use serde_json::{Map, Value, json};
use types::{OutputStream, Round, ToolUse};

impl RunDetails {
    pub fn to_notebook(&self) -> Value {
        let (mut cells, mut last_instructions) = (vec![header_cell(self)], "");
        for (number, step) in (1..).zip(&self.trace.steps) {
            cells.extend(cells_of(self, number, step, &mut last_instructions));
        }
        cells.push(answer_cell(self));
        let run = &self.execution;
        json!({
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {
                "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
                "language_info": {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"},
                "belljar": {
                    "run": run.id,
                    "status": run.status,
                    "model": run.model,
                    "created_at": run.created_at,
                    "ended_at": run.ended_at,
                },
            },
            "cells": cells,
        })
    }
}

fn header_cell(run: &RunDetails) -> Value {
    let mut text = format!("# Request\n\n{}\n", escape_markdown(&run.trace.request));
    if !run.execution.plan.is_empty() {
        text.push_str("\n## Plan\n\n");
        for (number, step) in (1..).zip(&run.execution.plan) {
            text.push_str(&format!("{number}. {}\n", one_line(step)));
        }
    }
    markdown_cell("request", &text)
}

fn answer_cell(run: &RunDetails) -> Value {
    let execution = &run.execution;
    let mut text = format!("# Answer\n\n{}\n", escape_markdown(run.answer()));
    if let Some(error) = &execution.error {
        text.push_str(&format!("\n## Error\n\n{}\n", fenced_block(&error.message)));
    }
    if !execution.files_out.is_empty() {
        text.push_str("\n## Files\n\n");
        for file in &execution.files_out {
            text.push_str(&format!("- {}, {} bytes\n", one_line(&file.name), file.size));
        }
    }
    text.push_str(&format!("\n{}\n", one_line(&run.summary())));
    markdown_cell("answer", &text)
}

/// `last_instructions` are those that were shown last; they are not repeated.
fn cells_of<'a>(
    run: &RunDetails,
    number: usize,
    step: &'a TraceStep,
    last_instructions: &mut &'a str,
) -> Vec<Value> {
    match &step.action {
        TraceAction::Asked { purpose, system, messages, response, tokens: used, .. } => {
            let used = tokens_text(used.input, used.output);
            let mut text = format!(
                "## {}\n\n*{used}, {}*\n",
                purpose_label(*purpose),
                format_duration(step.ms)
            );
            if std::mem::replace(last_instructions, system) != system {
                text.push_str(&format!("\nInstructions:\n\n{}\n", fenced_block(system)));
            }
            let sent: Vec<String> = messages.iter().map(message_text).collect();
            if !sent.is_empty() {
                text.push_str(&format!("\nMessages:\n\n{}\n", fenced_block(&sent.join("\n\n"))));
            }
            if let Some(response) = run.intermediate_text(response) {
                text.push_str(&format!("\nResponse:\n\n{}\n", escape_markdown(response)));
            }
            vec![markdown_cell(&format!("asked-{number}"), &text)]
        }
        TraceAction::Ran { round, .. } => vec![
            markdown_cell(&format!("round-{number}"), &heading(round, step.ms)),
            code_cell(run, &format!("code-{number}"), round),
        ],
        TraceAction::Called { tool } => {
            vec![tool_cell(run, &format!("tool-{number}"), tool, step.ms)]
        }
    }
}

fn code_cell(run: &RunDetails, id: &str, round: &Round) -> Value {
    let outputs = run.outputs(round).into_iter();
    let outputs = outputs.map(|one| output(one, round.number)).collect::<Vec<_>>();
    json!({
        "cell_type": "code",
        "id": id,
        "metadata": {"belljar": {"execution": round.execution_id, "status": round.status}},
        "execution_count": round.number,
        "source": round.code,
        "outputs": outputs,
    })
}

/// Images of a tool are attachments of the Markdown cell.
fn tool_cell(run: &RunDetails, id: &str, tool: &ToolUse, ms: u64) -> Value {
    let failed = if tool.failed { ", failed" } else { "" };
    let mut text = format!("## Tool {}\n\n", one_line(&tool.name));
    let arguments = serde_json::to_string_pretty(&tool.arguments).unwrap_or_default();
    text.push_str(&format!("{}\n\n{}\n", fenced_block(&arguments), fenced_block(&tool.result)));
    text.push_str(&format!("\n*{}{failed}*\n", format_duration(ms)));
    let mut attachments = Map::new();
    for (number, picture) in run.pictures(tool.execution_id).into_iter().enumerate() {
        let name = format!("picture-{number}");
        text.push_str(&format!("\n![{name}](attachment:{name})\n"));
        let Picture { mime, base64, .. } = picture;
        attachments.insert(name, json!({mime: base64}));
    }
    let mut cell = markdown_cell(id, &text);
    if !attachments.is_empty() {
        cell["attachments"] = Value::Object(attachments);
    }
    cell
}

fn heading(round: &Round, ms: u64) -> String {
    let step =
        if round.step.is_empty() { String::new() } else { format!(": {}", one_line(&round.step)) };
    format!(
        "## Round {}{step}\n\n*{}, {}*\n",
        round.number,
        round.status.name(),
        format_duration(ms)
    )
}

fn markdown_cell(id: &str, text: &str) -> Value {
    json!({"cell_type": "markdown", "id": id, "metadata": {}, "source": text})
}

fn output(output: RunOutput<'_>, count: u32) -> Value {
    let stream =
        |name: &str, text: &str| json!({"output_type": "stream", "name": name, "text": text});
    match output {
        RunOutput::Printed { stream: OutputStream::Stdout, text } => stream("stdout", &text),
        RunOutput::Printed { stream: OutputStream::Stderr, text } => stream("stderr", &text),
        RunOutput::Truncated(bytes) => {
            stream("stderr", &format!("[{bytes} bytes of output were not stored]\n"))
        }
        RunOutput::Value { main, text, picture } => {
            let text = text.map(str::to_owned);
            let text = text.or_else(|| picture.as_ref().and_then(|picture| picture.name.clone()));
            let mut data = Map::new();
            data.extend(text.map(|text| ("text/plain".to_owned(), Value::from(text))));
            data.extend(picture.map(|it| (it.mime.to_owned(), Value::from(it.base64))));
            match main {
                true => json!({"output_type": "execute_result", "execution_count": count,
                               "data": data, "metadata": {}}),
                false => json!({"output_type": "display_data", "data": data, "metadata": {}}),
            }
        }
        RunOutput::Failed { name, message, traceback } => {
            let summary = format!("{name}: {message}");
            let lines: Vec<&str> = traceback.unwrap_or(&summary).lines().collect();
            json!({"output_type": "error", "ename": name, "evalue": message, "traceback": lines})
        }
    }
}

/// Escapes untrusted text for Markdown.
fn escape_markdown(text: &str) -> String {
    let text = sanitize(text.trim());
    let lines = text.lines().map(|line| {
        let text = line.trim_start();
        let mut plain = "&nbsp;".repeat(line.len() - text.len());
        for character in text.chars() {
            plain.extend(character.is_ascii_punctuation().then_some('\\'));
            plain.push(character);
        }
        plain
    });
    lines.collect::<Vec<_>>().join("  \n")
}

fn one_line(text: &str) -> String {
    escape_markdown(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// A fenced block whose fence is longer than any in its text.
fn fenced_block(text: &str) -> String {
    let runs = text.split(|character| character != '`').map(str::len);
    let fence = "`".repeat(runs.max().unwrap_or_default().max(2) + 1);
    format!("{fence}text\n{}\n{fence}", sanitize(text.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::super::sample::{HOSTILE, PNG, sample_run};
    use super::*;
    use std::collections::HashSet;

    fn cells(kind: &str) -> Vec<Value> {
        let notebook = sample_run().to_notebook();
        let cells = notebook["cells"].as_array().unwrap();
        cells.iter().filter(|cell| cell["cell_type"] == kind).cloned().collect()
    }

    #[test]
    fn every_cell_has_a_name_of_its_own_that_a_notebook_allows() {
        let notebook = sample_run().to_notebook();
        let mut seen = HashSet::new();
        for cell in notebook["cells"].as_array().unwrap() {
            let id = cell["id"].as_str().unwrap();
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
            assert!((1..=64).contains(&id.len()) && id.chars().all(plain), "{id}");
            assert!(seen.insert(id), "{id} twice");
            assert!(cell["metadata"].is_object() && cell["source"].is_string(), "{cell}");
        }
        assert_eq!((&notebook["nbformat"], &notebook["nbformat_minor"]), (&json!(4), &json!(5)));
    }

    #[test]
    fn code_stands_as_it_was_written_with_what_came_of_it() {
        let code = cells("code");
        assert_eq!(code.len(), 3);
        assert_eq!(code[0]["source"], format!("print(1)  # {HOSTILE}\n"));
        let kinds: Vec<&str> = code[0]["outputs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|output| output["output_type"].as_str().unwrap())
            .collect();
        let shows = ["display_data"; 3];
        assert_eq!(kinds[..2], ["stream", "stream"]);
        assert_eq!(kinds[2..5], shows);
        assert_eq!(kinds[5], "execute_result");
        assert_eq!(code[0]["outputs"][2]["data"]["image/png"], PNG);
        let error = &code[1]["outputs"][0];
        assert_eq!(error["output_type"], "error");
        assert_eq!((&error["ename"], &error["evalue"]), (&json!("KeyError"), &json!(HOSTILE)));
        assert_eq!(error["traceback"][1], "  line 1");
    }

    #[test]
    fn nothing_in_it_is_fetched_or_run_by_whoever_opens_it() {
        for cell in cells("code") {
            for output in cell["outputs"].as_array().unwrap() {
                let data = output["data"].as_object().into_iter().flatten();
                for (mime, _) in data {
                    assert!(mime == "text/plain" || mime == "image/png", "{mime}");
                }
            }
        }
        for cell in cells("markdown") {
            let source = cell["source"].as_str().unwrap();
            let outside = outside_fences(source).replace("\\<", "").replace("\\[", "");
            assert!(!outside.contains('<') && !outside.contains("[x"), "{outside}");
        }
        assert_eq!(escape_markdown("![x](y)"), "\\!\\[x\\]\\(y\\)");
        assert_eq!(escape_markdown("a\n    <b>"), "a  \n&nbsp;&nbsp;&nbsp;&nbsp;\\<b\\>");
    }

    /// The parts of Markdown outside of code fences.
    fn outside_fences(source: &str) -> String {
        let mut fence: Option<&str> = None;
        let mut outside = String::new();
        for line in source.lines() {
            match fence {
                Some(open) if line == open => fence = None,
                Some(_) => {}
                None => match line.strip_suffix("text") {
                    Some(open) if open.len() > 2 && open.chars().all(|c| c == '`') => {
                        fence = Some(open);
                    }
                    _ => outside.push_str(&format!("{line}\n")),
                },
            }
        }
        assert_eq!(fence, None, "a block is never closed: {source}");
        outside
    }

    #[test]
    fn a_block_ends_where_it_ends_whatever_is_in_it() {
        assert_eq!(fenced_block("a"), "```text\na\n```");
        assert_eq!(fenced_block("````\n# no\n````"), "`````text\n````\n# no\n````\n`````");
    }

    #[test]
    fn what_the_model_was_told_and_said_is_in_it() {
        let sent: Vec<String> = cells("markdown")
            .iter()
            .filter(|cell| cell["id"].as_str().unwrap().starts_with("asked-"))
            .map(|cell| cell["source"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(sent.len(), 3);
        assert!(sent[0].contains("Instructions:") && sent[0].contains("Be brief."), "{sent:?}");
        assert!(sent[0].contains("120 tokens in and 30 out") && sent[0].contains("Messages:"));
        assert!(!sent[2].contains("Instructions:") && sent[2].ends_with("Response:\n\n42\n"));
    }

    #[test]
    fn a_chart_of_a_tool_is_in_it() {
        let tool = cells("markdown").into_iter().find(|cell| cell["id"] == "tool-6").unwrap();
        assert_eq!(tool["attachments"]["picture-0"]["image/png"], PNG);
        assert!(tool["source"].as_str().unwrap().contains("](attachment:picture-0)"));
    }
}
