//! A run with all of its executions: the input of the formats for people.
//!
//! Each format is opened outside of the sandbox, by its reader's program. None may make that
//! program access the network, or code could send out its results in a URL. So the formats contain
//! only plain text and raster images of the results.

use super::{Trace, TraceAction};
use crate::Agents;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use service::{Caller, ExecutionRecord, RequestError};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read;
use types::{DisplayData, Execution, ExecutionId, OutputFile, OutputStream, Round};

/// Without SVG: it is a document that can contain scripts and URLs.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const PLAIN: &str = "text/plain";
/// Larger than a page that people open.
const BYTES_MAX: usize = 32 << 20;
/// Larger than a chart for print.
const PICTURE_BYTES_MAX: u64 = 4 << 20;

#[derive(Debug, Clone, PartialEq)]
pub struct RunDetails {
    pub trace: Trace,
    /// The run itself.
    pub execution: Execution,
    /// Executions of its code and its tools. A missing one is shown as the model saw it.
    pub(super) children: BTreeMap<ExecutionId, ChildExecution>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ChildExecution {
    pub(super) execution: Execution,
    /// Images that it saved but did not display.
    pub(super) saved: Vec<Picture>,
}

/// A raster image whose bytes can be embedded as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Picture {
    pub(super) mime: &'static str,
    pub(super) base64: String,
    /// Name of the file, if it was saved.
    pub(super) name: Option<String>,
}

/// The output of one execution, in order.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RunOutput<'a> {
    Printed {
        stream: OutputStream,
        text: Cow<'a, str>,
    },
    Value {
        /// Whether it is the value of the last expression.
        main: bool,
        text: Option<&'a str>,
        picture: Option<Picture>,
    },
    Failed {
        name: Cow<'a, str>,
        message: &'a str,
        traceback: Option<&'a str>,
    },
    /// Number of output bytes that were not kept.
    Truncated(u64),
}

impl Picture {
    fn new(mime: &str, base64: &str) -> Option<Self> {
        let mime = PICTURES.into_iter().find(|known| *known == mime)?;
        let base64: String = base64.split_ascii_whitespace().collect();
        STANDARD.decode(&base64).ok()?;
        Some(Self { mime, base64, name: None })
    }

    fn from_rich(result: &DisplayData) -> Option<Self> {
        PICTURES.iter().find_map(|mime| Self::new(mime, result.data.get(*mime)?.as_str()?))
    }

    fn from_file(file: &OutputFile, bytes: &[u8]) -> Option<Self> {
        let picture = Self::new(&file.mime, &STANDARD.encode(bytes))?;
        Some(Self { name: Some(file.name.clone()), ..picture })
    }

    /// A `data:` URL for an image element.
    pub(super) fn data_url(&self) -> String {
        format!("data:{};base64,{}", self.mime, self.base64)
    }
}

impl Agents {
    /// Collects the whole run, for a caller who may see it.
    pub async fn run_details(
        &self,
        caller: &Caller,
        id: ExecutionId,
    ) -> Result<RunDetails, RequestError> {
        let trace = self.trace(caller, id).await?;
        let record = self.service.execution(caller, id).await?;
        let ExecutionRecord { execution, budget: _budget, .. } = record;
        let mut run = RunDetails { trace, execution, children: BTreeMap::new() };
        let mut room = BYTES_MAX;
        for id in run.child_ids() {
            let Ok(record) = self.service.execution(caller, id).await else { continue };
            let execution = record.execution;
            let Some(left) = room.checked_sub(size_bytes(&execution)) else { continue };
            room = left;
            let saved = self.saved_pictures(caller, &execution, &mut room).await;
            run.children.insert(id, ChildExecution { execution, saved });
        }
        Ok(run)
    }

    async fn saved_pictures(
        &self,
        caller: &Caller,
        execution: &Execution,
        room: &mut usize,
    ) -> Vec<Picture> {
        let pictures: Vec<Picture> =
            execution.results.iter().filter_map(Picture::from_rich).collect();
        let mut saved = Vec::new();
        for file in execution.files_out.iter().filter(|file| is_small_picture(file)) {
            let Some(picture) = self.saved_picture(caller, execution.id, file).await else {
                continue;
            };
            let is_listed = pictures.iter().any(|other| other.base64 == picture.base64);
            let Some(left) = room.checked_sub(picture.base64.len()).filter(|_| !is_listed) else {
                continue;
            };
            *room = left;
            saved.push(picture);
        }
        saved
    }

    async fn saved_picture(
        &self,
        caller: &Caller,
        id: ExecutionId,
        file: &OutputFile,
    ) -> Option<Picture> {
        let (_, bytes) = self.service.asset(caller, id, &file.name).await.ok()?;
        let read = tokio::task::spawn_blocking(move || {
            let mut content = Vec::new();
            bytes.take(PICTURE_BYTES_MAX).read_to_end(&mut content).map(|_| content)
        });
        Picture::from_file(file, &read.await.ok()?.ok()?)
    }
}

fn is_small_picture(file: &OutputFile) -> bool {
    PICTURES.contains(&file.mime.as_str()) && file.size <= PICTURE_BYTES_MAX
}

/// Bytes that this execution adds to a page.
fn size_bytes(execution: &Execution) -> usize {
    let printed: usize = execution.output.iter().map(|piece| piece.text.len()).sum();
    let text_of = |result: &DisplayData| {
        let kinds = PICTURES.iter().chain([&PLAIN]);
        kinds.filter_map(|mime| result.data.get(*mime)?.as_str()).map(str::len).sum::<usize>()
    };
    printed + execution.results.iter().map(text_of).sum::<usize>()
}

impl RunDetails {
    /// Ids of the executions of its code and its tools.
    fn child_ids(&self) -> Vec<ExecutionId> {
        let id = |action: &TraceAction| match action {
            TraceAction::Asked { .. } => None,
            TraceAction::Ran { round, .. } => round.execution_id,
            TraceAction::Called { tool } => tool.execution_id,
        };
        self.trace.steps.iter().filter_map(|step| id(&step.action)).collect()
    }

    pub(super) fn answer(&self) -> &str {
        let value = self.execution.value.as_ref();
        value.and_then(|value| value["answer"].as_str()).unwrap_or_default()
    }

    /// An intermediate text of the model. `None` if it is the answer of the run, which is shown
    /// elsewhere.
    pub(super) fn intermediate_text<'a>(&self, text: &'a str) -> Option<&'a str> {
        Some(text.trim()).filter(|text| !text.is_empty() && *text != self.answer().trim())
    }

    pub(super) fn outputs<'a>(&'a self, round: &'a Round) -> Vec<RunOutput<'a>> {
        match round.execution_id.and_then(|id| self.children.get(&id)) {
            Some(child) => child.outputs(),
            None => outputs_from_round(round),
        }
    }

    /// Images of a tool call in addition to its result.
    pub(super) fn pictures(&self, id: Option<ExecutionId>) -> Vec<Picture> {
        let Some(child) = id.and_then(|id| self.children.get(&id)) else { return Vec::new() };
        let pictures = child.execution.results.iter().filter_map(Picture::from_rich);
        pictures.chain(child.saved.iter().cloned()).collect()
    }
}

fn outputs_from_round(round: &Round) -> Vec<RunOutput<'_>> {
    let streams = [(OutputStream::Stdout, &round.stdout), (OutputStream::Stderr, &round.stderr)];
    let printed = streams.into_iter().filter(|(_, text)| !text.is_empty());
    let printed = printed.map(|(stream, text)| RunOutput::Printed { stream, text: text.into() });
    let failed = round.error.as_deref().map(|error| {
        let (name, message) = error.split_once(": ").unwrap_or(("error", error));
        RunOutput::Failed { name: name.into(), message, traceback: None }
    });
    printed.chain(failed).collect()
}

impl ChildExecution {
    fn outputs(&self) -> Vec<RunOutput<'_>> {
        let mut outputs: Vec<RunOutput<'_>> = Vec::new();
        for piece in &self.execution.output {
            match outputs.last_mut() {
                Some(RunOutput::Printed { stream, text }) if *stream == piece.stream => {
                    text.to_mut().push_str(&piece.text);
                }
                _ => {
                    let text = Cow::Borrowed(piece.text.as_str());
                    outputs.push(RunOutput::Printed { stream: piece.stream, text });
                }
            }
        }
        outputs.extend(self.execution.truncated.output_dropped_bytes.map(RunOutput::Truncated));
        outputs.extend(self.execution.results.iter().map(|result| RunOutput::Value {
            main: result.main,
            text: result.data.get(PLAIN).and_then(|text| text.as_str()),
            picture: Picture::from_rich(result),
        }));
        let saved = self.saved.iter().cloned();
        outputs.extend(saved.map(|picture| RunOutput::Value {
            main: false,
            text: None,
            picture: Some(picture),
        }));
        outputs.extend(self.execution.error.as_ref().map(|error| RunOutput::Failed {
            name: match &error.exception {
                Some(exception) => Cow::Borrowed(exception.as_str()),
                None => Cow::Owned(error.code.to_string()),
            },
            message: &error.message,
            traceback: error.traceback.as_deref(),
        }));
        outputs
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{PNG, sample_run};
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_is_nothing_but_a_picture_is_one() {
        for mime in PICTURES {
            assert!(Picture::new(mime, PNG).is_some(), "{mime}");
        }
        let foreign = ["image/svg+xml", "text/html", "image/png\"", "IMAGE/PNG", ""];
        for mime in foreign {
            assert_eq!(Picture::new(mime, PNG), None, "{mime}");
        }
        for bytes in ["<svg/>", "AAAA\" onload=\"x", "AAA"] {
            assert_eq!(Picture::new("image/png", bytes), None, "{bytes}");
        }
        let broken = Picture::new("image/png", "iVBO\nRw0K\n").unwrap();
        assert_eq!(broken.data_url(), "data:image/png;base64,iVBORw0K");
    }

    #[test]
    fn what_is_no_longer_kept_is_told_as_the_model_saw_it() {
        let run = sample_run();
        let rounds: Vec<&Round> = run
            .trace
            .steps
            .iter()
            .filter_map(|step| match &step.action {
                TraceAction::Ran { round, .. } => Some(round),
                _ => None,
            })
            .collect();
        let outputs = run.outputs(rounds[2]);
        let stream = OutputStream::Stdout;
        assert_eq!(outputs[0], RunOutput::Printed { stream, text: "as the model saw it\n".into() });
        let failed =
            RunOutput::Failed { name: "KeyError".into(), message: "'as seen'", traceback: None };
        assert_eq!(outputs[1], failed);
    }

    #[test]
    fn pieces_of_one_stream_are_one() {
        let run = sample_run();
        let TraceAction::Ran { round, .. } = &run.trace.steps[2].action else {
            panic!("the first round")
        };
        let printed = run.outputs(round);
        let streams = printed.iter().filter(|output| matches!(output, RunOutput::Printed { .. }));
        assert_eq!(streams.count(), 2);
    }

    #[test]
    fn what_a_run_weighs_is_what_is_told_of_it() {
        let (data, main) = (json!({"text/plain": "12345", "text/html": "x".repeat(1000)}), true);
        let result = DisplayData { data: serde_json::from_value(data).unwrap(), main };
        let run = sample_run();
        let execution = Execution { results: vec![result], ..run.execution };
        assert_eq!(size_bytes(&execution), 5);
    }
}
