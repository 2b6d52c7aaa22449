//! Runs code for a caller, and reads the records of executions.

mod context;
mod event_log;
mod handle;
mod task;

pub(crate) use context::RunContext;
pub use context::SubmitOptions;
pub use event_log::{EventLog, ExecutionRecord, ResponseBudget, StoredExecution};
pub use handle::ExecutionHandle;
pub(crate) use task::ActiveExecution;

use crate::error::{RequestError, not_found};
use crate::identity::caller::Caller;
use crate::page::{Page, page_request};
use crate::runs::live_log::{LARGE_BYTES, NumberedEvent};
use crate::service::Service;
use crate::tasks::run_blocking;
use db::{ExecutionFilter, ExecutionJson, ExecutionState, Reader};
use futures_util::Stream;
use serde::Deserialize;
use std::sync::Arc;
use types::{Execution, ExecutionId, ExecutionStatus, JsonSize, SandboxId};

#[derive(Debug, Clone, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ExecutionQuery {
    pub sandbox_id: Option<SandboxId>,
    pub status: Option<ExecutionStatus>,
    /// The name of a tool.
    pub tool: Option<String>,
    /// Number of items, 1 to 200; default 50.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// `next_cursor` of the previous page.
    pub cursor: Option<String>,
}

impl Service {
    /// The current record; for a running execution, as far as it is known. Very large output and
    /// results are truncated, with a warning.
    pub async fn execution(
        &self,
        caller: &Caller,
        id: ExecutionId,
    ) -> Result<ExecutionRecord, RequestError> {
        let (summary, budget) = self.execution_summary(caller, id).await?;
        let execution = self.with_transcript(caller.workspace, summary).await?;
        Ok(ExecutionRecord { execution, log: None, budget })
    }

    /// The current record for a client, which reads output and results at its own speed.
    pub async fn execution_record(
        self: &Arc<Self>,
        caller: &Caller,
        id: ExecutionId,
    ) -> Result<ExecutionRecord, RequestError> {
        let workspace = caller.workspace;
        let (execution, budget) = self.execution_summary(caller, id).await?;
        let bytes = self.db.read(|rows| rows.event_bytes(workspace, id))?;
        if bytes > LARGE_BYTES {
            let log = Some(EventLog { service: Arc::clone(self), workspace, id });
            return Ok(ExecutionRecord { execution, log, budget });
        }
        let execution = self.with_transcript(workspace, execution).await?;
        Ok(ExecutionRecord { execution, log: None, budget })
    }

    /// The stored record of an execution that has ended, as text. Absent for any other.
    pub async fn stored_execution(
        self: &Arc<Self>,
        caller: &Caller,
        id: ExecutionId,
    ) -> Result<Option<StoredExecution>, RequestError> {
        let workspace = caller.workspace;
        if !self.visible_execution(caller, id)?.has_ended() {
            return Ok(None);
        }
        let urls = self.file_urls(caller);
        let read = move |rows: &Reader<'_>| {
            let bytes = rows.largest_event_batch(workspace, id)?;
            let json = rows.execution_json(workspace, id)?;
            Ok(json.map(|json| (json.map(|text| urls.sign_record_json(text)), bytes)))
        };
        let Some((json, batch_bytes)) = self.db.read_off_thread(read).await? else {
            return Err(not_found("execution", id));
        };
        // The text, and one batch of events with its JSON.
        let bytes = json.as_str().len() as u64 + 2 * batch_bytes;
        let budget = self.reserve_record(workspace, id, bytes)?;
        let log = EventLog { service: Arc::clone(self), workspace, id };
        Ok(Some(StoredExecution { json, log, budget }))
    }

    /// The record without its output and results. Its memory is counted before it is built.
    #[boxed::future]
    pub(crate) async fn execution_summary(
        &self,
        caller: &Caller,
        id: ExecutionId,
    ) -> Result<(Execution, Option<ResponseBudget>), RequestError> {
        self.visible_execution(caller, id)?;
        let workspace = caller.workspace;
        let json = self.db.read_off_thread(move |rows| rows.execution_json(workspace, id)).await?;
        let json = json.ok_or_else(|| not_found("execution", id))?;
        let bytes = JsonSize::measure(json.as_str()).memory_bytes as u64;
        let budget = self.reserve_record(workspace, id, bytes)?;
        let execution = match budget {
            None => run_blocking(move || json.parse()).await?,
            Some(_) => self.check_slots.run_check(workspace, move || json.parse()).await?,
        }?;
        Ok((self.with_live_progress(execution), budget))
    }

    /// The status of an execution that the caller may see.
    pub(crate) fn visible_execution(
        &self,
        caller: &Caller,
        id: ExecutionId,
    ) -> Result<ExecutionStatus, RequestError> {
        let found = self.db.read(|rows| rows.execution_state(caller.workspace, id))?;
        match found {
            Some(ExecutionState { principal: Some(principal), status })
                if self.may_see_owned_by(caller, principal)? =>
            {
                Ok(status)
            }
            _ => Err(not_found("execution", id)),
        }
    }

    /// Newest first, without output and results. Records stay text: their values as trees would take
    /// a hundred times the memory of the page.
    pub async fn executions(
        &self,
        caller: &Caller,
        query: ExecutionQuery,
    ) -> Result<Page<ExecutionJson>, RequestError> {
        let page = page_request(query.limit, query.cursor.as_deref())?;
        let filter = ExecutionFilter {
            principal: self.owner_filter(caller)?,
            sandbox_id: query.sandbox_id,
            status: query.status,
            tool: query.tool,
        };
        let workspace = caller.workspace;
        let db = Arc::clone(&self.db);
        let urls = self.file_urls(caller);
        let read = move || {
            let mut page = db.read(|rows| rows.executions(workspace, &filter, page))?;
            let sign = |json: ExecutionJson| json.map(|text| urls.sign_record_json(text));
            page.items = page.items.into_iter().map(sign).collect();
            Ok::<_, db::DatabaseError>(page)
        };
        Ok(self.check_slots.run_check(workspace, read).await??.into())
    }

    /// Every event after the one with this number: for a running execution until its end, otherwise
    /// the stored events.
    pub async fn execution_events(
        self: &Arc<Self>,
        caller: &Caller,
        id: ExecutionId,
        after: u64,
    ) -> Result<impl Stream<Item = NumberedEvent> + Send + use<>, RequestError> {
        self.visible_execution(caller, id)?;
        let live = self.active_executions().get(&id).map(|running| Arc::clone(&running.live));
        Ok(self.event_stream(live, caller.workspace, id, after))
    }

    /// Asks an execution to stop, and returns whether it was running.
    #[boxed::future]
    pub async fn cancel_execution(
        self: &Arc<Self>,
        caller: &Caller,
        id: ExecutionId,
    ) -> Result<bool, RequestError> {
        let status = self.visible_execution(caller, id)?;
        if status == ExecutionStatus::WaitingApproval {
            let workspace = caller.workspace;
            let waiting = self.db.read(|rows| rows.execution_without_inputs(workspace, id))?;
            if let Some(approval) = waiting.and_then(|execution| execution.approval_id)
                && self.withdraw_approval(caller, approval).await?
            {
                return Ok(true);
            }
        }
        Ok(self.cancel_active(id))
    }

    /// Returns whether there was an execution to stop.
    pub(crate) fn cancel_active(&self, id: ExecutionId) -> bool {
        let running = self.active_executions().get(&id).cloned();
        running.iter().for_each(|running| running.request_stop());
        running.is_some_and(|running| running.has_started())
    }
}
