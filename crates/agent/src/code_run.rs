//! `code_execution` as a run: its request and its result.

use crate::budget::RunBudget;
use crate::code_task::{CodeTask, run_code_task};
use crate::conversation::Conversation;
use crate::interpreter::Interpreter;
use crate::logs::render_logs;
use crate::runs::{Agents, ResumeOption, RunOutcome, RunState, SessionReservation, run_within};
use crate::toolbox::{CODE_EXECUTION, Toolbox};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;
use service::{
    Caller, ExecutionHandle, NewRun, OpenedSession, ROUNDS_MAX, RequestError, RunHandle,
    SessionRequest, SubmitOptions,
};
use std::sync::Arc;
use types::{
    Error, ErrorCode, Event, Execution, ExecutionId, ExecutionStatus, FileId, FileKind, ModelUsage,
    OutputFile, Round, SandboxId, Session,
};
use utoipa::ToSchema;

/// A model reads the request and its context as a whole.
pub(crate) const TEXT_BYTES_MAX: usize = 100_000;
const DOCUMENTS_MAX: usize = 100;

#[derive(Debug, Clone, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CodeRequest {
    /// The task for the code, in natural language
    pub request: String,
    /// Documents that the code needs; they are in `/home/uploaded_files/` under their names
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub document_ids: Vec<FileId>,
    /// Additional instructions, such as "Use a dark theme for the plot"
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The session to continue in; a new one if absent
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<SandboxId>,
    /// From 1 to 100. Default: two for each step of the plan, at least 6
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 100)]
    pub max_rounds: Option<u32>,
    /// Model for this request, `provider/model`; by default your preference `code_model`, else the
    /// server's default
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// Output of a code run in addition to its record.
#[derive(Debug, Default, Serialize, Deserialize)]
struct CodeRunOutput {
    answer: String,
    complete: bool,
    resumed: bool,
    max_rounds: u32,
    uploaded: Vec<UploadedFile>,
    expires_at: Option<DateTime<Utc>>,
    /// The session opened for this run, if it was closed again because nothing ran in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    closed: Option<SandboxId>,
}

/// Location of a document
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UploadedFile {
    pub document_id: FileId,
    /// The name of the file in `/home/uploaded_files/`; two documents with one name are two files
    pub name: String,
}

/// An image that the code produced
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Artifact {
    /// `media_reference`
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `plot_0.png`, `plot_1.png`, in order of creation
    pub asset_filename: String,
    /// The name that the code gave it
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    pub mime: String,
}

/// The result of a code run
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct CodeResult {
    /// Send it again to continue in the same session
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<SandboxId>,
    /// The environment of that session
    pub environment: String,
    pub execution_id: ExecutionId,
    pub status: ExecutionStatus,
    /// The reply as text
    pub answer: String,
    /// Whether code fulfilled the request. If not, `error` says why, or the model replied with text
    /// alone and ran no step
    pub complete: bool,
    /// Data files that the code created or changed
    pub generated_files: Vec<OutputFile>,
    /// All code and output as one text
    pub logs: String,
    pub artifacts: Vec<Artifact>,
    pub plan: Vec<String>,
    pub total_rounds: usize,
    pub max_rounds: u32,
    pub rounds: Vec<Round>,
    /// Locations of the documents
    pub uploaded_files: Vec<UploadedFile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Error>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelUsage>,
    /// When the session is closed if it stays idle
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<DateTime<Utc>>,
}

impl CodeRequest {
    fn check(&self) -> Result<(), RequestError> {
        if self.request.trim().is_empty() {
            return Err(RequestError::invalid_field("/request", "must not be empty"));
        }
        let texts = [("/request", Some(&self.request)), ("/context", self.context.as_ref())];
        for (path, text) in texts {
            if text.is_some_and(|text| text.len() > TEXT_BYTES_MAX) {
                let message = format!(
                    "must have at most {TEXT_BYTES_MAX} bytes; send long text as a document"
                );
                return Err(RequestError::invalid_field(path, message));
            }
        }
        if self.max_rounds.is_some_and(|rounds| !(1..=ROUNDS_MAX).contains(&rounds)) {
            let message = format!("must be from 1 to {ROUNDS_MAX}");
            return Err(RequestError::invalid_field("/max_rounds", message));
        }
        Ok(())
    }
}

impl Agents {
    /// Starts a run. The caller waits for its end with the returned handle.
    pub async fn code_execution(
        self: &Arc<Self>,
        caller: &Caller,
        request: CodeRequest,
        options: SubmitOptions,
    ) -> Result<ExecutionHandle, RequestError> {
        request.check()?;
        // Check access first: errors about objects must not depend on whether a model is
        // configured.
        match request.sandbox_id {
            Some(id) => self.service.usable_session(caller, id).map(drop)?,
            None => self.service.require_usage(caller).map(drop)?,
        }
        self.check_documents(caller, &request.document_ids)?;
        let model = self.choose_model(caller, request.model.as_deref(), None)?;
        let session = self.open_session(caller, request.sandbox_id).await?;
        let occupied = self.reserve_session(session.sandbox_id)?;
        let id = session.sandbox_id;
        let names = self.service.copy_documents(caller, id, &request.document_ids).await?;
        let before = match request.sandbox_id {
            Some(id) => self.service.last_run_in_session(caller, id)?,
            None => None,
        };
        let conversation = before.and_then(|before| Conversation::from_bytes(&before.conversation));
        let new = NewRun {
            entry: CODE_EXECUTION,
            agent: None,
            session: Some(session.clone()),
            arguments: json!(request),
            files_in: names.clone(),
            previous: None,
        };
        let (run, attached) = self.service.begin_run(caller, new, options).await?;
        let agents = Arc::clone(self);
        let conversation = conversation.unwrap_or_default().truncate_to_recent();
        tokio::spawn(async move {
            let work = CodeRun { request, session, reservation: occupied, names, conversation };
            work.run(&agents, run, &*model).await;
        });
        Ok(attached)
    }

    pub(crate) fn check_documents(
        &self,
        caller: &Caller,
        ids: &[FileId],
    ) -> Result<(), RequestError> {
        if ids.len() > DOCUMENTS_MAX {
            let message = format!("must have at most {DOCUMENTS_MAX} documents");
            return Err(RequestError::invalid_field("/document_ids", message));
        }
        ids.iter().try_for_each(|id| self.service.document(caller, *id).map(drop))
    }

    async fn open_session(
        &self,
        caller: &Caller,
        id: Option<SandboxId>,
    ) -> Result<Session, RequestError> {
        match id {
            Some(id) => self.service.usable_session(caller, id),
            None => {
                let opened = self.service.open_session(caller, SessionRequest::default()).await?;
                let (OpenedSession::New(session) | OpenedSession::Found(session)) = opened;
                Ok(session)
            }
        }
    }
}

struct CodeRun {
    request: CodeRequest,
    session: Session,
    reservation: SessionReservation,
    /// Names of the documents in the working directory.
    names: Vec<String>,
    conversation: Conversation,
}

impl CodeRun {
    async fn run(self, agents: &Arc<Agents>, run: RunHandle, model: &dyn crate::Model) {
        let Self { request, session, reservation, names, conversation } = self;
        let id = session.sandbox_id;
        let mut tools = Toolbox::for_code(Interpreter::new(session, names.clone(), true));
        let budget = RunBudget::for_code(request.max_rounds);
        let about = (CODE_EXECUTION, request.request.as_str());
        let mut state = RunState::new(&agents.service, &run, model, budget, conversation, about);
        let task = CodeTask {
            request: &request.request,
            context: request.context.as_deref(),
            files: &names,
            rounds: request.max_rounds,
        };
        let (time, agent_loop, conversation) =
            (state.agent_loop.budget.time, &mut state.agent_loop, &mut state.conversation);
        let done =
            run_within(&run, time, run_code_task(agent_loop, &mut tools, conversation, task)).await;
        let ran = tools.interpreter.as_ref().is_some_and(Interpreter::has_run);
        let outcome = match done {
            Ok(outcome) => outcome,
            Err(stopped) => {
                let usable = agents.service.usable_session(run.caller(), id).is_ok();
                let resume_option = match (ran, usable) {
                    (true, true) => ResumeOption::Session,
                    (true, false) => ResumeOption::Logs,
                    (false, true) if request.sandbox_id.is_some() => ResumeOption::Untouched,
                    (false, _) => ResumeOption::Nothing,
                };
                RunOutcome::stopped(&stopped, resume_option)
            }
        };
        run.publish(Event::Answer { text: outcome.answer.clone() });
        let failed = outcome.status != ExecutionStatus::Succeeded;
        let leaves_session = failed && request.sandbox_id.is_none() && !ran;
        let session = agents.service.session(run.caller(), id).ok().filter(|_| !leaves_session);
        let ids = request.document_ids.iter().copied();
        let output = CodeRunOutput {
            answer: outcome.answer,
            complete: ran && !failed,
            resumed: request.sandbox_id.is_some(),
            max_rounds: state.agent_loop.budget.rounds,
            uploaded: ids
                .zip(names.clone())
                .map(|(document_id, name)| UploadedFile { document_id, name })
                .collect(),
            expires_at: session.and_then(|session| session.expires_at),
            closed: leaves_session.then_some(id),
        };
        let mut end = state.into_run_end(tools.interpreter.as_mut(), outcome.error, &output);
        end.discard_session = leaves_session;
        if leaves_session {
            // The idle timeout closes it too, if this fails.
            let _ = agents.service.close_session(run.caller(), id).await;
        }
        let execution = run.id();
        if let Err(error) = run.finish(outcome.status, end, reservation).await {
            tracing::error!(%execution, error = %error.error, "cannot store the result of a run");
        }
    }
}

/// The record as a result. `None` if the execution is not a code run.
pub fn code_result(execution: Execution) -> Option<CodeResult> {
    if execution.entry != CODE_EXECUTION {
        return None;
    }
    let output: CodeRunOutput = execution
        .value
        .as_ref()
        .and_then(|value| CodeRunOutput::deserialize(value).ok())
        .unwrap_or_default();
    let max_rounds = match execution.ended_at {
        Some(_) => output.max_rounds,
        None => running_max_rounds(&execution),
    };
    let (media, data): (Vec<OutputFile>, Vec<OutputFile>) =
        execution.files_out.into_iter().partition(|file| file.kind == FileKind::Media);
    let logs = execution
        .sandbox_id
        .or(output.closed)
        .map(|id| render_logs(id, output.resumed, &execution.plan, &execution.rounds, max_rounds));
    Some(CodeResult {
        sandbox_id: execution.sandbox_id,
        environment: execution.environment,
        execution_id: execution.id,
        status: execution.status,
        answer: output.answer,
        complete: output.complete,
        generated_files: data,
        logs: logs.unwrap_or_default(),
        artifacts: image_artifacts(media),
        plan: execution.plan,
        total_rounds: execution.rounds.len(),
        max_rounds,
        rounds: execution.rounds,
        uploaded_files: output.uploaded,
        error: execution.error,
        model: execution.model,
        expires_at: output.expires_at,
    })
}

/// The round limit of a run in progress.
fn running_max_rounds(execution: &Execution) -> u32 {
    let requested =
        execution.arguments.as_ref().and_then(|requested| requested["max_rounds"].as_u64());
    let requested = requested.and_then(|rounds| u32::try_from(rounds).ok());
    requested.unwrap_or_else(|| RunBudget::rounds_for_steps(execution.plan.len()))
}

pub(crate) fn image_artifacts(media: Vec<OutputFile>) -> Vec<Artifact> {
    let numbered = media.into_iter().enumerate();
    let artifact = |(number, file): (usize, OutputFile)| {
        let ending = file.name.rsplit_once('.').map_or("png", |(_, ending)| ending);
        Artifact {
            kind: "media_reference",
            asset_filename: format!("plot_{number}.{ending}"),
            name: file.name,
            url: file.url,
            mime: file.mime,
        }
    };
    numbered.map(artifact).collect()
}

/// The error for an execution without such a result.
pub fn not_a_run_error(id: ExecutionId) -> RequestError {
    let message = format!("execution {id} is not a run of an agent");
    Error::new(ErrorCode::ObjectNotFound, message).hint("its record is at /v1/executions").into()
}
