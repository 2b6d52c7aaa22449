//! Language models at work: `code_execution` and agents, over HTTP against the real binary, with a
//! model provider that plays a script over the real wire.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../harness/model.rs"]
mod model;
#[path = "../server/test_server.rs"]
mod test_server;

mod agents;
mod bad_models;
mod budgets;
mod choices;
mod code;
mod coming_from;
mod command;
mod confirmations;
mod crashes;
mod examples;
mod files;
mod forms;
mod notebook;
mod numeric_grounding;
mod permissions;
mod raw_json;
mod replies;
mod rules;
mod run_lifecycle;
mod scripted_server;
mod sessions;
mod skills;
mod stopped;
mod tools;

// Where the model of these tests looks for it.
use harness::wait;
