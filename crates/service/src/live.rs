//! Executions that are under way: what has happened in each, for whoever listens.
//!
//! Every event has a number, counted from one. A listener that comes late, or comes back, gets
//! what it has missed; one that is slow holds nothing up, and holds nothing in memory: once a log
//! that is large has been kept, it is read from the record.

use crate::budget::{FREE_BYTES, OutputLease};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use types::{Code, Event, Execution, Output, Transcript, Warning};

/// A log of more than this is let go when it is kept, and read from the record from then on.
pub(crate) const LARGE_BYTES: u64 = 64 * 1024;
/// A value is there as many times as a tree while its record is made, kept and sent.
const VALUE_TREES: u64 = 2;
/// A value that takes no more than this as a tree is never left out: some 900 numbers.
const VALUE_FREE_BYTES: u64 = 2 * FREE_BYTES;

#[derive(Debug)]
pub(crate) struct Live {
    log: Mutex<Log>,
    /// How many events there are, and whether there will be more.
    state: watch::Sender<State>,
}

#[derive(Debug, Default)]
struct Log {
    /// Shared: together they may be as large as everything that was printed.
    events: Vec<Arc<Event>>,
    /// Memory of the events.
    bytes: u64,
    /// The part of the server's budget that they have; absent where they are bounded otherwise.
    lease: Option<OutputLease>,
    /// Of the lease, what is for the value.
    value_bytes: u64,
    dropped: Dropped,
    /// The events were let go, and are in the record.
    is_released: bool,
}

/// What was not taken into a log because the server's budget was used up.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Dropped {
    output_bytes: u64,
    results: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    count: usize,
    over: bool,
}

/// An event and its number.
pub type Numbered = (u64, Arc<Event>);

/// Where the next event of a log is.
pub(crate) enum Next {
    Here(Arc<Event>),
    /// In the record.
    Kept,
    /// There is none.
    Over,
}

impl Live {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { log: Mutex::default(), state: watch::Sender::default() })
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on output and results are counted against the server's budget.
    pub(crate) fn hold(&self, lease: OutputLease) {
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

    /// Takes an event of running code, if the server has room for it.
    pub(crate) fn offer(&self, event: Event) {
        let admitted = self.log().admit(event);
        admitted.into_iter().for_each(|event| self.push(event));
    }

    /// Takes memory of the server's budget for a value of running code, before it is there: so many
    /// bytes as a tree. A small one is never refused.
    pub(crate) fn take_value_room(&self, bytes: u64) -> Result<(), String> {
        if bytes <= VALUE_FREE_BYTES {
            return Ok(());
        }
        let all = VALUE_TREES.saturating_mul(bytes);
        let mut log = self.log();
        if !log.grow(all) {
            return Err(format!(
                "a value that takes {bytes} bytes of memory was dropped: {USED_UP}; return less, or \
                 run it again later"
            ));
        }
        log.value_bytes += all;
        Ok(())
    }

    /// Nothing comes after this.
    pub(crate) fn close(&self) {
        self.state.send_modify(|state| state.over = true);
    }

    /// Lets go of the events, which are in the record.
    pub(crate) fn release(&self) {
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

    pub(crate) fn dropped(&self) -> Dropped {
        self.log().dropped
    }

    pub(crate) fn so_far(&self) -> Vec<Arc<Event>> {
        self.log().events.clone()
    }

    /// Output and results.
    pub(crate) fn transcript(&self) -> Transcript {
        self.so_far().iter().map(|event| Event::clone(event)).collect()
    }

    pub(crate) async fn over(&self) {
        let mut state = self.state.subscribe();
        // An error means that nobody will write any more.
        let _ = state.wait_for(|state| state.over).await;
    }

    /// Waits for the event after the one with this number.
    pub(crate) async fn next(&self, number: u64) -> Next {
        let next = usize::try_from(number).unwrap_or(usize::MAX);
        let mut state = self.state.subscribe();
        let wanted = state.wait_for(|state| state.count > next || state.over).await;
        if wanted.is_ok_and(|state| state.count <= next) {
            return Next::Over;
        }
        let log = self.log();
        match log.events.get(next) {
            Some(event) => Next::Here(Arc::clone(event)),
            None if log.is_released => Next::Kept,
            None => Next::Over,
        }
    }
}

impl Log {
    /// As much of an event as there is room for.
    fn admit(&mut self, event: Event) -> Option<Event> {
        match event {
            Event::Output(piece) => self.admit_output(piece).map(Event::Output),
            Event::Result(_) => {
                let fits = self.grow(memory_bytes(&event));
                self.dropped.results += u64::from(!fits);
                fits.then_some(event)
            }
            event => Some(event),
        }
    }

    fn admit_output(&mut self, mut piece: Output) -> Option<Output> {
        let (length, around) = (piece.text.len(), size_of::<Event>());
        // What follows a gap would look as if it followed what was before the gap.
        let has_gap = self.dropped.output_bytes > 0;
        if !has_gap && self.grow((around + length) as u64) {
            return Some(piece);
        }
        let free = self.lease.as_ref().map_or(0, OutputLease::free_bytes);
        let room = if has_gap { 0 } else { free };
        let room = usize::try_from(room).unwrap_or(usize::MAX).saturating_sub(around);
        piece.text.truncate(piece.text.floor_char_boundary(room));
        piece.text.shrink_to_fit();
        self.dropped.output_bytes += (length - piece.text.len()) as u64;
        let fits = !piece.text.is_empty() && self.grow((around + piece.text.len()) as u64);
        fits.then_some(piece)
    }

    fn grow(&mut self, bytes: u64) -> bool {
        self.lease.as_mut().is_none_or(|lease| lease.grow(bytes))
    }
}

/// Why something is missing in a record.
const USED_UP: &str = "the server's budget for the output of all executions was used up";

impl Dropped {
    /// Says in a record what is missing in it.
    pub(crate) fn tell(self, execution: &mut Execution) {
        let Self { output_bytes, results } = self;
        let budget = USED_UP;
        let mut warn = |message: String| {
            let code = Code::OutputTooLarge.to_string();
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

/// Memory that an event takes, with what it is kept in.
pub(crate) fn memory_bytes(event: &Event) -> u64 {
    let text = match event {
        Event::Output(piece) => piece.text.len(),
        Event::Result(result) => result.memory_bytes(),
        _ => 0,
    };
    (size_of::<Event>() + text) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::OutputBudget;
    use types::{Fault, Status, Stream as Channel, WorkspaceId};
    use uuid::Uuid;

    fn wrote(text: &str) -> Event {
        Event::Output(Output { t: 0, stream: Channel::Stdout, text: text.into() })
    }

    #[tokio::test]
    async fn a_listener_that_comes_late_misses_nothing() {
        let live = Live::new();
        live.push(wrote("a"));
        live.push(wrote("b"));
        let there = Arc::clone(&live);
        let late = tokio::spawn(async move {
            let (mut heard, mut number) = (Vec::new(), 1);
            while let Next::Here(event) = there.next(number).await {
                number += 1;
                heard.push((number, Event::clone(&event)));
            }
            heard
        });
        tokio::task::yield_now().await;
        live.push(Event::End { status: Status::Succeeded });
        live.close();
        let end = Event::End { status: Status::Succeeded };
        assert_eq!(late.await.unwrap(), [(2, wrote("b")), (3, end)]);
        assert!(matches!(live.next(99).await, Next::Over));
    }

    #[test]
    fn t79_without_a_budget_the_first_output_is_taken_and_nothing_after_a_gap() {
        let live = Live::new();
        live.hold(OutputBudget::new(0).lease(WorkspaceId::new(Uuid::nil())));
        let long = "\u{e4}".repeat(40_000);
        live.offer(wrote(&long));
        live.offer(wrote("x"));
        live.offer(Event::Error(Fault::new(Code::TimeExceeded, "late")));
        let Transcript { output, .. } = live.transcript();
        let [kept] = &output[..] else { panic!("{} pieces", output.len()) };
        assert!(long.starts_with(&kept.text) && kept.text.len() > 64_000, "{}", kept.text.len());
        let dropped = live.dropped().output_bytes;
        assert_eq!(dropped, 80_001 - kept.text.len() as u64);
        assert_eq!(live.so_far().len(), 2);
    }

    #[test]
    fn t132_values_of_all_executions_have_one_budget_for_their_trees() {
        const TREE: u64 = 28 * 1024 * 1024;
        let budget = OutputBudget::new(8 * TREE);
        let executions: Vec<_> = (0..16).map(|_| Live::new()).collect();
        for live in &executions {
            live.hold(budget.lease(WorkspaceId::new(Uuid::nil())));
        }
        let refused = executions.iter().filter(|live| live.take_value_room(TREE).is_err()).count();
        // One workspace has half of the budget, and each value is there twice.
        assert_eq!((refused, budget.in_use()), (14, 4 * TREE));
        // The twins: a small value is never refused, and the next one finds what the first gives back.
        assert!(executions[15].take_value_room(VALUE_FREE_BYTES).is_ok());
        executions[0].release();
        assert_eq!(budget.in_use(), 4 * TREE, "its record is still sent");
        let mut executions = executions;
        drop(executions.remove(0));
        assert!(executions[14].take_value_room(TREE).is_ok());
    }

    #[tokio::test]
    async fn what_was_let_go_is_looked_for_in_the_record() {
        let live = Live::new();
        live.push(wrote("a"));
        live.close();
        live.release();
        assert!(matches!(live.next(0).await, Next::Kept));
        assert!(matches!(live.next(1).await, Next::Over));
    }
}
