//! What the official conformance suite calls by name, in front of the real door, which answers
//! everything else.
//!
//! Most of it is tools of the workspace, in Python, so that the suite judges what users have. The
//! rest are parts of the protocol that Belljar itself has no use for. A server never has this.

#![expect(deprecated, reason = "the suite tests what is on its way out of the protocol, too")]

mod content;
mod input;
mod older;
mod prompts;
mod python;
mod resources;
mod tasks;

use crate::asker::Asker;
use crate::door::{Door, Manners};
use agent::Agents;
use input::{Given, Turn};
use rmcp::model::*;
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::task_manager::TaskManager;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use service::{Refused, Service, ToolChange};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Announces a change of the tools by making one.
const CHANGE: &str = "test_trigger_tool_change";

type Context = RequestContext<RoleServer>;

#[derive(Clone)]
pub struct Fixtures {
    service: Arc<Service>,
    asker: Asker,
    door: Door,
    /// The same door, for tools that the suite wants to be tasks from the first moment on.
    hasty: Door,
    /// Tasks that ask for something, and one that breaks: no run of Python does either.
    tasks: TaskManager,
}

impl Fixtures {
    /// Adds the tools to the workspace of the only one who can ask.
    pub async fn new(agents: Arc<Agents>, asker: Asker, manners: Manners) -> Result<Self, Refused> {
        let service = Arc::clone(agents.service());
        python::add(&service, &asker.caller).await?;
        let hasty = Manners { task_after: Duration::ZERO, ..manners.clone() };
        let door = |manners| Door::new(Arc::clone(&agents), Some(asker.clone()), manners);
        let (door, hasty) = (door(manners), door(hasty));
        Ok(Self { service, asker, door, hasty, tasks: TaskManager::new() })
    }

    /// Written again as it is: that is a change like any other.
    async fn change_a_tool(&self) -> Result<CallToolResponse, ErrorData> {
        let (service, caller) = (&self.service, &self.asker.caller);
        let failed = |refused: Refused| ErrorData::internal_error(refused.fault.message, None);
        let tool = service.callable_tool(caller, python::SIMPLE_TEXT).map_err(failed)?;
        let tool = tool.ok_or_else(|| ErrorData::internal_error("there is no tool", None))?;
        service.change_tool(caller, tool.id, ToolChange::default()).await.map_err(failed)?;
        Ok(CallToolResult::success(vec![ContentBlock::text("changed")]).into())
    }

    /// A question first, and then a task.
    async fn ask_then_run(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        match input::turn(input::NAME_FIRST, Given::tool(&request), &context)? {
            Turn::Ask(required) => Ok(required.into()),
            Turn::Done(answers) => {
                let call = tasks::greeting(&answers);
                self.hasty.call_tool(call, context).await
            }
        }
    }
}

impl fmt::Debug for Fixtures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fixtures").field("door", &self.door).finish_non_exhaustive()
    }
}

impl ServerHandler for Fixtures {
    fn get_info(&self) -> ServerConfig {
        let mut info = self.door.get_info();
        let can = &mut info.capabilities;
        can.logging = Some(JsonObject::default());
        can.completions = Some(JsonObject::default());
        if let Some(resources) = &mut can.resources {
            resources.subscribe = Some(true);
        }
        info
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        python::with_header(name)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut listed = self.door.list_tools(request, context).await?;
        listed.tools = listed.tools.into_iter().map(python::as_the_suite_wants_it).collect();
        let names = [CHANGE].iter().chain(content::NAMES).chain(older::NAMES).chain(tasks::NAMES);
        let names = names.copied().chain(input::names());
        let open = serde_json::json!({"type": "object"});
        let tool = |name| {
            Tool::new(name, "Of the conformance suite.", crate::answer::object(open.clone()))
        };
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
            tasks::require(&context)?;
        }
        if let Some(made) = content::made(name) {
            return Ok(made.into());
        }
        if let Some(rounds) = input::rounds(name) {
            return Ok(input::turn(rounds, Given::tool(&request), &context)?.into());
        }
        if let Some(task) = tasks::begun(&self.tasks, name) {
            return Ok(CreateTaskResult::new(task).into());
        }
        match name {
            CHANGE => self.change_a_tool().await,
            tasks::ASKS_FIRST => self.ask_then_run(request, context).await,
            _ if older::NAMES.contains(&name) => older::call(&request, &context).await,
            _ if python::ARE_TASKS.contains(&name) => self.hasty.call_tool(request, context).await,
            _ => self.door.call_tool(request, context).await,
        }
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        let mut listed = self.door.list_resources(request, context).await?;
        listed.resources.extend(resources::listed());
        Ok(listed)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let mut listed = self.door.list_resource_templates(request, context).await?;
        listed.resource_templates.push(resources::template());
        Ok(listed)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        match resources::read(&request.uri) {
            Some(contents) => Ok(ReadResourceResult::new(vec![contents]).into()),
            None => self.door.read_resource(request, context).await,
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
        let mut listed = self.door.list_prompts(request, context).await?;
        listed.prompts.extend(prompts::listed());
        Ok(listed)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        match prompts::get(&request, &context)? {
            Some(prompt) => Ok(prompt),
            None => self.door.get_prompt(request, context).await,
        }
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: Context,
    ) -> Result<CompleteResult, ErrorData> {
        let values = prompts::completed(&request.argument.value);
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
            Err(_) => self.door.get_task(request, context).await,
        }
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: Context,
    ) -> Result<(), ErrorData> {
        match self.tasks.update_task(&request.task_id, request.input_responses.clone()) {
            Ok(()) => Ok(()),
            Err(_) => self.door.update_task(request, context).await,
        }
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: Context,
    ) -> Result<(), ErrorData> {
        match self.tasks.cancel_task(&request.task_id) {
            Ok(()) => Ok(()),
            Err(_) => self.door.cancel_task(request, context).await,
        }
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.door.on_initialized(context).await;
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        self.door.accepted_subscription_filter(requested)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.door.listen(context).await
    }
}
