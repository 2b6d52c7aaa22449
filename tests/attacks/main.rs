//! Attacks of hostile code, by the numbers of the threat model, and that the isolation layers hold.
//!
//! Each refusal has its harmless twin beside it, so that a broken feature is never mistaken for
//! isolation, and after each attack the engine still serves.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

#[path = "../harness/mod.rs"]
mod harness;

mod channel;
mod collector;
mod fixtures;
mod isolation;
mod network;
mod processes;
mod tool_files;
mod unlisted;
mod zygote;
