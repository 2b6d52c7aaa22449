//! Calls the tools of MCP servers for an agent.
//!
//! A server is foreign: whatever it sends is bounded in bytes, messages and time, and answers only
//! what it was asked. Each operation has a connection of its own, and nothing of it remains when the
//! operation ends: no process, no socket, no task. This crate starts only processes that the
//! operator has configured, and reaches hosts only through `egress`.

mod client;
mod error;
mod handler;
mod http;
mod inbox;
mod process;
mod result;
mod stdio;
mod tools;

pub use client::{RemoteServer, call_tool, list_tools};
pub use error::{McpClientError, displayed};
pub use process::ServerCommand;
pub use result::{RemoteImage, RemoteResult};
pub use tools::{RemoteTool, RemoteTools, ToolFilter, is_offered_by, offered_name};
