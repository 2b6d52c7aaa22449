//! Writes the record of an execution: what is known before it runs, and what was observed.

use crate::collect::CollectedFiles;
use crate::command::{Command, EntryPoint};
use crate::execution_outcome::{classify_exit, value_warning};
use chrono::{DateTime, Utc};
use redact::OutputRedactor;
use sandbox::{ExitCause, ExitReport, RunnerOutcome};
use serde_json::Value;
use types::{Error, ErrorCode, Execution, TOOL_UNISOLATED, TestOutcome, Truncation, Warning};

/// Warning that a session has other packages than its environment. Not an error code.
const INSTALLED: &str = "package.installed";
/// Warning that a value is larger than a model should read. Not an error code.
const LARGE: &str = "value.large";
/// Some 25,000 tokens.
const LARGE_VALUE_BYTES: usize = 100_000;

/// The redactor of the secrets of a command's code. The variables of a tool are secrets.
pub(crate) async fn redactor_for(command: &Command) -> Result<OutputRedactor, Error> {
    let given = &command.grants.redactor;
    match &command.entry {
        EntryPoint::Call(call) => {
            given.merge(&OutputRedactor::prepare(call.variables().clone()).await?).await
        }
        EntryPoint::Cell(_)
        | EntryPoint::ResultCell(_)
        | EntryPoint::Script { .. }
        | EntryPoint::ScriptIn { .. } => Ok(given.clone()),
    }
}

/// What a record says before anything has run.
pub(crate) fn initial_record(
    command: &Command,
    record: Execution,
    missing_layers: Vec<Warning>,
    shares_interpreter: bool,
) -> Execution {
    let arguments = match &command.entry {
        EntryPoint::Call(call) => arguments(call),
        _ => None,
    };
    Execution {
        entry: command.entry.name().to_owned(),
        tool: command.entry.tool().map(str::to_owned),
        code: command.entry.code().to_owned(),
        arguments,
        files_in: command.files.iter().map(|file| file.name.clone()).collect(),
        warnings: missing_layers
            .into_iter()
            .chain(command.warnings.iter().cloned())
            .chain(unisolated_warning(command, shares_interpreter))
            .collect(),
        ..record
    }
}

/// The warning about a tool in a session: earlier code there can have replaced whatever the tool
/// uses, such as a module, a built-in function or a file, and so decide what it returns.
fn unisolated_warning(command: &Command, shares_interpreter: bool) -> Option<Warning> {
    let is_tool = matches!(command.entry, EntryPoint::Call(_));
    (shares_interpreter && is_tool).then(|| Warning {
        code: TOOL_UNISOLATED.to_owned(),
        message: "unisolated: the tool ran in the interpreter of the session, where earlier code \
                  can have changed its result; call the tool without a session to rule that out"
            .to_owned(),
    })
}

/// Completes a record, except for output and results, which the events have.
pub(crate) fn finish_record(
    mut record: Execution,
    entry: &EntryPoint,
    (started, ended_at): (Option<DateTime<Utc>>, DateTime<Utc>),
    mut report: ExitReport,
    collected: &CollectedFiles,
) -> Execution {
    record.warnings.extend(collect_warnings(&report, entry));
    let returned = report.take_returned();
    classify_exit(&mut record, &report, returned, entry);
    Execution {
        truncated: Truncation {
            output_dropped_bytes: Some(report.output_dropped_bytes).filter(|bytes| *bytes > 0),
            files: collected.skipped.clone(),
        },
        files_out: collected.files.clone(),
        test_outcome: is_test(entry).then(|| TestOutcome::from_status(record.status)),
        network: report.refused_connections,
        usage: report.usage,
        started_at: started,
        ended_at: Some(ended_at),
        ..record
    }
}

fn is_test(entry: &EntryPoint) -> bool {
    matches!(entry, EntryPoint::Call(call) if call.is_test())
}

fn arguments(call: &contract::ValidatedCall) -> Option<Value> {
    match call.arguments() {
        contract::CallArguments::Keywords(keywords) => Some(Value::Object(keywords.clone())),
        contract::CallArguments::Input(input) => Some(input.clone()),
        contract::CallArguments::None => None,
    }
}

/// Problems that did not stop the run, but that the caller should know.
fn collect_warnings(report: &ExitReport, entry: &EntryPoint) -> Vec<Warning> {
    let mut notices = Vec::new();
    let mut notice = |code: ErrorCode, message: String| {
        notices.push(Warning { code: code.to_string(), message });
    };
    if report.output_dropped_bytes > 0 {
        let message = format!("{} bytes of output were dropped", report.output_dropped_bytes);
        notice(ErrorCode::OutputTooLarge, message);
    }
    if report.results_dropped > 0 {
        let message =
            format!("{} results were too large and were truncated", report.results_dropped);
        notice(ErrorCode::OutputTooLarge, message);
    }
    if report.alive && report.oom_kills > 0 {
        let message = "a process of the code was killed because it ran out of memory".to_owned();
        notice(ErrorCode::MemoryExceeded, message);
    }
    if !report.installed.is_empty() {
        let packages = report.installed.iter().map(|(name, version)| format!("{name} {version}"));
        let message = format!("installed {}", packages.collect::<Vec<_>>().join(", "));
        notices.push(Warning { code: INSTALLED.to_owned(), message });
    }
    match (entry, &report.cause) {
        (EntryPoint::Call(_), ExitCause::Done(RunnerOutcome::Value(value))) => {
            notices.extend(large_value_warning(value.bytes))
        }
        (EntryPoint::Call(call), ExitCause::Done(RunnerOutcome::NotJson(error)))
            if call.is_test() =>
        {
            notices.push(value_warning(error));
        }
        // The cell succeeded without it; the warning explains why the value is missing.
        (
            EntryPoint::Cell(_) | EntryPoint::ResultCell(_),
            ExitCause::Done(RunnerOutcome::NotJson(error)),
        ) if error.too_large => {
            notices.push(value_warning(error));
        }
        _ => {}
    }
    notices
}

/// The value is delivered unchanged, but a caller that passes it to a model pays for each byte.
fn large_value_warning(bytes: usize) -> Option<Warning> {
    (bytes > LARGE_VALUE_BYTES).then(|| Warning {
        code: LARGE.to_owned(),
        message: format!(
            "the value has {bytes} bytes, and a model reads all of them; return only the values \
             that are needed"
        ),
    })
}

/// Records that a session has lost its state, where the caller will see it.
pub(crate) fn add_loss_warning(execution: &mut Execution) {
    execution.warnings.push(Warning {
        code: ErrorCode::SessionLost.to_string(),
        message: format!(
            "the interpreter has exited: variables and files of the session are lost, and its \
             generation is now {}",
            execution.generation
        ),
    });
}
