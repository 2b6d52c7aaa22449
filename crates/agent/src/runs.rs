//! Runs as a door begins them: everything is checked first, then the run is written down, and then
//! it goes on by itself to an end that is kept, whatever becomes of whoever asked.

use crate::agent_loop::{AgentLoop, RunError, STOPPED, close_open_calls};
use crate::artifacts::Artifacts;
use crate::budget::{BudgetExceeded, RunBudget};
use crate::confirmation::stop_execution;
use crate::conversation::{Conversation, PendingApproval};
use crate::interpreter::Interpreter;
use crate::model::Model;
use crate::models::Models;
use crate::observation::ToolOutcome;
use crate::prompts;
use crate::toolbox::record_outcome;
use crate::trace::{Trace, TraceRecorder};
use serde::Serialize;
use service::{Caller, RequestError, RunEnd, RunHandle, SECONDS_MAX, Service};
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use types::{ApprovalState, Error, ErrorCode, ExecutionStatus, ModelUsage, SandboxId, Warning};

/// What a principal likes to be answered by.
const MODEL_PREFERENCE: &str = "code_model";

/// Everything that a run of a model needs.
#[derive(Debug)]
pub struct Agents {
    pub(crate) service: Arc<Service>,
    pub(crate) models: Models,
    /// Skills of the operator's own.
    pub(crate) skills: Option<PathBuf>,
    /// Sessions in which a run is under way.
    reserved_sessions: Mutex<HashSet<SandboxId>>,
}

impl Agents {
    pub fn new(service: Arc<Service>, models: Models, skills: Option<PathBuf>) -> Arc<Self> {
        Arc::new(Self { service, models, skills, reserved_sessions: Mutex::default() })
    }

    pub fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// Whether there is a model that could be asked.
    pub fn has_models(&self) -> bool {
        self.models.has_any()
    }

    /// As the caller likes it, or as the agent says, or as the server has it.
    pub(crate) fn choose_model(
        &self,
        caller: &Caller,
        of_agent: Option<&str>,
    ) -> Result<Arc<dyn Model>, RequestError> {
        Ok(self.models.choose(caller.preference(MODEL_PREFERENCE).or(of_agent))?)
    }

    /// One run at a time in a session: two would write over each other's variables.
    pub(crate) fn reserve_session(
        self: &Arc<Self>,
        id: SandboxId,
    ) -> Result<SessionReservation, RequestError> {
        let mut busy = self.reserved_sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if busy.insert(id) {
            return Ok(SessionReservation { agents: Arc::clone(self), id });
        }
        let message = format!("another run is under way in session {id}");
        Err(Error::new(ErrorCode::SessionBusy, message)
            .hint("wait for its end, or cancel it")
            .into())
    }
}

/// The session is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct SessionReservation {
    agents: Arc<Agents>,
    id: SandboxId,
}

impl Drop for SessionReservation {
    fn drop(&mut self) {
        self.agents
            .reserved_sessions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.id);
    }
}

/// How a run ended, in its own words.
#[derive(Debug)]
pub(crate) struct RunOutcome<V> {
    pub(crate) status: ExecutionStatus,
    pub(crate) error: Option<Error>,
    pub(crate) value: V,
}

/// What remains of a run, whatever stopped it.
pub(crate) struct RunState<'a> {
    pub(crate) agent_loop: AgentLoop<'a>,
    pub(crate) conversation: Conversation,
}

impl<'a> RunState<'a> {
    pub(crate) fn new(
        service: &'a Arc<Service>,
        run: &'a RunHandle,
        model: &'a dyn Model,
        budget: RunBudget,
        talk: Conversation,
        (kind, request): (&str, &str),
    ) -> Self {
        let time = budget.time.min(Duration::from_secs(SECONDS_MAX));
        let budget = RunBudget { time, ..budget };
        let scribe = TraceRecorder::new(Trace {
            run: run.id(),
            kind: kind.to_owned(),
            request: request.to_owned(),
            model: model.name().to_owned(),
            steps: Vec::new(),
        });
        let used = crate::budget::RunUsage::default();
        let (caller, mut talk) = (run.caller().clone(), talk);
        // Whoever says something new is not answered by what failed before.
        let doubt = talk.doubt.take().filter(|_| !talk.pending.is_empty());
        let walk = AgentLoop {
            service,
            run,
            caller,
            model,
            budget,
            usage: used,
            trace_recorder: scribe,
            artifacts: Artifacts::default(),
            isolation_warnings: BTreeMap::new(),
            unverified_error: doubt,
            unverified: false,
        };
        Self { agent_loop: walk, conversation: talk }
    }

    /// Nobody is asked any more what a run wanted to do that has ended otherwise. What is settled in
    /// it was asked before: what was allowed is stopped, and the rest stays.
    pub(crate) async fn withdraw_approvals(&mut self) {
        if self.conversation.settling {
            for pending in &self.conversation.pending {
                stop_execution(
                    self.agent_loop.service,
                    &self.agent_loop.caller,
                    pending.execution_id,
                )
                .await;
            }
            return;
        }
        self.agent_loop.run.withdraw_approvals().await;
        for pending in std::mem::take(&mut self.conversation.pending) {
            self.conversation.begun.retain(|id| *id != pending.call.id);
        }
    }

    /// What somebody has still to answer.
    pub(crate) fn open_approvals(&self) -> impl Iterator<Item = &PendingApproval> {
        let (service, caller) = (self.agent_loop.service, &self.agent_loop.caller);
        self.conversation.pending.iter().filter(move |pending| {
            let approval = service.approval(caller, pending.approval_id);
            approval.is_ok_and(|approval| approval.state == ApprovalState::Pending)
        })
    }

    /// What is written down of it.
    pub(crate) fn into_run_end(
        mut self,
        mut interpreter: Option<&mut Interpreter>,
        error: Option<Error>,
        value: &impl Serialize,
    ) -> RunEnd {
        for call in close_open_calls(&mut self.conversation) {
            // Code says more of itself.
            if interpreter.as_mut().is_none_or(|interpreter| !interpreter.is_running()) {
                let told = ToolOutcome::invalid_call(ErrorCode::Cancelled, STOPPED.to_owned());
                record_outcome(&mut self.agent_loop, Instant::now(), &call, "", None, told);
            }
        }
        if let Some(interpreter) = &mut interpreter {
            interpreter.record_stopped(&mut self.agent_loop);
        }
        let interpreter = interpreter.as_deref();
        self.conversation.doubt = self.agent_loop.unverified_error.take();
        let used = &self.agent_loop.usage;
        RunEnd {
            error,
            value: serde_json::to_value(value).ok(),
            plan: interpreter.map(|it| it.plan.clone()).unwrap_or_default(),
            rounds: interpreter.map(|it| it.rounds.clone()).unwrap_or_default(),
            files_out: self.agent_loop.artifacts.into_files(),
            model: Some(ModelUsage {
                name: self.agent_loop.model.name().to_owned(),
                requests: used.requests,
                input_tokens: used.tokens.input,
                output_tokens: used.tokens.output,
            }),
            warnings: isolation_warnings(self.agent_loop.isolation_warnings),
            conversation: Some(self.conversation.to_bytes()),
            trace: self.agent_loop.trace_recorder.trace.to_bytes(),
            discard_session: false,
        }
    }
}

/// The warnings about tools that ran in the interpreter of the session, each with its tool's name.
fn isolation_warnings(warnings: BTreeMap<String, Warning>) -> Vec<Warning> {
    let named = warnings.into_iter().map(|(tool, Warning { code, message })| Warning {
        code,
        message: format!("tool {tool:?}: {message}"),
    });
    named.collect()
}

/// Sees work to its end, or to that of its time, or until nobody wants it.
pub(crate) async fn run_within<T>(
    run: &RunHandle,
    time: Duration,
    work: impl Future<Output = Result<T, RunError>>,
) -> Result<T, RunError> {
    let stopped = tokio::select! {
        done = work => return done,
        () = run.stop_requested() => if run.is_revoked() { RunError::Unauthenticated } else { RunError::Cancelled },
        () = tokio::time::sleep(time) => BudgetExceeded::Time(time).into(),
    };
    // Its session takes the next request when it is told that this one is over.
    run.wait_for_children().await;
    Err(stopped)
}

/// What there is to go on with after a run that is not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResumeOption {
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

impl ResumeOption {
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
pub(crate) fn stopped_outcome(
    stopped: &RunError,
    remains: ResumeOption,
) -> (ExecutionStatus, Error, String) {
    let status = match stopped {
        RunError::Cancelled => ExecutionStatus::Cancelled,
        RunError::BudgetExceeded(BudgetExceeded::Time(_)) => ExecutionStatus::TimedOut,
        RunError::BudgetExceeded(_)
        | RunError::Model(_)
        | RunError::ModelRefused
        | RunError::Unauthenticated => ExecutionStatus::Failed,
    };
    let fault = stopped.to_error();
    let reason = fault.message.trim_end_matches('.');
    let answer = prompts::fill(prompts::INCOMPLETE, "reason", reason);
    (status, fault, format!("{answer} {}", remains.sentence()))
}
