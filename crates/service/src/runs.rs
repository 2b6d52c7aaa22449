//! Runs of a language model. Each is an execution without a sandbox of its own; the code that the
//! model writes runs in executions that name it as their parent.
//!
//! A run has its row before its model is asked for the first time, and its end, its conversation
//! and its trace are one commit. One that dies with the server is marked at the next start, and is
//! not run again.

use crate::apart::to_the_end;
use crate::caller::Caller;
use crate::executions::{Attached, Manner, Running, Whose};
use crate::refused::{Refused, invalid, not_found};
use crate::service::Service;
use chrono::Utc;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use store::{RequestKey, Tx};
use types::{
    AgentId, Code, Event, Execution, ExecutionId, Fault, FileOut, Limits, ModelUse, Round,
    SandboxId, Session, Status, Warning,
};
use uuid::Uuid;

/// Between two tries to write down what the store does not take.
const AGAIN: Duration = Duration::from_secs(5);

/// What a run begins with.
#[derive(Debug)]
pub struct NewRun {
    /// `agent` or `code_execution`.
    pub entry: &'static str,
    pub agent: Option<AgentId>,
    /// Where its code runs, if it may run any.
    pub session: Option<Session>,
    /// What was asked for, as it was asked.
    pub asked: Value,
    pub files_in: Vec<String>,
    /// The run that this one goes on from.
    pub after: Option<ExecutionId>,
}

/// A run that another one can go on from.
#[derive(Debug, Clone)]
pub struct Before {
    pub id: ExecutionId,
    pub agent: Option<AgentId>,
    pub sandbox_id: Option<SandboxId>,
    pub conversation: Vec<u8>,
}

/// What came of a run.
#[derive(Debug, Default)]
pub struct RunEnd {
    pub error: Option<Fault>,
    /// Of the kind of run that it is.
    pub value: Option<Value>,
    pub plan: Vec<String>,
    pub rounds: Vec<Round>,
    pub files_out: Vec<FileOut>,
    pub model: Option<ModelUse>,
    pub warnings: Vec<Warning>,
    /// What the next run goes on from; without it, from where this one did.
    pub conversation: Option<Vec<u8>>,
    pub trace: Vec<u8>,
    /// Whether the session that it began with is none of the conversation's, since nothing ran in it.
    pub leaves_session: bool,
}

/// A run under way. It ends when it is told to, and as interrupted when this is dropped before.
#[derive(Debug)]
pub struct Run {
    service: Arc<Service>,
    caller: Caller,
    whose: Whose,
    running: Arc<Running>,
    started: Execution,
    ended: bool,
}

impl Service {
    /// Writes it down. What is attached is for whoever waits for its end.
    pub async fn begin_run(
        self: &Arc<Self>,
        caller: &Caller,
        new: NewRun,
        manner: Manner,
    ) -> Result<(Run, Attached), Refused> {
        let (service, caller) = (Arc::clone(self), caller.clone());
        to_the_end(async move {
            let whose = Whose { agent: new.agent, ..Whose::caller(&caller, manner) };
            let started = whose.mark(record(&new));
            service.write_run(&started, new, &whose).await?;
            let running = service.follow(started.id);
            running.asked_by(whose.asker());
            running.begin(None);
            if service.is_over(whose.asker()) {
                running.stop();
            }
            let attached = service.attach(&running, &started, &whose);
            Ok((Run { service, caller, whose, running, started, ended: false }, attached))
        })
        .await
    }

    async fn write_run(
        &self,
        started: &Execution,
        new: NewRun,
        whose: &Whose,
    ) -> Result<(), Refused> {
        let (workspace, principal) = (whose.workspace, whose.principal);
        let claim = whose.manner.claim.clone();
        let key = claim.map(|key| RequestKey { workspace, principal, key });
        let run = store::Run {
            id: started.id,
            principal,
            agent: new.agent,
            sandbox_id: started.sandbox_id,
            next: None,
            conversation: None,
        };
        let (after, record) = (new.after, started.clone());
        let written = move |tx: &Tx<'_>| {
            if let Some(before) = after
                && !tx.go_on_from(workspace, before, record.id)?
            {
                return Ok(false);
            }
            key.iter().try_for_each(|key| tx.link_request(key, record.id))?;
            tx.insert_execution(workspace, &record, None)?;
            tx.insert_run(workspace, &run)?;
            Ok(true)
        };
        if self.store.write(written).await? { Ok(()) } else { Err(used()) }
    }

    /// What a run of the caller's own has left to go on from.
    pub fn run_before(&self, caller: &Caller, id: ExecutionId) -> Result<Before, Refused> {
        let found = self.store.read(|rows| rows.run(caller.workspace, id))?;
        let run = found.filter(|run| run.principal == caller.id());
        let run = run.ok_or_else(|| invalid("/cursor", "is of no run of yours"))?;
        if run.next.is_some() {
            return Err(used());
        }
        let unfinished = || match self.running().contains_key(&id) {
            true => invalid("/cursor", "is of a run that has not ended"),
            false => invalid(
                "/cursor",
                "is of a run that was interrupted; go on from the cursor that it went on from",
            ),
        };
        let conversation = run.conversation.ok_or_else(unfinished)?;
        Ok(Before { id: run.id, agent: run.agent, sandbox_id: run.sandbox_id, conversation })
    }

    /// The last run of code of the caller's own in a session, if there was any.
    pub fn last_run_in(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
    ) -> Result<Option<Before>, Refused> {
        let (workspace, who) = (caller.workspace, caller.id());
        let found = self.store.read(|rows| rows.last_run_in(workspace, sandbox, who))?;
        Ok(found.and_then(|run| {
            let conversation = run.conversation?;
            Some(Before { id: run.id, agent: run.agent, sandbox_id: run.sandbox_id, conversation })
        }))
    }

    /// The record of a run under way, with what it has told so far.
    pub(crate) fn so_far(&self, record: Execution) -> Execution {
        let running = self.running().get(&record.id).cloned();
        let Some(running) = running.filter(|_| record.ended_at.is_none()) else { return record };
        let mut record = record;
        for event in running.live.so_far() {
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
    pub async fn run_trace(&self, caller: &Caller, id: ExecutionId) -> Result<Vec<u8>, Refused> {
        self.execution_summary(caller, id).await?;
        let trace = self.store.read(|rows| rows.run_trace(caller.workspace, id))?;
        trace.ok_or_else(|| not_found("trace of", id))
    }
}

impl Run {
    pub fn id(&self) -> ExecutionId {
        self.started.id
    }

    /// Whether whoever asked for it may no longer ask.
    pub fn is_revoked(&self) -> bool {
        self.service.is_over(self.whose.asker())
    }

    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// For what it has run.
    pub fn manner(&self) -> Manner {
        Manner { parent: Some(self.id()), announced: true, ..Manner::default() }
    }

    pub fn tell(&self, event: Event) {
        self.running.live.push(event);
    }

    /// Returns when somebody wants it to end, or nobody waits for it any more.
    pub async fn stopped(&self) {
        self.running.stopped().await;
    }

    /// Returns when nothing that it has begun is running any more.
    pub async fn at_rest(&self) {
        let begun: Vec<Arc<Running>> = {
            let running = self.service.running();
            let begun = |it: &&Arc<Running>| it.is_of(self.id()) && it.has_begun();
            running.values().filter(begun).cloned().collect()
        };
        for running in begun {
            running.live.over().await;
        }
    }

    /// The last thing that is done with it. What is `held` is let go of when the end is kept, and
    /// before anybody is told of it.
    pub async fn end<T>(
        mut self,
        status: Status,
        end: RunEnd,
        held: T,
    ) -> Result<Execution, Refused> {
        self.ended = true;
        let kept = self.keep(status, end).await;
        drop(held);
        self.service.conclude(self.started.id, &self.running, kept.clone());
        if let Err(refused) = &kept {
            tokio::spawn(self.lose((*refused.fault).clone()));
        }
        kept
    }

    /// What came of it is lost, but not that it is over: that is tried until it is written.
    async fn lose(self, fault: Fault) {
        loop {
            let end = RunEnd { error: Some(fault.clone()), ..RunEnd::default() };
            if self.keep(Status::Failed, end).await.is_ok() {
                return;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Nobody is asked any more what it wanted to do.
    pub async fn withdraw(&self) {
        let open: Vec<ExecutionId> = {
            let running = self.service.running();
            let open = running.iter().filter(|(_, it)| it.is_of(self.id()) && !it.has_begun());
            open.map(|(id, _)| *id).collect()
        };
        for id in open {
            // Somebody may have answered in this very moment.
            let _ = self.service.cancel(&self.caller, id).await;
        }
    }

    async fn keep(&self, status: Status, end: RunEnd) -> Result<Execution, Refused> {
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
            ..self.started.clone()
        };
        if end.leaves_session {
            execution.sandbox_id = None;
        }
        let sandbox_id = execution.sandbox_id;
        let wall = now - self.started.created_at;
        execution.usage.wall_ms = u64::try_from(wall.num_milliseconds()).unwrap_or_default();
        execution.error.iter().for_each(|fault| self.tell(Event::Error(fault.clone())));
        let told = self.running.live.so_far();
        let last = Event::End { status };
        let events: Vec<&Event> = told.iter().map(AsRef::as_ref).chain([&last]).collect();
        let finished = store::Finished::new(&execution, &events)?;
        let (workspace, id, entry) =
            (self.whose.workspace, execution.id, self.whose.ran(&execution));
        let (conversation, trace) = (end.conversation, end.trace);
        let written = move |tx: &Tx<'_>| {
            tx.finish_execution(workspace, &finished)?;
            match &conversation {
                Some(conversation) => {
                    tx.finish_run(workspace, id, sandbox_id, conversation, &trace)?;
                }
                None => tx.give_back_cursor(workspace, id)?,
            }
            tx.audit(&entry).map(drop)
        };
        self.service.store.write(written).await?;
        Ok(execution)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let again = Self {
            service: Arc::clone(&self.service),
            caller: self.caller.clone(),
            whose: self.whose.clone(),
            running: Arc::clone(&self.running),
            started: self.started.clone(),
            ended: true,
        };
        tokio::spawn(async move {
            let message = "the run ended in the middle; what it began is not begun again";
            let error = Some(Fault::new(Code::ExecutionInterrupted, message));
            let end = RunEnd { error, ..RunEnd::default() };
            // Nobody waits for it; the end is told all the same.
            let _ = again.end(Status::Failed, end, ()).await;
        });
    }
}

fn record(new: &NewRun) -> Execution {
    let now = Utc::now();
    let session = new.session.as_ref();
    Execution {
        sandbox_id: session.map(|session| session.sandbox_id),
        generation: session.map_or(1, |session| session.generation),
        environment: session.map(|session| session.environment.clone()).unwrap_or_default(),
        status: Status::Running,
        entry: new.entry.to_owned(),
        tool: Some(new.entry.to_owned()).filter(|_| new.agent.is_none()),
        arguments: Some(new.asked.clone()),
        files_in: new.files_in.clone(),
        started_at: Some(now),
        ..Execution::new(
            ExecutionId::new(Uuid::now_v7()),
            session.map_or(Limits::DEFAULT, |session| session.limits),
            now,
        )
    }
}

fn used() -> Refused {
    let mut refused =
        invalid("/cursor", "was used before: the conversation has gone on from there");
    refused.fault.hint = Some("go on with the cursor of the newest answer".to_owned());
    refused
}
