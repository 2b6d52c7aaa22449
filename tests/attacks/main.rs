//! What hostile code will try, by the numbers of the threat list, and that the walls stand.
//!
//! Each refusal has its harmless twin beside it, so that a wall is never mistaken for something
//! that is simply broken, and after each attack the engine still serves.

#[path = "../harness/mod.rs"]
mod harness;

mod beyond;
mod channel;
mod walls;
mod world;
mod zygote;
