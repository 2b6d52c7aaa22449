//! The live session of a run: code that a model wrote runs in it, round by round.

use crate::observe::{Observed, Told, failed, fault_of};
use crate::trace::Did;
use crate::walk::Walk;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use service::{Asked, Caller, EntryKind, ExecuteRequest, FileInput, Numbered, Refused, Service};
use std::sync::Arc;
use std::time::Instant;
use types::{
    ApprovalId, Code, Event, Execution, ExecutionId, Fault, LimitsRequest, Round, Session, Status,
};

#[derive(Debug)]
pub(crate) struct Interpreter {
    pub(crate) session: Session,
    /// That were brought for it.
    pub(crate) files: Vec<String>,
    /// What the code is to do, step by step; none if nobody has planned.
    pub(crate) plan: Vec<String>,
    pub(crate) rounds: Vec<Round>,
    /// Whether the run waits while a person is asked. If not, it ends and is gone on from later.
    pub(crate) patient: bool,
    /// The step that comes next.
    step: usize,
    /// What the last round ended with, if it failed.
    fault: Option<Fault>,
    /// Code that has begun, and when.
    running: Option<(String, Instant)>,
}

/// What came of some code.
pub(crate) enum Ran {
    Round(Told),
    /// A person is asked about it first.
    Waits {
        approval_id: ApprovalId,
        execution_id: ExecutionId,
    },
}

impl Interpreter {
    pub(crate) fn new(session: Session, files: Vec<String>, patient: bool) -> Self {
        let (plan, rounds) = (Vec::new(), Vec::new());
        Self { session, files, plan, rounds, patient, step: 0, fault: None, running: None }
    }

    /// The steps of another request in the same session.
    pub(crate) fn follow(&mut self, plan: Vec<String>) {
        self.plan = plan;
        self.step = 0;
    }

    pub(crate) fn last_fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// Runs it as the next round. `step` is the one that the model says it is about, from one.
    pub(crate) async fn run(
        &mut self,
        walk: &mut Walk<'_>,
        code: String,
        step: Option<usize>,
        files: Vec<FileInput>,
    ) -> Ran {
        let since = Instant::now();
        let step = step.and_then(|step| step.checked_sub(1)).filter(|it| *it < self.plan.len());
        self.step = step.unwrap_or(self.step);
        let request = ExecuteRequest {
            code: code.clone(),
            entry: EntryKind::Cell,
            argv: Vec::new(),
            files,
            limits: LimitsRequest::default(),
            environment: None,
            integrations: Vec::new(),
            allow_network: false,
        };
        self.running = Some((code.clone(), since));
        let (caller, session) = (&walk.caller, self.session.sandbox_id);
        let asked = walk.service.execute(caller, Some(session), request, walk.run.manner()).await;
        let ended = match asked {
            Ok(Asked::Begun(attached)) => attached.finished().await,
            Ok(Asked::Waiting(execution, events)) => match execution.approval_id {
                Some(approval_id) if !self.patient => {
                    self.running = None;
                    walk.run.tell(Event::Approval { approval_id });
                    return Ran::Waits { approval_id, execution_id: execution.id };
                }
                _ => see_answer(walk, &execution, events).await,
            },
            Err(refused) => Err(refused),
        };
        Ran::Round(self.note(walk, since, code, ended))
    }

    /// Writes down what came of it, and tells it.
    pub(crate) fn note(
        &mut self,
        walk: &mut Walk<'_>,
        since: Instant,
        code: String,
        ended: Result<Execution, Refused>,
    ) -> Told {
        self.running = None;
        let (observed, status, execution_id, files) = match &ended {
            Ok(execution) => {
                let files = execution.files_out.clone();
                (Observed::of(execution), execution.status, Some(execution.id), files)
            }
            Err(refused) => (Observed::refused(&refused.fault), Status::Failed, None, Vec::new()),
        };
        let round = Round {
            number: u32::try_from(self.rounds.len() + 1).unwrap_or(u32::MAX),
            step: self.plan.get(self.step).or(self.plan.last()).cloned().unwrap_or_default(),
            code,
            execution_id,
            status,
            stdout: observed.stdout.clone(),
            stderr: observed.stderr.clone(),
            error: observed.error.clone(),
        };
        let failed = failed(status);
        self.fault = match ended {
            Ok(execution) => fault_of(&execution),
            Err(refused) => Some(*refused.fault),
        };
        walk.unproven = false;
        if !failed {
            self.step += 1;
        }
        walk.run.tell(Event::Round(round.clone()));
        walk.made(&files, Some(self.session.sandbox_id));
        walk.scribe.did(since, Did::Ran { round: round.clone(), files });
        self.rounds.push(round);
        let (fault, computed) = (self.fault.clone(), !failed && observed.has_number());
        let told = Told { text: observed.of_code(), failed, fault, computed };
        walk.came(&told);
        told
    }

    pub(crate) fn has_run(&self) -> bool {
        !self.rounds.is_empty() || self.is_running()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Writes down code that was stopped with the run: what it has done is not known.
    pub(crate) fn stop(&mut self, walk: &mut Walk<'_>) {
        let Some((code, since)) = self.running.take() else { return };
        let fault = Fault::new(Code::Cancelled, "it was stopped in the middle, with the run");
        let rounds = self.rounds.len();
        self.note(walk, since, code, Err(fault.into()));
        self.rounds.iter_mut().skip(rounds).for_each(|round| round.status = Status::Cancelled);
    }
}

/// Waits until somebody has answered and what they allowed has run. Nobody is asked any more if the
/// run ends before.
async fn see_answer(
    walk: &Walk<'_>,
    execution: &Execution,
    mut events: BoxStream<'static, Numbered>,
) -> Result<Execution, Refused> {
    if let Some(approval_id) = execution.approval_id {
        walk.run.tell(Event::Approval { approval_id });
    }
    let mut question = Question::new(walk.service, &walk.caller, execution.id);
    until_end(&mut events).await;
    question.open = false;
    walk.service.execution(&walk.caller, execution.id).await
}

/// Hears them to the last.
pub(crate) async fn until_end(events: &mut (impl Stream<Item = Numbered> + Unpin)) {
    while let Some((_, event)) = events.next().await {
        if matches!(*event, Event::End { .. }) {
            return;
        }
    }
}

/// An execution that somebody was asked about: it is withdrawn, or stopped, when nobody waits for it
/// any more.
pub(crate) struct Question {
    service: Arc<Service>,
    caller: Caller,
    id: ExecutionId,
    pub(crate) open: bool,
}

impl Question {
    pub(crate) fn new(service: &Arc<Service>, caller: &Caller, id: ExecutionId) -> Self {
        Self { service: Arc::clone(service), caller: caller.clone(), id, open: true }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        if self.open {
            let (service, caller, id) = (Arc::clone(&self.service), self.caller.clone(), self.id);
            tokio::spawn(async move { service.cancel(&caller, id).await });
        }
    }
}
