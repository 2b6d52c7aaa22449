//! The MCP servers of agents: what the operator allows, how a server is reached, and the tools that
//! a model is offered.
//!
//! A URL must be open to the agent by its integrations or secrets, and be allowed by the operator. A
//! command is one of the operator: an agent's author only names it.

use crate::catalog::agents::{OfferedTool, RemoteToolRef, ResolvedAgent};
use crate::catalog::specification::{McpServerAddress, McpServerEntry};
use crate::config::McpCommand;
use crate::error::RequestError;
use crate::identity::MissingToken;
use crate::identity::caller::Caller;
use crate::network::IntegrationSource;
use crate::secrets::CodeAuthor;
use crate::service::Service;
use egress::{HostPort, HostPortError};
use futures_util::future::join_all;
use mcp_client::{RemoteServer, RemoteTool, RemoteTools, ServerCommand, ToolFilter};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use types::{Agent, AgentId, ApprovalAction, Error, ErrorCode, Principal, ToolId, WorkspaceId};
use uuid::Uuid;

/// The kind of these tools, for clients that show an approval.
pub const MCP_TOOL: &str = "mcp";
/// Limit of the time in which a server lists its tools. A run waits for it.
const LIST_TIME_MAX: Duration = Duration::from_secs(15);
/// Limit of the connections and processes of one workspace at once.
const WORKSPACE_CONNECTIONS_MAX: usize = 16;
/// Limit of those of all workspaces: each has a socket or a process, and up to 8 MiB.
const CONNECTIONS_MAX: usize = 64;

/// What the operator allows, and the connections in use.
#[derive(Debug)]
pub(crate) struct McpAccess {
    hosts: Vec<HostPort>,
    commands: Vec<ServerCommand>,
    /// Of workspaces with a connection.
    workspaces: Mutex<HashMap<WorkspaceId, Arc<Semaphore>>>,
    all: Arc<Semaphore>,
}

/// The right to one connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit(#[expect(dead_code, reason = "held")] [OwnedSemaphorePermit; 2]);

impl McpAccess {
    pub(crate) fn new(hosts: &[String], commands: &[McpCommand]) -> Result<Self, HostPortError> {
        let hosts = hosts.iter().map(|host| host.parse()).collect::<Result<_, _>>()?;
        let command = |command: &McpCommand| ServerCommand {
            name: command.name.clone(),
            program: command.program.clone(),
            arguments: command.arguments.clone(),
        };
        Ok(Self {
            hosts,
            commands: commands.iter().map(command).collect(),
            workspaces: Mutex::default(),
            all: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        })
    }

    /// Takes a connection; refused at once if there is none.
    pub(crate) fn take_connection(
        &self,
        workspace: WorkspaceId,
    ) -> Result<ConnectionPermit, RequestError> {
        let slots = {
            let mut known = self.workspaces.lock().unwrap_or_else(PoisonError::into_inner);
            // Each connection has a reference of its own.
            known.retain(|_, slots| Arc::strong_count(slots) > 1);
            let slots = known.entry(workspace);
            Arc::clone(slots.or_insert_with(|| Arc::new(Semaphore::new(WORKSPACE_CONNECTIONS_MAX))))
        };
        let of_workspace = slots.try_acquire_owned();
        let of_all = Arc::clone(&self.all).try_acquire_owned();
        match (of_workspace, of_all) {
            (Ok(of_workspace), Ok(of_all)) => Ok(ConnectionPermit([of_workspace, of_all])),
            _ => Err(Error::new(
                ErrorCode::CapacityExhausted,
                "too many connections to MCP servers are in use",
            )
            .hint("try again when other calls have ended")
            .into()),
        }
    }
}

/// The id of a tool of an MCP server. It depends on the agent and the offered name only, so that
/// pending approvals of the tool stay valid.
pub(crate) fn mcp_tool_id(agent: AgentId, offered: &str) -> ToolId {
    let agent = agent.uuid();
    let parts: [&[u8]; 3] = [agent.as_bytes(), b"mcp:", offered.as_bytes()];
    let digest = Sha256::digest(parts.concat());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    ToolId::new(Uuid::new_v8(bytes))
}

impl Service {
    /// Adds the tools of the MCP servers of an agent to its tools. A server that does not answer
    /// becomes a warning, and the run goes on without it.
    #[boxed::future]
    pub async fn offer_mcp_tools(
        &self,
        caller: &Caller,
        mut work: ResolvedAgent,
    ) -> Result<ResolvedAgent, RequestError> {
        let wanted = |server: &&McpServerEntry| server.approval_action != ApprovalAction::Deny;
        let servers: Vec<McpServerEntry> =
            work.mcp_servers.iter().filter(wanted).cloned().collect();
        if servers.is_empty() {
            return Ok(work);
        }
        let run_as = self.effective_principal(caller.workspace, &caller.principal, &work.agent)?;
        let listing = servers.iter().map(async |server| {
            let listed = self.list_mcp_tools(caller, &work.agent, &run_as, server).await;
            (server, listed)
        });
        for (server, listed) in join_all(listing).await {
            match listed {
                Ok(RemoteTools { tools, warnings }) => {
                    work.warnings.extend(warnings);
                    for tool in tools {
                        offer(&mut work, server, tool);
                    }
                }
                Err(error) => work.warnings.push(format!(
                    "the tools of MCP server {:?} are not available: {}",
                    server.name, error.error.message
                )),
            }
        }
        Ok(work)
    }

    async fn list_mcp_tools(
        &self,
        caller: &Caller,
        agent: &Agent,
        run_as: &Principal,
        entry: &McpServerEntry,
    ) -> Result<RemoteTools, RequestError> {
        let _permit = self.mcp.take_connection(caller.workspace)?;
        let server = self
            .reach_mcp_server(caller.workspace, &caller.principal, run_as, agent, entry)
            .await?;
        let filter = ToolFilter { server: &entry.name, allowed: entry.allowed_tools.as_deref() };
        let listed = mcp_client::list_tools(&server, filter, LIST_TIME_MAX).await;
        listed.map_err(|error| Error::new(ErrorCode::ToolUnavailable, error.to_string()).into())
    }

    /// The server of an entry, under the policy of this moment.
    #[boxed::future]
    pub(crate) async fn reach_mcp_server(
        &self,
        workspace: WorkspaceId,
        caller: &Principal,
        run_as: &Principal,
        agent: &Agent,
        entry: &McpServerEntry,
    ) -> Result<RemoteServer, RequestError> {
        let (url, integrations) = match &entry.address {
            McpServerAddress::Command(name) => {
                return self.mcp_command(name).map(RemoteServer::Command);
            }
            McpServerAddress::Url { url, integrations } => (url, integrations.clone()),
        };
        let role = "the principal that this agent runs as";
        self.check_integrations(workspace, (run_as, role), &integrations)?;
        self.check_author_egress(workspace, Some(agent.author), &integrations)?;
        let author = CodeAuthor::Other { by: agent.author, has_values: false };
        let source = IntegrationSource::Named { integrations, run_as: run_as.id, author };
        // The access token of the caller is for code in a sandbox alone.
        let token = Err(MissingToken::NotPresented);
        let policy = self.egress_policy_of(workspace, caller, &source, &token).await?;
        let client = self.proxy.outbound_client(policy.into(), self.mcp.hosts.clone(), url);
        client
            .map(RemoteServer::Http)
            .map_err(|error| Error::new(ErrorCode::NetworkDenied, error.to_string()).into())
    }

    fn mcp_command(&self, name: &str) -> Result<ServerCommand, RequestError> {
        let found = self.mcp.commands.iter().find(|command| command.name == name).cloned();
        found.ok_or_else(|| {
            let message = format!("the operator of this server has no MCP command {name:?}");
            Error::new(ErrorCode::ToolUnavailable, message)
                .hint("ask the operator to add it with --mcp-command")
                .into()
        })
    }
}

/// Offers a tool, unless another tool of the agent has its name.
fn offer(work: &mut ResolvedAgent, server: &McpServerEntry, tool: RemoteTool) {
    if work.tools.iter().any(|other| other.name == tool.offered) {
        let (name, server) = (&tool.offered, &server.name);
        work.warnings.push(format!(
            "a tool of MCP server {server:?} is left out: the agent has another tool named {name:?}"
        ));
        return;
    }
    let RemoteTool { name, offered, description, input_schema, read_only } = tool;
    work.tools.push(OfferedTool {
        id: mcp_tool_id(work.agent.id, &offered),
        name: offered,
        description,
        input_schema,
        kind: MCP_TOOL.to_owned(),
        in_session: false,
        remote: Some(RemoteToolRef { server: server.name.clone(), tool: name, read_only }),
    });
}

/// Whether a name is one that a server of the agent gives its tools, such as `docs__find`.
pub(crate) fn server_of<'a>(
    servers: &'a [McpServerEntry],
    offered: &str,
) -> Option<&'a McpServerEntry> {
    servers.iter().find(|server| mcp_client::is_offered_by(&server.name, offered))
}
