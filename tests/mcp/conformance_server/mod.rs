//! Fixtures that the official conformance suite calls by name. They wrap the real MCP server, which
//! handles everything else.
//!
//! Most fixtures are Python tools of the workspace, so that the suite tests what users have. The
//! others are parts of the protocol that Belljar itself does not use. No shipped binary has them.

#![expect(deprecated, reason = "the suite tests what is on its way out of the protocol, too")]

mod content;
mod input;
mod legacy;
mod prompts;
mod python_tools;
mod resources;
mod tasks;

use agent::Agents;
use input::{InputRound, RetryInput};
use mcp::{McpOptions, McpServer};
use rmcp::model::*;
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::task_manager::TaskManager;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use service::{RequestCaller, RequestError, Service, ToolChange};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Triggers a tools-changed notification by changing a tool.
const TRIGGER_TOOL_CHANGE: &str = "test_trigger_tool_change";

type Context = RequestContext<RoleServer>;

#[derive(Clone)]
pub(crate) struct ConformanceServer {
    service: Arc<Service>,
    caller: RequestCaller,
    server: McpServer,
    /// The same server, for tools that must be tasks from the start.
    task_server: McpServer,
    /// Tasks that request input, and one that fails: no Python run does either.
    tasks: TaskManager,
}

impl ConformanceServer {
    /// Adds the tools to the workspace of the only caller.
    pub(crate) async fn new(
        agents: Arc<Agents>,
        caller: RequestCaller,
        manners: McpOptions,
    ) -> Result<Self, RequestError> {
        let service = Arc::clone(agents.service());
        python_tools::add_tools(&service, &caller).await?;
        let hasty = McpOptions { task_after: Duration::ZERO, ..manners.clone() };
        let server = |manners| McpServer::new(Arc::clone(&agents), Some(caller.clone()), manners);
        let (server, hasty) = (server(manners), server(hasty));
        Ok(Self { service, caller, server, task_server: hasty, tasks: TaskManager::new() })
    }

    /// Writes a tool again unchanged, which counts as a change.
    async fn trigger_tool_change(&self) -> Result<CallToolResponse, ErrorData> {
        let (service, caller) = (&self.service, &self.caller);
        let failed = |refused: RequestError| ErrorData::internal_error(refused.error.message, None);
        let tool = service.callable_tool(caller, python_tools::SIMPLE_TEXT).await;
        let tool = tool.map_err(failed)?;
        let tool = tool.ok_or_else(|| ErrorData::internal_error("there is no tool", None))?;
        service.change_tool(caller, tool.id, ToolChange::default()).await.map_err(failed)?;
        Ok(CallToolResult::success(vec![ContentBlock::text("changed")]).into())
    }

    /// Elicits input first, then runs a task.
    async fn elicit_then_run(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        match input::next_round(input::NAME_FIRST, RetryInput::from_tool_call(&request), &context)?
        {
            InputRound::InputRequired(required) => Ok(required.into()),
            InputRound::Complete(answers) => {
                let call = tasks::greeting_call(&answers);
                self.task_server.call_tool(call, context).await
            }
        }
    }
}

impl fmt::Debug for ConformanceServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fixtures").field("server", &self.server).finish_non_exhaustive()
    }
}

impl ServerHandler for ConformanceServer {
    fn get_info(&self) -> ServerConfig {
        let mut info = self.server.get_info();
        let can = &mut info.capabilities;
        can.logging = Some(JsonObject::default());
        can.completions = Some(JsonObject::default());
        if let Some(resources) = &mut can.resources {
            resources.subscribe = Some(true);
        }
        info
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        python_tools::with_header(name)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut listed = self.server.list_tools(request, context).await?;
        listed.tools = listed.tools.into_iter().map(python_tools::apply_suite_schema).collect();
        let names = [TRIGGER_TOOL_CHANGE]
            .iter()
            .chain(content::NAMES)
            .chain(legacy::NAMES)
            .chain(tasks::NAMES);
        let names = names.copied().chain(input::tool_names());
        let open = serde_json::json!({"type": "object"});
        let tool =
            |name| Tool::new(name, "Of the conformance suite.", rmcp::model::object(open.clone()));
        listed.tools.extend(names.map(tool));
        Ok(listed)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.as_ref();
        if tasks::NEED_TASKS.contains(&name) {
            tasks::require_task_support(&context)?;
        }
        if let Some(made) = content::content_result(name) {
            return Ok(made.into());
        }
        if let Some(rounds) = input::rounds(name) {
            return Ok(
                input::next_round(rounds, RetryInput::from_tool_call(&request), &context)?.into()
            );
        }
        if let Some(task) = tasks::start_task(&self.tasks, name) {
            return Ok(CreateTaskResult::new(task).into());
        }
        match name {
            TRIGGER_TOOL_CHANGE => self.trigger_tool_change().await,
            tasks::ELICITS_THEN_TASK => self.elicit_then_run(request, context).await,
            _ if legacy::NAMES.contains(&name) => legacy::call(&request, &context).await,
            _ if python_tools::ARE_TASKS.contains(&name) => {
                self.task_server.call_tool(request, context).await
            }
            _ => self.server.call_tool(request, context).await,
        }
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        let mut listed = self.server.list_resources(request, context).await?;
        listed.resources.extend(resources::list_resources());
        Ok(listed)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let mut listed = self.server.list_resource_templates(request, context).await?;
        listed.resource_templates.push(resources::template());
        Ok(listed)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        match resources::read_resource(&request.uri) {
            Some(contents) => Ok(ReadResourceResult::new(vec![contents]).into()),
            None => self.server.read_resource(request, context).await,
        }
    }

    async fn subscribe(&self, _: SubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(&self, _: UnsubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        let mut listed = self.server.list_prompts(request, context).await?;
        listed.prompts.extend(prompts::list_prompts());
        Ok(listed)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        match prompts::get_prompt(&request, &context)? {
            Some(prompt) => Ok(prompt),
            None => self.server.get_prompt(request, context).await,
        }
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: Context,
    ) -> Result<CompleteResult, ErrorData> {
        let values = prompts::completions_of(&request.argument.value);
        let values =
            CompletionInfo::new(values).map_err(|error| ErrorData::internal_error(error, None))?;
        Ok(CompleteResult::new(values))
    }

    async fn set_level(&self, _: SetLevelRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: Context,
    ) -> Result<GetTaskResult, ErrorData> {
        match self.tasks.get_task(&request.task_id) {
            Ok(task) => Ok(GetTaskResult::new(task)),
            Err(_) => self.server.get_task(request, context).await,
        }
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: Context,
    ) -> Result<(), ErrorData> {
        match self.tasks.update_task(&request.task_id, request.input_responses.clone()) {
            Ok(()) => Ok(()),
            Err(_) => self.server.update_task(request, context).await,
        }
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: Context,
    ) -> Result<(), ErrorData> {
        match self.tasks.cancel_task(&request.task_id) {
            Ok(()) => Ok(()),
            Err(_) => self.server.cancel_task(request, context).await,
        }
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.server.on_initialized(context).await;
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        self.server.accepted_subscription_filter(requested)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.server.listen(context).await
    }
}
