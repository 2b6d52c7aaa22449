//! Language models at work: `code_execution` and agents, over HTTP against the real binary, with a
//! model provider that plays a script over the real wire.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../harness/model.rs"]
mod model;
#[path = "../server/test_server.rs"]
mod test_server;
#[path = "../server/web_server.rs"]
#[expect(dead_code, reason = "the server's own tests need more of it")]
mod web_server;

mod agents;
mod ask_first;
mod bad_models;
mod budgets;
mod capabilities;
mod choices;
mod code;
mod code_tools;
mod coming_from;
mod command;
mod confirmations;
mod conversation_files;
mod crashes;
mod examples;
mod files;
mod forms;
mod identity;
mod mcp_server;
mod mcp_servers;
mod notebook;
mod numeric_grounding;
mod permissions;
mod raw_json;
mod replies;
mod rules;
mod run_lifecycle;
mod scripted_server;
mod sessions;
mod skill_scripts;
mod skill_use;
mod skills;
mod stopped;
mod tools;

// Where the model of these tests looks for it.
use harness::wait;
