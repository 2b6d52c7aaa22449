//! The events of an execution, in order, and the part of the record that follows from them.
//!
//! `output` and `results` of a record are a fold of its events only, so that they can always be
//! rebuilt from stored events.

use crate::{
    ApprovalId, DisplayData, Error, ExecutionStatus, OutputChunk, OutputFile, Round, ToolUse,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Consecutive output on one stream is merged into chunks up to this size, so that a program that
/// writes single bytes does not produce a record of single bytes.
const OUTPUT_CHUNK_BYTES: usize = 8 * 1024;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The execution is queued or has started.
    Status {
        status: ExecutionStatus,
    },
    Output(OutputChunk),
    Result(DisplayData),
    File(OutputFile),
    /// An approval is requested.
    Approval {
        approval_id: ApprovalId,
    },
    /// The plan of a model.
    Plan {
        steps: Vec<String>,
    },
    /// A piece of a model's text.
    Text {
        text: String,
    },
    /// The answer of a model run, as in its record. It may differ from the model's text.
    Answer {
        text: String,
    },
    /// Code that a model wrote has run.
    Round(Round),
    /// A tool that a model called has returned.
    Tool(ToolUse),
    Error(Error),
    /// The last event: the record is stored, and will not change.
    End {
        status: ExecutionStatus,
    },
}

/// The output and the results of a record.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Transcript {
    pub output: Vec<OutputChunk>,
    pub results: Vec<DisplayData>,
}

impl Transcript {
    pub fn push(&mut self, event: Event) {
        match event {
            Event::Result(result) => self.results.push(result),
            Event::Output(piece) => match self.output.last_mut() {
                Some(last)
                    if last.stream == piece.stream
                        && last.text.len() + piece.text.len() <= OUTPUT_CHUNK_BYTES =>
                {
                    last.text.push_str(&piece.text);
                }
                _ => self.output.push(piece),
            },
            Event::Status { .. }
            | Event::File(_)
            | Event::Approval { .. }
            | Event::Plan { .. }
            | Event::Text { .. }
            | Event::Answer { .. }
            | Event::Round(_)
            | Event::Tool(_)
            | Event::Error(_)
            | Event::End { .. } => {}
        }
    }
}

impl FromIterator<Event> for Transcript {
    fn from_iter<T: IntoIterator<Item = Event>>(events: T) -> Self {
        let mut transcript = Self::default();
        events.into_iter().for_each(|event| transcript.push(event));
        transcript
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorCode, FileKind, OutputStream};
    use serde_json::json;

    fn wrote(stream: OutputStream, text: &str) -> Event {
        Event::Output(OutputChunk { t: 7, stream, text: text.into() })
    }

    #[test]
    fn a_program_that_writes_single_bytes_does_not_make_a_record_of_single_bytes() {
        let bytes = (0..OUTPUT_CHUNK_BYTES + 1).map(|_| wrote(OutputStream::Stdout, "x"));
        let transcript: Transcript = bytes.collect();
        let sizes: Vec<usize> = transcript.output.iter().map(|piece| piece.text.len()).collect();
        assert_eq!(sizes, [OUTPUT_CHUNK_BYTES, 1]);
    }

    #[test]
    fn the_two_streams_keep_their_order() {
        let events = [
            wrote(OutputStream::Stdout, "a"),
            wrote(OutputStream::Stderr, "b"),
            wrote(OutputStream::Stderr, "c"),
            wrote(OutputStream::Stdout, "d"),
        ];
        let transcript: Transcript = events.into_iter().collect();
        let texts: Vec<&str> = transcript.output.iter().map(|piece| &*piece.text).collect();
        assert_eq!(texts, ["a", "bc", "d"]);
    }

    #[test]
    fn the_schema_of_events_tells_them_apart_by_their_name() {
        let schema = serde_json::to_value(<Event as utoipa::PartialSchema>::schema()).unwrap();
        let names: Vec<String> =
            schema["oneOf"].as_array().unwrap().iter().map(|one| one.to_string()).collect();
        for name in [
            "status", "output", "result", "file", "approval", "plan", "text", "answer", "round",
            "tool", "error", "end",
        ] {
            let tag = format!(r#""event":{{"type":"string","enum":["{name}"]}}"#);
            assert_eq!(
                names.iter().filter(|one| one.contains(&tag)).count(),
                1,
                "{name}: {names:#?}"
            );
        }
    }

    fn round() -> Round {
        Round {
            number: 1,
            step: "Load".into(),
            code: "1 + 1".into(),
            execution_id: None,
            status: ExecutionStatus::Succeeded,
            stdout: "2".into(),
            stderr: String::new(),
            error: None,
        }
    }

    fn called() -> ToolUse {
        ToolUse {
            id: "call_1".into(),
            name: "convert".into(),
            kind: "runPythonCode".into(),
            arguments: json!({"value": 1}),
            execution_id: None,
            result: "1".into(),
            failed: false,
        }
    }

    #[test]
    fn every_event_says_which_it_is_and_reads_back_as_itself() {
        let file = OutputFile {
            name: "a.csv".into(),
            mime: "text/csv".into(),
            size: 1,
            sha256: "00".into(),
            kind: FileKind::Data,
            url: None,
        };
        let result = DisplayData { data: [("text/plain".into(), json!("1"))].into(), main: true };
        let approval_id = ApprovalId::new(uuid::Uuid::nil());
        for (name, event) in [
            ("status", Event::Status { status: ExecutionStatus::WaitingApproval }),
            ("output", wrote(OutputStream::Stdout, "a")),
            ("result", Event::Result(result)),
            ("file", Event::File(file)),
            ("approval", Event::Approval { approval_id }),
            ("plan", Event::Plan { steps: vec!["Load".into()] }),
            ("text", Event::Text { text: "four".into() }),
            ("answer", Event::Answer { text: "It is four.".into() }),
            ("round", Event::Round(round())),
            ("tool", Event::Tool(called())),
            ("error", Event::Error(Error::new(ErrorCode::TimeExceeded, "late"))),
            ("end", Event::End { status: ExecutionStatus::Denied }),
        ] {
            let text = serde_json::to_value(&event).unwrap();
            assert_eq!(text["event"], name);
            assert_eq!(serde_json::from_value::<Event>(text).unwrap(), event);
        }
    }
}
