//! Runs of language models through the real binary, with models that play what is written down.

#![allow(clippy::unwrap_used, reason = "a helper that cannot set up a test has to fail it")]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../server/world.rs"]
mod world;

mod examples;
mod forms;
mod notebook;
