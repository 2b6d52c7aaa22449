//! Sending a record: at once, or, when its output and results are too large to hold, in pieces that
//! are read from where they are kept while the client takes them.

use super::body::Json;
use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use serde::Serialize;
use service::{AnswerRoom, EventLog, Record};
use std::io;
use types::{Event, Execution, Transcript};

/// Of a text that is sent in pieces.
const PIECE_BYTES: usize = 64 * 1024;
/// How the JSON of a record ends that has no output and no results.
const EMPTY_END: &str = r#""results":[],"output":[]}"#;

/// The answer that has a record in it.
pub(crate) fn record(record: Record) -> Response {
    let Record { execution, log, room } = record;
    let body = match log.and_then(|log| Some((log, head(&execution)?))) {
        Some((log, head)) => {
            let begin = pieces(format!(r#"{head}"results":["#));
            let results = field(log.clone(), Field::Results);
            let between = pieces(r#"],"output":["#.to_owned());
            let (output, end) = (field(log, Field::Output), pieces("]}".to_owned()));
            let parts = begin.chain(results).chain(between).chain(output).chain(end);
            held(parts, room)
        }
        None if room.is_some() => {
            let text = serde_json::to_string(&execution).unwrap_or_default();
            drop(execution);
            held(pieces(text), room)
        }
        None => return Json(execution).into_response(),
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Everything before the two long fields.
fn head(execution: &Execution) -> Option<String> {
    let json = serde_json::to_string(execution).ok()?;
    json.strip_suffix(EMPTY_END).map(str::to_owned)
}

/// A text that is taken from here as the client takes it, so that it is known when it was sent.
fn pieces(text: String) -> impl Stream<Item = io::Result<Bytes>> + Send {
    let text = Bytes::from(text);
    let starts = (0..text.len()).step_by(PIECE_BYTES);
    stream::iter(starts.map(move |at| Ok(text.slice(at..text.len().min(at + PIECE_BYTES)))))
}

/// An answer that has its room in memory until the last of it was taken.
fn held(
    parts: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    room: Option<AnswerRoom>,
) -> Body {
    Body::from_stream(parts.inspect(move |_| {
        let _held = &room;
    }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Results,
    Output,
}

/// One of the fields while it is written.
struct Writing {
    log: EventLog,
    field: Field,
    /// The last event that was read.
    number: u64,
    /// What was read and is not written yet.
    transcript: Transcript,
    is_first: bool,
    is_over: bool,
}

/// The items of a field, with commas between them. A failure ends the connection before the end of
/// the answer, so that nobody takes a part for the whole.
fn field(log: EventLog, field: Field) -> impl Stream<Item = io::Result<Bytes>> + Send {
    let (transcript, number) = (Transcript::default(), 0);
    let writing = Writing { log, field, number, transcript, is_first: true, is_over: false };
    stream::try_unfold(writing, |mut writing| async move {
        if writing.is_over {
            return Ok::<_, io::Error>(None);
        }
        writing.read().await?;
        let text = writing.take()?;
        Ok(Some((Bytes::from(text), writing)))
    })
    .try_filter(|bytes| std::future::ready(!bytes.is_empty()))
}

impl Writing {
    async fn read(&mut self) -> io::Result<()> {
        let events = self.log.after(self.number).await;
        let events = events.map_err(|refused| io::Error::other(refused.fault.to_string()))?;
        self.number += events.len() as u64;
        self.is_over = events.is_empty();
        for event in events {
            let field = match event {
                Event::Result(_) => Some(Field::Results),
                Event::Output(_) => Some(Field::Output),
                _ => None,
            };
            if field == Some(self.field) {
                self.transcript.hear(event);
            }
        }
        Ok(())
    }

    /// What can be written now. The last piece of output may still get longer.
    fn take(&mut self) -> io::Result<String> {
        let mut text = String::new();
        for result in std::mem::take(&mut self.transcript.results) {
            self.write(&mut text, &result)?;
        }
        let held = usize::from(!self.is_over);
        let ready = self.transcript.output.len().saturating_sub(held);
        let pieces: Vec<_> = self.transcript.output.drain(..ready).collect();
        for piece in pieces {
            self.write(&mut text, &piece)?;
        }
        Ok(text)
    }

    fn write(&mut self, text: &mut String, item: &impl Serialize) -> io::Result<()> {
        if !std::mem::replace(&mut self.is_first, false) {
            text.push(',');
        }
        text.push_str(&serde_json::to_string(item)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::Utc;
    use types::{ExecutionId, Limits};
    use uuid::Uuid;

    #[test]
    fn the_two_long_fields_are_the_last_of_a_record() {
        let id = ExecutionId::new(Uuid::nil());
        let mut record = Execution::new(id, Limits::DEFAULT, Utc::now());
        record.ended_at = Some(Utc::now());
        record.code = EMPTY_END.to_owned();
        let head = head(&record).unwrap();
        let again: Execution = serde_json::from_str(&format!("{head}{EMPTY_END}")).unwrap();
        assert_eq!(again, record);
    }
}
