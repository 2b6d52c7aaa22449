//! A sample run in which an attacker controls all untrusted text.

use super::run_details::{ChildExecution, RunDetails};
use super::{Purpose, Trace, TraceAction, TraceStep};
use crate::model::{Message, TokenUsage, ToolCall};
use chrono::DateTime;
use serde_json::{Value, json};
use types::{
    DisplayData, Error, ErrorCode, Execution, ExecutionId, ExecutionStatus, FileKind, Limits,
    ModelUsage, OutputChunk, OutputFile, OutputStream, Round, ToolUse,
};
use uuid::Uuid;

pub(super) const HOSTILE: &str =
    "<script>alert(1)</script>\" onload='x' ![x](https://evil.example/?q)\x1b[2J\u{202e}``` </pre>";
/// A PNG of one white pixel.
pub(super) const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8/5+hHgAHggJ/PchI7wAAAABJRU5ErkJggg==";

fn id(number: u128) -> ExecutionId {
    ExecutionId::new(Uuid::from_u128(number))
}

fn execution(number: u128, status: ExecutionStatus) -> Execution {
    Execution { status, ..Execution::new(id(number), Limits::DEFAULT, DateTime::UNIX_EPOCH) }
}

fn rich(data: Value, main: bool) -> DisplayData {
    DisplayData { data: serde_json::from_value(data).unwrap(), main }
}

fn round(number: u32, execution: u128, status: ExecutionStatus) -> Round {
    Round {
        number,
        step: format!("Step {number} {HOSTILE}"),
        code: format!("print({number})  # {HOSTILE}\n"),
        execution_id: Some(id(execution)),
        status,
        stdout: "as the model saw it\n".into(),
        stderr: String::new(),
        error: (status == ExecutionStatus::Failed).then(|| "KeyError: 'as seen'".to_owned()),
    }
}

fn ask_step(purpose: Purpose, response: &str, calls: Vec<ToolCall>) -> TraceAction {
    TraceAction::Asked {
        purpose,
        system: format!("Be brief. {HOSTILE}"),
        messages: vec![Message::User { text: HOSTILE.into() }],
        response: response.into(),
        calls,
        tokens: TokenUsage { input: 120, output: 30 },
    }
}

fn shows_everything() -> Execution {
    let printed = |stream, text: &str| OutputChunk { t: 1, stream, text: text.into() };
    let mut execution = execution(2, ExecutionStatus::Succeeded);
    execution.output = vec![
        printed(OutputStream::Stdout, "to stdout\n"),
        printed(OutputStream::Stdout, HOSTILE),
        printed(OutputStream::Stderr, "to stderr\n"),
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
    let error = Error {
        exception: Some("KeyError".into()),
        traceback: Some(format!("Traceback\n  line 1\nKeyError: {HOSTILE}")),
        ..Error::new(ErrorCode::Python("KeyError".into()), HOSTILE)
    };
    Execution { error: Some(error), ..execution(3, ExecutionStatus::Failed) }
}

/// A plan, a round with all kinds of output, a failed one, one without a record, and a tool call.
pub(super) fn sample_run() -> RunDetails {
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
    let ran = |number, execution, status| TraceAction::Ran {
        round: round(number, execution, status),
        files: Vec::new(),
    };
    let steps = [
        ask_step(Purpose::Plan, "", Vec::new()),
        ask_step(Purpose::Work, HOSTILE, vec![call]),
        ran(1, 2, ExecutionStatus::Succeeded),
        ran(2, 3, ExecutionStatus::Failed),
        ran(3, 4, ExecutionStatus::Failed),
        TraceAction::Called { tool },
        ask_step(Purpose::Work, "42", Vec::new()),
    ];
    let drawn = rich(json!({"text/plain": "<Figure>", "image/png": PNG}), false);
    let drew = Execution { results: vec![drawn], ..execution(5, ExecutionStatus::Succeeded) };
    let children = [shows_everything(), fails(), drew];
    let child =
        |execution: Execution| (execution.id, ChildExecution { execution, saved: Vec::new() });
    let steps = steps.into_iter().map(|action| TraceStep { at_ms: 10, ms: 1234, action }).collect();
    RunDetails {
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
    let file = OutputFile {
        name: format!("a{HOSTILE}.csv"),
        mime: HOSTILE.into(),
        size: 7,
        sha256: String::new(),
        kind: FileKind::Data,
        url: None,
    };
    let used =
        ModelUsage { name: "script".into(), requests: 3, input_tokens: 360, output_tokens: 90 };
    Execution {
        plan: vec![format!("Load {HOSTILE}"), "Plot".into()],
        rounds: vec![round(1, 2, ExecutionStatus::Succeeded)],
        value: Some(json!({"answer": format!("It is 42. {HOSTILE}")})),
        error: Some(Error::new(ErrorCode::TimeExceeded, HOSTILE)),
        files_out: vec![file],
        model: Some(used),
        ..execution(1, ExecutionStatus::Succeeded)
    }
}
