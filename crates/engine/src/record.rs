//! Writing the record of an execution.

use crate::collect::Collected;
use crate::command::{Command, Entry};
use crate::outcome::{Outcome, value_warning};
use crate::run::Lease;
use chrono::{DateTime, Utc};
use sandbox::{Answer, Cause, Ending};
use serde_json::Value;
use types::{Code, Event, Execution, ExecutionId, Limits, Output, Rich, Truncated, Warning};
use uuid::Uuid;

/// Pieces of output that follow each other on one stream are one piece up to this size, so that
/// a program that writes single bytes does not make a record of single bytes.
const OUTPUT_PIECE_BYTES: usize = 8 * 1024;

/// The record while it is being written.
pub(crate) struct Record {
    created: DateTime<Utc>,
    started: DateTime<Utc>,
    output: Vec<Output>,
    results: Vec<Rich>,
}

impl Record {
    pub(crate) fn new(created: DateTime<Utc>) -> Self {
        Self { created, started: Utc::now(), output: Vec::new(), results: Vec::new() }
    }

    pub(crate) fn hear(&mut self, event: Event) {
        match event {
            Event::Result(result) => self.results.push(result),
            Event::Output(piece) => match self.output.last_mut() {
                Some(last)
                    if last.stream == piece.stream
                        && last.text.len() + piece.text.len() <= OUTPUT_PIECE_BYTES =>
                {
                    last.text.push_str(&piece.text);
                }
                _ => self.output.push(piece),
            },
        }
    }

    #[expect(clippy::too_many_arguments, reason = "each is one part of the record, used once")]
    pub(crate) fn close(
        self,
        command: &Command,
        lease: &Lease,
        limits: &Limits,
        ending: &Ending,
        outcome: Outcome,
        collected: &Collected,
        mut warnings: Vec<Warning>,
    ) -> Execution {
        warnings.extend(notices(ending));
        if let (Entry::Call(call), Cause::Done(Answer::NotJson(error))) =
            (&command.entry, &ending.cause)
            && call.is_test()
        {
            warnings.push(value_warning(error));
        }
        let (entry, tool, arguments) = match &command.entry {
            Entry::Cell(_) => ("cell", None, None),
            Entry::Script { .. } => ("script", None, None),
            Entry::Call(call) => (call.function(), Some(call.tool().to_owned()), arguments(call)),
        };
        Execution {
            id: ExecutionId::new(Uuid::now_v7()),
            sandbox_id: lease.sandbox_id,
            generation: lease.generation,
            environment: lease.ready.environment.name.as_str().to_owned(),
            status: outcome.status,
            entry: entry.to_owned(),
            tool,
            code: command.entry.code().to_owned(),
            arguments,
            files_in: command.files.iter().map(|file| file.name.clone()).collect(),
            value: outcome.value,
            results: self.results,
            output: self.output,
            truncated: Truncated {
                output_dropped_bytes: Some(ending.output_dropped_bytes).filter(|bytes| *bytes > 0),
                files: collected.skipped.clone(),
            },
            error: outcome.error,
            exit_code: outcome.exit_code,
            files_out: collected.files.clone(),
            warnings,
            limits: *limits,
            usage: ending.usage,
            created_at: self.created,
            started_at: self.started,
            ended_at: Utc::now(),
        }
    }
}

fn arguments(call: &contract::Call) -> Option<Value> {
    match call.arguments() {
        contract::Arguments::Keywords(keywords) => Some(Value::Object(keywords.clone())),
        contract::Arguments::Input(input) => Some(input.clone()),
        contract::Arguments::None => None,
    }
}

/// What did not stop the run, and should be known all the same.
fn notices(ending: &Ending) -> Vec<Warning> {
    let mut notices = Vec::new();
    let mut notice = |code: Code, message: String| {
        notices.push(Warning { code: code.to_string(), message });
    };
    if ending.output_dropped_bytes > 0 {
        let message = format!("{} bytes of output were dropped", ending.output_dropped_bytes);
        notice(Code::OutputTooLarge, message);
    }
    if ending.results_dropped > 0 {
        let message = format!("{} results were too large and were cut", ending.results_dropped);
        notice(Code::OutputTooLarge, message);
    }
    if ending.alive && ending.oom_kills > 0 {
        let message = "a process of the code was killed for lack of memory".to_owned();
        notice(Code::MemoryExceeded, message);
    }
    notices
}

/// Records that the memory of a session is gone, where the caller will see it.
pub(crate) fn tell_loss(execution: &mut Execution) {
    execution.warnings.push(Warning {
        code: Code::SessionLost.to_string(),
        message: format!(
            "the interpreter has ended: variables and files of the session are gone, and its \
             generation is now {}",
            execution.generation
        ),
    });
}
