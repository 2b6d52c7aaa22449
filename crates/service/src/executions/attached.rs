//! The one who waits for an execution.

use super::course::Running;
use super::log::{AnswerRoom, EventLog, Record};
use crate::live::Numbered;
use crate::refused::Refused;
use crate::service::Service;
use futures_util::{Stream, StreamExt};
use std::sync::Arc;
use types::{Code, Event, Execution, ExecutionId, Fault, WorkspaceId};

/// Somebody waits for this execution. Going away before its end ends it, unless it was let go, or
/// can be asked for again by the key of its request.
#[derive(Debug)]
pub struct Attached {
    pub(super) service: Arc<Service>,
    pub(super) workspace: WorkspaceId,
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
        let live = Some(Arc::clone(&self.running.live));
        self.service.listen(live, self.workspace, self.id, 0)
    }

    /// Returns when it has ended.
    pub async fn over(&self) {
        self.running.live.over().await;
    }

    /// Waits for its end, and gives the record. Of very much output and very many results only the
    /// first are there, with a warning.
    pub async fn finished(self) -> Result<Execution, Refused> {
        let (service, workspace) = (Arc::clone(&self.service), self.workspace);
        let (execution, log) = self.ended().await?;
        match log {
            None => Ok(execution),
            Some(_) => service.whole(workspace, execution).await,
        }
    }

    /// The same for a client, which reads output and results as fast as it likes.
    pub async fn record(self) -> Result<Record, Refused> {
        let running = Arc::clone(&self.running);
        let (execution, log) = self.ended().await?;
        let room = AnswerRoom::of_execution(&running, &execution);
        Ok(Record { execution, log, room })
    }

    async fn ended(mut self) -> Result<(Execution, Option<EventLog>), Refused> {
        self.running.live.over().await;
        self.attached = false;
        let execution = self.running.end().cloned().unwrap_or_else(|| Err(interrupted().into()))?;
        let log = self.running.live.is_large().then(|| EventLog {
            service: Arc::clone(&self.service),
            workspace: self.workspace,
            id: self.id,
        });
        Ok((execution, log))
    }

    /// Every event from the first to the last.
    pub fn events(self) -> impl Stream<Item = Numbered> + Send {
        let events = self.follow();
        let mut attached = Some(self);
        events.inspect(move |(_, event)| {
            if let (Event::End { .. }, Some(attached)) = (&**event, &mut attached) {
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
