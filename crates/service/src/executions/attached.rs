//! The one who waits for an execution.

use super::course::Running;
use crate::live::Numbered;
use crate::refused::Refused;
use crate::service::Service;
use futures_util::{Stream, StreamExt};
use std::sync::Arc;
use types::{Code, Event, Execution, ExecutionId, Fault};

/// Somebody waits for this execution. Going away before its end ends it, unless it was let go, or
/// can be asked for again by the key of its request.
#[derive(Debug)]
pub struct Attached {
    pub(super) service: Arc<Service>,
    pub(super) id: ExecutionId,
    pub(super) running: Arc<Running>,
    pub(super) started: Box<Execution>,
    pub(super) attached: bool,
}

impl Attached {
    pub fn id(&self) -> ExecutionId {
        self.id
    }

    /// It goes on without anybody waiting.
    pub fn let_go(mut self) -> Execution {
        self.attached = false;
        (*self.started).clone()
    }

    /// Its events from the first, beside whoever waits for its end.
    pub fn follow(&self) -> impl Stream<Item = Numbered> + Send + use<> {
        Arc::clone(&self.running.live).after(0)
    }

    /// Returns when it has ended.
    pub async fn over(&self) {
        self.running.live.over().await;
    }

    /// Waits for its end, and gives the record.
    pub async fn finished(mut self) -> Result<Execution, Refused> {
        self.running.live.over().await;
        self.attached = false;
        match self.running.end() {
            Some(ended) => ended.clone(),
            None => Err(interrupted().into()),
        }
    }

    /// Every event from the first to the last.
    pub fn events(self) -> impl Stream<Item = Numbered> + Send {
        let live = Arc::clone(&self.running.live);
        let mut attached = Some(self);
        live.after(0).inspect(move |(_, event)| {
            if let (Event::End { .. }, Some(attached)) = (event, &mut attached) {
                attached.attached = false;
            }
        })
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if self.attached {
            self.service.stop_running(self.id);
        }
    }
}

fn interrupted() -> Fault {
    Fault::new(Code::ExecutionInterrupted, "the server stopped while it ran; it is not run again")
}
