//! The MCP server: offers the operations of `service` as tools, resources and prompts, to clients
//! of the legacy and the current revision, over stdio or HTTP.
//!
//! Failing code is never a protocol error: the tool result reports it. The caller is authenticated
//! before a message is read, and no message can change who it is.

mod approval;
mod arguments;
mod caller;
mod code_execution;
mod create_session;
mod execute_python;
mod files;
mod get_result;
mod http;
mod resources;
mod run_elicitations;
mod run_result;
mod server;
mod skills;
mod stdio;
mod task;
mod tools;
mod wait;

pub use http::{
    McpSessionGuard, McpSessionUse, McpSessions, SESSIONS_PER_PRINCIPAL, SessionLimits,
    SessionOwner, TooManyMcpSessions, streamable_http_service,
};
pub use run_result::undelivered_result;
pub use server::{McpOptions, McpServer};
pub use stdio::serve_stdio;
