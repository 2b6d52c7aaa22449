//! The tools of a run: their definitions for the model, and the handlers of its calls.

use crate::agent_loop::{AgentLoop, RunError};
use crate::code_task;
use crate::code_tools::{self, CodeCall, CodeTaskCall};
use crate::conversation::{Conversation, PendingApproval};
use crate::conversation_files;
use crate::interpreter::{Interpreter, RoundOutcome};
use crate::model::Message;
use crate::model::{ToolCall, ToolCallMode, ToolDefinition, ToolResult};
use crate::observation::{
    ExecutionObservation, ToolOutcome, code_runner_text, error_of, is_failed,
};
use crate::prompts;
use crate::skills::{self, Skills};
use crate::trace::TraceAction;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::json;
use service::{
    Caller, CodeToolName, FileInput, MCP_TOOL, OfferedTool, RequestError, ResolvedAgent,
    ResultForm, RunHandle, RunRequest, RunTarget, Service, Submitted, ToolChoice,
};
use std::sync::Arc;
use std::time::Instant;
use types::{
    AgentId, Error, ErrorCode, Event, Execution, ExecutionId, FileId, LimitsRequest,
    TOOL_UNISOLATED, ToolUse,
};

/// The tool of a code run: runs the code of one step.
pub(crate) const RUN_PYTHON: &str = "run_python";
/// The tool of an agent that runs code.
pub const CODE_EXECUTION: &str = "code_execution";
/// The kind of the tools with a function `run`.
const CODE_RUNNER: &str = "code_runner";
/// The kind of a call that the approval policy of the agent denies.
const DENIED: &str = "denied";
/// The kind of the skill tools.
const SKILL: &str = "skill";
/// An alias of `code_execution`.
pub const CODE_INTERPRETER: &str = "code_interpreter";

#[derive(Debug, Default)]
pub(crate) struct Toolbox {
    pub(crate) interpreter: Option<Interpreter>,
    /// Absent in a code run, which has only the interpreter.
    pub(crate) agent: Option<AgentId>,
    /// The tools of an agent that run code.
    code_tools: Vec<CodeToolName>,
    /// Whether code of the agent can read the conversation.
    shows_conversation: bool,
    /// The instructions of the agent.
    system: String,
    pub(crate) tools: Vec<OfferedTool>,
    /// The names of tools that the agent has and may not call.
    pub(crate) denied_tools: Vec<String>,
    pub(crate) skills: Skills,
    pub(crate) tool_choice: ToolChoice,
    /// Whether the model has called a tool.
    pub(crate) has_called: bool,
}

/// Outcome of a call.
pub(crate) enum CallOutcome {
    Done(ToolResult),
    /// The call needs an approval.
    NeedsApproval(PendingApproval),
}

/// The handler of a call.
enum ToolHandler<'a> {
    Code(CodeToolName),
    /// The code of a step of a plan.
    Step,
    LoadSkill,
    SkillScript,
    Tool(&'a OfferedTool),
    /// The approval policy of the agent denies it.
    Denied,
    Unknown,
}

impl Toolbox {
    /// A toolbox with only the interpreter.
    pub(crate) fn for_code(interpreter: Interpreter) -> Self {
        Self { interpreter: Some(interpreter), ..Self::default() }
    }

    pub(crate) fn for_agent(
        work: &ResolvedAgent,
        interpreter: Option<Interpreter>,
        skills: Skills,
        system: &str,
    ) -> Self {
        Self {
            interpreter,
            agent: Some(work.agent.id),
            code_tools: offered_code_tools(work, &skills),
            shows_conversation: work.shows_conversation,
            system: system.to_owned(),
            tools: work.tools.clone(),
            denied_tools: work.denied_tools.clone(),
            skills,
            tool_choice: work.orchestration.tool_choice.clone(),
            has_called: false,
        }
    }

    /// The tools that the model is offered now. If it must choose among certain tools, only those
    /// at first.
    pub(crate) fn tool_definitions(&self) -> Vec<ToolDefinition> {
        let mut offers = self.all_definitions();
        if let ToolChoice::Tools(names) = &self.tool_choice
            && !self.has_called
        {
            offers.retain(|offer| names.contains(&offer.name));
        }
        offers
    }

    fn all_definitions(&self) -> Vec<ToolDefinition> {
        let code = match (&self.interpreter, self.agent) {
            (None, _) => Vec::new(),
            (Some(_), None) => vec![run_python_tool()],
            (Some(_), Some(_)) => {
                self.code_tools.iter().map(|tool| code_tools::definition(*tool)).collect()
            }
        };
        let tools = self.tools.iter().map(|tool| ToolDefinition {
            name: tool.name.clone(),
            description: tool.description.clone(),
            input_schema: tool.input_schema.clone(),
        });
        code.into_iter().chain(tools).chain(self.skills.tool_definitions()).collect()
    }

    /// A required call is required only once: otherwise the model could never answer.
    pub(crate) fn call_mode(&self) -> ToolCallMode {
        match &self.tool_choice {
            _ if self.has_called => ToolCallMode::Auto,
            ToolChoice::Auto => ToolCallMode::Auto,
            ToolChoice::Required => ToolCallMode::Required,
            ToolChoice::Tools(names) => match &names[..] {
                [name] => ToolCallMode::Tool(name.clone()),
                _ => ToolCallMode::Required,
            },
        }
    }

    fn handler_for(&self, name: &str) -> ToolHandler<'_> {
        match (name, self.code_tool(name)) {
            _ if self.interpreter.is_none() => self.other_handler(name),
            (_, Some(tool)) => ToolHandler::Code(tool),
            (RUN_PYTHON, None) if self.agent.is_none() => ToolHandler::Step,
            (skills::RUN_SCRIPT, None) if self.has_tool(name) => ToolHandler::SkillScript,
            _ => self.other_handler(name),
        }
    }

    /// The handler of a tool that needs no session.
    fn other_handler(&self, name: &str) -> ToolHandler<'_> {
        match self.tools.iter().find(|tool| tool.name == name) {
            _ if name == skills::LOAD && self.has_tool(name) => ToolHandler::LoadSkill,
            Some(tool) => ToolHandler::Tool(tool),
            None if self.denied_tools.iter().any(|denied| denied == name) => ToolHandler::Denied,
            None => ToolHandler::Unknown,
        }
    }

    /// The tool of an agent that runs code, under any name that it has.
    fn code_tool(&self, name: &str) -> Option<CodeToolName> {
        let tool = CodeToolName::from_name(name)?;
        let is_same = |offered: &CodeToolName| {
            *offered == tool || (offered.takes_requests() && tool.takes_requests())
        };
        self.code_tools.iter().any(is_same).then_some(tool)
    }

    fn has_tool(&self, name: &str) -> bool {
        self.skills.tool_definitions().iter().any(|offer| offer.name == name)
    }

    /// Calls that share nothing run concurrently. Each result is added to the conversation at once,
    /// since the run may be stopped before the other calls end.
    pub(crate) async fn call_all(
        &mut self,
        agent_loop: &mut AgentLoop<'_>,
        conversation: &mut Conversation,
        calls: Vec<ToolCall>,
    ) -> Result<(), RunError> {
        // Start none of the calls unless the budget allows all of them.
        for _ in &calls {
            agent_loop.usage.begin_round(&agent_loop.budget)?;
        }
        self.has_called = true;
        let isolated = |call: &ToolCall| match self.handler_for(&call.name) {
            ToolHandler::Tool(tool) => !self.uses_session(tool),
            _ => false,
        };
        let (isolated, in_session): (Vec<ToolCall>, Vec<ToolCall>) =
            calls.into_iter().partition(isolated);
        self.call_isolated(agent_loop, conversation, &isolated).await;
        for call in in_session {
            conversation.started_calls.push(call.id.clone());
            let outcome = match self.show_conversation(agent_loop, conversation, &call).await {
                Ok(()) => self.call_one(agent_loop, &conversation.messages, call).await?,
                Err(failed) => CallOutcome::Done(failed),
            };
            conversation.record_call_outcome(outcome);
        }
        Ok(())
    }

    /// Shows the conversation to the code that a call runs in the session, or returns the result of
    /// the call if that fails.
    async fn show_conversation(
        &self,
        agent_loop: &mut AgentLoop<'_>,
        conversation: &Conversation,
        call: &ToolCall,
    ) -> Result<(), ToolResult> {
        let since = Instant::now();
        let runs_code = match self.handler_for(&call.name) {
            ToolHandler::Code(_) | ToolHandler::SkillScript => true,
            ToolHandler::Tool(tool) => self.uses_session(tool),
            ToolHandler::Step
            | ToolHandler::LoadSkill
            | ToolHandler::Denied
            | ToolHandler::Unknown => false,
        };
        let Some(interpreter) = &self.interpreter else { return Ok(()) };
        if !runs_code || !self.shows_conversation {
            return Ok(());
        }
        let session = interpreter.session.sandbox_id;
        let shown = conversation_files::show(agent_loop, session, conversation).await;
        shown.map_err(|error| {
            let text = ExecutionObservation::from_error(&error).text_for_code();
            let result = ToolOutcome { text, failed: true, error: Some(error), computed: false };
            record_tool_call(agent_loop, since, call, CODE_EXECUTION, None, result)
        })
    }

    /// Shows the conversation to code that was approved and runs now.
    pub(crate) async fn refresh_conversation(
        &self,
        agent_loop: &AgentLoop<'_>,
        conversation: &Conversation,
    ) {
        if let Some(interpreter) = self.interpreter.as_ref().filter(|_| self.shows_conversation) {
            let session = interpreter.session.sandbox_id;
            // Code that was allowed elsewhere may run already; it has what it was approved with.
            let _ = conversation_files::show(agent_loop, session, conversation).await;
        }
    }

    /// Runs calls in separate sandboxes, concurrently.
    async fn call_isolated(
        &self,
        agent_loop: &mut AgentLoop<'_>,
        conversation: &mut Conversation,
        calls: &[ToolCall],
    ) {
        let since = Instant::now();
        let (service, run, caller) =
            (agent_loop.service, agent_loop.run, &agent_loop.caller.clone());
        let mut running: FuturesUnordered<_> = calls
            .iter()
            .filter_map(|call| match self.handler_for(&call.name) {
                ToolHandler::Tool(tool) => Some((tool, call)),
                _ => None,
            })
            .map(async |(tool, call)| {
                (tool, call, self.call_tool(service, (run, caller), tool, call).await)
            })
            .collect();
        conversation.started_calls.extend(calls.iter().map(|call| call.id.clone()));
        while let Some((tool, call, outcome)) = running.next().await {
            conversation
                .record_call_outcome(record_tool_execution(agent_loop, since, tool, call, outcome));
        }
    }

    fn uses_session(&self, tool: &OfferedTool) -> bool {
        tool.in_session && self.interpreter.is_some()
    }

    /// `asked` is the input of the calling model.
    async fn call_one(
        &mut self,
        agent_loop: &mut AgentLoop<'_>,
        caller_messages: &[Message],
        call: ToolCall,
    ) -> Result<CallOutcome, RunError> {
        let since = Instant::now();
        let (kind, result) = match self.handler_for(&call.name) {
            ToolHandler::Code(tool) => {
                return self.run_code(agent_loop, caller_messages, call, Some(tool)).await;
            }
            ToolHandler::Step => {
                return self.run_code(agent_loop, caller_messages, call, None).await;
            }
            ToolHandler::SkillScript => match self.script_code(agent_loop, &call).await {
                Ok(code) => {
                    return Ok(self.run_code_round(agent_loop, call, code, None, Vec::new()).await);
                }
                Err(message) => (SKILL, ToolOutcome::invalid_call(ErrorCode::ArgsInvalid, message)),
            },
            ToolHandler::LoadSkill => {
                (SKILL, skill_outcome(self.skills.load_skill(&call.arguments)))
            }
            ToolHandler::Tool(tool) => {
                let outcome = self
                    .call_tool(
                        agent_loop.service,
                        (agent_loop.run, &agent_loop.caller),
                        tool,
                        &call,
                    )
                    .await;
                let tool = tool.clone();
                return Ok(record_tool_execution(agent_loop, since, &tool, &call, outcome));
            }
            ToolHandler::Denied => {
                let message = format!("Tool '{}' denied by agent approval policy", call.name);
                (DENIED, ToolOutcome::invalid_call(ErrorCode::ApprovalDenied, message))
            }
            ToolHandler::Unknown => (
                SKILL,
                ToolOutcome::invalid_call(
                    ErrorCode::ToolUnavailable,
                    self.unknown_tool_message(&call.name),
                ),
            ),
        };
        Ok(CallOutcome::Done(record_tool_call(agent_loop, since, &call, kind, None, result)))
    }

    fn unknown_tool_message(&self, name: &str) -> String {
        let names: Vec<String> =
            self.all_definitions().into_iter().map(|offer| offer.name).collect();
        let tools = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let text = prompts::fill(prompts::UNKNOWN_TOOL, "name", &format!("{name:?}"));
        prompts::fill(&text, "tools", &tools)
    }

    /// The code that runs a script of a skill, or why it cannot run.
    async fn script_code(
        &self,
        agent_loop: &AgentLoop<'_>,
        call: &ToolCall,
    ) -> Result<String, String> {
        let (service, caller) = (agent_loop.service, &agent_loop.caller);
        let session = self.interpreter.as_ref().map(|it| it.session.sandbox_id);
        let session = session.ok_or("No code can be run here.")?;
        let script = self.skills.script(&call.arguments)?;
        let failed =
            |error: RequestError| ExecutionObservation::from_error(&error.error).text_for_code();
        service.check_skill_in_session(caller, session, &script.skill).map_err(failed)?;
        service.check_skill_author(caller, session, script.author).await.map_err(failed)?;
        let needs = service.unmet_requirements(caller, session, &script.source).await;
        Ok(script.code(&needs.map_err(failed)?))
    }

    /// Runs code, or lets the model write code for a request. Without `tool`, the code is a step of
    /// a plan.
    async fn run_code(
        &mut self,
        agent_loop: &mut AgentLoop<'_>,
        caller_messages: &[Message],
        call: ToolCall,
        tool: Option<CodeToolName>,
    ) -> Result<CallOutcome, RunError> {
        let since = Instant::now();
        let session = self.interpreter.as_ref().map(|it| it.session.sandbox_id);
        let parsed = match (tool, session) {
            (None, _) => CodeCall::parse_step(&call.arguments),
            (Some(tool), Some(session)) => CodeCall::parse(tool, &call.arguments, session),
            (Some(_), None) => Err("No code can be run here.".to_owned()),
        };
        let refused = match parsed {
            Ok(CodeCall::Code { code, step }) => {
                return Ok(self.run_code_round(agent_loop, call, code, step, Vec::new()).await);
            }
            Ok(CodeCall::Script { code, files }) => {
                match self.script_inputs(agent_loop, caller_messages, files).await {
                    Ok(files) => {
                        return Ok(self.run_code_round(agent_loop, call, code, None, files).await);
                    }
                    Err(message) => message,
                }
            }
            Ok(CodeCall::Request(task)) => {
                let result =
                    self.run_code_task(agent_loop, caller_messages, &call.id, task).await?;
                return Ok(CallOutcome::Done(record_tool_call(
                    agent_loop,
                    since,
                    &call,
                    CODE_EXECUTION,
                    None,
                    result,
                )));
            }
            Err(message) => message,
        };
        let result = ToolOutcome::invalid_call(ErrorCode::ArgsInvalid, refused);
        Ok(CallOutcome::Done(record_tool_call(
            agent_loop,
            since,
            &call,
            CODE_EXECUTION,
            None,
            result,
        )))
    }

    async fn script_inputs(
        &self,
        agent_loop: &AgentLoop<'_>,
        messages: &[Message],
        files: Vec<String>,
    ) -> Result<Vec<FileInput>, String> {
        let Some(interpreter) = &self.interpreter else { return Ok(Vec::new()) };
        let (service, caller) = (agent_loop.service, &agent_loop.caller);
        let sources = code_tools::url_sources(&self.system, messages);
        let session = interpreter.session.sandbox_id;
        code_tools::script_inputs(service, caller, session, files, &sources).await
    }

    async fn run_code_round(
        &mut self,
        agent_loop: &mut AgentLoop<'_>,
        call: ToolCall,
        code: String,
        step: Option<usize>,
        files: Vec<FileInput>,
    ) -> CallOutcome {
        let since = Instant::now();
        let Some(interpreter) = &mut self.interpreter else {
            let result = ToolOutcome::invalid_call(
                ErrorCode::ToolUnavailable,
                "No code can be run here.".to_owned(),
            );
            return CallOutcome::Done(record_tool_call(
                agent_loop,
                since,
                &call,
                CODE_EXECUTION,
                None,
                result,
            ));
        };
        match interpreter.run_round(agent_loop, code, step, files).await {
            RoundOutcome::Round(result) => CallOutcome::Done(tool_result(&call, result)),
            RoundOutcome::NeedsApproval { approval_id, execution_id } => {
                let (kind, description) =
                    (CODE_EXECUTION.to_owned(), self.code_description(&call.name));
                CallOutcome::NeedsApproval(PendingApproval {
                    call,
                    approval_id,
                    execution_id,
                    kind,
                    description,
                })
            }
        }
    }

    /// Describes a call that runs code: a skill's script, or code under any tool name.
    fn code_description(&self, name: &str) -> String {
        let script = self.skills.tool_definitions().into_iter().find(|offer| offer.name == name);
        let code = CodeToolName::from_name(name).unwrap_or(CodeToolName::CodeExecution);
        script.unwrap_or_else(|| code_tools::definition(code)).description
    }

    /// Runs a plan and its rounds inside an agent run, in the same session and budget. Its model has
    /// only the tool that runs a step, so that no request contains another one.
    async fn run_code_task(
        &mut self,
        agent_loop: &mut AgentLoop<'_>,
        caller_messages: &[Message],
        call_id: &str,
        CodeTaskCall { request, context, documents }: CodeTaskCall,
    ) -> Result<ToolOutcome, RunError> {
        let Some(mut interpreter) = BorrowedInterpreter::borrow_from(self) else {
            return Ok(ToolOutcome::from_text(String::new()));
        };
        if let Err(error) = interpreter.add_documents(agent_loop, &documents).await {
            return Ok(ToolOutcome::invalid_call(ErrorCode::ArgsInvalid, error.error.message));
        }
        let rounds = agent_loop.budget.rounds;
        let caller_messages = Some(caller_messages.to_vec());
        let mut conversation = Conversation { caller_messages, ..Conversation::default() };
        let files = interpreter.files.clone();
        let (first_round, first_file) = interpreter.counts();
        let task = code_task::CodeTask {
            request: &request,
            context: context.as_deref(),
            files: &files,
            rounds: Some(rounds),
        };
        let outcome = Box::pin(code_task::run_code_task(
            agent_loop,
            &mut interpreter.tools,
            &mut conversation,
            task,
        ))
        .await?;
        let result = interpreter.tools.interpreter.as_ref().map(|it| {
            code_tools::task_result(it, (first_round, first_file), call_id, rounds, &outcome)
        });
        let text = result.map_or_else(|| outcome.answer.clone(), |result| result.to_string());
        Ok(ToolOutcome {
            failed: outcome.error.is_some(),
            error: outcome.error,
            ..ToolOutcome::from_text(text)
        })
    }

    fn run_target(&self, tool: &OfferedTool, call: &ToolCall) -> RunTarget {
        let arguments = call.arguments.clone();
        match (&tool.remote, self.agent) {
            (Some(remote), Some(agent)) => RunTarget::McpTool {
                agent,
                server: remote.server.clone(),
                tool: remote.tool.clone(),
                read_only: remote.read_only,
                arguments,
            },
            _ => RunTarget::Tool {
                id: tool.id,
                agent: self.agent,
                arguments,
                test: false,
                over_mcp: false,
            },
        }
    }

    async fn call_tool(
        &self,
        service: &Arc<Service>,
        (run, caller): (&RunHandle, &Caller),
        tool: &OfferedTool,
        call: &ToolCall,
    ) -> Result<ToolExecution, RequestError> {
        let session = self.interpreter.as_ref().filter(|_| tool.in_session);
        let request = RunRequest {
            target: self.run_target(tool, call),
            session: session.map(|interpreter| interpreter.session.sandbox_id),
            files: Vec::new(),
            limits: LimitsRequest::default(),
        };
        let submitted = service.run(caller, request, run.child_options()).await?;
        match submitted {
            Submitted::Started(handle) => {
                handle.wait().await.map(Box::new).map(ToolExecution::Ended)
            }
            Submitted::AwaitingApproval(handle) => {
                Ok(ToolExecution::NeedsApproval(handle.detach()))
            }
        }
    }
}

/// The interpreter of an agent, borrowed for one request that waits for approvals. On drop the
/// agent gets it back, with all rounds, whatever the outcome.
struct BorrowedInterpreter<'a> {
    owner: &'a mut Toolbox,
    tools: Toolbox,
    /// Names of the agent's uploaded files.
    files: Vec<String>,
}

impl<'a> BorrowedInterpreter<'a> {
    fn borrow_from(owner: &'a mut Toolbox) -> Option<Self> {
        let mut interpreter = owner.interpreter.take()?;
        interpreter.waits_for_approval = true;
        let files = interpreter.files.clone();
        Some(Self { owner, tools: Toolbox::for_code(interpreter), files })
    }

    /// Copies documents of the caller into the session.
    async fn add_documents(
        &mut self,
        agent_loop: &AgentLoop<'_>,
        documents: &[FileId],
    ) -> Result<(), RequestError> {
        let Some(interpreter) = &mut self.tools.interpreter else { return Ok(()) };
        let (service, caller) = (agent_loop.service, &agent_loop.caller);
        let session = interpreter.session.sandbox_id;
        let names = service.copy_documents(caller, session, documents).await?;
        let new = names.into_iter().filter(|name| !self.files.contains(name));
        self.files.extend(new.collect::<Vec<_>>());
        interpreter.files.clone_from(&self.files);
        Ok(())
    }

    /// The numbers of rounds and of files so far.
    fn counts(&self) -> (usize, usize) {
        let interpreter = self.tools.interpreter.as_ref();
        interpreter.map_or((0, 0), |it| (it.rounds.len(), it.files_out.len()))
    }
}

impl Drop for BorrowedInterpreter<'_> {
    fn drop(&mut self) {
        self.owner.interpreter = self.tools.interpreter.take();
        if let Some(interpreter) = &mut self.owner.interpreter {
            interpreter.waits_for_approval = false;
            // Later code belongs to no step of this plan.
            interpreter.set_plan(Vec::new());
        }
    }
}

/// A tool call that ended, or waits for an approval.
enum ToolExecution {
    Ended(Box<Execution>),
    NeedsApproval(Arc<Execution>),
}

fn record_tool_execution(
    agent_loop: &mut AgentLoop<'_>,
    since: Instant,
    tool: &OfferedTool,
    call: &ToolCall,
    outcome: Result<ToolExecution, RequestError>,
) -> CallOutcome {
    match outcome {
        Ok(ToolExecution::Ended(execution)) => {
            CallOutcome::Done(record_ended(agent_loop, since, call, &tool.kind, Ok(*execution)))
        }
        Ok(ToolExecution::NeedsApproval(execution)) => match execution.approval_id {
            Some(approval_id) => {
                agent_loop.run.publish(Event::Approval { approval_id });
                CallOutcome::NeedsApproval(PendingApproval {
                    call: call.clone(),
                    approval_id,
                    execution_id: execution.id,
                    kind: tool.kind.clone(),
                    description: tool.description.clone(),
                })
            }
            None => {
                let execution = Arc::unwrap_or_clone(execution);
                CallOutcome::Done(record_ended(agent_loop, since, call, &tool.kind, Ok(execution)))
            }
        },
        Err(error) => {
            CallOutcome::Done(record_ended(agent_loop, since, call, &tool.kind, Err(error)))
        }
    }
}

/// Records the end of a tool call.
pub(crate) fn record_ended(
    agent_loop: &mut AgentLoop<'_>,
    since: Instant,
    call: &ToolCall,
    kind: &str,
    ended: Result<Execution, RequestError>,
) -> ToolResult {
    match ended {
        Ok(execution) => {
            let warned = execution.warnings.iter().find(|it| it.code == TOOL_UNISOLATED);
            if let Some(warning) = warned {
                agent_loop.isolation_warnings.insert(call.name.clone(), warning.clone());
            }
            let observed = ExecutionObservation::from_execution(&execution);
            let text = match (kind, agent_loop.tool_results) {
                (MCP_TOOL, _) => observed.text_for_remote_tool(),
                (CODE_RUNNER, ResultForm::CodeRunner) => code_runner_text(&execution),
                _ => observed.text_for_tool(),
            };
            let result = ToolOutcome {
                text,
                failed: is_failed(execution.status),
                error: error_of(&execution),
                computed: observed.has_number(),
            };
            let result =
                record_tool_call(agent_loop, since, call, kind, Some(execution.id), result);
            agent_loop.add_artifacts(&execution.files_out, execution.sandbox_id);
            result
        }
        Err(error) => {
            let text = ExecutionObservation::from_error(&error.error).text_for_tool();
            let result =
                ToolOutcome { text, failed: true, error: Some(*error.error), computed: false };
            record_tool_call(agent_loop, since, call, kind, None, result)
        }
    }
}

pub(crate) fn record_tool_call(
    agent_loop: &mut AgentLoop<'_>,
    since: Instant,
    call: &ToolCall,
    kind: &str,
    execution_id: Option<ExecutionId>,
    result: ToolOutcome,
) -> ToolResult {
    let tool = ToolUse {
        id: call.id.clone(),
        name: call.name.clone(),
        kind: kind.to_owned(),
        arguments: call.arguments.clone(),
        execution_id,
        result: result.text.clone(),
        failed: result.failed,
    };
    agent_loop.run.publish(Event::Tool(tool.clone()));
    agent_loop.trace_recorder.record(since, TraceAction::Called { tool });
    agent_loop.record_tool_outcome(&result);
    tool_result(call, result)
}

/// A skill that failed to load would have computed nothing, so it leaves no error to verify.
fn skill_outcome(loaded: Result<String, String>) -> ToolOutcome {
    match loaded {
        Ok(text) => ToolOutcome::from_text(text),
        Err(text) => ToolOutcome { failed: true, ..ToolOutcome::from_text(text) },
    }
}

pub(crate) fn tool_result(call: &ToolCall, result: ToolOutcome) -> ToolResult {
    let ToolOutcome { text, failed, .. } = result;
    ToolResult { call_id: call.id.clone(), name: call.name.clone(), text, failed }
}

/// The tools of an agent that run code: those that its specification names, and those that its skills
/// need.
pub(crate) fn offered_code_tools(work: &ResolvedAgent, skills: &Skills) -> Vec<CodeToolName> {
    if !work.code_execution.enabled {
        return Vec::new();
    }
    let mut tools = work.code_tools.clone();
    for tool in skills.code_tools() {
        let is_same = |other: &CodeToolName| {
            *other == tool || (other.takes_requests() && tool.takes_requests())
        };
        if !tools.iter().any(is_same) {
            tools.push(tool);
        }
    }
    tools
}

/// Checks that the agent has the tool that it must call.
pub(crate) fn check_choice(work: &ResolvedAgent, skills: &Skills) -> Result<(), Error> {
    let code = offered_code_tools(work, skills).into_iter().map(|tool| tool.name().to_owned());
    let tools = work.tools.iter().map(|tool| tool.name.clone());
    let skills = skills.tool_definitions().into_iter().map(|offer| offer.name);
    let known: Vec<String> = code.chain(tools).chain(skills).collect();
    let problem = match &work.orchestration.tool_choice {
        ToolChoice::Auto => None,
        ToolChoice::Required if known.is_empty() => {
            Some("tool_choice is required, but the agent has no tools".to_owned())
        }
        ToolChoice::Required => None,
        ToolChoice::Tools(names) => names
            .iter()
            .find(|name| !known.contains(name))
            .map(|name| format!("tool_choice names {name:?}, which is not a tool of the agent")),
    };
    match problem {
        None => Ok(()),
        Some(message) => {
            let hint = format!("the tools of the agent are: {}", known.join(", "));
            Err(Error::new(ErrorCode::ToolUnavailable, message).hint(hint))
        }
    }
}

fn run_python_tool() -> ToolDefinition {
    ToolDefinition {
        name: RUN_PYTHON.to_owned(),
        description: "Run the Python code of one step, in the interpreter that has run the steps \
                      before."
            .to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "code": {"type": "string", "description": "The code of this step."},
                "step": {"type": "integer", "description": "The number of the step in the plan, from 1."},
            },
            "required": ["code"],
            "additionalProperties": false,
        }),
    }
}
