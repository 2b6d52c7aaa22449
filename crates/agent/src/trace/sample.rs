//! A run of which an attacker has written whatever can be written by others.

use super::story::{Child, Story};
use super::{Did, Purpose, Step, Trace};
use crate::model::{Message, Tokens, ToolCall};
use chrono::DateTime;
use serde_json::{Value, json};
use types::{
    Code, Execution, ExecutionId, Fault, FileKind, FileOut, Limits, ModelUse, Output, Rich, Round,
    Status, Stream, ToolUse,
};
use uuid::Uuid;

pub(super) const HOSTILE: &str =
    "<script>alert(1)</script>\" onload='x' ![x](https://evil.example/?q)\x1b[2J\u{202e}``` </pre>";
/// One white dot.
pub(super) const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8/5+hHgAHggJ/PchI7wAAAABJRU5ErkJggg==";

fn id(number: u128) -> ExecutionId {
    ExecutionId::new(Uuid::from_u128(number))
}

fn execution(number: u128, status: Status) -> Execution {
    Execution { status, ..Execution::new(id(number), Limits::DEFAULT, DateTime::UNIX_EPOCH) }
}

fn rich(data: Value, main: bool) -> Rich {
    Rich { data: serde_json::from_value(data).unwrap(), main }
}

fn round(number: u32, execution: u128, status: Status) -> Round {
    Round {
        number,
        step: format!("Step {number} {HOSTILE}"),
        code: format!("print({number})  # {HOSTILE}\n"),
        execution_id: Some(id(execution)),
        status,
        stdout: "as the model saw it\n".into(),
        stderr: String::new(),
        error: (status == Status::Failed).then(|| "KeyError: 'as seen'".to_owned()),
    }
}

fn asked(purpose: Purpose, said: &str, calls: Vec<ToolCall>) -> Did {
    Did::Asked {
        purpose,
        system: format!("Be brief. {HOSTILE}"),
        messages: vec![Message::User { text: HOSTILE.into() }],
        said: said.into(),
        calls,
        tokens: Tokens { input: 120, output: 30 },
    }
}

fn shows_everything() -> Execution {
    let printed = |stream, text: &str| Output { t: 1, stream, text: text.into() };
    let mut execution = execution(2, Status::Succeeded);
    execution.output = vec![
        printed(Stream::Stdout, "to stdout\n"),
        printed(Stream::Stdout, HOSTILE),
        printed(Stream::Stderr, "to stderr\n"),
    ];
    execution.results = vec![
        rich(json!({"text/plain": "<Figure>", "image/png": PNG}), false),
        rich(json!({"text/plain": "a drawing", "image/svg+xml": "<svg onload='x'/>"}), false),
        rich(json!({"text/plain": "a lie", "image/png": "\"><script>alert(2)</script>"}), false),
        rich(json!({"text/plain": "a page", "text/html": "<img src=https://evil.example>"}), true),
    ];
    execution
}

fn fails() -> Execution {
    let fault = Fault {
        exception: Some("KeyError".into()),
        traceback: Some(format!("Traceback\n  line 1\nKeyError: {HOSTILE}")),
        ..Fault::new(Code::Python("KeyError".into()), HOSTILE)
    };
    Execution { error: Some(fault), ..execution(3, Status::Failed) }
}

/// A plan, a round that shows everything, one that fails, one whose record is gone, and a tool.
pub(super) fn story() -> Story {
    let call = ToolCall { id: "1".into(), name: "run_python".into(), arguments: json!({}) };
    let tool = ToolUse {
        id: "2".into(),
        name: format!("convert {HOSTILE}"),
        kind: HOSTILE.into(),
        arguments: json!({"unit": HOSTILE}),
        execution_id: Some(id(5)),
        result: HOSTILE.into(),
        failed: false,
    };
    let ran = |number, execution, status| Did::Ran {
        round: round(number, execution, status),
        files: Vec::new(),
    };
    let steps = [
        asked(Purpose::Plan, "", Vec::new()),
        asked(Purpose::Work, HOSTILE, vec![call]),
        ran(1, 2, Status::Succeeded),
        ran(2, 3, Status::Failed),
        ran(3, 4, Status::Failed),
        Did::Called { tool },
        asked(Purpose::Work, "42", Vec::new()),
    ];
    let drawn = rich(json!({"text/plain": "<Figure>", "image/png": PNG}), false);
    let drew = Execution { results: vec![drawn], ..execution(5, Status::Succeeded) };
    let children = [shows_everything(), fails(), drew];
    let child = |execution: Execution| (execution.id, Child { execution, saved: Vec::new() });
    let steps = steps.into_iter().map(|did| Step { at_ms: 10, ms: 1234, did }).collect();
    Story {
        trace: Trace {
            run: id(1),
            kind: "code_execution".into(),
            request: format!("What is it? {HOSTILE}"),
            model: "script".into(),
            steps,
        },
        execution: run(),
        children: children.into_iter().map(child).collect(),
    }
}

fn run() -> Execution {
    let file = FileOut {
        name: format!("a{HOSTILE}.csv"),
        mime: HOSTILE.into(),
        size: 7,
        sha256: String::new(),
        kind: FileKind::Data,
        url: None,
    };
    let used =
        ModelUse { name: "script".into(), requests: 3, input_tokens: 360, output_tokens: 90 };
    Execution {
        plan: vec![format!("Load {HOSTILE}"), "Plot".into()],
        rounds: vec![round(1, 2, Status::Succeeded)],
        value: Some(json!({"answer": format!("It is 42. {HOSTILE}")})),
        error: Some(Fault::new(Code::TimeExceeded, HOSTILE)),
        files_out: vec![file],
        model: Some(used),
        ..execution(1, Status::Succeeded)
    }
}
