//! The tools of a run: what a model is offered, and who does what it calls.

use crate::code;
use crate::interpreter::{Interpreter, Ran};
use crate::model::Message;
use crate::model::{Choice, Offer, ToolCall, ToolResult};
use crate::observe::{Observed, Told, failed, fault_of};
use crate::prompts;
use crate::skills::{self, Skills};
use crate::talk::{Pending, Talk};
use crate::trace::Did;
use crate::walk::{Stopped, Walk};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::json;
use service::{
    AgentWork, Asked, CallRequest, Caller, FileInput, OfferedTool, Refused, Run, Service,
    ToolChoice,
};
use std::sync::Arc;
use std::time::Instant;
use types::{
    AgentId, Code, Event, Execution, ExecutionId, Fault, LimitsRequest, TOOL_UNISOLATED, ToolUse,
};

/// As a run of code calls it: the code of one step.
pub(crate) const RUN_PYTHON: &str = "run_python";
/// As an agent calls it.
pub const CODE_EXECUTION: &str = "code_execution";
/// What the tools of skills are.
const SKILL: &str = "skill";
/// Another name of it.
pub const CODE_INTERPRETER: &str = "code_interpreter";

#[derive(Debug, Default)]
pub(crate) struct Toolbox {
    pub(crate) interpreter: Option<Interpreter>,
    /// Absent in a run of code, which has the interpreter alone.
    pub(crate) agent: Option<AgentId>,
    pub(crate) tools: Vec<OfferedTool>,
    pub(crate) skills: Skills,
    pub(crate) steering: ToolChoice,
    /// Whether the model has called anything.
    pub(crate) has_called: bool,
}

/// What came of a call.
pub(crate) enum Came {
    Back(ToolResult),
    /// Somebody has to be asked.
    Waits(Pending),
}

/// Who does what was called.
enum Doer<'a> {
    Code,
    Load,
    Script,
    Tool(&'a OfferedTool),
    Nobody,
}

impl Toolbox {
    /// The interpreter alone.
    pub(crate) fn of_code(interpreter: Interpreter) -> Self {
        Self { interpreter: Some(interpreter), ..Self::default() }
    }

    pub(crate) fn of_agent(
        work: &AgentWork,
        interpreter: Option<Interpreter>,
        skills: Skills,
    ) -> Self {
        Self {
            interpreter,
            agent: Some(work.agent.id),
            tools: work.tools.clone(),
            skills,
            steering: work.orchestration.tool_choice.clone(),
            has_called: false,
        }
    }

    /// What the model is offered now: where it has to choose among some tools, those at first.
    pub(crate) fn offers(&self) -> Vec<Offer> {
        let mut offers = self.all();
        if let ToolChoice::Tools(names) = &self.steering
            && !self.has_called
        {
            offers.retain(|offer| names.contains(&offer.name));
        }
        offers
    }

    fn all(&self) -> Vec<Offer> {
        let code = self.interpreter.as_ref().map(|_| match self.agent {
            Some(_) => agent_code_offer(),
            None => run_python_offer(),
        });
        let tools = self.tools.iter().map(|tool| Offer {
            name: tool.name.clone(),
            description: tool.description.clone(),
            input_schema: tool.input_schema.clone(),
        });
        code.into_iter().chain(tools).chain(self.skills.offers()).collect()
    }

    /// Whoever must call a tool has done so once: it could never answer otherwise.
    pub(crate) fn choice(&self) -> Choice {
        match &self.steering {
            _ if self.has_called => Choice::Auto,
            ToolChoice::Auto => Choice::Auto,
            ToolChoice::Required => Choice::Required,
            ToolChoice::Tools(names) => match &names[..] {
                [name] => Choice::Tool(name.clone()),
                _ => Choice::Required,
            },
        }
    }

    fn doer(&self, name: &str) -> Doer<'_> {
        let code = match self.agent {
            Some(_) => name == CODE_EXECUTION || name == CODE_INTERPRETER,
            None => name == RUN_PYTHON,
        };
        match name {
            _ if code && self.interpreter.is_some() => Doer::Code,
            skills::LOAD if self.has(name) => Doer::Load,
            skills::SCRIPT if self.has(name) && self.interpreter.is_some() => Doer::Script,
            _ => match self.tools.iter().find(|tool| tool.name == name) {
                Some(tool) => Doer::Tool(tool),
                None => Doer::Nobody,
            },
        }
    }

    fn has(&self, name: &str) -> bool {
        self.skills.offers().iter().any(|offer| offer.name == name)
    }

    /// Those that share nothing run side by side. What comes of each is in the conversation as soon
    /// as it is known: the run may be stopped before the others are over.
    pub(crate) async fn call_all(
        &mut self,
        walk: &mut Walk<'_>,
        talk: &mut Talk,
        calls: Vec<ToolCall>,
    ) -> Result<(), Stopped> {
        // None of them is begun if not all of them may be.
        for _ in &calls {
            walk.used.round(&walk.budget)?;
        }
        self.has_called = true;
        let apart = |call: &ToolCall| match self.doer(&call.name) {
            Doer::Tool(tool) => !self.sees_session(tool),
            _ => false,
        };
        let (apart, here): (Vec<ToolCall>, Vec<ToolCall>) = calls.into_iter().partition(apart);
        self.call_apart(walk, talk, &apart).await;
        for call in here {
            talk.begun.push(call.id.clone());
            let came = self.call_here(walk, &talk.messages, call).await?;
            talk.came(came);
        }
        Ok(())
    }

    /// Calls in sandboxes of their own, all at once.
    async fn call_apart(&self, walk: &mut Walk<'_>, talk: &mut Talk, calls: &[ToolCall]) {
        let since = Instant::now();
        let (service, run, caller) = (walk.service, walk.run, &walk.caller.clone());
        let mut under_way: FuturesUnordered<_> = calls
            .iter()
            .filter_map(|call| match self.doer(&call.name) {
                Doer::Tool(tool) => Some((tool, call)),
                _ => None,
            })
            .map(async |(tool, call)| {
                (tool, call, self.call_tool(service, (run, caller), tool, call).await)
            })
            .collect();
        talk.begun.extend(calls.iter().map(|call| call.id.clone()));
        while let Some((tool, call, outcome)) = under_way.next().await {
            talk.came(note(walk, since, tool, call, outcome));
        }
    }

    fn sees_session(&self, tool: &OfferedTool) -> bool {
        tool.in_session && self.interpreter.is_some()
    }

    /// `asked` is what the model that calls was told.
    async fn call_here(
        &mut self,
        walk: &mut Walk<'_>,
        asked: &[Message],
        call: ToolCall,
    ) -> Result<Came, Stopped> {
        let since = Instant::now();
        let (kind, told) = match self.doer(&call.name) {
            Doer::Code => return self.run_code(walk, asked, call).await,
            Doer::Script => match self.skills.script(&call.arguments) {
                Ok((code, files)) => return Ok(self.run_one(walk, call, code, None, files).await),
                Err(wrong) => (SKILL, Told::wrong(Code::ArgsInvalid, wrong)),
            },
            Doer::Load => (SKILL, loaded(self.skills.load(&call.arguments))),
            Doer::Tool(tool) => {
                let outcome =
                    self.call_tool(walk.service, (walk.run, &walk.caller), tool, &call).await;
                let tool = tool.clone();
                return Ok(note(walk, since, &tool, &call, outcome));
            }
            Doer::Nobody => (SKILL, Told::wrong(Code::ToolUnavailable, self.nobody(&call.name))),
        };
        Ok(Came::Back(tell(walk, since, &call, kind, None, told)))
    }

    fn nobody(&self, name: &str) -> String {
        let names: Vec<String> = self.all().into_iter().map(|offer| offer.name).collect();
        let tools = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let said = prompts::fill(prompts::UNKNOWN_TOOL, "name", &format!("{name:?}"));
        prompts::fill(&said, "tools", &tools)
    }

    /// Code as it is, or what is wanted of code that is still to be written.
    async fn run_code(
        &mut self,
        walk: &mut Walk<'_>,
        asked: &[Message],
        call: ToolCall,
    ) -> Result<Came, Stopped> {
        let since = Instant::now();
        let text = |key: &str| call.arguments[key].as_str().map(str::to_owned);
        match (text("code"), text("request").filter(|_| self.agent.is_some())) {
            (Some(code), None) => {
                let step = call.arguments["step"].as_u64();
                let step = step.and_then(|step| usize::try_from(step).ok());
                Ok(self.run_one(walk, call, code, step, Vec::new()).await)
            }
            (None, Some(request)) => {
                let context = text("context");
                let told = self.carry_out(walk, asked, &request, context.as_deref()).await?;
                Ok(Came::Back(tell(walk, since, &call, CODE_EXECUTION, None, told)))
            }
            _ => {
                let wrong = match self.agent {
                    Some(_) => "Give exactly one of `code` and `request`, as text.",
                    None => "`code` is missing: give the code of this step, as text.",
                };
                let told = Told::wrong(Code::ArgsInvalid, wrong.to_owned());
                Ok(Came::Back(tell(walk, since, &call, CODE_EXECUTION, None, told)))
            }
        }
    }

    async fn run_one(
        &mut self,
        walk: &mut Walk<'_>,
        call: ToolCall,
        code: String,
        step: Option<usize>,
        files: Vec<FileInput>,
    ) -> Came {
        let since = Instant::now();
        let Some(interpreter) = &mut self.interpreter else {
            let told = Told::wrong(Code::ToolUnavailable, "No code can be run here.".to_owned());
            return Came::Back(tell(walk, since, &call, CODE_EXECUTION, None, told));
        };
        match interpreter.run(walk, code, step, files).await {
            Ran::Round(told) => Came::Back(result(&call, told)),
            Ran::Waits { approval_id, execution_id } => {
                let (kind, description) = (CODE_EXECUTION.to_owned(), self.about_code(&call.name));
                Came::Waits(Pending { call, approval_id, execution_id, kind, description })
            }
        }
    }

    /// What a call that runs code is for: that of a skill's script, or of code in either name.
    fn about_code(&self, name: &str) -> String {
        let script = self.skills.offers().into_iter().find(|offer| offer.name == name);
        script.unwrap_or_else(agent_code_offer).description
    }

    /// A plan and its rounds inside the run of an agent, in its session and within its budget.
    async fn carry_out(
        &mut self,
        walk: &mut Walk<'_>,
        asked: &[Message],
        request: &str,
        context: Option<&str>,
    ) -> Result<Told, Stopped> {
        let Some(mut lent) = Lent::of(self) else { return Ok(Told::words(String::new())) };
        let (asker, rounds) = (Some(asked.to_vec()), Some(walk.budget.rounds));
        let mut talk = Talk { asker, ..Talk::default() };
        let files = lent.files.clone();
        let task = code::Task { request, context, files: &files, rounds };
        let carried = Box::pin(code::carry_out(walk, &mut lent.tools, &mut talk, task)).await;
        carried.map(|code::Carried { answer, fault }| Told {
            failed: fault.is_some(),
            fault,
            ..Told::words(answer)
        })
    }

    async fn call_tool(
        &self,
        service: &Arc<Service>,
        (run, caller): (&Run, &Caller),
        tool: &OfferedTool,
        call: &ToolCall,
    ) -> Result<Outcome, Refused> {
        let session = self.interpreter.as_ref().filter(|_| tool.in_session);
        let request = CallRequest {
            arguments: call.arguments.clone(),
            agent_id: self.agent,
            sandbox_id: session.map(|interpreter| interpreter.session.sandbox_id),
            files: Vec::new(),
            limits: LimitsRequest::default(),
        };
        let asked = service.call_tool(caller, tool.id, request, run.manner()).await?;
        match asked {
            Asked::Begun(attached) => attached.finished().await.map(Box::new).map(Outcome::Ended),
            Asked::Waiting(execution, _) => Ok(Outcome::Waits(execution)),
        }
    }
}

/// The interpreter of an agent in the hands of one request, which waits for whoever is asked. The
/// agent has it back whatever becomes of that, with what was done.
struct Lent<'a> {
    owner: &'a mut Toolbox,
    tools: Toolbox,
    /// That were brought for the agent.
    files: Vec<String>,
}

impl<'a> Lent<'a> {
    fn of(owner: &'a mut Toolbox) -> Option<Self> {
        let mut interpreter = owner.interpreter.take()?;
        interpreter.patient = true;
        let files = interpreter.files.clone();
        Some(Self { owner, tools: Toolbox::of_code(interpreter), files })
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.owner.interpreter = self.tools.interpreter.take();
        if let Some(interpreter) = &mut self.owner.interpreter {
            interpreter.patient = false;
            // What comes next belongs to no step of this plan.
            interpreter.follow(Vec::new());
        }
    }
}

/// What came of a call of a tool: it is over, or waits for a person.
enum Outcome {
    Ended(Box<Execution>),
    Waits(Box<Execution>),
}

fn note(
    walk: &mut Walk<'_>,
    since: Instant,
    tool: &OfferedTool,
    call: &ToolCall,
    outcome: Result<Outcome, Refused>,
) -> Came {
    match outcome {
        Ok(Outcome::Ended(execution)) => {
            Came::Back(ended(walk, since, call, &tool.kind, Ok(*execution)))
        }
        Ok(Outcome::Waits(execution)) => match execution.approval_id {
            Some(approval_id) => {
                walk.run.tell(Event::Approval { approval_id });
                Came::Waits(Pending {
                    call: call.clone(),
                    approval_id,
                    execution_id: execution.id,
                    kind: tool.kind.clone(),
                    description: tool.description.clone(),
                })
            }
            None => Came::Back(ended(walk, since, call, &tool.kind, Ok(*execution))),
        },
        Err(refused) => Came::Back(ended(walk, since, call, &tool.kind, Err(refused))),
    }
}

/// Tells what came of a tool.
pub(crate) fn ended(
    walk: &mut Walk<'_>,
    since: Instant,
    call: &ToolCall,
    kind: &str,
    ended: Result<Execution, Refused>,
) -> ToolResult {
    match ended {
        Ok(execution) => {
            let warned = execution.warnings.iter().find(|it| it.code == TOOL_UNISOLATED);
            if let Some(warning) = warned {
                walk.unisolated.insert(call.name.clone(), warning.clone());
            }
            let observed = Observed::of(&execution);
            let told = Told {
                text: observed.of_tool(),
                failed: failed(execution.status),
                fault: fault_of(&execution),
                computed: observed.has_number(),
            };
            let told = tell(walk, since, call, kind, Some(execution.id), told);
            walk.made(&execution.files_out, execution.sandbox_id);
            told
        }
        Err(refused) => {
            let text = Observed::refused(&refused.fault).of_tool();
            let told = Told { text, failed: true, fault: Some(*refused.fault), computed: false };
            tell(walk, since, call, kind, None, told)
        }
    }
}

pub(crate) fn tell(
    walk: &mut Walk<'_>,
    since: Instant,
    call: &ToolCall,
    kind: &str,
    execution_id: Option<ExecutionId>,
    told: Told,
) -> ToolResult {
    let tool = ToolUse {
        id: call.id.clone(),
        name: call.name.clone(),
        kind: kind.to_owned(),
        arguments: call.arguments.clone(),
        execution_id,
        result: told.text.clone(),
        failed: told.failed,
    };
    walk.run.tell(Event::Tool(tool.clone()));
    walk.scribe.did(since, Did::Called { tool });
    walk.came(&told);
    result(call, told)
}

/// A skill that could not be loaded would have computed nothing.
fn loaded(loaded: Result<String, String>) -> Told {
    match loaded {
        Ok(text) => Told::words(text),
        Err(text) => Told { failed: true, ..Told::words(text) },
    }
}

pub(crate) fn result(call: &ToolCall, told: Told) -> ToolResult {
    let Told { text, failed, .. } = told;
    ToolResult { call_id: call.id.clone(), name: call.name.clone(), text, failed }
}

/// Whoever has to call a tool has it.
pub(crate) fn check_choice(work: &AgentWork, skills: &Skills) -> Result<(), Fault> {
    let code = work.code_execution.enabled.then(|| CODE_EXECUTION.to_owned());
    let tools = work.tools.iter().map(|tool| tool.name.clone());
    let skills = skills.offers().into_iter().map(|offer| offer.name);
    let known: Vec<String> = code.into_iter().chain(tools).chain(skills).collect();
    let problem = match &work.orchestration.tool_choice {
        ToolChoice::Auto => None,
        ToolChoice::Required if known.is_empty() => {
            Some("a tool, and the agent has none".to_owned())
        }
        ToolChoice::Required => None,
        ToolChoice::Tools(names) => names
            .iter()
            .find(|name| !known.contains(name))
            .map(|name| format!("{name:?}, and the agent has no such tool")),
    };
    match problem {
        None => Ok(()),
        Some(problem) => {
            let message = format!("tool_choice asks for {problem}");
            let hint = format!("the tools of the agent are: {}", known.join(", "));
            Err(Fault::new(Code::ToolUnavailable, message).hint(hint))
        }
    }
}

fn run_python_offer() -> Offer {
    Offer {
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

fn agent_code_offer() -> Offer {
    Offer {
        name: CODE_EXECUTION.to_owned(),
        description: "Run Python in the session of this conversation: `code` as it is, or \
                      `request` in plain words to have it planned and written."
            .to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "code": {"type": "string", "description": "Python to run now."},
                "request": {"type": "string", "description": "What is wanted, in plain words."},
                "context": {"type": "string", "description": "What to keep in mind for a request."},
            },
            "additionalProperties": false,
        }),
    }
}
