//! The session of a run, in which the model's code runs round by round.

use crate::agent_loop::AgentLoop;
use crate::observation::{ExecutionObservation, ToolOutcome, error_of, is_failed};
use crate::trace::TraceAction;
use service::{
    Caller, EntryKind, ExecutionHandle, FileInput, RequestError, RunRequest, RunTarget, Service,
    Submitted, SubmittedCode,
};
use std::sync::Arc;
use std::time::Instant;
use types::{
    ApprovalId, Error, ErrorCode, Event, Execution, ExecutionId, ExecutionStatus, LimitsRequest,
    OutputFile, Round, Session,
};

#[derive(Debug)]
pub(crate) struct Interpreter {
    pub(crate) session: Session,
    /// Names of the uploaded files.
    pub(crate) files: Vec<String>,
    /// Steps of the plan; empty if there is no plan.
    pub(crate) plan: Vec<String>,
    pub(crate) rounds: Vec<Round>,
    /// The files that the rounds have created or changed, in order.
    pub(crate) files_out: Vec<OutputFile>,
    /// Whether the run waits for an approval. If not, the run ends and is continued later.
    pub(crate) waits_for_approval: bool,
    /// The next step.
    step: usize,
    /// The error of the last round, if it failed.
    last_error: Option<Error>,
    /// Running code, and its start time.
    running: Option<(String, Instant)>,
}

/// Result of one round.
pub(crate) enum RoundOutcome {
    Round(ToolOutcome),
    /// The code needs an approval first.
    NeedsApproval {
        approval_id: ApprovalId,
        execution_id: ExecutionId,
    },
}

impl Interpreter {
    pub(crate) fn new(session: Session, files: Vec<String>, patient: bool) -> Self {
        let (plan, rounds) = (Vec::new(), Vec::new());
        Self {
            session,
            files,
            plan,
            rounds,
            files_out: Vec::new(),
            waits_for_approval: patient,
            step: 0,
            last_error: None,
            running: None,
        }
    }

    /// Sets the steps of another request in the same session.
    pub(crate) fn set_plan(&mut self, plan: Vec<String>) {
        self.plan = plan;
        self.step = 0;
    }

    pub(crate) fn last_error(&self) -> Option<&Error> {
        self.last_error.as_ref()
    }

    /// Runs code as the next round. `step` is the step that the model names, from one.
    pub(crate) async fn run_round(
        &mut self,
        agent_loop: &mut AgentLoop<'_>,
        code: String,
        step: Option<usize>,
        files: Vec<FileInput>,
    ) -> RoundOutcome {
        let since = Instant::now();
        let step = step.and_then(|step| step.checked_sub(1)).filter(|it| *it < self.plan.len());
        self.step = step.unwrap_or(self.step);
        let request = RunRequest {
            target: RunTarget::Code(SubmittedCode {
                code: code.clone(),
                entry: EntryKind::Cell,
                argv: Vec::new(),
                environment: None,
                integrations: Vec::new(),
            }),
            session: Some(self.session.sandbox_id),
            files,
            limits: LimitsRequest::default(),
        };
        self.running = Some((code.clone(), since));
        let options = agent_loop.run.child_options();
        let submitted = agent_loop.service.run(&agent_loop.caller, request, options).await;
        let ended = match submitted {
            Ok(Submitted::Started(handle)) => handle.wait().await,
            Ok(Submitted::AwaitingApproval(handle)) => match handle.record().approval_id {
                Some(approval_id) if !self.waits_for_approval => {
                    self.running = None;
                    agent_loop.run.publish(Event::Approval { approval_id });
                    return RoundOutcome::NeedsApproval { approval_id, execution_id: handle.id() };
                }
                _ => await_approval(agent_loop, handle).await,
            },
            Err(error) => Err(error),
        };
        RoundOutcome::Round(self.record_round(agent_loop, since, code, ended))
    }

    /// Records the result of a round, and returns it for the model.
    pub(crate) fn record_round(
        &mut self,
        agent_loop: &mut AgentLoop<'_>,
        since: Instant,
        code: String,
        ended: Result<Execution, RequestError>,
    ) -> ToolOutcome {
        self.running = None;
        let (observed, status, execution_id, files) = match &ended {
            Ok(execution) => {
                let files = execution.files_out.clone();
                (
                    ExecutionObservation::from_execution(execution),
                    execution.status,
                    Some(execution.id),
                    files,
                )
            }
            Err(error) => (
                ExecutionObservation::from_error(&error.error),
                ExecutionStatus::Failed,
                None,
                Vec::new(),
            ),
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
        let failed = is_failed(status);
        self.last_error = match ended {
            Ok(execution) => error_of(&execution),
            Err(error) => Some(*error.error),
        };
        agent_loop.unverified = false;
        if !failed {
            self.step += 1;
        }
        agent_loop.run.publish(Event::Round(round.clone()));
        self.files_out.extend(files.iter().cloned());
        agent_loop.add_artifacts(&files, Some(self.session.sandbox_id));
        agent_loop.trace_recorder.record(since, TraceAction::Ran { round: round.clone(), files });
        self.rounds.push(round);
        let (error, computed) = (self.last_error.clone(), !failed && observed.has_number());
        let outcome = ToolOutcome { text: observed.text_for_code(), failed, error, computed };
        agent_loop.record_tool_outcome(&outcome);
        outcome
    }

    pub(crate) fn has_run(&self) -> bool {
        !self.rounds.is_empty() || self.is_running()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Records code that was stopped with the run: its effects are unknown.
    pub(crate) fn record_stopped(&mut self, agent_loop: &mut AgentLoop<'_>) {
        let Some((code, since)) = self.running.take() else { return };
        let error = Error::new(ErrorCode::Cancelled, "it was cancelled together with the run");
        let rounds = self.rounds.len();
        self.record_round(agent_loop, since, code, Err(error.into()));
        self.rounds
            .iter_mut()
            .skip(rounds)
            .for_each(|round| round.status = ExecutionStatus::Cancelled);
    }
}

/// Waits until the approval is answered and the allowed code has run. If the run ends first, the
/// approval is withdrawn.
async fn await_approval(
    agent_loop: &AgentLoop<'_>,
    handle: ExecutionHandle,
) -> Result<Execution, RequestError> {
    if let Some(approval_id) = handle.record().approval_id {
        agent_loop.run.publish(Event::Approval { approval_id });
    }
    let mut question = ApprovalGuard::new(agent_loop.service, &agent_loop.caller, handle.id());
    let ended = handle.wait().await;
    question.open = false;
    ended
}

/// An execution that needs an approval. Dropping the guard withdraws the approval or stops the
/// execution.
pub(crate) struct ApprovalGuard {
    service: Arc<Service>,
    caller: Caller,
    id: ExecutionId,
    pub(crate) open: bool,
}

impl ApprovalGuard {
    pub(crate) fn new(service: &Arc<Service>, caller: &Caller, id: ExecutionId) -> Self {
        Self { service: Arc::clone(service), caller: caller.clone(), id, open: true }
    }
}

impl Drop for ApprovalGuard {
    fn drop(&mut self) {
        if self.open {
            let (service, caller, id) = (Arc::clone(&self.service), self.caller.clone(), self.id);
            tokio::spawn(async move { service.cancel_execution(&caller, id).await });
        }
    }
}
