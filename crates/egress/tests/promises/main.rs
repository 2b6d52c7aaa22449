//! Promises of fetching, tested with real servers and connections on this machine.

// Always true, but it tells clippy that helpers may unwrap.
#![cfg(test)]

#[path = "../../../../tests/harness/wait.rs"]
mod wait;

mod bounds;
mod files;
mod server;
mod ssrf;
