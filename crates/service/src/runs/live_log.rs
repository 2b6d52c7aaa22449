//! The logs of running executions, for their readers.
//!
//! Every event has a number, counted from one. A reader that connects late, or reconnects, gets the
//! events that it has missed. A slow reader delays nothing and holds no memory: a large log is read
//! from the record once it is stored.

use crate::runs::output_budget::{FREE_BYTES, OutputLease};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use types::{ErrorCode, Event, Execution, OutputChunk, Transcript, Warning};

/// A larger log is released from memory once it is stored, and then read from the record.
pub(crate) const LARGE_BYTES: u64 = 64 * 1024;
/// How many copies of a value exist while its record is built, stored and sent.
const VALUE_TREES: u64 = 2;
/// A value of at most this size in memory is never dropped: some 900 numbers.
const VALUE_FREE_BYTES: u64 = 2 * FREE_BYTES;

#[derive(Debug)]
pub(crate) struct LiveLog {
    log: Mutex<LogBuffer>,
    /// The number of events, and whether the log is closed.
    state: watch::Sender<LogState>,
}

#[derive(Debug, Default)]
struct LogBuffer {
    /// Shared, because together they may be as large as the whole output.
    events: Vec<Arc<Event>>,
    /// Memory of the events.
    bytes: u64,
    /// Their part of the server's budget; absent where they are bounded otherwise.
    lease: Option<OutputLease>,
    /// The part of the lease that is for the value.
    value_bytes: u64,
    dropped: DroppedOutput,
    /// The events were released, and are in the record.
    is_released: bool,
}

/// Output that is not in the log because the server's budget was exhausted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DroppedOutput {
    output_bytes: u64,
    results: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct LogState {
    count: usize,
    closed: bool,
}

/// An event and its number.
pub type NumberedEvent = (u64, Arc<Event>);

/// The location of the next event of a log.
pub(crate) enum NextEvent {
    Event(Arc<Event>),
    /// It is in the record.
    InRecord,
    /// There is no further event.
    Ended,
}

impl LiveLog {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { log: Mutex::default(), state: watch::Sender::default() })
    }

    fn log(&self) -> MutexGuard<'_, LogBuffer> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts output and results against the server's budget from now on.
    pub(crate) fn set_lease(&self, lease: OutputLease) {
        self.log().lease = Some(lease);
    }

    pub(crate) fn push(&self, event: Event) {
        let count = {
            let mut log = self.log();
            log.bytes += memory_bytes(&event);
            log.events.push(Arc::new(event));
            log.events.len()
        };
        self.state.send_modify(|state| state.count = count);
    }

    /// Adds an event of running code, if the budget has memory for it.
    pub(crate) fn push_within_budget(&self, event: Event) {
        let admitted = self.log().admit(event);
        admitted.into_iter().for_each(|event| self.push(event));
    }

    /// Takes memory of the server's budget for a value of running code before the value is built:
    /// `bytes` in memory. A small value is never refused.
    pub(crate) fn take_value_room(&self, bytes: u64) -> Result<(), String> {
        if bytes <= VALUE_FREE_BYTES {
            return Ok(());
        }
        let all = VALUE_TREES.saturating_mul(bytes);
        let mut log = self.log();
        if !log.grow(all) {
            return Err(format!(
                "a value of {bytes} bytes in memory was dropped: {BUDGET_EXHAUSTED}; return less, \
                 or run the code again later"
            ));
        }
        log.value_bytes += all;
        Ok(())
    }

    /// Closes the log.
    pub(crate) fn close(&self) {
        self.state.send_modify(|state| state.closed = true);
    }

    /// Releases the events, which are in the record.
    pub(crate) fn release_events(&self) {
        let events = {
            let mut log = self.log();
            log.is_released = true;
            let value_bytes = log.value_bytes;
            if let Some(lease) = &mut log.lease {
                lease.shrink_to(value_bytes);
            }
            std::mem::take(&mut log.events)
        };
        drop(events);
    }

    pub(crate) fn is_large(&self) -> bool {
        self.log().bytes > LARGE_BYTES
    }

    pub(crate) fn dropped(&self) -> DroppedOutput {
        self.log().dropped
    }

    pub(crate) fn events(&self) -> Vec<Arc<Event>> {
        self.log().events.clone()
    }

    /// The bytes of output and results.
    pub(crate) fn transcript(&self) -> Transcript {
        self.events().iter().map(|event| Event::clone(event)).collect()
    }

    pub(crate) async fn wait_closed(&self) {
        let mut state = self.state.subscribe();
        // An error means that the sender was dropped.
        let _ = state.wait_for(|state| state.closed).await;
    }

    /// Waits for the event after the one with this number.
    pub(crate) async fn next_event(&self, number: u64) -> NextEvent {
        let next = usize::try_from(number).unwrap_or(usize::MAX);
        let mut state = self.state.subscribe();
        let wanted = state.wait_for(|state| state.count > next || state.closed).await;
        if wanted.is_ok_and(|state| state.count <= next) {
            return NextEvent::Ended;
        }
        let log = self.log();
        match log.events.get(next) {
            Some(event) => NextEvent::Event(Arc::clone(event)),
            None if log.is_released => NextEvent::InRecord,
            None => NextEvent::Ended,
        }
    }
}

impl LogBuffer {
    /// Returns as much of an event as the budget has memory for.
    fn admit(&mut self, event: Event) -> Option<Event> {
        match event {
            Event::Output(chunk) => self.admit_output(chunk).map(Event::Output),
            Event::Result(_) => {
                let fits = self.grow(memory_bytes(&event));
                self.dropped.results += u64::from(!fits);
                fits.then_some(event)
            }
            event => Some(event),
        }
    }

    fn admit_output(&mut self, mut chunk: OutputChunk) -> Option<OutputChunk> {
        let (length, overhead) = (chunk.text.len(), size_of::<Event>());
        // After a gap, later output would seem to follow the output before the gap.
        let has_gap = self.dropped.output_bytes > 0;
        if !has_gap && self.grow((overhead + length) as u64) {
            return Some(chunk);
        }
        let free = self.lease.as_ref().map_or(0, OutputLease::free_bytes);
        let free_bytes = if has_gap { 0 } else { free };
        let free_bytes = usize::try_from(free_bytes).unwrap_or(usize::MAX).saturating_sub(overhead);
        chunk.text.truncate(chunk.text.floor_char_boundary(free_bytes));
        chunk.text.shrink_to_fit();
        self.dropped.output_bytes += (length - chunk.text.len()) as u64;
        let fits = !chunk.text.is_empty() && self.grow((overhead + chunk.text.len()) as u64);
        fits.then_some(chunk)
    }

    fn grow(&mut self, bytes: u64) -> bool {
        self.lease.as_mut().is_none_or(|lease| lease.grow(bytes))
    }
}

/// Why something is missing in a record.
const BUDGET_EXHAUSTED: &str =
    "the server's memory budget for the output of all executions was exhausted";

impl DroppedOutput {
    /// Adds a warning to a record for each kind of dropped output.
    pub(crate) fn annotate_record(self, execution: &mut Execution) {
        let Self { output_bytes, results } = self;
        let budget = BUDGET_EXHAUSTED;
        let mut warn = |message: String| {
            let code = ErrorCode::OutputTooLarge.to_string();
            execution.warnings.push(Warning { code, message });
        };
        if output_bytes > 0 {
            warn(format!("{output_bytes} bytes of output were dropped: {budget}"));
        }
        if results > 0 {
            warn(format!("{results} results were dropped: {budget}"));
        }
        if output_bytes > 0 {
            let before = execution.truncated.output_dropped_bytes.unwrap_or_default();
            execution.truncated.output_dropped_bytes = Some(before + output_bytes);
        }
    }
}

/// Memory of an event, with its container.
pub(crate) fn memory_bytes(event: &Event) -> u64 {
    let text = match event {
        Event::Output(chunk) => chunk.text.len(),
        Event::Result(result) => result.memory_bytes(),
        _ => 0,
    };
    (size_of::<Event>() + text) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::output_budget::OutputBudget;
    use types::{Error, ExecutionStatus, OutputStream as Channel, WorkspaceId};
    use uuid::Uuid;

    fn wrote(text: &str) -> Event {
        Event::Output(OutputChunk { t: 0, stream: Channel::Stdout, text: text.into() })
    }

    #[tokio::test]
    async fn a_listener_that_comes_late_misses_nothing() {
        let live = LiveLog::new();
        live.push(wrote("a"));
        live.push(wrote("b"));
        let there = Arc::clone(&live);
        let late = tokio::spawn(async move {
            let (mut received, mut number) = (Vec::new(), 1);
            while let NextEvent::Event(event) = there.next_event(number).await {
                number += 1;
                received.push((number, Event::clone(&event)));
            }
            received
        });
        tokio::task::yield_now().await;
        live.push(Event::End { status: ExecutionStatus::Succeeded });
        live.close();
        let end = Event::End { status: ExecutionStatus::Succeeded };
        assert_eq!(late.await.unwrap(), [(2, wrote("b")), (3, end)]);
        assert!(matches!(live.next_event(99).await, NextEvent::Ended));
    }

    #[test]
    fn t79_without_a_budget_the_first_output_is_taken_and_nothing_after_a_gap() {
        let live = LiveLog::new();
        live.set_lease(OutputBudget::new(0).lease_output(WorkspaceId::new(Uuid::nil())));
        let long = "\u{e4}".repeat(40_000);
        live.push_within_budget(wrote(&long));
        live.push_within_budget(wrote("x"));
        live.push_within_budget(Event::Error(Error::new(ErrorCode::TimeExceeded, "late")));
        let Transcript { output, .. } = live.transcript();
        let [kept] = &output[..] else { panic!("{} pieces", output.len()) };
        assert!(long.starts_with(&kept.text) && kept.text.len() > 64_000, "{}", kept.text.len());
        let dropped = live.dropped().output_bytes;
        assert_eq!(dropped, 80_001 - kept.text.len() as u64);
        assert_eq!(live.events().len(), 2);
    }

    #[test]
    fn t132_values_of_all_executions_have_one_budget_for_their_trees() {
        const TREE: u64 = 28 * 1024 * 1024;
        let budget = OutputBudget::new(8 * TREE);
        let executions: Vec<_> = (0..16).map(|_| LiveLog::new()).collect();
        for live in &executions {
            live.set_lease(budget.lease_output(WorkspaceId::new(Uuid::nil())));
        }
        let error = executions.iter().filter(|live| live.take_value_room(TREE).is_err()).count();
        // One workspace has half of the budget, and each value is there twice.
        assert_eq!((error, budget.in_use()), (14, 4 * TREE));
        // Counterpart: a small value is never refused, and the next one gets the memory that the
        // first releases.
        assert!(executions[15].take_value_room(VALUE_FREE_BYTES).is_ok());
        executions[0].release_events();
        assert_eq!(budget.in_use(), 4 * TREE, "its record is still sent");
        let mut executions = executions;
        drop(executions.remove(0));
        assert!(executions[14].take_value_room(TREE).is_ok());
    }

    #[tokio::test]
    async fn what_was_let_go_is_looked_for_in_the_record() {
        let live = LiveLog::new();
        live.push(wrote("a"));
        live.close();
        live.release_events();
        assert!(matches!(live.next_event(0).await, NextEvent::InRecord));
        assert!(matches!(live.next_event(1).await, NextEvent::Ended));
    }
}
