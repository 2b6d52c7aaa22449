//! What the crate promises, tried with the Pythons of this machine, with real packages, and with
//! the ways in which both can be missing.

// Said although it is always so: it is how clippy knows that helpers may unwrap.
#![cfg(test)]

mod building;
mod index;
mod own;
mod scripts;
mod world;
