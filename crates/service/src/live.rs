//! Executions that are under way: what has happened in each, for whoever listens.
//!
//! Every event has a number, counted from one. A listener that comes late, or comes back, gets
//! what it has missed; one that is slow holds nothing up.

use futures_util::Stream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use types::Event;

#[derive(Debug)]
pub(crate) struct Live {
    /// Shared: together they may be as large as everything that was printed.
    events: Mutex<Vec<Arc<Event>>>,
    /// How many events there are, and whether there will be more.
    state: watch::Sender<State>,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    count: usize,
    over: bool,
}

/// An event and its number.
pub type Numbered = (u64, Event);

impl Live {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { events: Mutex::default(), state: watch::Sender::default() })
    }

    fn events(&self) -> MutexGuard<'_, Vec<Arc<Event>>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, event: Event) {
        let count = {
            let mut events = self.events();
            events.push(Arc::new(event));
            events.len()
        };
        self.state.send_modify(|state| state.count = count);
    }

    /// Nothing comes after this.
    pub(crate) fn close(&self) {
        self.state.send_modify(|state| state.over = true);
    }

    pub(crate) fn so_far(&self) -> Vec<Arc<Event>> {
        self.events().clone()
    }

    pub(crate) async fn over(&self) {
        let mut state = self.state.subscribe();
        // An error means that nobody will write any more.
        let _ = state.wait_for(|state| state.over).await;
    }

    /// Every event after the one with this number, to the last.
    pub(crate) fn after(self: Arc<Self>, number: u64) -> impl Stream<Item = Numbered> + Send {
        let next = usize::try_from(number).unwrap_or(usize::MAX);
        let state = self.state.subscribe();
        futures_util::stream::unfold((self, state, next), |(live, mut state, next)| async move {
            let now = *state.wait_for(|state| state.count > next || state.over).await.ok()?;
            if now.count <= next {
                return None;
            }
            let event = live.events().get(next).cloned()?;
            Some(((next as u64 + 1, Event::clone(&event)), (live, state, next + 1)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::StreamExt;
    use types::{Output, Status, Stream as Channel};

    fn wrote(text: &str) -> Event {
        Event::Output(Output { t: 0, stream: Channel::Stdout, text: text.into() })
    }

    #[tokio::test]
    async fn a_listener_that_comes_late_misses_nothing() {
        let live = Live::new();
        live.push(wrote("a"));
        live.push(wrote("b"));
        let late = tokio::spawn(Arc::clone(&live).after(1).collect::<Vec<Numbered>>());
        tokio::task::yield_now().await;
        live.push(Event::End { status: Status::Succeeded });
        live.close();
        let end = Event::End { status: Status::Succeeded };
        assert_eq!(late.await.unwrap(), [(2, wrote("b")), (3, end)]);
        let beyond = live.after(99).collect::<Vec<Numbered>>().await;
        assert!(beyond.is_empty());
    }
}
