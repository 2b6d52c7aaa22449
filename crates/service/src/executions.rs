//! Running code for a caller: admitted, written down, run, kept, and only then answered.
//!
//! A row says that an execution has begun before its first byte runs, and another write says how it
//! ended before anybody is told. Whatever dies in between is found by the next start, is marked as
//! interrupted, and is not run again.

use crate::caller::Caller;
use crate::inputs::FileInput;
use crate::live::{Live, Numbered};
use crate::object::{object, objects};
use crate::page::{Listed, page};
use crate::refused::{Refused, invalid, not_found};
use crate::service::Service;
use chrono::Utc;
use engine::{Admitted, Bring, Code as SourceCode, Command, Entry, Finished, Staging};
use futures_util::{Stream, StreamExt, stream};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::{AuditLine, ExecutionFilter, Reader, RequestKey, Tx};
use tracing::Instrument;
use types::{
    AgentId, ApprovalId, Code, Event, Execution, ExecutionId, Fault, File, KeyId, LimitsRequest,
    PrincipalId, SandboxId, Status, WorkspaceId,
};
use utoipa::ToSchema;
use uuid::Uuid;

/// Between two tries to write down what the disk had no room for.
const AGAIN: Duration = Duration::from_secs(5);

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
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// As in a notebook: the value of a last expression is a result.
    #[default]
    Cell,
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

/// An execution under way, or one that waits for a person.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) live: Arc<Live>,
    begun: AtomicBool,
    ended: OnceLock<Result<Execution, Refused>>,
}

impl Running {
    /// Whether it is on its way to an end without anybody's answer.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }
}

/// Everything about a run that the engine does not need to know.
#[derive(Debug, Clone)]
pub(crate) struct Whose {
    pub(crate) workspace: WorkspaceId,
    pub(crate) principal: PrincipalId,
    /// Absent when the server starts what somebody has agreed to.
    pub(crate) key: Option<KeyId>,
    pub(crate) run_as: PrincipalId,
    pub(crate) agent: Option<AgentId>,
    pub(crate) approval: Option<ApprovalId>,
    /// The key under which the same request may come again.
    pub(crate) claim: Option<String>,
}

impl Whose {
    pub(crate) fn caller(caller: &Caller, claim: Option<String>) -> Self {
        Self {
            workspace: caller.workspace,
            principal: caller.id(),
            key: Some(caller.key().id),
            run_as: caller.id(),
            agent: None,
            approval: None,
            claim,
        }
    }
}

/// Somebody waits for this execution. Going away before its end ends it, unless it was let go, or
/// can be asked for again by the key of its request.
#[derive(Debug)]
pub struct Attached {
    service: Arc<Service>,
    id: ExecutionId,
    running: Arc<Running>,
    started: Box<Execution>,
    attached: bool,
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

    /// Waits for its end, and gives the record.
    pub async fn finished(mut self) -> Result<Execution, Refused> {
        self.running.live.over().await;
        self.attached = false;
        match self.running.ended.get() {
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
            self.service.engine.cancel(self.id);
        }
    }
}

fn interrupted() -> Fault {
    Fault::new(Code::ExecutionInterrupted, "the server stopped while it ran; it is not run again")
}

impl Service {
    /// Code in a fresh sandbox, or in a session.
    pub async fn execute(
        self: &Arc<Self>,
        caller: &Caller,
        session: Option<SandboxId>,
        request: ExecuteRequest,
        claim: Option<String>,
    ) -> Result<Attached, Refused> {
        self.require_usage(caller)?;
        if let Some(id) = session {
            self.usable_session(caller, id)?;
            if request.environment.is_some() {
                return Err(invalid("/environment", "a session has its own environment"));
            }
        }
        self.check_environment(request.environment.as_deref())?;
        self.engine.limits(&request.limits)?;
        let code = SourceCode::new(request.code.into_bytes())
            .map_err(|error| invalid("/code", error.to_string()))?;
        let entry = match request.entry {
            EntryKind::Cell if request.argv.is_empty() => Entry::Cell(code),
            EntryKind::Cell => return Err(invalid("/argv", "only a script has arguments")),
            EntryKind::Script => Entry::Script { code, argv: request.argv },
        };
        let command = Command {
            id: ExecutionId::new(Uuid::now_v7()),
            session,
            principal: Some(caller.principal.name.clone()),
            environment: self.environment(request.environment),
            entry,
            files: self.bring_in(caller, request.files).await?,
            limits: request.limits,
            bring: self.bring(),
        };
        let admitted = self.engine.admit(command).await?;
        self.begin(admitted, Whose::caller(caller, claim)).await
    }

    pub(crate) fn bring(&self) -> Bring {
        // A directory of its own for each, which is wiped at the next start whatever happens.
        let directory = self.store.blobs().staging_path();
        Bring::Copies(Staging { directory, bytes_max: self.config.execution_files_bytes_max })
    }

    /// From here on there is a record of it, whatever happens.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        admitted: Admitted,
        whose: Whose,
    ) -> Result<Attached, Refused> {
        let record = started(&admitted, &whose);
        self.write_down(&record, &whose).await?;
        let id = record.id;
        let running = self.follow(id);
        running.begun.store(true, Ordering::Relaxed);
        let (started, attached) = (Box::new(record.clone()), whose.claim.is_none());
        tokio::spawn(Arc::clone(self).see_through(admitted, whose, record, Arc::clone(&running)));
        Ok(Attached { service: Arc::clone(self), id, running, started, attached })
    }

    /// Where its events go, and are heard.
    pub(crate) fn follow(&self, id: ExecutionId) -> Arc<Running> {
        let new = || {
            let begun = AtomicBool::new(false);
            Arc::new(Running { live: Live::new(), begun, ended: OnceLock::new() })
        };
        Arc::clone(self.running().entry(id).or_insert_with(new))
    }

    /// That it has begun. What must not happen twice waits for the disk; the rest only has to
    /// outlive this process.
    async fn write_down(&self, record: &Execution, whose: &Whose) -> Result<(), Refused> {
        let (record, workspace) = (record.clone(), whose.workspace);
        match (&whose.claim, whose.approval) {
            (None, None) => {
                let insert = move |tx: &Tx<'_>| tx.insert_execution(workspace, &record, None);
                Ok(self.store.write_soon(insert).await?)
            }
            (Some(claim), None) => {
                let key = RequestKey { workspace, principal: whose.principal, key: claim.clone() };
                let insert = move |tx: &Tx<'_>| {
                    tx.link_request(&key, record.id)?;
                    tx.insert_execution(workspace, &record, None)
                };
                Ok(self.store.write(insert).await?)
            }
            (_, Some(approval)) => {
                let consume = move |tx: &Tx<'_>| {
                    if !tx.consume_approval(workspace, approval, Utc::now())? {
                        return Ok(false);
                    }
                    // One that has ended meanwhile was withdrawn.
                    tx.update_execution(workspace, &record)
                };
                if self.store.write(consume).await? {
                    Ok(())
                } else {
                    Err(Fault::new(Code::ApprovalInvalid, "the approval was used already").into())
                }
            }
        }
    }

    /// Runs it, keeps what it made, writes the record, and tells whoever listens.
    async fn see_through(
        self: Arc<Self>,
        admitted: Admitted,
        whose: Whose,
        started: Execution,
        running: Arc<Running>,
    ) {
        let live = Arc::clone(&running.live);
        let ran = admitted
            .run(&mut |event: &Event| live.push(event.clone()))
            .instrument(tracing::info_span!("execution", id = %started.id))
            .await;
        let (kept, fault) = match ran {
            Ok(finished) => (self.keep(finished, &whose, &live).await, None),
            Err(fault) => {
                let kept = self.keep_failure(started.clone(), &fault, &whose, &live).await;
                (kept, Some(fault))
            }
        };
        let lost = kept.as_ref().err().cloned();
        let told = kept.and_then(|record| match fault {
            None => Ok(record),
            Some(fault) => Err(fault.into()),
        });
        self.conclude(started.id, &running, told);
        if let Some(refused) = lost {
            self.lose(started, *refused.fault, &whose).await;
        }
    }

    /// What came out of it is lost, but not that it is over: that is tried until it is written.
    async fn lose(&self, started: Execution, fault: Fault, whose: &Whose) {
        tracing::error!(execution = %started.id, error = %fault, "a record could not be kept");
        let ended_at = Some(Utc::now());
        let record = Execution { status: Status::Failed, error: Some(fault), ended_at, ..started };
        let nothing = Live::new();
        while self.write_end(record.clone(), Vec::new(), whose, &nothing).await.is_err() {
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Tells whoever listens how it ended.
    pub(crate) fn conclude(
        &self,
        id: ExecutionId,
        running: &Running,
        kept: Result<Execution, Refused>,
    ) {
        let status = kept.as_ref().map_or(Status::Failed, |record| record.status);
        metrics::counter!("belljar_executions_total", "status" => status.name()).increment(1);
        if let Ok(record) = &kept {
            let seconds = Duration::from_millis(record.usage.wall_ms).as_secs_f64();
            metrics::histogram!("belljar_execution_seconds").record(seconds);
        }
        let _ = running.ended.set(kept);
        running.live.push(Event::End { status });
        running.live.close();
        self.running().remove(&id);
    }

    async fn keep(
        &self,
        finished: Finished,
        whose: &Whose,
        live: &Live,
    ) -> Result<Execution, Refused> {
        let Finished { execution, copies, .. } = finished;
        let mut execution = whose.mark(execution);
        let kept = self.keep_files(&mut execution, copies, whose).await?;
        self.write_end(execution, kept, whose, live).await
    }

    /// It did not come to running: a file did not fit, or no sandbox could be had.
    async fn keep_failure(
        &self,
        started: Execution,
        fault: &Fault,
        whose: &Whose,
        live: &Live,
    ) -> Result<Execution, Refused> {
        live.push(Event::Error(fault.clone()));
        let execution = Execution {
            status: Status::Failed,
            error: Some(fault.clone()),
            ended_at: Some(Utc::now()),
            ..started
        };
        self.write_end(execution, Vec::new(), whose, live).await
    }

    pub(crate) async fn write_end(
        &self,
        execution: Execution,
        files: Vec<File>,
        whose: &Whose,
        live: &Live,
    ) -> Result<Execution, Refused> {
        let mut events = live.so_far();
        events.push(Event::End { status: execution.status });
        let ended = store::Finished::new(&execution, &events)?;
        let entry = whose.ran(&execution);
        let workspace = whose.workspace;
        let (sandbox_id, generation) = (execution.sandbox_id, execution.generation);
        let written = move |tx: &Tx<'_>| {
            tx.finish_execution(workspace, &ended)?;
            files.iter().try_for_each(|file| tx.insert_file(workspace, file))?;
            if let Some(id) = sandbox_id {
                tx.set_session_generation(workspace, id, generation)?;
            }
            tx.audit(&entry)?;
            Ok(())
        };
        self.store.write(written).await?;
        Ok(execution)
    }

    /// The record as it is now: of one that runs, what is known so far.
    pub async fn execution(&self, caller: &Caller, id: ExecutionId) -> Result<Execution, Refused> {
        let workspace = caller.workspace;
        let found = self.store.read_long(move |rows| rows.execution(workspace, id)).await?;
        let execution = found.ok_or_else(|| not_found("execution", id))?;
        match execution.principal {
            Some(principal) if self.may_see(caller, principal)? => Ok(execution),
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
        &self,
        caller: &Caller,
        id: ExecutionId,
        after: u64,
    ) -> Result<impl Stream<Item = Numbered> + Send + use<>, Refused> {
        let execution = self.execution(caller, id).await?;
        let running = self.running().get(&id).cloned();
        if let Some(running) = running.or_else(|| self.waiting(&execution)) {
            return Ok(Arc::clone(&running.live).after(after).left_stream());
        }
        let workspace = caller.workspace;
        let read = move |rows: &Reader<'_>| rows.execution_events(workspace, id);
        let events = self.store.read_long(read).await?.unwrap_or_default();
        let numbered = (1..).zip(events).filter(move |(number, _)| *number > after);
        Ok(stream::iter(numbered.collect::<Vec<_>>()).right_stream())
    }

    /// Asks it to stop; whether it was running.
    pub async fn cancel(&self, caller: &Caller, id: ExecutionId) -> Result<bool, Refused> {
        let execution = self.execution(caller, id).await?;
        match execution.status {
            Status::WaitingApproval => self.withdraw(caller, execution).await,
            _ => Ok(self.engine.cancel(id)),
        }
    }
}

/// The record of what has begun and not ended.
fn started(admitted: &Admitted, whose: &Whose) -> Execution {
    let record = admitted.record();
    whose.mark(Execution { status: Status::Running, started_at: Some(Utc::now()), ..record })
}

impl Whose {
    fn ran(&self, execution: &Execution) -> AuditLine {
        AuditLine {
            at: Utc::now(),
            workspace: self.workspace,
            principal: Some(self.principal),
            key: self.key,
            action: "execution.run".to_owned(),
            object: execution.id.to_string(),
            detail: execution.status.name().to_owned(),
        }
    }

    fn mark(&self, execution: Execution) -> Execution {
        Execution {
            principal: Some(self.principal),
            run_as: Some(self.run_as),
            agent: self.agent,
            approval_id: self.approval,
            ..execution
        }
    }
}
