//! Stopping an execution from elsewhere. A stop that is asked for before the code runs is kept, so
//! that none is lost on the way.

use std::sync::Arc;
use tokio::sync::watch;

/// What was asked of an execution, the stronger wish last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wish {
    #[default]
    GoOn,
    Stop,
    Die,
}

/// Stops the execution that it is given to.
#[derive(Debug, Clone, Default)]
pub struct Stopper(Arc<watch::Sender<Wish>>);

impl Stopper {
    /// Asks the code to end, which keeps the state of the interpreter if it does. Asked again, the
    /// code is interrupted again.
    pub fn stop(&self) {
        self.raise_to(Wish::Stop);
    }

    /// Ends the interpreter, whatever it is doing.
    pub fn kill(&self) {
        self.raise_to(Wish::Die);
    }

    fn raise_to(&self, wish: Wish) {
        self.0.send_modify(|now| *now = wish.max(*now));
    }

    pub fn was_asked(&self) -> bool {
        *self.0.borrow() != Wish::GoOn
    }

    /// Returns once either was asked for.
    pub async fn asked(&self) {
        // An error would say that there is no sender any more, and we are one.
        let _ = self.0.subscribe().wait_for(|wish| *wish != Wish::GoOn).await;
    }

    /// Whoever has it hears of all wishes, also of one that came before.
    pub(crate) fn wishes(&self) -> watch::Receiver<Wish> {
        let mut wishes = self.0.subscribe();
        if self.was_asked() {
            wishes.mark_changed();
        }
        wishes
    }
}
