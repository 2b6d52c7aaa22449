//! Running code for a caller, and what is known of what ran.

mod context;
mod event_log;
mod handle;
mod task;

pub(crate) use context::RunContext;
pub use context::SubmitOptions;
pub use event_log::{EventLog, ExecutionRecord, ResponseBudget};
pub use handle::ExecutionHandle;
pub(crate) use task::ActiveExecution;

use crate::data::inputs::FileInput;
use crate::error::{RequestError, invalid_field, not_found};
use crate::identity::caller::Caller;
use crate::network;
use crate::page::{Page, page_request};
use crate::runs::call_target::ExecutePythonArgs;
use crate::runs::calls::{CallRequest, Submitted};
use crate::runs::live_log::{LARGE_BYTES, NumberedEvent};
use crate::serde_helpers::{object, objects};
use crate::service::Service;
use db::{ExecutionFilter, Reader};
use engine::{FileCollection, StagingDirectory};
use futures_util::Stream;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use types::{Execution, ExecutionId, ExecutionStatus, LimitsRequest, SandboxId};
use utoipa::ToSchema;

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecuteRequest {
    /// Python, up to 4 MiB.
    pub code: String,
    #[serde(default)]
    pub entry: EntryKind,
    /// Of a script: what `sys.argv` is.
    #[serde(default)]
    pub argv: Vec<String>,
    /// For the working directory, before the code runs.
    #[serde(default, deserialize_with = "objects")]
    pub files: Vec<FileInput>,
    #[serde(default, deserialize_with = "object")]
    pub limits: LimitsRequest,
    /// Of a fresh sandbox; a session has its own.
    pub environment: Option<String>,
    /// The names of integrations that the code may leave a fresh sandbox by; a session has its own.
    #[serde(default)]
    pub integrations: Vec<String>,
    /// The same as the integration `internet`.
    #[serde(default)]
    pub allow_network: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// As in a notebook: the value of a last expression is a result.
    #[default]
    Cell,
    /// As a cell whose value is what it binds to the name `result`, if it does.
    Answer,
    /// As `python3 FILE ARGS`.
    Script,
}

#[derive(Debug, Clone, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ExecutionQuery {
    pub sandbox_id: Option<SandboxId>,
    pub status: Option<ExecutionStatus>,
    /// The name of a tool.
    pub tool: Option<String>,
    /// How many, from 1 to 200; 50 if absent.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// `next_cursor` of the page before.
    pub cursor: Option<String>,
}

impl Service {
    /// Code in a fresh sandbox, or in a session.
    pub async fn execute(
        self: &Arc<Self>,
        caller: &Caller,
        session: Option<SandboxId>,
        request: ExecuteRequest,
        manner: SubmitOptions,
    ) -> Result<Submitted, RequestError> {
        if session.is_some() && request.environment.is_some() {
            return Err(invalid_field("/environment", "a session has its own environment"));
        }
        let integrations =
            network::requested_integrations(request.integrations, request.allow_network);
        if session.is_some() && !integrations.is_empty() {
            return Err(invalid_field("/integrations", "a session has its own integrations"));
        }
        self.check_environment(request.environment.as_deref())?;
        let session = session.map(|id| self.usable_session(caller, id)).transpose()?;
        let (workspace, who) = (caller.workspace, &caller.principal);
        let environment = request.environment.clone();
        let route = self.resolve_python_call(workspace, who, session.as_ref(), environment).await?;
        let script = ExecutePythonArgs {
            code: request.code,
            entry: request.entry,
            argv: request.argv,
            environment: request.environment,
            integrations,
        };
        let call = CallRequest {
            arguments: script.to_value(),
            agent_id: None,
            sandbox_id: session.map(|session| session.sandbox_id),
            files: request.files,
            limits: request.limits,
        };
        self.submit_call(caller, route, call, manner).await
    }

    pub(crate) fn file_collection(&self) -> FileCollection {
        // A directory of its own for each, which is wiped at the next start whatever happens.
        let directory = self.db.blobs().staging_path();
        FileCollection::Staged(StagingDirectory {
            directory,
            bytes_max: self.config.execution_files_bytes_max,
        })
    }

    /// The record as it is now: of one that runs, what is known so far. Of very much output and
    /// very many results only the first are there, with a warning.
    pub async fn execution(
        &self,
        caller: &Caller,
        id: ExecutionId,
    ) -> Result<Execution, RequestError> {
        let summary = self.execution_summary(caller, id).await?;
        self.with_transcript(caller.workspace, summary).await
    }

    /// The same for a client, which reads output and results as fast as it likes.
    pub async fn execution_record(
        self: &Arc<Self>,
        caller: &Caller,
        id: ExecutionId,
    ) -> Result<ExecutionRecord, RequestError> {
        let summary = self.execution_summary(caller, id).await?;
        let workspace = caller.workspace;
        let room = self.response_budget(workspace, &summary)?;
        let bytes = self.db.read(|rows| rows.event_bytes(workspace, id))?;
        if bytes > LARGE_BYTES {
            let log = EventLog { service: Arc::clone(self), workspace, id };
            return Ok(ExecutionRecord { execution: summary, log: Some(log), budget: room });
        }
        Ok(ExecutionRecord {
            execution: self.with_transcript(workspace, summary).await?,
            log: None,
            budget: room,
        })
    }

    /// The record without its output and results.
    pub(crate) async fn execution_summary(
        &self,
        caller: &Caller,
        id: ExecutionId,
    ) -> Result<Execution, RequestError> {
        let workspace = caller.workspace;
        let found =
            self.db.read_off_thread(move |rows| rows.execution_summary(workspace, id)).await?;
        let execution = found.ok_or_else(|| not_found("execution", id))?;
        match execution.principal {
            Some(principal) if self.may_see_owned_by(caller, principal)? => {
                Ok(self.with_live_progress(execution))
            }
            _ => Err(not_found("execution", id)),
        }
    }

    /// Newest first, without output and results.
    pub async fn executions(
        &self,
        caller: &Caller,
        query: ExecutionQuery,
    ) -> Result<Page<Execution>, RequestError> {
        let page = page_request(query.limit, query.cursor.as_deref())?;
        let filter = ExecutionFilter {
            principal: self.owner_filter(caller)?,
            sandbox_id: query.sandbox_id,
            status: query.status,
            tool: query.tool,
        };
        let workspace = caller.workspace;
        let read = move |rows: &Reader<'_>| rows.executions(workspace, &filter, page);
        Ok(self.db.read_off_thread(read).await?.into())
    }

    /// Every event after the one with this number: of one that runs until its end, of another as
    /// they were kept.
    pub async fn execution_events(
        self: &Arc<Self>,
        caller: &Caller,
        id: ExecutionId,
        after: u64,
    ) -> Result<impl Stream<Item = NumberedEvent> + Send + use<>, RequestError> {
        self.execution_summary(caller, id).await?;
        let live = self.active_executions().get(&id).map(|running| Arc::clone(&running.live));
        Ok(self.event_stream(live, caller.workspace, id, after))
    }

    /// Asks it to stop; whether it was running.
    pub async fn cancel_execution(
        self: &Arc<Self>,
        caller: &Caller,
        id: ExecutionId,
    ) -> Result<bool, RequestError> {
        let execution = self.execution_summary(caller, id).await?;
        let waits = execution.status == ExecutionStatus::WaitingApproval;
        if waits && self.withdraw_approval(caller, &execution).await? {
            return Ok(true);
        }
        Ok(self.cancel_active(id))
    }

    /// Whether there was anything to stop.
    pub(crate) fn cancel_active(&self, id: ExecutionId) -> bool {
        let running = self.active_executions().get(&id).cloned();
        running.iter().for_each(|running| running.request_stop());
        self.engine.cancel(id) || running.is_some_and(|running| running.has_started())
    }
}
