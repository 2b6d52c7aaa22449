//! What fetching promises, tried with real servers and real connections on this machine.

// Said although it is always so: it is how clippy knows that helpers may unwrap.
#![cfg(test)]

mod bounds;
mod files;
mod server;
mod ssrf;
