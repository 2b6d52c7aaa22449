//! Starts runs. All checks come first, then the run is recorded, and then it continues on its own
//! to a persistent end, even if the client disconnects.

use crate::agent_loop::{AgentLoop, RunError, STOPPED, close_open_calls};
use crate::artifacts::Artifacts;
use crate::budget::{BudgetExceeded, RunBudget};
use crate::confirmation::stop_execution;
use crate::conversation::{Conversation, PendingApproval};
use crate::interpreter::Interpreter;
use crate::model::Model;
use crate::models::{ModelView, Models};
use crate::observation::ToolOutcome;
use crate::prompts;
use crate::toolbox::record_tool_call;
use crate::trace::{Trace, TraceRecorder};
use serde::Serialize;
use service::{Caller, RequestError, RunEnd, RunHandle, SECONDS_MAX, Service};
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use types::{ApprovalState, Error, ErrorCode, ExecutionStatus, ModelUsage, SandboxId, Warning};

/// Preference of a principal for a model.
const MODEL_PREFERENCE: &str = "code_model";

/// Everything that a run of a model needs.
#[derive(Debug)]
pub struct Agents {
    pub(crate) service: Arc<Service>,
    pub(crate) models: Models,
    /// Sessions with a run in progress.
    reserved_sessions: Mutex<HashSet<SandboxId>>,
}

impl Agents {
    pub fn new(service: Arc<Service>, models: Models) -> Arc<Self> {
        Arc::new(Self { service, models, reserved_sessions: Mutex::default() })
    }

    pub fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// Whether any model is configured.
    pub fn has_models(&self) -> bool {
        self.models.has_any()
    }

    /// The models that callers can choose.
    pub fn model_views(&self) -> Vec<ModelView> {
        self.models.list()
    }

    /// Chooses the model of the request, else the agent's, else the caller's preference, else the
    /// default of the server: the more specific choice counts.
    pub(crate) fn choose_model(
        &self,
        caller: &Caller,
        requested: Option<&str>,
        of_agent: Option<&str>,
    ) -> Result<Arc<dyn Model>, RequestError> {
        let preferred = caller.preference(MODEL_PREFERENCE);
        Ok(self.models.choose(requested.or(of_agent).or(preferred))?)
    }

    /// Allows one run at a time in a session: two would overwrite each other's variables.
    pub(crate) fn reserve_session(
        self: &Arc<Self>,
        id: SandboxId,
    ) -> Result<SessionReservation, RequestError> {
        let mut busy = self.reserved_sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if busy.insert(id) {
            return Ok(SessionReservation { agents: Arc::clone(self), id });
        }
        let message = format!("another run is in progress in session {id}");
        Err(Error::new(ErrorCode::SessionBusy, message)
            .hint("wait until it ends, or cancel it")
            .into())
    }
}

/// Releases the session on drop.
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

/// How a run ended, as its record shows it.
#[derive(Debug)]
pub(crate) struct RunOutcome {
    pub(crate) status: ExecutionStatus,
    pub(crate) error: Option<Error>,
    /// Empty if the run waits for an approval.
    pub(crate) answer: String,
}

impl RunOutcome {
    /// The model has answered. With `error`, the last code of the run failed.
    pub(crate) fn answered(answer: String, error: Option<Error>) -> Self {
        let status = match error {
            Some(_) => ExecutionStatus::Failed,
            None => ExecutionStatus::Succeeded,
        };
        Self { status, error, answer }
    }

    /// The run waits for an approval, and continues with the next message.
    pub(crate) fn awaiting_approval() -> Self {
        Self { status: ExecutionStatus::Succeeded, error: None, answer: String::new() }
    }

    /// The answer is withheld, because it has numbers that nothing computed after this error.
    pub(crate) fn withheld(error: Error) -> Self {
        Self::answered(prompts::fill(prompts::NO_RESULT, "error", &error.message), Some(error))
    }

    /// The run did not finish; a text replaces its answer.
    pub(crate) fn stopped(stopped: &RunError, resume_option: ResumeOption) -> Self {
        let status = match stopped {
            RunError::Cancelled => ExecutionStatus::Cancelled,
            RunError::BudgetExceeded(BudgetExceeded::Time(_)) => ExecutionStatus::TimedOut,
            RunError::BudgetExceeded(_)
            | RunError::Model(_)
            | RunError::ModelRefused
            | RunError::Unauthenticated => ExecutionStatus::Failed,
        };
        let error = stopped.to_error();
        let reason = error.message.trim_end_matches('.');
        let answer = prompts::fill(prompts::INCOMPLETE, "reason", reason);
        Self {
            status,
            error: Some(error),
            answer: format!("{answer} {}", resume_option.sentence()),
        }
    }
}

/// State that remains after a run, whatever stopped it.
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
        conversation: Conversation,
        (kind, request): (&str, &str),
    ) -> Self {
        let time = budget.time.min(Duration::from_secs(SECONDS_MAX));
        let budget = RunBudget { time, ..budget };
        let trace_recorder = TraceRecorder::new(Trace {
            run: run.id(),
            kind: kind.to_owned(),
            request: request.to_owned(),
            model: model.name().to_owned(),
            steps: Vec::new(),
        });
        let used = crate::budget::RunUsage::default();
        let (caller, mut conversation) = (run.caller().clone(), conversation);
        // A new message starts without the earlier error, unless approvals are pending.
        let unverified_error =
            conversation.unverified_error.take().filter(|_| !conversation.pending.is_empty());
        let agent_loop = AgentLoop {
            tool_results: service::ResultForm::default(),
            service,
            run,
            caller,
            model,
            budget,
            usage: used,
            trace_recorder,
            artifacts: Artifacts::default(),
            isolation_warnings: BTreeMap::new(),
            unverified_error,
            unverified: false,
        };
        Self { agent_loop, conversation }
    }

    /// Withdraws the approvals of a run that ended otherwise. For approvals of an earlier run, it
    /// stops the calls that were allowed and keeps the others open.
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
            self.conversation.started_calls.retain(|id| *id != pending.call.id);
        }
    }

    /// Approvals without an answer.
    pub(crate) fn open_approvals(&self) -> impl Iterator<Item = &PendingApproval> {
        let (service, caller) = (self.agent_loop.service, &self.agent_loop.caller);
        self.conversation.pending.iter().filter(move |pending| {
            let approval = service.approval(caller, pending.approval_id);
            approval.is_ok_and(|approval| approval.state == ApprovalState::Pending)
        })
    }

    /// Returns the record of the end of the run.
    pub(crate) fn into_run_end(
        mut self,
        mut interpreter: Option<&mut Interpreter>,
        error: Option<Error>,
        value: &impl Serialize,
    ) -> RunEnd {
        for call in close_open_calls(&mut self.conversation) {
            // The interpreter records stopped code itself, with more detail.
            if interpreter.as_mut().is_none_or(|interpreter| !interpreter.is_running()) {
                let outcome = ToolOutcome::invalid_call(ErrorCode::Cancelled, STOPPED.to_owned());
                record_tool_call(&mut self.agent_loop, Instant::now(), &call, "", None, outcome);
            }
        }
        if let Some(interpreter) = &mut interpreter {
            interpreter.record_stopped(&mut self.agent_loop);
        }
        let interpreter = interpreter.as_deref();
        self.conversation.unverified_error = self.agent_loop.unverified_error.take();
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

/// Warnings about tools that ran in the interpreter of the session, each with its tool's name.
fn isolation_warnings(warnings: BTreeMap<String, Warning>) -> Vec<Warning> {
    let named = warnings.into_iter().map(|(tool, Warning { code, message })| Warning {
        code,
        message: format!("tool {tool:?}: {message}"),
    });
    named.collect()
}

/// Runs work until it ends, its time is over, or it is cancelled.
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
    // When the client sees this run end, its session must accept the next request.
    run.wait_for_children().await;
    Err(stopped)
}

/// How the user can continue after a run that did not finish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResumeOption {
    /// Code ran, and its session is still open.
    Session,
    /// Code ran, but its session has ended.
    Logs,
    /// The session is open, but this run did nothing in it.
    Untouched,
    /// Nothing ran, so the session that was opened for the run is closed.
    Nothing,
    /// The conversation of an agent.
    Conversation,
}

impl ResumeOption {
    fn sentence(self) -> &'static str {
        match self {
            Self::Session => {
                "The logs show the completed steps. The session is open; pass its `sandbox_id` to \
                 continue."
            }
            Self::Logs => "The logs show the completed steps; the session has ended.",
            Self::Untouched => "Nothing was run; the session is unchanged.",
            Self::Nothing => "Nothing was run, and the session has ended; start a new one.",
            Self::Conversation => {
                "The trace shows the completed steps; continue the conversation from its cursor."
            }
        }
    }
}
