//! Runs as a door begins them: everything is checked first, then the run is written down, and then
//! it goes on by itself to an end that is kept, whatever becomes of whoever asked.

use crate::budget::{Budget, Spent};
use crate::confirm::stop;
use crate::interpreter::Interpreter;
use crate::made::Made;
use crate::model::Model;
use crate::models::Models;
use crate::observe::Told;
use crate::prompts;
use crate::talk::{Pending, Talk};
use crate::toolbox::tell;
use crate::trace::{Scribe, Trace};
use crate::walk::{STOPPED, Stopped, Walk, close};
use serde::Serialize;
use service::{Caller, Refused, Run, RunEnd, SECONDS_MAX, Service};
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use types::{ApprovalState, Code, Fault, ModelUse, SandboxId, Status, Warning};

/// What a principal likes to be answered by.
const PREFERENCE: &str = "code_model";

/// Everything that a run of a model needs.
#[derive(Debug)]
pub struct Agents {
    pub(crate) service: Arc<Service>,
    pub(crate) models: Models,
    /// Skills of the operator's own.
    pub(crate) skills: Option<PathBuf>,
    /// Sessions in which a run is under way.
    busy: Mutex<HashSet<SandboxId>>,
}

impl Agents {
    pub fn new(service: Arc<Service>, models: Models, skills: Option<PathBuf>) -> Arc<Self> {
        Arc::new(Self { service, models, skills, busy: Mutex::default() })
    }

    pub fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// Whether there is a model that could be asked.
    pub fn has_models(&self) -> bool {
        self.models.any()
    }

    /// As the caller likes it, or as the agent says, or as the server has it.
    pub(crate) fn model(
        &self,
        caller: &Caller,
        of_agent: Option<&str>,
    ) -> Result<Arc<dyn Model>, Refused> {
        Ok(self.models.choose(caller.preference(PREFERENCE).or(of_agent))?)
    }

    /// One run at a time in a session: two would write over each other's variables.
    pub(crate) fn occupy(self: &Arc<Self>, id: SandboxId) -> Result<Occupied, Refused> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        if busy.insert(id) {
            return Ok(Occupied { agents: Arc::clone(self), id });
        }
        let message = format!("another run is under way in session {id}");
        Err(Fault::new(Code::SessionBusy, message).hint("wait for its end, or cancel it").into())
    }
}

/// The session is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Occupied {
    agents: Arc<Agents>,
    id: SandboxId,
}

impl Drop for Occupied {
    fn drop(&mut self) {
        self.agents.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

/// How a run ended, in its own words.
#[derive(Debug)]
pub(crate) struct Outcome<V> {
    pub(crate) status: Status,
    pub(crate) error: Option<Fault>,
    pub(crate) value: V,
}

/// What remains of a run, whatever stopped it.
pub(crate) struct Rest<'a> {
    pub(crate) walk: Walk<'a>,
    pub(crate) talk: Talk,
}

impl<'a> Rest<'a> {
    pub(crate) fn new(
        service: &'a Arc<Service>,
        run: &'a Run,
        model: &'a dyn Model,
        budget: Budget,
        talk: Talk,
        (kind, request): (&str, &str),
    ) -> Self {
        let time = budget.time.min(Duration::from_secs(SECONDS_MAX));
        let budget = Budget { time, ..budget };
        let scribe = Scribe::new(Trace {
            run: run.id(),
            kind: kind.to_owned(),
            request: request.to_owned(),
            model: model.name().to_owned(),
            steps: Vec::new(),
        });
        let used = crate::budget::Used::default();
        let (caller, mut talk) = (run.caller().clone(), talk);
        // Whoever says something new is not answered by what failed before.
        let doubt = talk.doubt.take().filter(|_| !talk.pending.is_empty());
        let walk = Walk {
            service,
            run,
            caller,
            model,
            budget,
            used,
            scribe,
            made: Made::default(),
            unisolated: BTreeMap::new(),
            doubt,
            unproven: false,
        };
        Self { walk, talk }
    }

    /// Nobody is asked any more what a run wanted to do that has ended otherwise. What is settled in
    /// it was asked before: what was allowed is stopped, and the rest stays.
    pub(crate) async fn withdraw(&mut self) {
        if self.talk.settling {
            for pending in &self.talk.pending {
                stop(self.walk.service, &self.walk.caller, pending.execution_id).await;
            }
            return;
        }
        self.walk.run.withdraw().await;
        for pending in std::mem::take(&mut self.talk.pending) {
            self.talk.begun.retain(|id| *id != pending.call.id);
        }
    }

    /// What somebody has still to answer.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Pending> {
        let (service, caller) = (self.walk.service, &self.walk.caller);
        self.talk.pending.iter().filter(move |pending| {
            let approval = service.approval(caller, pending.approval_id);
            approval.is_ok_and(|approval| approval.state == ApprovalState::Pending)
        })
    }

    /// What is written down of it.
    pub(crate) fn end(
        mut self,
        mut interpreter: Option<&mut Interpreter>,
        error: Option<Fault>,
        value: &impl Serialize,
    ) -> RunEnd {
        for call in close(&mut self.talk) {
            // Code says more of itself.
            if interpreter.as_mut().is_none_or(|interpreter| !interpreter.is_running()) {
                let told = Told::wrong(Code::Cancelled, STOPPED.to_owned());
                tell(&mut self.walk, Instant::now(), &call, "", None, told);
            }
        }
        if let Some(interpreter) = &mut interpreter {
            interpreter.stop(&mut self.walk);
        }
        let interpreter = interpreter.as_deref();
        self.talk.doubt = self.walk.doubt.take();
        let used = &self.walk.used;
        RunEnd {
            error,
            value: serde_json::to_value(value).ok(),
            plan: interpreter.map(|it| it.plan.clone()).unwrap_or_default(),
            rounds: interpreter.map(|it| it.rounds.clone()).unwrap_or_default(),
            files_out: self.walk.made.into_files(),
            model: Some(ModelUse {
                name: self.walk.model.name().to_owned(),
                requests: used.requests,
                input_tokens: used.tokens.input,
                output_tokens: used.tokens.output,
            }),
            warnings: unisolated(self.walk.unisolated),
            conversation: Some(self.talk.to_bytes()),
            trace: self.walk.scribe.trace.to_bytes(),
            leaves_session: false,
        }
    }
}

/// The warnings about tools that ran in the interpreter of the session, each with its tool's name.
fn unisolated(warnings: BTreeMap<String, Warning>) -> Vec<Warning> {
    let named = warnings.into_iter().map(|(tool, Warning { code, message })| Warning {
        code,
        message: format!("tool {tool:?}: {message}"),
    });
    named.collect()
}

/// Sees work to its end, or to that of its time, or until nobody wants it.
pub(crate) async fn within<T>(
    run: &Run,
    time: Duration,
    work: impl Future<Output = Result<T, Stopped>>,
) -> Result<T, Stopped> {
    let stopped = tokio::select! {
        done = work => return done,
        () = run.stopped() => if run.is_revoked() { Stopped::Unknown } else { Stopped::Cancelled },
        () = tokio::time::sleep(time) => Spent::Time(time).into(),
    };
    // Its session takes the next request when it is told that this one is over.
    run.at_rest().await;
    Err(stopped)
}

/// What there is to go on with after a run that is not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remains {
    /// Of code that has run, in a session that is there.
    Session,
    /// Of code that has run, in a session that has ended meanwhile.
    Logs,
    /// A session in which this run has done nothing.
    Untouched,
    /// Nothing ran, so that the session which was made for it is closed again.
    Nothing,
    /// Of an agent.
    Conversation,
}

impl Remains {
    fn sentence(self) -> &'static str {
        match self {
            Self::Session => {
                "What was done so far is in the logs, and the session is still there to go on with."
            }
            Self::Logs => "What was done so far is in the logs; its session has ended.",
            Self::Untouched => "Nothing was run, and the session is as it was.",
            Self::Nothing => "Nothing was run, and no session is kept: ask again in a new one.",
            Self::Conversation => {
                "What was done so far is in the trace, and the conversation goes on from its cursor."
            }
        }
    }
}

/// The status of a run that was stopped, and what is said instead of an answer.
pub(crate) fn unfinished(stopped: &Stopped, remains: Remains) -> (Status, Fault, String) {
    let status = match stopped {
        Stopped::Cancelled => Status::Cancelled,
        Stopped::Spent(Spent::Time(_)) => Status::TimedOut,
        Stopped::Spent(_) | Stopped::Model(_) | Stopped::Refusal | Stopped::Unknown => {
            Status::Failed
        }
    };
    let fault = stopped.fault();
    let reason = fault.message.trim_end_matches('.');
    let answer = prompts::fill(prompts::INCOMPLETE, "reason", reason);
    (status, fault, format!("{answer} {}", remains.sentence()))
}
