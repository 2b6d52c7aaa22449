//! Runs of a language model. Each is an execution without a sandbox; the code that the model writes
//! runs in executions that have it as their parent.
//!
//! A run has its row before the first request to its model; its end, its conversation and its trace
//! are one commit. A run that dies with the server is marked at the next start, and is not
//! repeated.

use crate::error::{RequestError, invalid_field, not_found};
use crate::identity::caller::Caller;
use crate::runs::executions::{ActiveExecution, ExecutionHandle, RunContext, SubmitOptions};
use crate::service::Service;
use crate::tasks::run_to_completion;
use chrono::{DateTime, Utc};
use db::{IdempotencyKey, Tx};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use types::{
    AgentId, Error, ErrorCode, Event, Execution, ExecutionId, ExecutionStatus, Limits, ModelUsage,
    OutputFile, Round, SandboxId, Session, Warning,
};
use uuid::Uuid;

/// Delay between two attempts to write to the database.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// The parameters of a new run.
#[derive(Debug)]
pub struct NewRun {
    /// `agent` or `code_execution`.
    pub entry: &'static str,
    pub agent: Option<AgentId>,
    /// The session in which its code runs, if it may run code.
    pub session: Option<Session>,
    /// The request, unchanged.
    pub arguments: Value,
    pub files_in: Vec<String>,
    /// The run that this one continues.
    pub previous: Option<ExecutionId>,
}

/// A run that another one can continue.
#[derive(Debug, Clone)]
pub struct PreviousRun {
    pub id: ExecutionId,
    pub agent: Option<AgentId>,
    pub sandbox_id: Option<SandboxId>,
    pub conversation: Vec<u8>,
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct RunEnd {
    pub error: Option<Error>,
    /// The value, in the form for this kind of run.
    pub value: Option<Value>,
    pub plan: Vec<String>,
    pub rounds: Vec<Round>,
    pub files_out: Vec<OutputFile>,
    pub model: Option<ModelUsage>,
    pub warnings: Vec<Warning>,
    /// The conversation for the next run. If absent, the next run continues from the same one as
    /// this run.
    pub conversation: Option<Vec<u8>>,
    pub trace: Vec<u8>,
    /// Whether its session does not belong to the conversation, because no code ran in it.
    pub discard_session: bool,
}

/// A run in progress. If it is dropped before [`RunHandle::finish`], the run ends as interrupted.
#[derive(Debug)]
pub struct RunHandle {
    service: Arc<Service>,
    caller: Caller,
    context: RunContext,
    running: Arc<ActiveExecution>,
    started: Arc<Execution>,
    ended: bool,
}

impl Service {
    /// Records a new run. The execution handle is for the client that waits for its end.
    pub async fn begin_run(
        self: &Arc<Self>,
        caller: &Caller,
        new: NewRun,
        options: SubmitOptions,
    ) -> Result<(RunHandle, ExecutionHandle), RequestError> {
        let (service, caller) = (Arc::clone(self), caller.clone());
        run_to_completion(async move {
            let context =
                RunContext { agent: new.agent, ..RunContext::for_caller(&caller, options) };
            let started = Arc::new(context.annotate(started_record(&new, service.now())));
            service.write_run(&started, new, &context).await?;
            let running = service.register_execution(started.id);
            running.set_requester(context.requester());
            running.mark_started(None);
            if service.is_requester_revoked(context.requester()) {
                running.request_stop();
            }
            let handle = service.execution_handle(&running, Arc::clone(&started), &context);
            Ok((RunHandle { service, caller, context, running, started, ended: false }, handle))
        })
        .await
    }

    async fn write_run(
        &self,
        started: &Arc<Execution>,
        new: NewRun,
        context: &RunContext,
    ) -> Result<(), RequestError> {
        let (workspace, principal) = (context.workspace, context.principal);
        let claim = context.options.idempotency_key.clone();
        let key = claim.map(|key| IdempotencyKey { workspace, principal, key });
        let run = db::RunRow {
            id: started.id,
            principal,
            agent: new.agent,
            sandbox_id: started.sandbox_id,
            next: None,
            conversation: None,
        };
        let (after, record) = (new.previous, Arc::clone(started));
        let written = move |tx: &Tx<'_>| {
            if let Some(before) = after
                && !tx.continue_run(workspace, before, record.id)?
            {
                return Ok(false);
            }
            key.iter().try_for_each(|key| tx.link_request(key, record.id))?;
            tx.insert_execution(workspace, &record)?;
            tx.insert_run(workspace, &run)?;
            Ok(true)
        };
        if self.db.write(written).await? { Ok(()) } else { Err(cursor_used_error()) }
    }

    /// The conversation of an earlier run of the caller, to continue it.
    pub fn previous_run(
        &self,
        caller: &Caller,
        id: ExecutionId,
    ) -> Result<PreviousRun, RequestError> {
        let found = self.db.read(|rows| rows.run(caller.workspace, id))?;
        let run = found.filter(|run| run.principal == caller.id());
        let run =
            run.ok_or_else(|| invalid_field("/cursor", "does not belong to a run of yours"))?;
        if run.next.is_some() {
            return Err(cursor_used_error());
        }
        let unfinished = || match self.active_executions().contains_key(&id) {
            true => invalid_field("/cursor", "belongs to a run that has not ended"),
            false => invalid_field(
                "/cursor",
                "belongs to a run that was interrupted; continue from the cursor before it",
            ),
        };
        let conversation = run.conversation.ok_or_else(unfinished)?;
        Ok(PreviousRun { id: run.id, agent: run.agent, sandbox_id: run.sandbox_id, conversation })
    }

    /// The caller's last run of code in a session, if there is one.
    pub fn last_run_in_session(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
    ) -> Result<Option<PreviousRun>, RequestError> {
        let (workspace, principal) = (caller.workspace, caller.id());
        let found = self.db.read(|rows| rows.last_run_in_session(workspace, sandbox, principal))?;
        Ok(found.and_then(|run| {
            let conversation = run.conversation?;
            Some(PreviousRun {
                id: run.id,
                agent: run.agent,
                sandbox_id: run.sandbox_id,
                conversation,
            })
        }))
    }

    /// The record of a running run, with its events so far.
    pub(crate) fn with_live_progress(&self, record: Execution) -> Execution {
        let running = self.active_executions().get(&record.id).cloned();
        let Some(running) = running.filter(|_| record.ended_at.is_none()) else { return record };
        let mut record = record;
        for event in running.live.events() {
            match &*event {
                Event::Plan { steps } => record.plan.clone_from(steps),
                Event::Round(round) => record.rounds.push(round.clone()),
                Event::File(file) => record.files_out.push(file.clone()),
                _ => {}
            }
        }
        record
    }

    /// The trace of a run, for principals that may see it.
    pub async fn run_trace(
        &self,
        caller: &Caller,
        id: ExecutionId,
    ) -> Result<Vec<u8>, RequestError> {
        self.visible_execution(caller, id)?;
        let trace = self.db.read(|rows| rows.run_trace(caller.workspace, id))?;
        trace.ok_or_else(|| not_found("trace of", id))
    }
}

impl RunHandle {
    pub fn id(&self) -> ExecutionId {
        self.started.id
    }

    /// Whether the requester may no longer make requests.
    pub fn is_revoked(&self) -> bool {
        self.service.is_requester_revoked(self.context.requester())
    }

    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The options for executions of the run.
    pub fn child_options(&self) -> SubmitOptions {
        SubmitOptions { parent: Some(self.id()), announce_id: true, ..SubmitOptions::default() }
    }

    pub fn publish(&self, event: Event) {
        self.running.live.push(event);
    }

    /// Returns when the run is asked to stop, or when no client waits for it any more.
    pub async fn stop_requested(&self) {
        self.running.stop_requested().await;
    }

    /// Returns when no execution of the run is running any more.
    pub async fn wait_for_children(&self) {
        let children: Vec<Arc<ActiveExecution>> = {
            let running = self.service.active_executions();
            let is_started_child =
                |it: &&Arc<ActiveExecution>| it.is_child_of(self.id()) && it.has_started();
            running.values().filter(is_started_child).cloned().collect()
        };
        for running in children {
            running.live.wait_closed().await;
        }
    }

    /// Ends the run. `held` is dropped after the end is stored and before it is published.
    pub async fn finish<T>(
        mut self,
        status: ExecutionStatus,
        end: RunEnd,
        held: T,
    ) -> Result<Execution, RequestError> {
        self.ended = true;
        let outcome = self.persist(status, end).await;
        drop(held);
        self.service.publish_outcome(self.started.id, &self.running, outcome.clone());
        if let Err(error) = &outcome {
            tokio::spawn(self.record_lost((*error.error).clone()));
        }
        outcome
    }

    /// Records the end of a run whose result is lost. Repeats the write until it succeeds.
    #[boxed::future]
    async fn record_lost(self, error: Error) {
        loop {
            let end = RunEnd { error: Some(error.clone()), ..RunEnd::default() };
            if self.persist(ExecutionStatus::Failed, end).await.is_ok() {
                return;
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    /// Withdraws the pending approvals of the run.
    pub async fn withdraw_approvals(&self) {
        let open: Vec<ExecutionId> = {
            let running = self.service.active_executions();
            let open =
                running.iter().filter(|(_, it)| it.is_child_of(self.id()) && !it.has_started());
            open.map(|(id, _)| *id).collect()
        };
        for id in open {
            // An approval may have been decided in this moment.
            let _ = self.service.cancel_execution(&self.caller, id).await;
        }
    }

    #[boxed::future]
    async fn persist(
        &self,
        status: ExecutionStatus,
        end: RunEnd,
    ) -> Result<Execution, RequestError> {
        let now = self.service.now();
        let mut execution = Execution {
            status,
            error: end.error,
            value: end.value,
            plan: end.plan,
            rounds: end.rounds,
            files_out: end.files_out,
            model: end.model,
            warnings: end.warnings,
            ended_at: Some(now),
            ..Execution::clone(&self.started)
        };
        if end.discard_session {
            execution.sandbox_id = None;
        }
        let sandbox_id = execution.sandbox_id;
        let wall = now - self.started.created_at;
        execution.usage.wall_ms = u64::try_from(wall.num_milliseconds()).unwrap_or_default();
        execution.error.iter().for_each(|error| self.publish(Event::Error(error.clone())));
        let logged = self.running.live.events();
        let last = Event::End { status };
        let events: Vec<&Event> = logged.iter().map(AsRef::as_ref).chain([&last]).collect();
        let finished = db::FinishedExecutionRow::new(&execution, &events)?;
        let (workspace, id, entry) =
            (self.context.workspace, execution.id, self.context.audit_entry(&execution, now));
        let (conversation, trace) = (end.conversation, end.trace);
        let written = move |tx: &Tx<'_>| {
            tx.finish_execution(workspace, &finished)?;
            match &conversation {
                Some(conversation) => {
                    tx.finish_run(workspace, id, sandbox_id, conversation, &trace)?;
                }
                None => tx.release_run_cursor(workspace, id)?,
            }
            tx.append_audit_entry(&entry).map(drop)
        };
        self.service.db.write(written).await?;
        Ok(execution)
    }
}

impl Drop for RunHandle {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let handle = Self {
            service: Arc::clone(&self.service),
            caller: self.caller.clone(),
            context: self.context.clone(),
            running: Arc::clone(&self.running),
            started: Arc::clone(&self.started),
            ended: true,
        };
        tokio::spawn(async move {
            let message = "the run was interrupted; it is not repeated";
            let error = Some(Error::new(ErrorCode::ExecutionInterrupted, message));
            let end = RunEnd { error, ..RunEnd::default() };
            // No client may wait for it; the end is published anyway.
            let _ = handle.finish(ExecutionStatus::Failed, end, ()).await;
        });
    }
}

fn started_record(new: &NewRun, now: DateTime<Utc>) -> Execution {
    let session = new.session.as_ref();
    Execution {
        sandbox_id: session.map(|session| session.sandbox_id),
        generation: session.map_or(1, |session| session.generation),
        environment: session.map(|session| session.environment.clone()).unwrap_or_default(),
        status: ExecutionStatus::Running,
        entry: new.entry.to_owned(),
        tool: Some(new.entry.to_owned()).filter(|_| new.agent.is_none()),
        arguments: Some(new.arguments.clone()),
        files_in: new.files_in.clone(),
        started_at: Some(now),
        ..Execution::new(
            ExecutionId::new(Uuid::now_v7()),
            session.map_or(Limits::DEFAULT, |session| session.limits),
            now,
        )
    }
}

fn cursor_used_error() -> RequestError {
    let mut error =
        invalid_field("/cursor", "was already used: the conversation has continued from there");
    error.error.hint = Some("continue with the cursor of the newest response".to_owned());
    error
}
