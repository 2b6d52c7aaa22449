//! The promises of the crate `db` to the server, also against a kill or a power cut.

// Said although it is always so: it is how clippy knows that helpers may unwrap.
#![cfg(test)]

#[path = "../../../../tests/harness/wait_blocking.rs"]
mod wait_blocking;

mod access;
mod approvals;
mod audit;
mod belonging;
mod disk;
mod files;
mod objects;
mod power;
mod records;
mod requests;
mod retention;
mod revisions;
mod secrets;
mod world;
mod writing;
