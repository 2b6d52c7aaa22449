//! Agent runs: a message in, an answer out. If an approval is needed, the run ends with the pending
//! actions, and the reply continues from there.

use crate::agent_loop::{AgentLoop, LoopOutcome, RunError};
use crate::budget::RunBudget;
use crate::confirmation::{ApprovalReply, Confirmation, IndexedConfirmation, check_replies};
use crate::conversation::Conversation;
use crate::interpreter::Interpreter;
use crate::prompts;
use crate::runs::{Agents, ResumeOption, RunOutcome, RunState, SessionReservation, run_within};
use crate::skills::Skills;
use crate::toolbox::{Toolbox, check_choice, offered_code_tools};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use service::{
    Caller, CodeToolName, ExecutionHandle, NewRun, OpenedSession, PreviousRun, RequestError,
    ResolvedAgent, RunHandle, SessionRequest, SubmitOptions,
};
use std::sync::Arc;
use std::time::Duration;
use types::{AgentId, Event, ExecutionId, FileId, Session, SessionStatus, Warning};
use utoipa::ToSchema;

/// The kind of an agent run in its record.
pub const AGENT: &str = "agent";
const MESSAGE_BYTES_MAX: usize = 100_000;

/// A message to an agent: as `message`, or as `messages` of users and replies to actions
#[derive(Debug, Clone, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChatRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<InputMessage>,
    /// Cursor of the answer to continue from; a new conversation if absent
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Name of the conversation: requests with the same key use the same session
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Documents for its code, in `/home/uploaded_files/`
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub document_ids: Vec<FileId>,
    /// Model for this request, `provider/model`; by default that of the agent, else your preference
    /// `code_model`, else the server's default
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Id of the agent in another system; returned with the answer
    #[serde(default, rename = "agentExternalId", skip_serializing_if = "Option::is_none")]
    pub agent_external_id: Option<String>,
}

/// A message to the agent that `agentExternalId` names
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExternalChatRequest {
    /// Name of the agent; returned with the answer
    #[serde(rename = "agentExternalId")]
    agent_external_id: String,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    messages: Vec<InputMessage>,
    /// Cursor of the answer to continue from; a new conversation if absent
    #[serde(default)]
    cursor: Option<String>,
    /// Name of the conversation: requests with the same key use the same session
    #[serde(default)]
    key: Option<String>,
    /// Documents for its code, in `/home/uploaded_files/`
    #[serde(default)]
    document_ids: Vec<FileId>,
    /// Model for this request, as for an agent by its id
    #[serde(default)]
    model: Option<String>,
}

impl ExternalChatRequest {
    /// The external id of the agent, and the request to the agent.
    pub fn into_request(self) -> (String, ChatRequest) {
        let Self { agent_external_id, message, messages, cursor, key, document_ids, model } = self;
        let request = ChatRequest {
            model,
            message,
            messages,
            cursor,
            key,
            document_ids,
            agent_external_id: Some(agent_external_id.clone()),
        };
        (agent_external_id, request)
    }
}

/// One of `messages`
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum InputMessage {
    User {
        /// Text, or `{"type": "text", "text": …}`
        #[schema(value_type = Object)]
        content: Value,
    },
    Action(Confirmation),
}

/// Output of an agent run in addition to its record.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ChatOutput {
    pub(crate) answer: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) actions: Vec<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) agent_external_id: Option<String>,
}

impl ChatRequest {
    /// The user's text, joined into one, and the replies to pending actions.
    fn parse(&self) -> Result<(Option<String>, Vec<IndexedConfirmation>), RequestError> {
        let (mut texts, mut replies) = (Vec::from_iter(self.message.clone()), Vec::new());
        for (index, message) in self.messages.iter().enumerate() {
            match message {
                InputMessage::User { content } => {
                    let text = content.as_str().or_else(|| content["text"].as_str());
                    let path = format!("/messages/{index}/content");
                    let invalid = || RequestError::invalid_field(&path, "must be a string");
                    texts.push(text.ok_or_else(invalid)?.to_owned());
                }
                InputMessage::Action(confirmation) => {
                    replies.push(IndexedConfirmation { index, confirmation: confirmation.clone() });
                }
            }
        }
        let text = texts.join("\n\n");
        if text.len() > MESSAGE_BYTES_MAX {
            let message = format!(
                "must have at most {MESSAGE_BYTES_MAX} bytes; send long text as a document"
            );
            return Err(RequestError::invalid_field("/message", message));
        }
        Ok(((!text.trim().is_empty()).then_some(text), replies))
    }
}

/// The session in which the code of a conversation runs.
#[derive(Default)]
struct ChatSession {
    session: Option<Session>,
    /// Whether an earlier session of the conversation was lost.
    lost: bool,
    /// Whether to close the session if no code runs in it.
    disposable: bool,
}

/// A run that passed all checks and can start.
struct ChatRun {
    disposable: bool,
    work: ResolvedAgent,
    skills: Skills,
    session: Option<Session>,
    reservation: Option<SessionReservation>,
    names: Vec<String>,
    conversation: Conversation,
    text: Option<String>,
    replies: Vec<ApprovalReply>,
    agent_external_id: Option<String>,
    warnings: Vec<String>,
}

impl Agents {
    /// Starts a run. The caller waits for its end with the returned handle.
    #[boxed::future]
    pub async fn run_agent(
        self: &Arc<Self>,
        caller: &Caller,
        id: AgentId,
        request: ChatRequest,
        options: SubmitOptions,
    ) -> Result<ExecutionHandle, RequestError> {
        let (text, confirmations) = request.parse()?;
        let work = self.service.resolve_agent(caller, id).await?;
        self.check_documents(caller, &request.document_ids)?;
        let before = self.previous_run(caller, id, request.cursor.as_deref())?;
        let of_agent = work.orchestration.model.as_deref();
        let model = self.choose_model(caller, request.model.as_deref(), of_agent)?;
        let work = self.service.offer_mcp_tools(caller, work).await?;
        let runs_code = work.code_execution.enabled;
        let skills = Skills::new(self.service.agent_skills(caller, &work).await?, runs_code)?;
        check_choice(&work, &skills)?;
        let conversation = before.as_ref().map(conversation_of).transpose()?;
        let conversation = conversation.unwrap_or_default().truncate_to_recent();
        let replies = check_replies(&self.service, caller, &conversation, &confirmations).await?;
        if text.is_none() && conversation.pending.is_empty() {
            return Err(RequestError::invalid_field("/message", "must not be empty"));
        }
        if !runs_code && !request.document_ids.is_empty() {
            let message = "are only for agents that run code, and this agent does not";
            return Err(RequestError::invalid_field("/document_ids", message));
        }
        let ChatSession { session, lost, disposable: passing } = match runs_code {
            true => self.chat_session(caller, id, &request, before.as_ref()).await?,
            false => ChatSession::default(),
        };
        let occupied =
            session.as_ref().map(|it| self.reserve_session(it.sandbox_id)).transpose()?;
        let names = match &session {
            Some(session) => {
                let (id, documents) = (session.sandbox_id, &request.document_ids);
                self.service.copy_documents(caller, id, documents).await?
            }
            None => Vec::new(),
        };
        let mut warnings = work.warnings.clone();
        if let [missing] = &work.code_execution.missing[..] {
            warnings.push(format!("code_execution is not enabled: {missing}"));
        }
        if lost {
            warnings.push(
                "the session of this conversation has ended, with its variables and files; the \
                 conversation continues in a new session"
                    .to_owned(),
            );
        }
        let new = NewRun {
            entry: AGENT,
            agent: Some(id),
            session: session.clone(),
            arguments: json!(request),
            files_in: names.clone(),
            previous: before.map(|before| before.id),
        };
        let (run, attached) = self.service.begin_run(caller, new, options).await?;
        let agent_external_id = request.agent_external_id;
        let chat = ChatRun {
            disposable: passing,
            work,
            skills,
            session,
            reservation: occupied,
            names,
            conversation,
            text,
            replies,
            agent_external_id,
            warnings,
        };
        let agents = Arc::clone(self);
        tokio::spawn(async move { chat.run(&agents, run, &*model).await });
        Ok(attached)
    }

    fn previous_run(
        &self,
        caller: &Caller,
        agent: AgentId,
        cursor: Option<&str>,
    ) -> Result<Option<PreviousRun>, RequestError> {
        let Some(cursor) = cursor else { return Ok(None) };
        let id: Result<ExecutionId, _> = cursor.parse();
        let invalid = || {
            RequestError::invalid_field("/cursor", "is not a cursor from a response of this agent")
        };
        let before = self.service.previous_run(caller, id.map_err(|_| invalid())?)?;
        if before.agent == Some(agent) { Ok(Some(before)) } else { Err(invalid()) }
    }

    /// Finds or opens the session of this conversation, and tells whether an earlier one was lost.
    async fn chat_session(
        &self,
        caller: &Caller,
        agent: AgentId,
        request: &ChatRequest,
        before: Option<&PreviousRun>,
    ) -> Result<ChatSession, RequestError> {
        let earlier = before.and_then(|before| before.sandbox_id);
        if let Some(id) = earlier
            && let Ok(session) = self.service.session(caller, id)
            && matches!(session.status, SessionStatus::Ready | SessionStatus::Busy)
        {
            return Ok(ChatSession { session: Some(session), lost: false, disposable: false });
        }
        let request_for_session = SessionRequest {
            agent_id: Some(agent),
            key: request.key.clone(),
            ..SessionRequest::default()
        };
        let opened = self.service.open_session(caller, request_for_session).await?;
        let (OpenedSession::New(session) | OpenedSession::Found(session)) = opened;
        // Without a key or documents, the session is reachable only through code that ran in it.
        let is_temporary = request.key.is_none() && request.document_ids.is_empty();
        Ok(ChatSession {
            session: Some(session),
            lost: earlier.is_some(),
            disposable: is_temporary,
        })
    }
}

fn conversation_of(before: &PreviousRun) -> Result<Conversation, RequestError> {
    let unreadable = || {
        RequestError::invalid_field(
            "/cursor",
            "is from another version of Belljar; start a new conversation without a cursor",
        )
    };
    Conversation::from_bytes(&before.conversation).ok_or_else(unreadable)
}

impl ChatRun {
    async fn run(self, agents: &Arc<Agents>, run: RunHandle, model: &dyn crate::Model) {
        let Self { work, skills, session, reservation, names, conversation, text, replies, .. } =
            self;
        let Self { agent_external_id, warnings, disposable: is_temporary, .. } = self;
        let id = session.as_ref().map(|session| session.sandbox_id);
        let system = system_prompt(&work, &skills);
        let budget = budget_for(&work);
        let interpreter = session.map(|session| Interpreter::new(session, names.clone(), false));
        let mut tools = Toolbox::for_agent(&work, interpreter, skills, &system);
        let about = (AGENT, text.as_deref().unwrap_or_default());
        let mut state = RunState::new(&agents.service, &run, model, budget, conversation, about);
        let message = text.as_deref().map(|text| with_files(text, &names));
        state.agent_loop.tool_results = work.orchestration.tool_results;
        let (time, agent_loop, conversation) =
            (state.agent_loop.budget.time, &mut state.agent_loop, &mut state.conversation);
        let work = answer_message(
            agent_loop,
            conversation,
            &mut tools,
            &system,
            message.as_deref(),
            replies,
        );
        let done = run_within(&run, time, work).await;
        if done.is_err() {
            state.withdraw_approvals().await;
        }
        let outcome = done
            .unwrap_or_else(|stopped| RunOutcome::stopped(&stopped, ResumeOption::Conversation));
        if !outcome.answer.is_empty() {
            run.publish(Event::Answer { text: outcome.answer.clone() });
        }
        let actions =
            state.open_approvals().map(crate::confirmation::confirmation_action).collect();
        let output = ChatOutput { answer: outcome.answer, actions, agent_external_id };
        let mut end = state.into_run_end(tools.interpreter.as_mut(), outcome.error, &output);
        let warning = |message| Warning { code: "agent.incomplete".to_owned(), message };
        end.warnings.extend(warnings.into_iter().map(warning));
        end.discard_session = is_temporary && end.rounds.is_empty() && output.actions.is_empty();
        if let Some(id) = id.filter(|_| end.discard_session) {
            // The idle timeout closes it too, if this fails.
            let _ = agents.service.close_session(run.caller(), id).await;
        }
        let execution = run.id();
        if let Err(error) = run.finish(outcome.status, end, reservation).await {
            tracing::error!(%execution, error = %error.error, "cannot store the result of a run");
        }
    }
}

/// Settles the pending approvals first, then continues with the model.
async fn answer_message(
    agent_loop: &mut AgentLoop<'_>,
    conversation: &mut Conversation,
    tools: &mut Toolbox,
    system: &str,
    message: Option<&str>,
    replies: Vec<ApprovalReply>,
) -> Result<RunOutcome, RunError> {
    if !conversation.pending.is_empty() {
        tools.settle_pending(agent_loop, conversation, replies).await;
    }
    message.into_iter().for_each(|message| conversation.push_user(message));
    Ok(match agent_loop.run(system, conversation, tools).await? {
        LoopOutcome::Answered(answer) => match agent_loop.verify_answer(conversation, answer) {
            Ok(answer) => RunOutcome::answered(answer, None),
            Err(error) => RunOutcome::withheld(error),
        },
        LoopOutcome::NeedsApproval => RunOutcome::awaiting_approval(),
    })
}

fn with_files(text: &str, names: &[String]) -> String {
    match names {
        [] => text.to_owned(),
        names => format!("{text}\n\n{}", prompts::fill(prompts::FILES, "files", &names.join(", "))),
    }
}

fn system_prompt(work: &ResolvedAgent, skills: &Skills) -> String {
    let mut parts = vec![work.orchestration.instructions.trim().to_owned()];
    parts.push(prompts::AGENT.trim_end().to_owned());
    if work.code_execution.enabled {
        parts.push(code_prompt(work, skills));
    }
    parts.extend(skills.prompts());
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

/// The part of the system prompt about the tools that run code.
fn code_prompt(work: &ResolvedAgent, skills: &Skills) -> String {
    let about = |tool: CodeToolName| match tool.takes_requests() {
        true => prompts::fill(prompts::AGENT_CODE, "tool", tool.name()),
        false => prompts::AGENT_SCRIPT.trim_end().to_owned(),
    };
    let mut sentences: Vec<String> =
        offered_code_tools(work, skills).into_iter().map(about).collect();
    sentences.push(prompts::AGENT_FILES.trim_end().to_owned());
    if work.shows_conversation {
        sentences.push(prompts::CONVERSATION.trim_end().to_owned());
    }
    sentences.join(" ")
}

fn budget_for(work: &ResolvedAgent) -> RunBudget {
    let (default, requested) = (RunBudget::for_agent(), &work.orchestration);
    RunBudget {
        rounds: requested.rounds.unwrap_or(default.rounds).min(service::ROUNDS_MAX),
        tokens: requested.tokens.unwrap_or(default.tokens),
        time: requested.seconds.map_or(default.time, Duration::from_secs),
        ..default
    }
}
