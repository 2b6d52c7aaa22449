//! What a client can ask, and who answers it.

use crate::answer::{Shown, refused};
use crate::approval::{self, Called, Question};
use crate::asker::Asker;
use crate::questions::{self, Questions};
use crate::run::{Came, see};
use crate::{code, files, python, resources, results, sessions, skills, task, tools};
use agent::Agents;
use futures_util::StreamExt;
use rmcp::model::*;
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler};
use serde_json::Value;
use service::{Asked, Attached, CallRequest, Caller, Manner, Refused, Service};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use types::Execution;

const INSTRUCTIONS: &str = "Python in an isolated sandbox: compute with execute_python instead of guessing. \
Pass files by URL and never paste their content. Read the traceback of a failure, correct the code and run \
it again, at most twice. Never invent a result.";

/// Between two looks whether a client that waits for news is still there.
const STILL_THERE: Duration = Duration::from_secs(30);

/// How this door behaves.
#[derive(Debug, Clone)]
pub struct Manners {
    /// A call that takes longer becomes a task, for clients that take tasks.
    pub task_after: Duration,
    /// Where people find what a client cannot show; absent if there is no such place.
    pub address: Option<String>,
}

/// One for a client, or one for each request.
#[derive(Debug)]
pub struct Door {
    service: Arc<Service>,
    agents: Arc<Agents>,
    /// The only one who can be asking, where there is only one.
    always: Option<Asker>,
    manners: Manners,
    /// Its client is told of changes already.
    announcing: AtomicBool,
}

/// For another client.
impl Clone for Door {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.agents), self.always.clone(), self.manners.clone())
    }
}

type Context = RequestContext<RoleServer>;

impl Door {
    pub fn new(agents: Arc<Agents>, always: Option<Asker>, manners: Manners) -> Self {
        let (service, announcing) = (Arc::clone(agents.service()), AtomicBool::new(false));
        Self { service, agents, always, manners, announcing }
    }

    fn asker(&self, context: &Context) -> Result<Asker, ErrorData> {
        Asker::of(&context.extensions, self.always.as_ref())
    }

    /// For a client that can come back for what it was promised.
    fn task_after(&self, context: &Context) -> Option<Duration> {
        let can = context.client_capabilities().is_some_and(|can| can.supports_tasks());
        can.then_some(self.manners.task_after)
    }

    /// A run that may become a task is on record before it starts: its id is told while it runs.
    fn manner(&self, asker: &Asker, context: &Context) -> Manner {
        let announced = self.task_after(context).is_some();
        Manner { announced, place: asker.place.clone(), ..Manner::default() }
    }

    async fn python(
        &self,
        asker: &Asker,
        script: python::Script,
        context: &Context,
    ) -> Result<CallToolResponse, Refused> {
        let python::Script { session, request, visuals } = script;
        let manner = self.manner(asker, context);
        let asked = self.service.execute(&asker.caller, session, request, manner).await?;
        self.see(asker, asked, Shown::Answer { visuals }, context).await
    }

    async fn code(
        &self,
        asker: &Asker,
        given: Option<JsonObject>,
        context: &Context,
    ) -> Result<CallToolResponse, Refused> {
        let request = code::read(given)?;
        let manner = self.manner(asker, context);
        let attached = self.agents.code_execution(&asker.caller, request, manner).await?;
        let (service, address) = (&self.service, self.manners.address.as_deref());
        let questions = Questions { service, asker, context, address, run: attached.id() };
        let (asks, later) = (questions.put(attached.follow()), attached.follow());
        let came = see(attached, context, self.task_after(context), asks).await;
        if let (Came::Task(run), None) = (&came, address) {
            let (service, caller) = (Arc::clone(service), Arc::clone(&asker.caller));
            tokio::spawn(questions::end_if_it_asks(service, caller, run.id, later));
        }
        Ok(self.show(asker, came, Shown::Code).await)
    }

    async fn tool_of_the_workspace(
        &self,
        asker: &Asker,
        tool: types::Tool,
        given: Option<JsonObject>,
        context: &Context,
    ) -> Result<CallToolResponse, Refused> {
        let call = CallRequest {
            arguments: Value::Object(given.unwrap_or_default()),
            agent_id: None,
            sandbox_id: None,
            files: Vec::new(),
            limits: types::LimitsRequest::default(),
        };
        let manner = self.manner(asker, context);
        let asked = self.service.call_tool(&asker.caller, tool.id, call, manner).await?;
        self.see(asker, asked, Shown::Value, context).await
    }

    async fn see(
        &self,
        asker: &Asker,
        asked: Asked,
        shown: Shown,
        context: &Context,
    ) -> Result<CallToolResponse, Refused> {
        match asked {
            Asked::Begun(attached) => Ok(self.finish(asker, attached, shown, context).await),
            Asked::Waiting(execution, _) => {
                let question = Question { service: &self.service, asker, shown, context };
                question.ask(&execution, self.manners.address.as_deref()).await
            }
        }
    }

    async fn finish(
        &self,
        asker: &Asker,
        attached: Attached,
        shown: Shown,
        context: &Context,
    ) -> CallToolResponse {
        let never_asks = std::future::pending();
        let came = see(attached, context, self.task_after(context), never_asks).await;
        self.show(asker, came, shown).await
    }

    async fn show(&self, asker: &Asker, came: Came, shown: Shown) -> CallToolResponse {
        match came {
            Came::Ended(Ok(record)) => {
                let mut result = shown.show(&record);
                if shown.has_visuals() {
                    let caller = &asker.caller;
                    result
                        .content
                        .extend(resources::pictures(&self.service, caller, &record).await);
                }
                result.into()
            }
            Came::Ended(Err(problem)) | Came::Stuck(problem) => refused(&problem).into(),
            Came::Task(record) => task::begun(&record).into(),
            // Nobody hears it.
            Came::Cancelled(id) => {
                CallToolResult::error(vec![ContentBlock::text(format!("{id} was cancelled"))])
                    .into()
            }
        }
    }

    /// Carries out the answer that a client of the newer era has come back with, if it has one: to a
    /// question that was about this very call.
    async fn answered(
        &self,
        asker: &Asker,
        request: &CallToolRequestParams,
        called: Called<'_>,
        context: &Context,
    ) -> Result<Option<Result<CallToolResponse, Refused>>, ErrorData> {
        let (state, responses) = (&request.request_state, &request.input_responses);
        let Some((ticket, answer)) = approval::brought(state.as_deref(), responses.as_ref())?
        else {
            return Ok(None);
        };
        let asked = self.service.asked_back(&asker.caller, ticket);
        let asked = asked.filter(|asked| called.is_of(asked)).ok_or_else(approval::foreign)?;
        let question = Question { service: &self.service, asker, shown: called.shown(), context };
        Ok(Some(question.go_on(asked, answer).await))
    }

    async fn call_python(
        &self,
        asker: &Asker,
        request: &CallToolRequestParams,
        context: &Context,
    ) -> Result<Result<CallToolResponse, Refused>, ErrorData> {
        let script = match python::Script::read(request.arguments.clone()) {
            Ok(script) => script,
            Err(fault) => return Ok(Err(fault.into())),
        };
        match self.answered(asker, request, Called::Python(&script), context).await? {
            Some(answer) => Ok(answer),
            None => Ok(self.python(asker, script, context).await),
        }
    }

    async fn call_theirs(
        &self,
        asker: &Asker,
        request: &CallToolRequestParams,
        context: &Context,
    ) -> Result<Result<CallToolResponse, Refused>, ErrorData> {
        let found = self.service.callable_tool(&asker.caller, &request.name);
        let found = found.map_err(|problem| failed(&problem))?;
        let tool = found.ok_or_else(|| unknown(&request.name))?;
        let given = request.arguments.clone();
        let called = Called::Tool(&tool, given.as_ref());
        match self.answered(asker, request, called, context).await? {
            Some(answer) => Ok(answer),
            None => Ok(self.tool_of_the_workspace(asker, tool, given, context).await),
        }
    }

    async fn task(&self, id: &str, context: &Context) -> Result<Execution, ErrorData> {
        let asker = self.asker(context)?;
        let found = self.service.execution(&asker.caller, task::id(id)?).await;
        found.map_err(|_| task::missing(id))
    }

    async fn listed(&self, asker: &Asker) -> Result<Vec<Tool>, Refused> {
        let mut listed = vec![python::tool(), sessions::tool(), results::tool()];
        listed.extend(files::tools());
        if self.agents.has_models() {
            listed.push(code::tool());
        }
        let ours: Vec<_> = listed.iter().map(|tool| tool.name.clone()).collect();
        let theirs = self.service.callable_tools(&asker.caller).await?.into_iter();
        listed.extend(
            theirs.filter(|tool| !ours.contains(&tool.name.as_str().into())).map(tools::shown),
        );
        // The same list is the same text, which a client may have paid for already.
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(listed)
    }
}

fn unknown(name: &str) -> ErrorData {
    ErrorData::invalid_params(format!("there is no tool {name:?}"), None)
}

fn failed(refused: &Refused) -> ErrorData {
    ErrorData::internal_error(refused.fault.message.clone(), None)
}

/// Tells a client that it should list the tools again, until it has gone.
async fn announce(service: Arc<Service>, caller: Arc<Caller>, peer: Peer<RoleServer>) {
    let mut news = std::pin::pin!(service.tool_changes(&caller));
    while !peer.is_transport_closed() {
        let Ok(changed) = tokio::time::timeout(STILL_THERE, news.next()).await else { continue };
        if changed.is_none()
            || service.still(&caller).is_none()
            || peer.notify_tool_list_changed().await.is_err()
        {
            return;
        }
    }
}

impl ServerHandler for Door {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .enable_prompts()
            .enable_tasks()
            .build();
        let mut info = ServerConfig::new(capabilities);
        info.server_info =
            Implementation::new("belljar", env!("CARGO_PKG_VERSION")).with_title("Belljar");
        info.instructions = Some(INSTRUCTIONS.to_owned());
        info
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        let asker = self.asker(&context)?;
        let tools = self.listed(&asker).await.map_err(|problem| failed(&problem))?;
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let asker = self.asker(&context)?;
        let (service, caller) = (&self.service, &asker.caller);
        let given = request.arguments.clone();
        let answer = match request.name.as_ref() {
            python::NAME => self.call_python(&asker, &request, &context).await?,
            sessions::CREATE => sessions::create(service, caller, given).await.map(Into::into),
            results::GET => results::get(service, caller, given).await.map(Into::into),
            files::LIST => files::list(service, caller, given).await.map(Into::into),
            files::READ => files::read(service, caller, given).await.map(Into::into),
            files::WRITE => files::write(service, caller, given).await.map(Into::into),
            name if self.agents.has_models() && code::is_named(name) => {
                self.code(&asker, given, &context).await
            }
            _ => self.call_theirs(&asker, &request, &context).await?,
        };
        Ok(answer.unwrap_or_else(|problem| refused(&problem).into()))
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(skills::resources()))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(vec![resources::template()]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let asker = self.asker(&context)?;
        if let Some(contents) = skills::read(&request.uri) {
            return Ok(ReadResourceResult::new(vec![contents]).into());
        }
        resources::read(&self.service, &asker.caller, &request.uri).await.map(Into::into)
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(skills::prompts()))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        skills::prompt(&request.name).map(Into::into)
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: Context,
    ) -> Result<GetTaskResult, ErrorData> {
        let execution = self.task(&request.task_id, &context).await?;
        Ok(GetTaskResult::new(task::detailed(&execution)))
    }

    /// No task of ours asks for anything, so every answer is one to be ignored.
    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: Context,
    ) -> Result<(), ErrorData> {
        self.task(&request.task_id, &context).await.map(drop)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: Context,
    ) -> Result<(), ErrorData> {
        let asker = self.asker(&context)?;
        let id = task::id(&request.task_id)?;
        let cancelled = self.service.cancel(&asker.caller, id).await;
        cancelled.map(drop).map_err(|_| task::missing(&request.task_id))
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        if self.announcing.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Ok(asker) = Asker::of(&context.extensions, self.always.as_ref()) {
            // Without their place: listening is no request that is under way.
            tokio::spawn(announce(Arc::clone(&self.service), asker.caller, context.peer));
        }
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let asker = self.asker(context.request_context())?;
        let mut news = std::pin::pin!(self.service.tool_changes(&asker.caller));
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                changed = news.next() => {
                    if changed.is_none() || context.sink().notify_tool_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }
}
