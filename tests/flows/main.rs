//! Promises about the whole system, in the words of the person who uses it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

#[path = "../harness/mod.rs"]
mod harness;

mod atlas;
mod bad_input;
mod clients;
mod egress;
mod ends;
mod exec;
mod hangs;
mod leaks;
mod limits;
mod ordinary_user;
mod python;
mod pythons;
mod serving;
mod session_files;
mod sessions;
mod shipped;
mod tools;
mod volumes;
