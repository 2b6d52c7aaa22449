//! The MCP server: dispatches the requests of a client.

use crate::approval::{self, ApprovalElicitation, CalledTool};
use crate::caller::message_caller;
use crate::run_elicitations::{self, RunElicitations};
use crate::run_result::{ResultFormat, error_result};
use crate::wait::{WaitOutcome, wait_for_execution};
use crate::{
    code_execution, create_session, execute_python, files, get_result, resources, skills, task,
    tools,
};
use agent::Agents;
use futures_util::StreamExt;
use rmcp::model::*;
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler};
use serde_json::Value;
use service::{
    Caller, ExecutionHandle, ExecutionRecord, RequestCaller, RequestError, RunRequest, RunTarget,
    Service, SubmitOptions, Submitted,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const INSTRUCTIONS: &str = "Python in an isolated sandbox: compute with execute_python instead of guessing. \
Pass files by URL and never paste their content. Read the traceback of a failure, correct the code and run \
it again, at most twice. Never invent a result.";

/// Interval between checks whether a subscribed client is still connected.
const LIVENESS_INTERVAL: Duration = Duration::from_secs(30);

/// Options of the MCP server.
#[derive(Debug, Clone)]
pub struct McpOptions {
    /// A call that takes longer becomes a task, for clients that support tasks.
    pub task_after: Duration,
    /// URL where users answer approvals that a client cannot show; absent if there is none.
    pub base_url: Option<String>,
}

/// One instance per client, or per request.
#[derive(Debug)]
pub struct McpServer {
    service: Arc<Service>,
    agents: Arc<Agents>,
    /// The caller, if the process has only one.
    fixed_caller: Option<RequestCaller>,
    options: McpOptions,
    /// Whether the client is already notified of tool changes.
    notifies_tool_changes: AtomicBool,
}

/// Creates an instance for another client.
impl Clone for McpServer {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.agents), self.fixed_caller.clone(), self.options.clone())
    }
}

type Context = RequestContext<RoleServer>;

impl McpServer {
    pub fn new(
        agents: Arc<Agents>,
        fixed_caller: Option<RequestCaller>,
        options: McpOptions,
    ) -> Self {
        let (service, notifies_tool_changes) =
            (Arc::clone(agents.service()), AtomicBool::new(false));
        Self { service, agents, fixed_caller, options, notifies_tool_changes }
    }

    fn caller(&self, context: &Context) -> Result<RequestCaller, ErrorData> {
        message_caller(&context.extensions, self.fixed_caller.as_ref())
    }

    /// The delay after which a call becomes a task; `None` if the client does not support tasks.
    fn task_after(&self, context: &Context) -> Option<Duration> {
        let can = context.client_capabilities().is_some_and(|can| can.supports_tasks());
        can.then_some(self.options.task_after)
    }

    /// A run that may become a task is recorded before it starts, since its id is sent while it
    /// runs.
    fn submit_options(&self, caller: &RequestCaller, context: &Context) -> SubmitOptions {
        let announced = self.task_after(context).is_some();
        SubmitOptions {
            announce_id: announced,
            concurrency_permit: caller.permit.clone(),
            ..SubmitOptions::default()
        }
    }

    async fn run_python(
        &self,
        caller: &RequestCaller,
        script: execute_python::ExecutePythonCall,
        context: &Context,
    ) -> Result<CallToolResponse, RequestError> {
        let execute_python::ExecutePythonCall { session, request, visuals } = script;
        let options = self.submit_options(caller, context);
        let submitted = self.service.run(caller, request.into_run(session), options).await?;
        self.await_submitted(caller, submitted, ResultFormat::Python { visuals }, context).await
    }

    async fn run_code_execution(
        &self,
        caller: &RequestCaller,
        arguments: Option<JsonObject>,
        context: &Context,
    ) -> Result<CallToolResponse, RequestError> {
        let request = code_execution::parse_request(arguments)?;
        let options = self.submit_options(caller, context);
        let handle = self.agents.code_execution(caller, request, options).await?;
        let (service, address) = (&self.service, self.options.base_url.as_deref());
        let elicitations =
            RunElicitations { service, caller, context, base_url: address, run: handle.id() };
        let (elicit_all, later) = (elicitations.elicit_all(handle.subscribe()), handle.subscribe());
        let outcome =
            wait_for_execution(handle, context, self.task_after(context), elicit_all).await;
        if let (WaitOutcome::Task(run), None) = (&outcome, address) {
            let (service, caller) = (Arc::clone(service), Arc::clone(&caller.caller));
            tokio::spawn(run_elicitations::cancel_if_approval_needed(
                service, caller, run.id, later,
            ));
        }
        Ok(self.render_outcome(caller, outcome, ResultFormat::Code).await)
    }

    async fn run_workspace_tool(
        &self,
        caller: &RequestCaller,
        tool: types::Tool,
        arguments: Option<JsonObject>,
        context: &Context,
    ) -> Result<CallToolResponse, RequestError> {
        let arguments = Value::Object(arguments.unwrap_or_default());
        let request = RunRequest {
            target: RunTarget::Tool { id: tool.id, agent: None, arguments, test: false },
            session: None,
            files: Vec::new(),
            limits: types::LimitsRequest::default(),
        };
        let options = self.submit_options(caller, context);
        let submitted = self.service.run(caller, request, options).await?;
        self.await_submitted(caller, submitted, ResultFormat::ToolValue, context).await
    }

    async fn await_submitted(
        &self,
        caller: &RequestCaller,
        submitted: Submitted,
        format: ResultFormat,
        context: &Context,
    ) -> Result<CallToolResponse, RequestError> {
        match submitted {
            Submitted::Started(handle) => {
                Ok(self.await_execution(caller, handle, format, context).await)
            }
            Submitted::AwaitingApproval(handle) => {
                let elicitation =
                    ApprovalElicitation { service: &self.service, caller, format, context };
                elicitation.elicit(handle, self.options.base_url.as_deref()).await
            }
        }
    }

    async fn await_execution(
        &self,
        caller: &RequestCaller,
        handle: ExecutionHandle,
        format: ResultFormat,
        context: &Context,
    ) -> CallToolResponse {
        let never = std::future::pending();
        let outcome = wait_for_execution(handle, context, self.task_after(context), never).await;
        self.render_outcome(caller, outcome, format).await
    }

    async fn render_outcome(
        &self,
        caller: &RequestCaller,
        outcome: WaitOutcome,
        format: ResultFormat,
    ) -> CallToolResponse {
        match outcome {
            WaitOutcome::Ended(Ok(record)) => {
                let mut result = format.render(&record, &self.service.file_urls(caller));
                if format.has_visuals() {
                    result
                        .content
                        .extend(resources::saved_images(&self.service, caller, &record).await);
                }
                result.into()
            }
            WaitOutcome::Ended(Err(problem)) | WaitOutcome::Blocked(problem) => {
                error_result(&problem).into()
            }
            WaitOutcome::Task(record) => task::create_task_result(&record).into(),
            // No client reads this response.
            WaitOutcome::Cancelled(id) => {
                CallToolResult::error(vec![ContentBlock::text(format!("{id} was cancelled"))])
                    .into()
            }
        }
    }

    /// Applies the answer in a repeated call of a client of the current revision, if there is one.
    /// The answer must belong to an approval of exactly this call.
    async fn resume_approval(
        &self,
        caller: &RequestCaller,
        request: &CallToolRequestParams,
        called: CalledTool<'_>,
        context: &Context,
    ) -> Result<Option<Result<CallToolResponse, RequestError>>, ErrorData> {
        let (state, responses) = (&request.request_state, &request.input_responses);
        let Some((token, answer)) = approval::resumed_answer(state.as_deref(), responses.as_ref())?
        else {
            return Ok(None);
        };
        let approval = self.service.approval_from_elicitation(caller, token);
        let approval = approval
            .filter(|approval| called.matches(approval))
            .ok_or_else(approval::invalid_state_error)?;
        let elicitation = ApprovalElicitation {
            service: &self.service,
            caller,
            format: called.result_format(),
            context,
        };
        let record = self.service.wait_for_execution(caller, approval.execution_id);
        let execution = async { record.await.map(|record| record.execution) };
        Ok(Some(elicitation.apply_outcome(&approval, answer, execution).await))
    }

    async fn call_python(
        &self,
        caller: &RequestCaller,
        request: &CallToolRequestParams,
        context: &Context,
    ) -> Result<Result<CallToolResponse, RequestError>, ErrorData> {
        let script = match execute_python::ExecutePythonCall::parse(request.arguments.clone()) {
            Ok(script) => script,
            Err(error) => return Ok(Err(error.into())),
        };
        match self.resume_approval(caller, request, CalledTool::Python(&script), context).await? {
            Some(answer) => Ok(answer),
            None => Ok(self.run_python(caller, script, context).await),
        }
    }

    async fn call_workspace_tool(
        &self,
        caller: &RequestCaller,
        request: &CallToolRequestParams,
        context: &Context,
    ) -> Result<Result<CallToolResponse, RequestError>, ErrorData> {
        let found = self.service.callable_tool(caller, &request.name);
        let found = found.map_err(|problem| internal_error(&problem))?;
        let tool = found.ok_or_else(|| unknown_tool_error(&request.name))?;
        let arguments = request.arguments.clone();
        let called = CalledTool::Tool(&tool, arguments.as_ref());
        match self.resume_approval(caller, request, called, context).await? {
            Some(answer) => Ok(answer),
            None => Ok(self.run_workspace_tool(caller, tool, arguments, context).await),
        }
    }

    async fn find_task(&self, id: &str, context: &Context) -> Result<ExecutionRecord, ErrorData> {
        let caller = self.caller(context)?;
        let found = self.service.execution(&caller, task::parse_task_id(id)?).await;
        found.map_err(|_| task::task_not_found(id))
    }

    fn built_in_tools(&self) -> Vec<Tool> {
        let mut tools = vec![execute_python::tool(), create_session::tool(), get_result::tool()];
        tools.extend(files::tools());
        if self.agents.has_models() {
            tools.push(code_execution::tool());
        }
        tools
    }

    /// A page of the tools after a name. The first page also has the built-in tools.
    async fn list_tools_after(
        &self,
        caller: &RequestCaller,
        after: Option<String>,
    ) -> Result<ListToolsResult, RequestError> {
        let mut tools = self.built_in_tools();
        let own_names: Vec<_> = tools.iter().map(|tool| tool.name.clone()).collect();
        if after.is_some() {
            tools.clear();
        }
        let page = self.service.callable_tools(caller, after).await?;
        let workspace_tools = page.tools.into_iter();
        tools.extend(
            workspace_tools
                .filter(|tool| !own_names.contains(&tool.name.as_str().into()))
                .map(tools::tool_definition),
        );
        // A stable order gives equal text, which a client may have in its prompt cache.
        tools.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(ListToolsResult { next_cursor: page.next, ..ListToolsResult::with_all_items(tools) })
    }
}

fn unknown_tool_error(name: &str) -> ErrorData {
    ErrorData::invalid_params(format!("tool {name:?} not found"), None)
}

fn internal_error(error: &RequestError) -> ErrorData {
    ErrorData::internal_error(error.error.message.clone(), None)
}

/// Notifies a client of tool changes until it disconnects.
async fn notify_tool_changes(service: Arc<Service>, caller: Arc<Caller>, peer: Peer<RoleServer>) {
    let mut changes = std::pin::pin!(service.tool_changes(&caller));
    while !peer.is_transport_closed() {
        let Ok(changed) = tokio::time::timeout(LIVENESS_INTERVAL, changes.next()).await else {
            continue;
        };
        if changed.is_none()
            || service.refresh_caller(&caller).is_none()
            || peer.notify_tool_list_changed().await.is_err()
        {
            return;
        }
    }
}

impl ServerHandler for McpServer {
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
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        let caller = self.caller(&context)?;
        let after = request.and_then(|request| request.cursor);
        let listed = self.list_tools_after(&caller, after).await;
        listed.map_err(|problem| internal_error(&problem))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let caller = self.caller(&context)?;
        let service = &self.service;
        let arguments = request.arguments.clone();
        let answer = match request.name.as_ref() {
            execute_python::NAME => self.call_python(&caller, &request, &context).await?,
            create_session::CREATE => {
                create_session::create_session(service, &caller, arguments).await.map(Into::into)
            }
            get_result::GET => {
                get_result::get_result(service, &caller, arguments).await.map(Into::into)
            }
            files::LIST => files::list(service, &caller, arguments).await.map(Into::into),
            files::READ => files::read(service, &caller, arguments).await.map(Into::into),
            files::WRITE => files::write(service, &caller, arguments).await.map(Into::into),
            name if self.agents.has_models() && code_execution::is_code_execution(name) => {
                self.run_code_execution(&caller, arguments, &context).await
            }
            _ => self.call_workspace_tool(&caller, &request, &context).await?,
        };
        Ok(answer.unwrap_or_else(|problem| error_result(&problem).into()))
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
        let caller = self.caller(&context)?;
        if let Some(contents) = skills::read_file(&request.uri) {
            return Ok(ReadResourceResult::new(vec![contents]).into());
        }
        resources::read_resource(&self.service, &caller, &request.uri).await.map(Into::into)
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
        skills::get_prompt(&request.name).map(Into::into)
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: Context,
    ) -> Result<GetTaskResult, ErrorData> {
        let record = self.find_task(&request.task_id, &context).await?;
        let caller = self.caller(&context)?;
        let urls = self.service.file_urls(&caller);
        Ok(GetTaskResult::new(task::detailed_task(&record.execution, &urls)))
    }

    /// No task of Belljar requests input, so every answer is ignored.
    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: Context,
    ) -> Result<(), ErrorData> {
        self.find_task(&request.task_id, &context).await.map(drop)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: Context,
    ) -> Result<(), ErrorData> {
        let caller = self.caller(&context)?;
        let id = task::parse_task_id(&request.task_id)?;
        let cancelled = self.service.cancel_execution(&caller, id).await;
        cancelled.map(drop).map_err(|_| task::task_not_found(&request.task_id))
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        if self.notifies_tool_changes.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Ok(caller) = message_caller(&context.extensions, self.fixed_caller.as_ref()) {
            // Without the rate-limit permit: a subscription is no request in flight.
            tokio::spawn(notify_tool_changes(
                Arc::clone(&self.service),
                caller.caller,
                context.peer,
            ));
        }
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let caller = self.caller(context.request_context())?;
        let mut changes = std::pin::pin!(self.service.tool_changes(&caller));
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                changed = changes.next() => {
                    if changed.is_none() || context.sink().notify_tool_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }
}
