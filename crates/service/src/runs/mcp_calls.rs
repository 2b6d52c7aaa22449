//! Calls of tools of MCP servers. Each is an execution without a sandbox, with the same approvals,
//! records and events as any other call of an agent.

use crate::catalog::agents::read_specification;
use crate::catalog::mcp_servers::{ConnectionPermit, mcp_tool_id};
use crate::catalog::specification::McpServerEntry;
use crate::error::{RequestError, invalid_field, missing_privilege, not_found};
use crate::runs::call_target::CallTarget;
use crate::runs::calls::ResolvedTarget;
use crate::runs::executions::{ActiveExecution, ExecutionHandle, RunContext};
use crate::runs::run_request::RunTarget;
use crate::service::Service;
use chrono::{DateTime, Utc};
use engine::FinishedExecution;
use mcp_client::{McpClientError, RemoteImage, RemoteResult, RemoteServer, offered_name};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use types::{
    Agent, AgentId, ApprovalAction, ApprovalScope, DisplayData, Error, ErrorCode, Event, Execution,
    ExecutionId, ExecutionStatus, Limits, LimitsRequest, NetworkAttempt, ObjectRef, OutputChunk,
    OutputStream, Principal, PrincipalId, Privilege, ToolId, Warning, WorkspaceId,
};

/// The entry point of these calls in records.
pub(crate) const MCP_ENTRY: &str = "mcp";
/// Part of a failed result that the error repeats, in bytes.
const ERROR_CHARS_MAX: usize = 500;
/// The code of a warning about a part of a result that is left out.
const RESULT_TRUNCATED: &str = "mcp.truncated";

/// A call of a tool that its agent may call.
#[derive(Debug, Clone)]
pub(crate) struct McpCall {
    pub(crate) agent: AgentId,
    /// The author of the specification that names the server.
    pub(crate) author: PrincipalId,
    pub(crate) server: McpServerEntry,
    /// The name by which the server knows the tool.
    pub(crate) tool: String,
    /// The name by which the model calls it.
    pub(crate) offered: String,
    pub(crate) read_only: bool,
    pub(crate) arguments: Value,
}

/// A call that has its connection, and has not begun.
#[derive(Debug)]
pub(crate) struct ReadyMcpCall {
    call: McpCall,
    server: RemoteServer,
    record: Execution,
    permit: ConnectionPermit,
}

impl McpCall {
    pub(crate) fn id(&self) -> ToolId {
        mcp_tool_id(self.agent, &self.offered)
    }

    /// What an approval of calls covers besides the arguments.
    pub(crate) fn definition(&self) -> String {
        json!([MCP_ENTRY, self.server, self.tool]).to_string()
    }

    pub(crate) fn to_request(&self) -> RunTarget {
        RunTarget::McpTool {
            agent: self.agent,
            server: self.server.name.clone(),
            tool: self.tool.clone(),
            read_only: self.read_only,
            arguments: self.arguments.clone(),
        }
    }
}

impl ReadyMcpCall {
    pub(crate) fn record(&self) -> &Execution {
        &self.record
    }
}

impl Service {
    /// Decides whether this principal may have the agent make this call.
    #[boxed::future]
    pub(crate) async fn resolve_mcp_call(
        &self,
        workspace: WorkspaceId,
        principal: &Principal,
        target: RunTarget,
    ) -> Result<ResolvedTarget, RequestError> {
        let RunTarget::McpTool { agent: id, server, tool, read_only, arguments } = target else {
            return Err(Error::server_fault("the call is not one of an MCP server").into());
        };
        let object = ObjectRef::Agent(id);
        let found = self.db.read(|rows| rows.agent(workspace, id))?;
        let agent = found.ok_or_else(|| not_found("agent", id))?;
        if self.permit(workspace, principal, Privilege::Usage, object)?.is_none() {
            return Err(missing_privilege(Privilege::Usage, object));
        }
        let run_as = self.effective_principal(workspace, principal, &agent)?.id;
        let servers = read_specification(&agent.specification).await?.mcp_servers;
        let server = servers.into_iter().find(|entry| entry.name == server && entry.allows(&tool));
        let server = server.ok_or_else(|| unavailable(&tool, &agent))?;
        let action = action_for(&server, &tool, read_only)?;
        self.check_mcp_arguments(&arguments)?;
        let (agent, author) = (agent.id, agent.author);
        let offered = offered_name(&server.name, &tool);
        let call = McpCall { agent, author, server, tool, offered, read_only, arguments };
        Ok(ResolvedTarget {
            target: CallTarget::McpTool(Box::new(call)),
            agent: Some(agent),
            run_as,
            action,
            default_scope: ApprovalScope::Once,
        })
    }

    /// The server checks them against its schema; here they only have to be an object that fits.
    fn check_mcp_arguments(&self, arguments: &Value) -> Result<(), RequestError> {
        let most = self.config.tool_bytes_max;
        let size = arguments.to_string().len();
        if size > most {
            let message = format!("have {size} bytes; at most {most} are allowed");
            return Err(invalid_field("/arguments", message));
        }
        match arguments {
            Value::Object(_) => Ok(()),
            _ => Err(invalid_field("/arguments", "must be an object")),
        }
    }

    /// Starts a call whose approval, if it needs one, is there.
    #[boxed::future]
    pub(crate) async fn launch_mcp_call(
        self: &Arc<Self>,
        id: ExecutionId,
        requester: &Principal,
        call: McpCall,
        (run_as, limits): (PrincipalId, LimitsRequest),
        context: RunContext,
    ) -> Result<ExecutionHandle, RequestError> {
        let workspace = context.workspace;
        if self.is_stopping() {
            let message = "the server is stopping";
            return Err(Error::new(ErrorCode::CapacityExhausted, message).into());
        }
        let limits = limits.resolve(&self.limit_caps(workspace)?)?;
        let permit = self.mcp.take_connection(workspace)?;
        let found = self.db.read(|rows| rows.agent(workspace, call.agent))?;
        let agent = found.ok_or_else(|| not_found("agent", call.agent))?;
        let principal = self.find_principal(workspace, run_as)?;
        let server =
            self.reach_mcp_server(workspace, requester, &principal, &agent, &call.server).await?;
        let record = call.record(id, limits, self.now());
        let context = RunContext { run_as, agent: Some(call.agent), ..context };
        self.start_mcp_execution(ReadyMcpCall { call, server, record, permit }, context).await
    }

    /// Calls the server until it answers, the time is over, or the call is stopped.
    pub(crate) async fn run_mcp_call(
        &self,
        ready: ReadyMcpCall,
        running: &ActiveExecution,
        workspace: WorkspaceId,
    ) -> Result<FinishedExecution, Error> {
        let ReadyMcpCall { call, server, record, permit } = ready;
        running.live.set_lease(self.output_budget.lease_output(workspace));
        let time_max = Duration::from_millis(record.limits.wall_ms);
        let arguments: Map<String, Value> = match call.arguments {
            Value::Object(arguments) => arguments,
            _ => Map::new(),
        };
        let calling = mcp_client::call_tool(&server, &call.tool, arguments, time_max);
        let begun = self.now();
        let result = tokio::select! {
            biased;
            () = running.stop_requested() => None,
            result = calling => Some(result),
        };
        drop(permit);
        let ended = self.now();
        let mut execution = Execution { started_at: Some(begun), ended_at: Some(ended), ..record };
        execution.usage.wall_ms = u64::try_from((ended - begun).num_milliseconds()).unwrap_or(0);
        execution.network = attempts(&server, &call.server, result.as_ref());
        match result {
            Some(Ok(result)) => publish_result(&mut execution, running, result),
            Some(Err(error)) => fail(&mut execution, running, error_of(&error)),
            None => {
                let error = Error::new(ErrorCode::Cancelled, "the call was cancelled")
                    .hint("the MCP server may have acted on it");
                fail(&mut execution, running, (ExecutionStatus::Cancelled, error));
            }
        }
        Ok(FinishedExecution { execution, contents: Vec::new(), copies: Vec::new() })
    }
}

impl McpCall {
    fn record(&self, id: ExecutionId, limits: Limits, now: DateTime<Utc>) -> Execution {
        Execution {
            entry: MCP_ENTRY.to_owned(),
            tool: Some(self.offered.clone()),
            arguments: Some(self.arguments.clone()),
            ..Execution::new(id, limits, now)
        }
    }
}

/// The action for a call. What a server says about its tools counts only where the author of the
/// agent trusts it.
fn action_for(
    server: &McpServerEntry,
    tool: &str,
    read_only: bool,
) -> Result<ApprovalAction, RequestError> {
    match server.approval_action {
        ApprovalAction::Deny => {
            let message = format!("Tool '{tool}' denied by agent approval policy");
            Err(Error::new(ErrorCode::ApprovalDenied, message)
                .hint("continue without it; the owner of the agent decides what it may call")
                .into())
        }
        action if action.asks() && server.trust_annotations && read_only => {
            Ok(ApprovalAction::Allow)
        }
        action => Ok(action),
    }
}

fn unavailable(tool: &str, agent: &Agent) -> RequestError {
    let message = format!("Tool '{tool}' is not available in the current execution mode");
    Error::new(ErrorCode::ToolUnavailable, message)
        .hint(format!("name its server in mcp_servers of the agent {:?} first", agent.name))
        .into()
}

/// The connection in the form of the record; a process has none.
fn attempts(
    server: &RemoteServer,
    entry: &McpServerEntry,
    result: Option<&Result<RemoteResult, McpClientError>>,
) -> Vec<NetworkAttempt> {
    let RemoteServer::Http(client) = server else { return Vec::new() };
    let (denied, reason) = match result {
        Some(Err(McpClientError::Outbound(error))) => (error.is_denied(), Some(error.to_string())),
        _ => (false, None),
    };
    vec![NetworkAttempt {
        t: 0,
        host: client.host().to_owned(),
        port: client.port(),
        integration: entry.integrations().first().cloned(),
        allowed: !denied,
        reason,
    }]
}

fn publish_result(execution: &mut Execution, running: &ActiveExecution, result: RemoteResult) {
    let RemoteResult { text, structured, images, warnings, is_error } = result;
    if !text.is_empty() {
        let chunk = OutputChunk {
            t: execution.usage.wall_ms,
            stream: OutputStream::Stdout,
            text: text.clone(),
        };
        execution.usage.output_bytes = text.len() as u64;
        running.live.push_within_budget(Event::Output(chunk));
    }
    for RemoteImage { mime, base64 } in images {
        let data = BTreeMap::from([(mime.to_owned(), Value::from(base64))]);
        running.live.push_within_budget(Event::Result(DisplayData { data, main: false }));
    }
    let warning = |message| Warning { code: RESULT_TRUNCATED.to_owned(), message };
    execution.warnings.extend(warnings.into_iter().map(warning));
    execution.value = structured;
    match running.live.take_value_room(execution.value_bytes() as u64) {
        Ok(()) => {}
        Err(message) => {
            execution.value = None;
            execution.warnings.push(warning(message));
        }
    }
    execution.status = ExecutionStatus::Succeeded;
    if is_error {
        let reason = match mcp_client::displayed(&text, ERROR_CHARS_MAX) {
            reason if reason.is_empty() => "without a reason".to_owned(),
            reason => reason,
        };
        let error = Error::new(ErrorCode::ToolFailed, format!("the tool failed: {reason}"));
        fail(execution, running, (ExecutionStatus::Failed, error));
    }
}

fn fail(
    execution: &mut Execution,
    running: &ActiveExecution,
    (status, error): (ExecutionStatus, Error),
) {
    running.live.push(Event::Error(error.clone()));
    execution.status = status;
    execution.error = Some(error);
}

fn error_of(error: &McpClientError) -> (ExecutionStatus, Error) {
    let code = match error {
        McpClientError::Timeout { .. } => ErrorCode::TimeExceeded,
        McpClientError::TooMuch { .. } => ErrorCode::OutputTooLarge,
        McpClientError::Outbound(error) if error.is_denied() => ErrorCode::NetworkDenied,
        _ => ErrorCode::ToolUnavailable,
    };
    if let McpClientError::Start { name, source } = error {
        tracing::error!(command = %name, error = %source, "cannot start an MCP server");
    }
    let status = match code {
        ErrorCode::TimeExceeded => ExecutionStatus::TimedOut,
        _ => ExecutionStatus::Failed,
    };
    (status, Error::new(code, error.to_string()))
}
