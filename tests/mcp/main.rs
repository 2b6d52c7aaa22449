//! Belljar as an MCP server, for agents and against attackers.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../harness/model.rs"]
mod model;
#[path = "../server/test_server.rs"]
mod test_server;

mod approvals;
mod bridge;
mod checks;
mod clients;
mod code_execution;
mod configuration;
mod conformance;
mod conformance_server;
mod discovery;
mod given_files;
mod inspector;
mod lost_key;
mod npm;
mod over_http;
mod python;
mod stdio;
mod tasks;
mod wire;

// Where the model of these tests looks for it.
use harness::wait;
