//! Runs of a language model. Each is an execution without a sandbox of its own; the code that the
//! model writes runs in executions that name it as their parent.
//!
//! A run has its row before its model is asked for the first time, and its end, its conversation
//! and its trace are one commit. One that dies with the server is marked at the next start, and is
//! not run again.

use crate::error::{RequestError, invalid_field, not_found};
use crate::identity::caller::Caller;
use crate::runs::executions::{ActiveExecution, ExecutionHandle, RunContext, SubmitOptions};
use crate::service::Service;
use crate::tasks::run_to_completion;
use chrono::Utc;
use db::{IdempotencyKey, Tx};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use types::{
    AgentId, Error, ErrorCode, Event, Execution, ExecutionId, ExecutionStatus, Limits, ModelUsage,
    OutputFile, Round, SandboxId, Session, Warning,
};
use uuid::Uuid;

/// Between two tries to write down what the volume does not take.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// What a run begins with.
#[derive(Debug)]
pub struct NewRun {
    /// `agent` or `code_execution`.
    pub entry: &'static str,
    pub agent: Option<AgentId>,
    /// Where its code runs, if it may run any.
    pub session: Option<Session>,
    /// What was asked for, as it was asked.
    pub arguments: Value,
    pub files_in: Vec<String>,
    /// The run that this one goes on from.
    pub previous: Option<ExecutionId>,
}

/// A run that another one can go on from.
#[derive(Debug, Clone)]
pub struct PreviousRun {
    pub id: ExecutionId,
    pub agent: Option<AgentId>,
    pub sandbox_id: Option<SandboxId>,
    pub conversation: Vec<u8>,
}

/// What came of a run.
#[derive(Debug, Default)]
pub struct RunEnd {
    pub error: Option<Error>,
    /// Of the kind of run that it is.
    pub value: Option<Value>,
    pub plan: Vec<String>,
    pub rounds: Vec<Round>,
    pub files_out: Vec<OutputFile>,
    pub model: Option<ModelUsage>,
    pub warnings: Vec<Warning>,
    /// What the next run goes on from; without it, from where this one did.
    pub conversation: Option<Vec<u8>>,
    pub trace: Vec<u8>,
    /// Whether the session that it began with is none of the conversation's, since nothing ran in it.
    pub discard_session: bool,
}

/// A run under way. It ends when it is told to, and as interrupted when this is dropped before.
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
    /// Writes it down. What is attached is for whoever waits for its end.
    pub async fn begin_run(
        self: &Arc<Self>,
        caller: &Caller,
        new: NewRun,
        manner: SubmitOptions,
    ) -> Result<(RunHandle, ExecutionHandle), RequestError> {
        let (service, caller) = (Arc::clone(self), caller.clone());
        run_to_completion(async move {
            let whose = RunContext { agent: new.agent, ..RunContext::for_caller(&caller, manner) };
            let started = Arc::new(whose.annotate(started_record(&new)));
            service.write_run(&started, new, &whose).await?;
            let running = service.register_execution(started.id);
            running.asked_by(whose.asker());
            running.mark_started(None);
            if service.is_over(whose.asker()) {
                running.request_stop();
            }
            let attached = service.execution_handle(&running, Arc::clone(&started), &whose);
            Ok((
                RunHandle { service, caller, context: whose, running, started, ended: false },
                attached,
            ))
        })
        .await
    }

    async fn write_run(
        &self,
        started: &Arc<Execution>,
        new: NewRun,
        whose: &RunContext,
    ) -> Result<(), RequestError> {
        let (workspace, principal) = (whose.workspace, whose.principal);
        let claim = whose.options.idempotency_key.clone();
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

    /// What a run of the caller's own has left to go on from.
    pub fn previous_run(
        &self,
        caller: &Caller,
        id: ExecutionId,
    ) -> Result<PreviousRun, RequestError> {
        let found = self.db.read(|rows| rows.run(caller.workspace, id))?;
        let run = found.filter(|run| run.principal == caller.id());
        let run = run.ok_or_else(|| invalid_field("/cursor", "is of no run of yours"))?;
        if run.next.is_some() {
            return Err(cursor_used_error());
        }
        let unfinished = || match self.active_executions().contains_key(&id) {
            true => invalid_field("/cursor", "is of a run that has not ended"),
            false => invalid_field(
                "/cursor",
                "is of a run that was interrupted; go on from the cursor that it went on from",
            ),
        };
        let conversation = run.conversation.ok_or_else(unfinished)?;
        Ok(PreviousRun { id: run.id, agent: run.agent, sandbox_id: run.sandbox_id, conversation })
    }

    /// The last run of code of the caller's own in a session, if there was any.
    pub fn last_run_in_session(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
    ) -> Result<Option<PreviousRun>, RequestError> {
        let (workspace, who) = (caller.workspace, caller.id());
        let found = self.db.read(|rows| rows.last_run_in_session(workspace, sandbox, who))?;
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

    /// The record of a run under way, with what it has told so far.
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

    /// What a run has written about itself, for whoever may see it.
    pub async fn run_trace(
        &self,
        caller: &Caller,
        id: ExecutionId,
    ) -> Result<Vec<u8>, RequestError> {
        self.execution_summary(caller, id).await?;
        let trace = self.db.read(|rows| rows.run_trace(caller.workspace, id))?;
        trace.ok_or_else(|| not_found("trace of", id))
    }
}

impl RunHandle {
    pub fn id(&self) -> ExecutionId {
        self.started.id
    }

    /// Whether whoever asked for it may no longer ask.
    pub fn is_revoked(&self) -> bool {
        self.service.is_over(self.context.asker())
    }

    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// For what it has run.
    pub fn child_options(&self) -> SubmitOptions {
        SubmitOptions { parent: Some(self.id()), announce_id: true, ..SubmitOptions::default() }
    }

    pub fn publish(&self, event: Event) {
        self.running.live.push(event);
    }

    /// Returns when somebody wants it to end, or nobody waits for it any more.
    pub async fn stop_requested(&self) {
        self.running.stop_requested().await;
    }

    /// Returns when nothing that it has begun is running any more.
    pub async fn wait_for_children(&self) {
        let begun: Vec<Arc<ActiveExecution>> = {
            let running = self.service.active_executions();
            let begun = |it: &&Arc<ActiveExecution>| it.is_child_of(self.id()) && it.has_started();
            running.values().filter(begun).cloned().collect()
        };
        for running in begun {
            running.live.wait_closed().await;
        }
    }

    /// The last thing that is done with it. What is `held` is let go of when the end is kept, and
    /// before anybody is told of it.
    pub async fn finish<T>(
        mut self,
        status: ExecutionStatus,
        end: RunEnd,
        held: T,
    ) -> Result<Execution, RequestError> {
        self.ended = true;
        let kept = self.persist(status, end).await;
        drop(held);
        self.service.publish_outcome(self.started.id, &self.running, kept.clone());
        if let Err(refused) = &kept {
            tokio::spawn(self.record_lost((*refused.error).clone()));
        }
        kept
    }

    /// What came of it is lost, but not that it is over: that is tried until it is written.
    #[boxed::future]
    async fn record_lost(self, fault: Error) {
        loop {
            let end = RunEnd { error: Some(fault.clone()), ..RunEnd::default() };
            if self.persist(ExecutionStatus::Failed, end).await.is_ok() {
                return;
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    /// Nobody is asked any more what it wanted to do.
    pub async fn withdraw_approvals(&self) {
        let open: Vec<ExecutionId> = {
            let running = self.service.active_executions();
            let open =
                running.iter().filter(|(_, it)| it.is_child_of(self.id()) && !it.has_started());
            open.map(|(id, _)| *id).collect()
        };
        for id in open {
            // Somebody may have answered in this very moment.
            let _ = self.service.cancel_execution(&self.caller, id).await;
        }
    }

    #[boxed::future]
    async fn persist(
        &self,
        status: ExecutionStatus,
        end: RunEnd,
    ) -> Result<Execution, RequestError> {
        let now = Utc::now();
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
        execution.error.iter().for_each(|fault| self.publish(Event::Error(fault.clone())));
        let told = self.running.live.events();
        let last = Event::End { status };
        let events: Vec<&Event> = told.iter().map(AsRef::as_ref).chain([&last]).collect();
        let finished = db::FinishedExecutionRow::new(&execution, &events)?;
        let (workspace, id, entry) =
            (self.context.workspace, execution.id, self.context.audit_entry(&execution));
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
        let again = Self {
            service: Arc::clone(&self.service),
            caller: self.caller.clone(),
            context: self.context.clone(),
            running: Arc::clone(&self.running),
            started: Arc::clone(&self.started),
            ended: true,
        };
        tokio::spawn(async move {
            let message = "the run ended in the middle; what it began is not begun again";
            let error = Some(Error::new(ErrorCode::ExecutionInterrupted, message));
            let end = RunEnd { error, ..RunEnd::default() };
            // Nobody waits for it; the end is told all the same.
            let _ = again.finish(ExecutionStatus::Failed, end, ()).await;
        });
    }
}

fn started_record(new: &NewRun) -> Execution {
    let now = Utc::now();
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
    let mut refused =
        invalid_field("/cursor", "was used before: the conversation has gone on from there");
    refused.error.hint = Some("go on with the cursor of the newest answer".to_owned());
    refused
}
