//! Promises of the command line: errors, `doctor`, missing layers, the prompt, and commands that use a server.

#![allow(clippy::unwrap_used, reason = "a helper that cannot set up a test has to fail it")]

#[path = "../harness/mod.rs"]
mod harness;

mod bench;
mod doctor;
mod env;
mod function;
mod internet;
mod missing_layers;
mod network;
mod remote;
mod secret;
mod session;
mod skill;
mod sql;
mod terminal;
mod tool;
mod tool_tests;

#[path = "../server/web_server.rs"]
mod web_server;

#[path = "../server/test_server.rs"]
mod test_server;

/// A helper beside this file, for the Python of the host.
fn helper(name: &str) -> std::process::Command {
    let mut command = std::process::Command::new("python3");
    command.arg(format!("{}/../../tests/cli/{name}", env!("CARGO_MANIFEST_DIR")));
    command.env("BELLJAR_DATA", harness::data()).env_remove("BELLJAR_PYTHON");
    command
}
