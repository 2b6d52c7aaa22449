//! Cancellation of one execution. A stop that is requested before the code runs is kept, so that none
//! is lost.

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

/// Stops the execution that has this handle.
#[derive(Debug, Clone, Default)]
pub struct StopHandle(Arc<watch::Sender<StopRequest>>);

impl StopHandle {
    /// Interrupts the code. If it ends, the interpreter keeps its state. Each call interrupts again.
    pub fn stop(&self) {
        self.request(StopRequest::Stop);
    }

    /// Kills the interpreter.
    pub fn kill(&self) {
        self.request(StopRequest::Kill);
    }

    fn request(&self, request: StopRequest) {
        self.0.send_modify(|now| *now = request.max(*now));
    }

    pub fn is_requested(&self) -> bool {
        *self.0.borrow() != StopRequest::NotRequested
    }

    /// Returns once a stop or a kill was requested.
    pub async fn requested(&self) {
        // An error would mean that no sender is left, and this handle is one.
        let _ = self.0.subscribe().wait_for(|request| *request != StopRequest::NotRequested).await;
    }

    /// Returns a receiver of all stop requests, also of one that came before it was created.
    pub(crate) fn subscribe(&self) -> watch::Receiver<StopRequest> {
        let mut receiver = self.0.subscribe();
        if self.is_requested() {
            receiver.mark_changed();
        }
        receiver
    }
}
