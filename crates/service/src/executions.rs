//! Running code for a caller, and what is known of what ran.

mod attached;
mod course;
mod log;
mod whose;

pub use attached::Attached;
pub(crate) use course::Running;
pub use log::{AnswerRoom, EventLog, Record};
pub use whose::Manner;
pub(crate) use whose::Whose;

use crate::callee::Script;
use crate::caller::Caller;
use crate::calls::{Asked, CallRequest};
use crate::inputs::FileInput;
use crate::live::{LARGE_BYTES, Numbered};
use crate::network;
use crate::object::{object, objects};
use crate::page::{Listed, page};
use crate::refused::{Refused, invalid, not_found};
use crate::service::Service;
use engine::{Bring, Staging};
use futures_util::Stream;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use store::{ExecutionFilter, Reader};
use types::{Execution, ExecutionId, LimitsRequest, SandboxId, Status};
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
    pub status: Option<Status>,
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
        manner: Manner,
    ) -> Result<Asked, Refused> {
        if session.is_some() && request.environment.is_some() {
            return Err(invalid("/environment", "a session has its own environment"));
        }
        let integrations = network::asked(request.integrations, request.allow_network);
        if session.is_some() && !integrations.is_empty() {
            return Err(invalid("/integrations", "a session has its own integrations"));
        }
        self.check_environment(request.environment.as_deref())?;
        let session = session.map(|id| self.usable_session(caller, id)).transpose()?;
        let (workspace, who) = (caller.workspace, &caller.principal);
        let environment = request.environment.clone();
        let route = self.python_route(workspace, who, session.as_ref(), environment).await?;
        let script = Script {
            code: request.code,
            entry: request.entry,
            argv: request.argv,
            environment: request.environment,
            integrations,
        };
        let call = CallRequest {
            arguments: script.arguments(),
            agent_id: None,
            sandbox_id: session.map(|session| session.sandbox_id),
            files: request.files,
            limits: request.limits,
        };
        self.call(caller, route, call, manner).await
    }

    pub(crate) fn bring(&self) -> Bring {
        // A directory of its own for each, which is wiped at the next start whatever happens.
        let directory = self.store.blobs().staging_path();
        Bring::Copies(Staging { directory, bytes_max: self.config.execution_files_bytes_max })
    }

    /// The record as it is now: of one that runs, what is known so far. Of very much output and
    /// very many results only the first are there, with a warning.
    pub async fn execution(&self, caller: &Caller, id: ExecutionId) -> Result<Execution, Refused> {
        let summary = self.execution_summary(caller, id).await?;
        self.whole(caller.workspace, summary).await
    }

    /// The same for a client, which reads output and results as fast as it likes.
    pub async fn record(
        self: &Arc<Self>,
        caller: &Caller,
        id: ExecutionId,
    ) -> Result<Record, Refused> {
        let summary = self.execution_summary(caller, id).await?;
        let workspace = caller.workspace;
        let room = self.answer_room(workspace, &summary)?;
        let bytes = self.store.read(|rows| rows.event_bytes(workspace, id))?;
        if bytes > LARGE_BYTES {
            let log = EventLog { service: Arc::clone(self), workspace, id };
            return Ok(Record { execution: summary, log: Some(log), room });
        }
        Ok(Record { execution: self.whole(workspace, summary).await?, log: None, room })
    }

    /// The record without its output and results.
    pub(crate) async fn execution_summary(
        &self,
        caller: &Caller,
        id: ExecutionId,
    ) -> Result<Execution, Refused> {
        let workspace = caller.workspace;
        let found = self.store.read_long(move |rows| rows.execution_summary(workspace, id)).await?;
        let execution = found.ok_or_else(|| not_found("execution", id))?;
        match execution.principal {
            Some(principal) if self.may_see(caller, principal)? => Ok(self.so_far(execution)),
            _ => Err(not_found("execution", id)),
        }
    }

    /// Newest first, without output and results.
    pub async fn executions(
        &self,
        caller: &Caller,
        query: ExecutionQuery,
    ) -> Result<Listed<Execution>, Refused> {
        let page = page(query.limit, query.cursor.as_deref())?;
        let filter = ExecutionFilter {
            principal: self.only_own(caller)?,
            sandbox_id: query.sandbox_id,
            status: query.status,
            tool: query.tool,
        };
        let workspace = caller.workspace;
        let read = move |rows: &Reader<'_>| rows.executions(workspace, &filter, page);
        Ok(self.store.read_long(read).await?.into())
    }

    /// Every event after the one with this number: of one that runs until its end, of another as
    /// they were kept.
    pub async fn events(
        self: &Arc<Self>,
        caller: &Caller,
        id: ExecutionId,
        after: u64,
    ) -> Result<impl Stream<Item = Numbered> + Send + use<>, Refused> {
        self.execution_summary(caller, id).await?;
        let live = self.running().get(&id).map(|running| Arc::clone(&running.live));
        Ok(self.listen(live, caller.workspace, id, after))
    }

    /// Asks it to stop; whether it was running.
    pub async fn cancel(
        self: &Arc<Self>,
        caller: &Caller,
        id: ExecutionId,
    ) -> Result<bool, Refused> {
        let execution = self.execution_summary(caller, id).await?;
        let waits = execution.status == Status::WaitingApproval;
        if waits && self.withdraw(caller, &execution).await? {
            return Ok(true);
        }
        Ok(self.stop_running(id))
    }

    /// Whether there was anything to stop.
    pub(crate) fn stop_running(&self, id: ExecutionId) -> bool {
        let running = self.running().get(&id).cloned();
        running.iter().for_each(|running| running.stop());
        self.engine.cancel(id) || running.is_some_and(|running| running.has_begun())
    }
}
