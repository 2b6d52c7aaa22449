//! Promises of the proxy, tested with real servers and connections on this machine.

// Always true, but it tells clippy that helpers may unwrap.
#![cfg(test)]

#[path = "../../../../tests/harness/wait.rs"]
mod wait;
#[path = "../../../../tests/harness/wait_blocking.rs"]
mod wait_blocking;

mod bounds;
mod certificates;
mod credentials;
mod host;
mod identity;
mod pinning;
mod records;
mod speed;
mod streams;
mod strict;
mod world;
