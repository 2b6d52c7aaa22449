//! Reading the events of an execution: from memory while it is under way, and from its record, a
//! batch at a time, once a large log was let go.

use super::course::Running;
use crate::budget::{FREE_BYTES, OutputLease};
use crate::live::{Live, Next, Numbered, memory_bytes};
use crate::refused::Refused;
use crate::service::Service;
use futures_util::{Stream, stream};
use std::collections::VecDeque;
use std::sync::Arc;
use types::{Code, Event, Execution, ExecutionId, Fault, Transcript, Warning, WorkspaceId};

/// Of events that are read for somebody in this process who needs output and results in one piece,
/// such as a model or a person at a terminal.
const WHOLE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// A record on its way to a client.
#[derive(Debug)]
pub struct Record {
    /// Without output and results if there is a log.
    pub execution: Execution,
    /// Where output and results are, if they are too large to hold.
    pub log: Option<EventLog>,
    /// Held until the last of a large record is sent.
    pub room: Option<AnswerRoom>,
}

/// The part of the server's budget that an answer takes until it is sent.
#[derive(Debug)]
pub struct AnswerRoom {
    _held: Held,
}

#[derive(Debug)]
enum Held {
    Own {
        _lease: OutputLease,
    },
    /// That of the execution, which holds it as long as this does.
    OfExecution {
        _running: Arc<Running>,
    },
}

/// A record whose code, arguments and value take no more than this is sent at once.
const ANSWER_BYTES_FREE: u64 = FREE_BYTES;

/// The kept events of one execution.
#[derive(Debug, Clone)]
pub struct EventLog {
    pub(super) service: Arc<Service>,
    pub(super) workspace: WorkspaceId,
    pub(super) id: ExecutionId,
}

impl EventLog {
    /// Some of the events after the one with this number; none after the last.
    pub async fn after(&self, number: u64) -> Result<Vec<Event>, Refused> {
        let (workspace, id) = (self.workspace, self.id);
        let read =
            self.service.store.read_long(move |rows| rows.events_after(workspace, id, number));
        Ok(read.await?.unwrap_or_default())
    }
}

/// A listener, and where it is.
struct Listener {
    log: EventLog,
    /// Absent once the events are read from the record.
    live: Option<Arc<Live>>,
    number: u64,
    read: VecDeque<Event>,
}

impl Listener {
    async fn next(mut self) -> Option<(Numbered, Self)> {
        loop {
            let event = match self.read.pop_front() {
                Some(event) => Some(Arc::new(event)),
                None => match self.heard().await {
                    Next::Here(event) => Some(event),
                    Next::Over => return None,
                    Next::Kept => None,
                },
            };
            if let Some(event) = event {
                self.number += 1;
                return Some(((self.number, event), self));
            }
            self.live = None;
            self.read = match self.log.after(self.number).await {
                Ok(events) if events.is_empty() => return None,
                Ok(events) => events.into(),
                Err(refused) => {
                    // The client can come back for the rest by the number of the last event.
                    tracing::error!(execution = %self.log.id, error = %refused.fault, "its events could not be read");
                    return None;
                }
            };
        }
    }

    async fn heard(&self) -> Next {
        match &self.live {
            Some(live) => live.next(self.number).await,
            None => Next::Kept,
        }
    }
}

impl AnswerRoom {
    /// For a record that has just been made: what it takes is counted already, and code that has run
    /// must not be answered with a refusal that asks for it again.
    pub(super) fn of_execution(running: &Arc<Running>, execution: &Execution) -> Option<Self> {
        let held = || Held::OfExecution { _running: Arc::clone(running) };
        (answer_bytes(execution) > ANSWER_BYTES_FREE).then(|| Self { _held: held() })
    }
}

/// Of a record without output and results.
fn answer_bytes(execution: &Execution) -> u64 {
    (execution.value_bytes() + execution.code.len()) as u64
}

impl Service {
    /// Room in memory for a record while it is sent; a client may take its time.
    pub(super) fn answer_room(
        &self,
        workspace: WorkspaceId,
        execution: &Execution,
    ) -> Result<Option<AnswerRoom>, Refused> {
        let bytes = answer_bytes(execution);
        if bytes <= ANSWER_BYTES_FREE {
            return Ok(None);
        }
        let mut lease = self.output_budget.lease(workspace);
        if lease.grow(bytes) {
            return Ok(Some(AnswerRoom { _held: Held::Own { _lease: lease } }));
        }
        let message = format!("there is no room for an answer of {bytes} bytes now");
        let hint = format!("its record is kept; ask for execution {} later", execution.id);
        Err(Fault::new(Code::CapacityExhausted, message).hint(hint).into())
    }

    /// Every event after the one with this number, to the last.
    pub(crate) fn listen(
        self: &Arc<Self>,
        live: Option<Arc<Live>>,
        workspace: WorkspaceId,
        id: ExecutionId,
        after: u64,
    ) -> impl Stream<Item = Numbered> + Send + use<> {
        let log = EventLog { service: Arc::clone(self), workspace, id };
        let listener = Listener { log, live, number: after, read: VecDeque::new() };
        stream::unfold(listener, Listener::next)
    }

    /// A record with as much of its output and results as one reader in this process needs.
    pub(super) async fn whole(
        &self,
        workspace: WorkspaceId,
        summary: Execution,
    ) -> Result<Execution, Refused> {
        let id = summary.id;
        let read = self.store.read_long(move |rows| {
            let (mut transcript, mut number, mut bytes) = (Transcript::default(), 0, 0);
            while bytes <= WHOLE_BYTES_MAX {
                let events = rows.events_after(workspace, id, number)?.unwrap_or_default();
                if events.is_empty() {
                    return Ok((transcript, true));
                }
                number += events.len() as u64;
                bytes += events.iter().map(memory_bytes).sum::<u64>();
                events.into_iter().for_each(|event| transcript.hear(event));
            }
            Ok((transcript, false))
        });
        let (Transcript { output, results }, is_all) = read.await?;
        let mut record = Execution { output, results, ..summary };
        if !is_all {
            let code = Code::OutputTooLarge.to_string();
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
