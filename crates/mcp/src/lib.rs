//! The MCP door: operations of `service` as tools, resources and prompts, for clients of both eras
//! of the protocol, over standard input and output or over HTTP.
//!
//! What code does is never a protocol error: a tool that fails has a result that says so. Who asks
//! is known before a message is read, and nothing in a message can change it.

mod approval;
mod arguments;
mod caller;
mod code_execution;
mod conformance;
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

pub use caller::McpCaller;
pub use conformance::ConformanceServer;
pub use http::{
    McpSessionGuard, McpSessionUse, McpSessions, SESSIONS_PER_PRINCIPAL, SessionLimits,
    SessionOwner, TooManyMcpSessions, streamable_http_service,
};
pub use run_result::undelivered_result;
pub use server::{McpOptions, McpServer};
pub use stdio::serve_stdio;
