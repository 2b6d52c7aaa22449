//! Reading the events of an execution: from memory while it is under way, and from its record, a
//! batch at a time, once a large log was let go.

use super::task::ActiveExecution;
use crate::error::RequestError;
use crate::runs::live_log::{LiveLog, NextEvent, NumberedEvent, memory_bytes};
use crate::runs::output_budget::{FREE_BYTES, OutputLease};
use crate::service::Service;
use futures_util::{Stream, stream};
use std::collections::VecDeque;
use std::sync::Arc;
use types::{Error, ErrorCode, Event, Execution, ExecutionId, Transcript, Warning, WorkspaceId};

/// Of events that are read for somebody in this process who needs output and results in one piece,
/// such as a model or a person at a terminal.
const WHOLE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// A record on its way to a client.
#[derive(Debug)]
pub struct ExecutionRecord {
    /// Without output and results if there is a log.
    pub execution: Execution,
    /// Where output and results are, if they are too large to hold.
    pub log: Option<EventLog>,
    /// Held until the last of a large record is sent.
    pub budget: Option<ResponseBudget>,
}

/// The part of the server's budget that an answer takes until it is sent.
#[derive(Debug)]
pub struct ResponseBudget {
    _budget: HeldBudget,
}

#[derive(Debug)]
enum HeldBudget {
    Own {
        _lease: OutputLease,
    },
    /// That of the execution, which holds it as long as this does.
    OfExecution {
        _running: Arc<ActiveExecution>,
    },
}

/// A record whose code, arguments and value take no more than this is sent at once.
const RESPONSE_BYTES_FREE: u64 = FREE_BYTES;

/// The kept events of one execution.
#[derive(Debug, Clone)]
pub struct EventLog {
    pub(super) service: Arc<Service>,
    pub(super) workspace: WorkspaceId,
    pub(super) id: ExecutionId,
}

impl EventLog {
    /// Some of the events after the one with this number; none after the last.
    pub async fn after(&self, number: u64) -> Result<Vec<Event>, RequestError> {
        let (workspace, id) = (self.workspace, self.id);
        let read =
            self.service.db.read_off_thread(move |rows| rows.events_after(workspace, id, number));
        Ok(read.await?.unwrap_or_default())
    }
}

/// A listener, and where it is.
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
                Ok(events) => events.into(),
                Err(refused) => {
                    // The client can come back for the rest by the number of the last event.
                    tracing::error!(execution = %self.log.id, error = %refused.error, "its events could not be read");
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

impl ResponseBudget {
    /// For a record that has just been made: what it takes is counted already, and code that has run
    /// must not be answered with a refusal that asks for it again.
    pub(super) fn shared_with_execution(
        running: &Arc<ActiveExecution>,
        execution: &Execution,
    ) -> Option<Self> {
        let held = || HeldBudget::OfExecution { _running: Arc::clone(running) };
        (response_bytes(execution) > RESPONSE_BYTES_FREE).then(|| Self { _budget: held() })
    }
}

/// Of a record without output and results.
fn response_bytes(execution: &Execution) -> u64 {
    (execution.value_bytes() + execution.code.len()) as u64
}

impl Service {
    /// Room in memory for a record while it is sent; a client may take its time.
    pub(super) fn response_budget(
        &self,
        workspace: WorkspaceId,
        execution: &Execution,
    ) -> Result<Option<ResponseBudget>, RequestError> {
        let bytes = response_bytes(execution);
        if bytes <= RESPONSE_BYTES_FREE {
            return Ok(None);
        }
        let mut lease = self.output_budget.lease(workspace);
        if lease.grow(bytes) {
            return Ok(Some(ResponseBudget { _budget: HeldBudget::Own { _lease: lease } }));
        }
        let message = format!("there is no room for an answer of {bytes} bytes now");
        let hint = format!("its record is kept; ask for execution {} later", execution.id);
        Err(Error::new(ErrorCode::CapacityExhausted, message).hint(hint).into())
    }

    /// Every event after the one with this number, to the last.
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

    /// A record with as much of its output and results as one reader in this process needs.
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
                "only the first {} MiB of output and results are here; the events of the execution \
                 have the rest",
                WHOLE_BYTES_MAX >> 20
            );
            record.warnings.push(Warning { code, message });
        }
        Ok(record)
    }
}
