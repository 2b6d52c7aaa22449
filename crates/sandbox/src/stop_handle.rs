//! Stopping an execution from elsewhere. A stop that is asked for before the code runs is kept, so
//! that none is lost on the way.

use std::sync::Arc;
use tokio::sync::watch;

/// A request to stop an execution, the stronger last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StopRequest {
    #[default]
    NotRequested,
    Stop,
    Kill,
}

/// Stops the execution that it is given to.
#[derive(Debug, Clone, Default)]
pub struct StopHandle(Arc<watch::Sender<StopRequest>>);

impl StopHandle {
    /// Asks the code to end, which keeps the state of the interpreter if it does. Asked again, the
    /// code is interrupted again.
    pub fn stop(&self) {
        self.request(StopRequest::Stop);
    }

    /// Ends the interpreter, whatever it is doing.
    pub fn kill(&self) {
        self.request(StopRequest::Kill);
    }

    fn request(&self, wish: StopRequest) {
        self.0.send_modify(|now| *now = wish.max(*now));
    }

    pub fn is_requested(&self) -> bool {
        *self.0.borrow() != StopRequest::NotRequested
    }

    /// Returns once either was asked for.
    pub async fn requested(&self) {
        // An error would say that there is no sender any more, and we are one.
        let _ = self.0.subscribe().wait_for(|wish| *wish != StopRequest::NotRequested).await;
    }

    /// The receiver sees all stop requests, also one that came before it was created.
    pub(crate) fn subscribe(&self) -> watch::Receiver<StopRequest> {
        let mut wishes = self.0.subscribe();
        if self.is_requested() {
            wishes.mark_changed();
        }
        wishes
    }
}
