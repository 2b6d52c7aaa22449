//! A run as one self-contained HTML page: no script, no other file, no network.
//!
//! Code and models write most of its content. Every text is escaped by [`escape_html`], and images
//! have only raster types. The page's Content-Security-Policy is a second defence if both fail.

use super::run_details::{Picture, RunDetails, RunOutput};
use super::sanitize::{format_duration, sanitize};
use super::{Purpose, TraceAction, TraceStep};
use crate::model::{Message, TokenUsage};
use types::{ExecutionStatus, OutputStream, Round, ToolUse};

const STYLE: &str = include_str!("report.css");
/// The policy of the page. The server sends the same as a header, with `sandbox`, which a page
/// cannot set for itself.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; \
                      base-uri 'none'; form-action 'none'";
const TITLE_CHARS_MAX: usize = 80;

impl RunDetails {
    pub fn to_html(&self) -> String {
        let title: String = self.trace.request.chars().take(TITLE_CHARS_MAX).collect();
        let mut page = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{CONTENT_SECURITY_POLICY}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"referrer\" content=\"no-referrer\">\n\
             <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n",
            escape_html(&title)
        );
        page.push_str(&header_html(self));
        page.push_str("<h2>Steps</h2>\n");
        let mut last_instructions = "";
        for (number, step) in (1..).zip(&self.trace.steps) {
            page.push_str(&section_html(self, number, step, &mut last_instructions));
        }
        page.push_str(&files_html(self));
        page.push_str(&times_html(self));
        page.push_str("</body>\n</html>\n");
        page
    }
}

fn header_html(run: &RunDetails) -> String {
    let execution = &run.execution;
    let request = format!("<h1>Request</h1>\n{}\n", prose(&run.trace.request));
    let mut answer = prose(run.answer());
    if let Some(error) = &execution.error {
        let message = format!("{}: {}", error.code, error.message);
        answer.push_str(&format!("\n<pre class=\"error\">{}</pre>", escape_html(&message)));
    }
    let mut page = format!(
        "{request}{}<h2>Answer</h2>\n<div class=\"answer\">{answer}</div>\n",
        facts_html(run)
    );
    if !execution.plan.is_empty() {
        let steps = execution.plan.iter().map(|step| format!("<li>{}</li>\n", escape_html(step)));
        page.push_str(&format!("<h2>Plan</h2>\n<ol>\n{}</ol>\n", steps.collect::<String>()));
    }
    page
}

fn facts_html(run: &RunDetails) -> String {
    let execution = &run.execution;
    let mut facts = vec![
        ("Status", status(execution.status)),
        ("Model", escape_html(&run.trace.model)),
        ("Time", format_duration(execution.usage.wall_ms)),
        ("Rounds", execution.rounds.len().to_string()),
    ];
    if let Some(used) = &execution.model {
        facts.push(("Requests to the model", used.requests.to_string()));
        facts.push((
            "Tokens",
            tokens(TokenUsage { input: used.input_tokens, output: used.output_tokens }),
        ));
    }
    facts.push(("Begun", execution.created_at.format("%Y-%m-%d %H:%M:%S UTC").to_string()));
    facts.push(("Run", execution.id.to_string()));
    let facts = facts.into_iter();
    let facts = facts.map(|(name, value)| format!("<div><dt>{name}</dt><dd>{value}</dd></div>\n"));
    format!("<dl class=\"facts\">\n{}</dl>\n", facts.collect::<String>())
}

/// `last_instructions` are those that were shown last; they are not repeated.
fn section_html<'a>(
    run: &'a RunDetails,
    number: usize,
    step: &'a TraceStep,
    last_instructions: &mut &'a str,
) -> String {
    let body = match &step.action {
        TraceAction::Asked { purpose, system, messages, response, tokens: used, .. } => {
            let mut body = note(&format!("{}, {}", tokens(*used), format_duration(step.ms)));
            if let Some(response) = run.intermediate_text(response) {
                body.push_str(&prose(response));
            }
            if std::mem::replace(last_instructions, system) != system {
                body.push_str(&details("Instructions of the model", system));
            }
            let sent: Vec<String> = messages.iter().map(message).collect();
            body.push_str(&details("Messages to the model", &sent.join("\n\n")));
            format!("<h3>{number}. {}</h3>\n{body}", purpose_label(*purpose))
        }
        TraceAction::Ran { round, .. } => {
            let (title, body) = (round_title(round), round_html(run, round, step.ms));
            format!("<h3>{number}. {title}</h3>\n{body}")
        }
        TraceAction::Called { tool } => {
            let (name, body) = (escape_html(&tool.name), tool_html(run, tool, step.ms));
            format!("<h3>{number}. Tool {name}</h3>\n{body}")
        }
    };
    format!("<section class=\"step\">\n{body}</section>\n")
}

fn round_html(run: &RunDetails, round: &Round, ms: u64) -> String {
    let mut body = note(&format!("{}, {}", status(round.status), format_duration(ms)));
    body.push_str(&pre("code", &round.code));
    run.outputs(round).iter().for_each(|one| body.push_str(&output_html(one)));
    body
}

fn tool_html(run: &RunDetails, tool: &ToolUse, ms: u64) -> String {
    let outcome = if tool.failed {
        status(ExecutionStatus::Failed)
    } else {
        status(ExecutionStatus::Succeeded)
    };
    let mut body = note(&format!("{outcome}, {}", format_duration(ms)));
    let arguments = serde_json::to_string_pretty(&tool.arguments).unwrap_or_default();
    body.push_str(&pre("code", &arguments));
    body.push_str(&pre(if tool.failed { "error" } else { "stdout" }, &tool.result));
    let pictures = run.pictures(tool.execution_id);
    pictures.iter().for_each(|picture| body.push_str(&figure(picture)));
    body
}

fn files_html(run: &RunDetails) -> String {
    if run.execution.files_out.is_empty() {
        return String::new();
    }
    let rows = run.execution.files_out.iter().map(|file| {
        let (name, mime) = (escape_html(&file.name), escape_html(&file.mime));
        format!("<tr><td>{name}</td><td>{mime}</td><td class=\"number\">{}</td></tr>\n", file.size)
    });
    format!(
        "<h2>Files</h2>\n<table>\n<tr><th>Name</th><th>Type</th><th class=\"number\">Bytes</th></tr>\n\
         {}</table>\n",
        rows.collect::<String>()
    )
}

fn times_html(run: &RunDetails) -> String {
    let rows = (1..).zip(&run.trace.steps).map(|(number, step)| {
        let (what, used) = match &step.action {
            TraceAction::Asked { purpose, tokens: used, .. } => {
                (purpose_label(*purpose).to_owned(), tokens(*used))
            }
            TraceAction::Ran { round, .. } => (format!("Round {}", round.number), String::new()),
            TraceAction::Called { tool } => {
                (format!("Tool {}", escape_html(&tool.name)), String::new())
            }
        };
        let (at, duration) = (format_duration(step.at_ms), format_duration(step.ms));
        format!(
            "<tr><td>{number}. {what}</td><td class=\"number\">{at}</td>\
             <td class=\"number\">{duration}</td><td class=\"number\">{used}</td></tr>\n"
        )
    });
    format!(
        "<h2>Time and tokens</h2>\n<table>\n<tr><th>Step</th><th class=\"number\">After</th>\
         <th class=\"number\">Took</th><th class=\"number\">Tokens</th></tr>\n{}</table>\n",
        rows.collect::<String>()
    )
}

/// Escapes untrusted text for element content and quoted attributes.
fn escape_html(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in sanitize(text).chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ => safe.push(character),
        }
    }
    safe
}

fn prose(text: &str) -> String {
    format!("<p class=\"text\">{}</p>\n", escape_html(text.trim()))
}

/// HTML ignores the first line break in `pre`; this one is ours.
fn pre(class: &str, text: &str) -> String {
    match text.trim_end() {
        "" => String::new(),
        text => format!("<pre class=\"{class}\">\n{}</pre>\n", escape_html(text)),
    }
}

fn note(html: &str) -> String {
    format!("<p class=\"note\">{html}</p>\n")
}

fn details(title: &str, text: &str) -> String {
    match pre("told", text) {
        body if body.is_empty() => body,
        body => format!("<details><summary>{title}</summary>{body}</details>\n"),
    }
}

fn output_html(output: &RunOutput<'_>) -> String {
    match output {
        RunOutput::Printed { stream: OutputStream::Stdout, text } => pre("stdout", text),
        RunOutput::Printed { stream: OutputStream::Stderr, text } => pre("stderr", text),
        RunOutput::Truncated(bytes) => note(&format!("{bytes} bytes of output were not stored")),
        RunOutput::Value { picture: Some(picture), .. } => figure(picture),
        RunOutput::Value { text, .. } => pre("value", text.unwrap_or_default()),
        RunOutput::Failed { name, message, traceback } => {
            let summary = format!("{name}: {message}");
            pre("error", traceback.unwrap_or(&summary))
        }
    }
}

fn figure(picture: &Picture) -> String {
    let name = escape_html(picture.name.as_deref().unwrap_or("chart"));
    let caption = picture.name.as_ref().map(|_| format!("<figcaption>{name}</figcaption>"));
    let (url, caption) = (picture.data_url(), caption.unwrap_or_default());
    format!("<figure><img alt=\"{name}\" src=\"{url}\">{caption}</figure>\n")
}

fn round_title(round: &Round) -> String {
    match round.step.as_str() {
        "" => format!("Round {}", round.number),
        step => format!("Round {}: {}", round.number, escape_html(step)),
    }
}

pub(super) fn purpose_label(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Plan => "Request for a plan",
        Purpose::Work => "Request for the next step",
    }
}

fn status(status: ExecutionStatus) -> String {
    let class = if status == ExecutionStatus::Succeeded { "good" } else { "bad" };
    format!("<span class=\"{class}\">{}</span>", status.name())
}

fn tokens(used: TokenUsage) -> String {
    super::text::tokens_text(used.input, used.output)
}

fn message(message: &Message) -> String {
    match message {
        Message::User { text } => text.clone(),
        Message::Model { text, .. } => format!("(the model) {text}"),
        Message::Tools { results } => {
            let parts = results.iter().map(|result| format!("{}:\n{}", result.name, result.text));
            parts.collect::<Vec<_>>().join("\n\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{PNG, sample_run};
    use super::*;

    /// All real tags of the page, with their attributes.
    fn tags(page: &str) -> Vec<&str> {
        let body = page.split_once("</head>").unwrap().1;
        body.split('<').skip(1).map(|rest| rest.split_once('>').unwrap().0).collect()
    }

    #[test]
    fn nothing_that_others_wrote_is_a_tag_or_an_attribute() {
        let page = sample_run().to_html();
        let own_tags = [
            "h1",
            "h2",
            "h3",
            "p",
            "dl",
            "div",
            "dt",
            "dd",
            "ol",
            "li",
            "section",
            "pre",
            "figure",
            "img",
            "figcaption",
            "details",
            "summary",
            "table",
            "tr",
            "th",
            "td",
            "span",
            "body",
            "html",
        ];
        for tag in tags(&page) {
            let name = tag.trim_start_matches('/').split([' ', '\n']).next().unwrap();
            assert!(own_tags.contains(&name), "<{tag}>");
            let (class, image) = (tag.contains(" class=\""), name == "img");
            let quotes = tag.matches('"').count();
            assert_eq!(quotes, if image { 4 } else { 2 * usize::from(class) }, "<{tag}>");
            assert!(!tag.contains("onload") && !tag.contains("style="), "<{tag}>");
        }
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "the words are there");
    }

    #[test]
    fn the_page_needs_nothing_but_itself() {
        let page = sample_run().to_html();
        let sources = page.split(" src=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
        let sources: Vec<&str> = sources.collect();
        let chart = format!("data:image/png;base64,{PNG}");
        assert_eq!(sources, [&chart, &chart], "a round and a tool have drawn");
        assert!(!STYLE.contains("url(") && !STYLE.contains("@import") && !STYLE.contains('<'));
        assert!(!page.contains("href=") && !page.contains("<link") && !page.contains("<script"));
        assert!(page.contains("default-src 'none'; img-src data:"), "{page}");
    }

    #[test]
    fn what_makes_a_line_read_as_another_is_written_out() {
        let page = sample_run().to_html();
        assert!(!page.contains(['\u{202e}', '\x1b']) && page.contains("\\u{202e}"));
    }

    #[test]
    fn tokens_and_time_are_told_for_each_step() {
        let page = sample_run().to_html();
        let rows = page.split_once("Time and tokens").unwrap().1;
        assert_eq!(rows.matches("1.2 s").count(), 7, "{rows}");
        assert_eq!(rows.matches("120 tokens in and 30 out").count(), 3, "{rows}");
        assert_eq!(page.matches("<summary>Instructions of the model").count(), 1);
        assert!(
            page.contains("<p class=\"text\">42</p>"),
            "what it said is not the answer: {page}"
        );
    }
}
