//! The promises of the crate, tested with the Pythons of this host, with real packages, and with
//! both missing.

// Always true in a test crate, but this is how clippy knows that helpers may unwrap.
#![cfg(test)]

#[path = "../../../../tests/harness/wait_blocking.rs"]
mod wait_blocking;

mod building;
mod index;
mod own;
mod scripts;
mod world;
