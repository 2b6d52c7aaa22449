//! What hostile code will try, by the numbers of the threat list, and that the walls stand.
//!
//! Each refusal has its harmless twin beside it, so that a wall is never mistaken for something
//! that is simply broken, and after each attack the engine still serves.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

#[path = "../harness/mod.rs"]
mod harness;

mod beyond;
mod channel;
mod collector;
mod network;
mod processes;
mod tool_files;
mod walls;
mod world;
mod zygote;
