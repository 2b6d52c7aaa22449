//! The handle of a client that waits for an execution.

use super::event_log::{EventLog, ExecutionRecord, ResponseBudget};
use super::task::ActiveExecution;
use crate::error::RequestError;
use crate::runs::live_log::NumberedEvent;
use crate::service::Service;
use futures_util::{Stream, StreamExt};
use std::sync::Arc;
use types::{Error, ErrorCode, Event, Execution, ExecutionId, WorkspaceId};

/// A handle to wait for an execution. Dropping it before the end cancels the execution, unless it
/// was detached, or can be requested again with its idempotency key.
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

    /// The record of the execution when it started, or when it began to wait for an approval.
    pub fn record(&self) -> &Execution {
        &self.started
    }

    /// Lets the execution continue without a waiting client.
    pub fn detach(mut self) -> Arc<Execution> {
        self.cancel_on_drop = false;
        Arc::clone(&self.started)
    }

    /// The events from the first, for a client besides the one that waits for the end.
    pub fn subscribe(&self) -> impl Stream<Item = NumberedEvent> + Send + use<> {
        let live = Some(Arc::clone(&self.running.live));
        self.service.event_stream(live, self.workspace, self.id, 0)
    }

    /// Returns when the execution has ended.
    pub async fn wait_until_ended(&self) {
        self.running.live.wait_closed().await;
    }

    /// Waits for the end and returns the record. Very large output and results are truncated, with
    /// a warning.
    pub async fn wait(self) -> Result<Execution, RequestError> {
        let (service, workspace) = (Arc::clone(&self.service), self.workspace);
        let (execution, log) = self.wait_for_end().await?;
        match log {
            None => Ok(execution),
            Some(_) => service.with_transcript(workspace, execution).await,
        }
    }

    /// Waits for the end and returns the record for a client, which reads output and results at its
    /// own speed.
    pub async fn wait_for_record(self) -> Result<ExecutionRecord, RequestError> {
        let running = Arc::clone(&self.running);
        let (execution, log) = self.wait_for_end().await?;
        let budget = ResponseBudget::shared_with_execution(&running, &execution);
        Ok(ExecutionRecord { execution, log, budget })
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
        let mut handle = Some(self);
        events.inspect(move |(_, event)| {
            if let (Event::End { .. }, Some(handle)) = (&**event, &mut handle) {
                handle.cancel_on_drop = false;
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
        "the server stopped while the execution ran; it is not repeated",
    )
}
