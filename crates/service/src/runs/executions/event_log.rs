//! Reads the events of an execution: from memory while it runs, and in batches from its record
//! after a large log was released.

use super::task::ActiveExecution;
use crate::error::RequestError;
use crate::runs::live_log::{LiveLog, NextEvent, NumberedEvent, memory_bytes};
use crate::runs::output_budget::{FREE_BYTES, OutputLease};
use crate::service::Service;
use db::ExecutionJson;
use futures_util::{Stream, stream};
use std::collections::VecDeque;
use std::sync::Arc;
use types::{Error, ErrorCode, Event, Execution, ExecutionId, Transcript, Warning, WorkspaceId};

/// Limit of events that are read for a consumer in this process that needs output and results at
/// once, such as a model or a terminal.
const WHOLE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Limit of the events that a reader has in memory besides the first. A client can be slow, or never
/// read; larger batches are read from the record again.
const BUFFERED_BYTES_MAX: u64 = 64 * 1024;

/// A record that is being sent to a client.
#[derive(Debug)]
pub struct ExecutionRecord {
    /// Without output and results if there is a log.
    pub execution: Execution,
    /// The log with output and results, if they are too large for memory.
    pub log: Option<EventLog>,
    /// Held until a large record is sent completely.
    pub budget: Option<ResponseBudget>,
}

/// The record of an execution that has ended, as it is stored.
#[derive(Debug)]
pub struct StoredExecution {
    /// Without output and results, which the log has.
    pub json: ExecutionJson,
    pub log: EventLog,
    /// Held until the record is sent completely.
    pub budget: Option<ResponseBudget>,
}

/// The part of the server's budget that a response takes until it is sent.
#[derive(Debug)]
pub struct ResponseBudget {
    _budget: HeldBudget,
}

#[derive(Debug)]
enum HeldBudget {
    Own {
        _lease: OutputLease,
    },
    /// The budget of the execution, which lives as long as this.
    OfExecution {
        _running: Arc<ActiveExecution>,
    },
}

/// A record whose code, arguments and value take at most this much is sent without a budget.
const RESPONSE_BYTES_FREE: u64 = FREE_BYTES;

/// The stored events of one execution.
#[derive(Debug, Clone)]
pub struct EventLog {
    pub(super) service: Arc<Service>,
    pub(super) workspace: WorkspaceId,
    pub(super) id: ExecutionId,
}

impl EventLog {
    /// A batch of the events after the one with this number; empty after the last.
    pub async fn after(&self, number: u64) -> Result<Vec<Event>, RequestError> {
        let (workspace, id) = (self.workspace, self.id);
        let read =
            self.service.db.read_off_thread(move |rows| rows.events_after(workspace, id, number));
        Ok(read.await?.unwrap_or_default())
    }
}

/// A reader and its position.
struct EventReader {
    log: EventLog,
    /// Absent once the events are read from the record.
    live: Option<Arc<LiveLog>>,
    number: u64,
    buffered: VecDeque<Event>,
}

impl EventReader {
    async fn next(mut self) -> Option<(NumberedEvent, Self)> {
        loop {
            let event = match self.buffered.pop_front() {
                Some(event) => Some(Arc::new(event)),
                None => match self.next_live().await {
                    NextEvent::Event(event) => Some(event),
                    NextEvent::Ended => return None,
                    NextEvent::InRecord => None,
                },
            };
            if let Some(event) = event {
                self.number += 1;
                return Some(((self.number, event), self));
            }
            self.live = None;
            self.buffered = match self.log.after(self.number).await {
                Ok(events) if events.is_empty() => return None,
                Ok(events) => first_events(events),
                Err(error) => {
                    // The client can resume after the number of the last event.
                    tracing::error!(execution = %self.log.id, error = %error.error, "cannot read the events of an execution");
                    return None;
                }
            };
        }
    }

    async fn next_live(&self) -> NextEvent {
        match &self.live {
            Some(live) => live.next_event(self.number).await,
            None => NextEvent::InRecord,
        }
    }
}

/// The first event of a batch, and those after it that fit into the buffer.
fn first_events(events: Vec<Event>) -> VecDeque<Event> {
    let mut bytes = 0;
    let mut events = events.into_iter();
    let first = events.next();
    let rest = events.take_while(|event| {
        bytes += memory_bytes(event);
        bytes <= BUFFERED_BYTES_MAX
    });
    first.into_iter().chain(rest).collect()
}

impl ResponseBudget {
    /// The budget for a record that was just created. Its memory is already counted, and after code
    /// has run, the response must not be an error that suggests running it again.
    pub(super) fn shared_with_execution(
        running: &Arc<ActiveExecution>,
        execution: &Execution,
    ) -> Option<Self> {
        let held = || HeldBudget::OfExecution { _running: Arc::clone(running) };
        (response_bytes(execution) > RESPONSE_BYTES_FREE).then(|| Self { _budget: held() })
    }
}

/// The memory of a record without output and results.
fn response_bytes(execution: &Execution) -> u64 {
    (execution.value_bytes() + execution.code.len()) as u64
}

impl Service {
    /// Takes memory for a record before it is built. It is held until the record is sent, because a
    /// client may be slow.
    pub(super) fn reserve_record(
        &self,
        workspace: WorkspaceId,
        id: ExecutionId,
        bytes: u64,
    ) -> Result<Option<ResponseBudget>, RequestError> {
        let hint = || format!("the record is stored; request execution {id} later");
        self.reserve_response(workspace, bytes).map_err(|error| error.hint(hint()).into())
    }

    /// Takes memory for a response before it is built; nothing for a small one.
    pub fn reserve_response(
        &self,
        workspace: WorkspaceId,
        bytes: u64,
    ) -> Result<Option<ResponseBudget>, Error> {
        if bytes <= RESPONSE_BYTES_FREE {
            return Ok(None);
        }
        let mut lease = self.output_budget.lease_output(workspace);
        if lease.grow(bytes) {
            return Ok(Some(ResponseBudget { _budget: HeldBudget::Own { _lease: lease } }));
        }
        let message = format!("not enough memory for a response of {bytes} bytes");
        Err(Error::new(ErrorCode::CapacityExhausted, message))
    }

    /// Every event after the one with this number, until the last.
    pub(crate) fn event_stream(
        self: &Arc<Self>,
        live: Option<Arc<LiveLog>>,
        workspace: WorkspaceId,
        id: ExecutionId,
        after: u64,
    ) -> impl Stream<Item = NumberedEvent> + Send + use<> {
        let log = EventLog { service: Arc::clone(self), workspace, id };
        let listener = EventReader { log, live, number: after, buffered: VecDeque::new() };
        stream::unfold(listener, EventReader::next)
    }

    /// A record with as much output and results as one consumer in this process needs.
    #[boxed::future]
    pub(super) async fn with_transcript(
        &self,
        workspace: WorkspaceId,
        summary: Execution,
    ) -> Result<Execution, RequestError> {
        let id = summary.id;
        let read = self.db.read_off_thread(move |rows| {
            let (mut transcript, mut number, mut bytes) = (Transcript::default(), 0, 0);
            while bytes <= WHOLE_BYTES_MAX {
                let events = rows.events_after(workspace, id, number)?.unwrap_or_default();
                if events.is_empty() {
                    return Ok((transcript, true));
                }
                number += events.len() as u64;
                bytes += events.iter().map(memory_bytes).sum::<u64>();
                events.into_iter().for_each(|event| transcript.push(event));
            }
            Ok((transcript, false))
        });
        let (Transcript { output, results }, is_all) = read.await?;
        let mut record = Execution { output, results, ..summary };
        if !is_all {
            let code = ErrorCode::OutputTooLarge.to_string();
            let message = format!(
                "only the first {} MiB of output and results are included; the events of the \
                 execution have the rest",
                WHOLE_BYTES_MAX >> 20
            );
            record.warnings.push(Warning { code, message });
        }
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use types::{DisplayData, ExecutionStatus};

    #[test]
    fn t211_a_reader_buffers_few_bytes_besides_the_next_event() {
        let status = || Event::Status { status: ExecutionStatus::Running };
        let result = |bytes: usize| {
            let data = [("text/plain".to_owned(), json!("x".repeat(bytes)))].into();
            Event::Result(DisplayData { data, main: true })
        };
        let large = BUFFERED_BYTES_MAX as usize;
        let kept = |events: Vec<Event>| first_events(events).len();
        assert_eq!(kept(vec![status(), result(large), status()]), 1);
        assert_eq!(kept(vec![result(large), status(), status()]), 3, "the first is always kept");
        assert_eq!(kept((0..100).map(|_| status()).collect()), 100);
        assert!((2..100).contains(&kept((0..100).map(|_| result(large / 50)).collect())));
    }
}
