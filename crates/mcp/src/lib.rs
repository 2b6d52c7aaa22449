//! The MCP door: operations of `service` as tools, resources and prompts, for clients of both eras
//! of the protocol, over standard input and output or over HTTP.
//!
//! What code does is never a protocol error: a tool that fails has a result that says so. Who asks
//! is known before a message is read, and nothing in a message can change it.

mod answer;
mod approval;
mod arguments;
mod asker;
mod code;
mod door;
mod files;
mod fixtures;
mod http;
mod python;
mod questions;
mod resources;
mod results;
mod run;
mod sessions;
mod skills;
mod stdio;
mod task;
mod tools;

pub use answer::undelivered;
pub use asker::Asker;
pub use door::{Door, Manners};
pub use fixtures::Fixtures;
pub use http::{
    InUse, SESSIONS_PER_PRINCIPAL, SessionLimits, SessionOwner, SessionUse, Sessions, SessionsFull,
    http,
};
pub use stdio::stdio;
