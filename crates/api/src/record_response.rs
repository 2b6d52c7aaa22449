//! Sends the record of an execution. If output and results are too large for memory, it streams
//! them from the event log at the speed of the client.

use super::extract::Json;
use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use serde::Serialize;
use serde_json::Value;
use service::{
    EventLog, ExecutionJson, ExecutionRecord, FileUrlSigner, Page, ResponseBudget, StoredExecution,
};
use std::io;
use tokio::task::spawn_blocking;
use types::{Event, Execution, Transcript};

/// Chunk size of a streamed text.
const CHUNK_BYTES: usize = 64 * 1024;
/// The end of a record's JSON with neither output nor results.
const EMPTY_END: &str = r#""results":[],"output":[]}"#;

/// Responds with a record.
pub(crate) fn record_response(record: ExecutionRecord, urls: &FileUrlSigner) -> Response {
    let ExecutionRecord { execution, log, budget: room } = record;
    let execution = urls.sign_execution(execution);
    let body = match log.and_then(|log| Some((log, record_head(&execution)?))) {
        Some((log, head)) => return streamed_response(head, log, room),
        None if room.is_some() => {
            let text = serde_json::to_string(&execution).unwrap_or_default();
            drop(execution);
            guarded_body(text_stream(text), room)
        }
        None => return Json(execution).into_response(),
    };
    json_response(body)
}

/// Responds with a stored record, which is text already. Absent for a record in another form than
/// this version writes.
pub(crate) fn stored_response(stored: StoredExecution) -> Option<Response> {
    let StoredExecution { json, log, budget } = stored;
    let head = json.as_str().strip_suffix(EMPTY_END)?.to_owned();
    Some(streamed_response(head, log, budget))
}

/// Responds with the JSON before the two long fields, and with these from the log.
fn streamed_response(head: String, log: EventLog, budget: Option<ResponseBudget>) -> Response {
    let begin = text_stream(format!(r#"{head}"results":["#));
    let results = field_stream(log.clone(), RecordField::Results);
    let between = text_stream(r#"],"output":["#.to_owned());
    let (output, end) = (field_stream(log, RecordField::Output), text_stream("]}".to_owned()));
    let parts = begin.chain(results).chain(between).chain(output).chain(end);
    json_response(guarded_body(parts, budget))
}

fn json_response(body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Responds with a page of records, which are text already.
pub(crate) fn page_response(page: &Page<ExecutionJson>) -> Response {
    let items: Vec<&str> = page.items.iter().map(ExecutionJson::as_str).collect();
    let mut text = format!(r#"{{"items":[{}]"#, items.join(","));
    if let Some(cursor) = &page.next_cursor {
        text.push_str(&format!(r#","next_cursor":{}"#, Value::from(cursor.as_str())));
    }
    text.push('}');
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

/// The JSON before the two long fields.
fn record_head(execution: &Execution) -> Option<String> {
    let json = serde_json::to_string(execution).ok()?;
    json.strip_suffix(EMPTY_END).map(str::to_owned)
}

/// Streams a text at the client's speed, so that the end of the stream means it was sent.
fn text_stream(text: String) -> impl Stream<Item = io::Result<Bytes>> + Send {
    let text = Bytes::from(text);
    let starts = (0..text.len()).step_by(CHUNK_BYTES);
    stream::iter(starts.map(move |at| Ok(text.slice(at..text.len().min(at + CHUNK_BYTES)))))
}

/// A body that keeps its memory permit until the client has read the last byte.
fn guarded_body(
    parts: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    room: Option<ResponseBudget>,
) -> Body {
    Body::from_stream(parts.inspect(move |_| {
        let _held = &room;
    }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecordField {
    Results,
    Output,
}

/// State of one field while it is written.
struct RecordFieldWriter {
    log: EventLog,
    field: RecordField,
    /// Id of the last event that was read.
    last_event: u64,
    /// Events that were read and not yet written.
    transcript: Transcript,
    is_first: bool,
    is_over: bool,
}

/// Streams the items of a field, separated by commas. An error aborts the connection before the
/// end, so that no client takes a partial record for a whole one.
fn field_stream(log: EventLog, field: RecordField) -> impl Stream<Item = io::Result<Bytes>> + Send {
    let (transcript, number) = (Transcript::default(), 0);
    let writing = RecordFieldWriter {
        log,
        field,
        last_event: number,
        transcript,
        is_first: true,
        is_over: false,
    };
    stream::try_unfold(writing, |mut writing| async move {
        if writing.is_over {
            return Ok::<_, io::Error>(None);
        }
        writing.read().await?;
        // One item can have megabytes, and is not written on a thread that serves requests.
        let write = move || writing.take_ready().map(|text| (text, writing));
        let (text, writing) = spawn_blocking(write).await.map_err(io::Error::other)??;
        Ok(Some((text_stream(text), writing)))
    })
    .try_flatten()
}

impl RecordFieldWriter {
    async fn read(&mut self) -> io::Result<()> {
        let events = self.log.after(self.last_event).await;
        let events = events.map_err(|refused| io::Error::other(refused.error.to_string()))?;
        self.last_event += events.len() as u64;
        self.is_over = events.is_empty();
        for event in events {
            let field = match event {
                Event::Result(_) => Some(RecordField::Results),
                Event::Output(_) => Some(RecordField::Output),
                _ => None,
            };
            if field == Some(self.field) {
                self.transcript.push(event);
            }
        }
        Ok(())
    }

    /// Returns the JSON that is complete. The last piece of output may still grow.
    fn take_ready(&mut self) -> io::Result<String> {
        let mut text = String::new();
        for result in std::mem::take(&mut self.transcript.results) {
            self.write_item(&mut text, &result)?;
        }
        let held = usize::from(!self.is_over);
        let ready = self.transcript.output.len().saturating_sub(held);
        let pieces: Vec<_> = self.transcript.output.drain(..ready).collect();
        for piece in pieces {
            self.write_item(&mut text, &piece)?;
        }
        Ok(text)
    }

    fn write_item(&mut self, text: &mut String, item: &impl Serialize) -> io::Result<()> {
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
        let head = record_head(&record).unwrap();
        let again: Execution = serde_json::from_str(&format!("{head}{EMPTY_END}")).unwrap();
        assert_eq!(again, record);
    }
}
