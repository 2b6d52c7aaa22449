//! One operation on a server: connect, initialize, ask, and end.

use crate::error::McpClientError;
use crate::handler::RefusingHandler;
use crate::http::HttpTransport;
use crate::inbox::Inbox;
use crate::process::{ServerCommand, ServerProcess};
use crate::result::RemoteResult;
use crate::stdio::StdioTransport;
use crate::tools::{PAGES_MAX, RemoteTools, TOOLS_MAX, ToolFilter};
use egress::OutboundClient;
use rmcp::model::{CallToolRequestParams, CallToolResponse, PaginatedRequestParams};
use rmcp::service::{ClientInitializeError, Peer, RunningService, ServiceError};
use rmcp::{RoleClient, serve_client};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long the end of a connection may take, besides that of a process.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(3);

/// A server that may be connected to.
#[derive(Debug, Clone)]
pub enum RemoteServer {
    Http(OutboundClient),
    Command(ServerCommand),
}

/// A connection after its handshake.
type Connection = RunningService<RoleClient, RefusingHandler>;

/// The tools of a server that pass the filter.
pub async fn list_tools(
    server: &RemoteServer,
    filter: ToolFilter<'_>,
    time_max: Duration,
) -> Result<RemoteTools, McpClientError> {
    let operation = Operation::start(server, time_max)?;
    let result = operation.list(filter).await;
    operation.end(result).await
}

/// Calls a tool by the name that the server knows.
pub async fn call_tool(
    server: &RemoteServer,
    name: &str,
    arguments: Map<String, Value>,
    time_max: Duration,
) -> Result<RemoteResult, McpClientError> {
    let operation = Operation::start(server, time_max)?;
    let mut call = CallToolRequestParams::new(name.to_owned());
    call.arguments = Some(arguments);
    let result = operation.call(call).await;
    operation.end(result).await
}

/// A connection that is being used.
struct Operation {
    inbox: Arc<Inbox>,
    /// The process of the server, if it is a command. It ends with this value.
    process: Option<ServerProcess>,
    transport: tokio::sync::Mutex<Option<ServerTransport>>,
    connection: tokio::sync::Mutex<Option<Connection>>,
    time_max: Duration,
    until: Instant,
}

enum ServerTransport {
    Http(HttpTransport),
    Stdio(StdioTransport),
}

/// Why an operation stopped, before the inbox has explained it.
enum Stopped {
    Timeout,
    Initialize(Box<ClientInitializeError>),
    Service(ServiceError),
    Error(McpClientError),
}

impl From<ServiceError> for Stopped {
    fn from(error: ServiceError) -> Self {
        Self::Service(error)
    }
}

impl Operation {
    fn start(server: &RemoteServer, time_max: Duration) -> Result<Self, McpClientError> {
        let inbox = Arc::new(Inbox::new());
        let (process, transport) = match server {
            RemoteServer::Http(client) => {
                let transport = HttpTransport::new(client.clone(), Arc::clone(&inbox));
                (None, ServerTransport::Http(transport))
            }
            RemoteServer::Command(command) => {
                let (process, stdin, stdout) = ServerProcess::start(command)?;
                let transport = StdioTransport::new(stdin, stdout, Arc::clone(&inbox));
                (Some(process), ServerTransport::Stdio(transport))
            }
        };
        Ok(Self {
            inbox,
            process,
            transport: tokio::sync::Mutex::new(Some(transport)),
            connection: tokio::sync::Mutex::default(),
            time_max,
            until: Instant::now() + time_max,
        })
    }

    async fn list(&self, filter: ToolFilter<'_>) -> Result<RemoteTools, Stopped> {
        let listing = async {
            let peer = self.connect().await?;
            let (mut tools, mut cursor) = (RemoteTools::default(), None);
            for _ in 0..PAGES_MAX {
                let page = PaginatedRequestParams::default().with_cursor(cursor);
                let page = peer.list_tools(Some(page)).await?;
                tools.add(filter, page.tools);
                cursor = page.next_cursor;
                if cursor.is_none() || tools.tools.len() >= TOOLS_MAX {
                    break;
                }
            }
            tools.note_missing(filter);
            Ok(tools)
        };
        timeout_at(self.until, listing).await.unwrap_or(Err(Stopped::Timeout))
    }

    async fn call(&self, call: CallToolRequestParams) -> Result<RemoteResult, Stopped> {
        let calling = async {
            let peer = self.connect().await?;
            match peer.call_tool_once(call).await? {
                CallToolResponse::Complete(result) => Ok(RemoteResult::new(result)),
                _ => Err(Stopped::Error(McpClientError::InputRequired)),
            }
        };
        timeout_at(self.until, calling).await.unwrap_or(Err(Stopped::Timeout))
    }

    /// The handshake. The connection is kept for its end.
    async fn connect(&self) -> Result<Peer<RoleClient>, Stopped> {
        let transport = self.transport.lock().await.take();
        let connected = match transport {
            Some(ServerTransport::Http(http)) => serve_client(RefusingHandler, http).await,
            Some(ServerTransport::Stdio(stdio)) => serve_client(RefusingHandler, stdio).await,
            None => return Err(Stopped::Error(McpClientError::Closed(None))),
        };
        let connection = connected.map_err(|error| Stopped::Initialize(Box::new(error)))?;
        let peer = connection.peer().clone();
        *self.connection.lock().await = Some(connection);
        Ok(peer)
    }

    /// Ends the connection and the process, and explains a failure.
    async fn end<T>(self, result: Result<T, Stopped>) -> Result<T, McpClientError> {
        let Self { inbox, process, transport, connection, time_max, .. } = self;
        drop(transport);
        if let Some(mut connection) = connection.into_inner() {
            // What cannot be ended in time ends with its task.
            let _ = connection.close_with_timeout(CLOSE_TIME_MAX).await;
        }
        if let Some(process) = process {
            process.end().await;
        }
        result.map_err(|stopped| match (stopped, inbox.take_failure()) {
            (Stopped::Timeout, _) => McpClientError::Timeout { time_max, refused: inbox.refused() },
            (Stopped::Error(error), _) | (_, Some(error)) => error,
            (Stopped::Initialize(error), None) => initialize_error(&error),
            (Stopped::Service(error), None) => service_error(&error, inbox.refused()),
        })
    }
}

fn initialize_error(error: &ClientInitializeError) -> McpClientError {
    match error {
        ClientInitializeError::JsonRpcError(error) => McpClientError::refused(error),
        ClientInitializeError::ConnectionClosed(_)
        | ClientInitializeError::TransportError { .. } => McpClientError::Closed(None),
        _ => McpClientError::not_mcp("its response to initialize"),
    }
}

fn service_error(error: &ServiceError, refused: Option<String>) -> McpClientError {
    match error {
        ServiceError::McpError(error) => McpClientError::refused(error),
        ServiceError::UnexpectedResponse => McpClientError::not_mcp("a result of another kind"),
        _ => McpClientError::Closed(refused),
    }
}
