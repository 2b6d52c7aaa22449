//! The one who waits for an execution.

use super::event_log::{EventLog, ExecutionRecord, ResponseBudget};
use super::task::ActiveExecution;
use crate::error::RequestError;
use crate::runs::live_log::NumberedEvent;
use crate::service::Service;
use futures_util::{Stream, StreamExt};
use std::sync::Arc;
use types::{Error, ErrorCode, Event, Execution, ExecutionId, WorkspaceId};

/// Somebody waits for this execution. Going away before its end ends it, unless it was let go, or
/// can be asked for again by the key of its request.
#[derive(Debug)]
pub struct ExecutionHandle {
    pub(super) service: Arc<Service>,
    pub(super) workspace: WorkspaceId,
    pub(super) id: ExecutionId,
    pub(super) running: Arc<ActiveExecution>,
    pub(super) started: Arc<Execution>,
    pub(super) cancel_on_drop: bool,
}

impl ExecutionHandle {
    pub fn id(&self) -> ExecutionId {
        self.id
    }

    /// Its record as it was when it began, or began to wait for an approval.
    pub fn record(&self) -> &Execution {
        &self.started
    }

    /// It goes on without anybody waiting.
    pub fn detach(mut self) -> Arc<Execution> {
        self.cancel_on_drop = false;
        Arc::clone(&self.started)
    }

    /// Its events from the first, beside whoever waits for its end.
    pub fn subscribe(&self) -> impl Stream<Item = NumberedEvent> + Send + use<> {
        let live = Some(Arc::clone(&self.running.live));
        self.service.event_stream(live, self.workspace, self.id, 0)
    }

    /// Returns when it has ended.
    pub async fn wait_until_ended(&self) {
        self.running.live.wait_closed().await;
    }

    /// Waits for its end, and gives the record. Of very much output and very many results only the
    /// first are there, with a warning.
    pub async fn wait(self) -> Result<Execution, RequestError> {
        let (service, workspace) = (Arc::clone(&self.service), self.workspace);
        let (execution, log) = self.wait_for_end().await?;
        match log {
            None => Ok(execution),
            Some(_) => service.with_transcript(workspace, execution).await,
        }
    }

    /// The same for a client, which reads output and results as fast as it likes.
    pub async fn wait_for_record(self) -> Result<ExecutionRecord, RequestError> {
        let running = Arc::clone(&self.running);
        let (execution, log) = self.wait_for_end().await?;
        let room = ResponseBudget::shared_with_execution(&running, &execution);
        Ok(ExecutionRecord { execution, log, budget: room })
    }

    async fn wait_for_end(mut self) -> Result<(Execution, Option<EventLog>), RequestError> {
        self.running.live.wait_closed().await;
        self.cancel_on_drop = false;
        let execution = self.running.take_outcome().unwrap_or_else(|| Err(interrupted().into()))?;
        let log = self.running.live.is_large().then(|| EventLog {
            service: Arc::clone(&self.service),
            workspace: self.workspace,
            id: self.id,
        });
        Ok((execution, log))
    }

    /// Every event from the first to the last.
    pub fn events(self) -> impl Stream<Item = NumberedEvent> + Send {
        let events = self.subscribe();
        let mut attached = Some(self);
        events.inspect(move |(_, event)| {
            if let (Event::End { .. }, Some(attached)) = (&**event, &mut attached) {
                attached.cancel_on_drop = false;
            }
        })
    }
}

impl Drop for ExecutionHandle {
    fn drop(&mut self) {
        if self.cancel_on_drop {
            self.service.cancel_active(self.id);
        }
    }
}

fn interrupted() -> Error {
    Error::new(
        ErrorCode::ExecutionInterrupted,
        "the server stopped while it ran; it is not run again",
    )
}
