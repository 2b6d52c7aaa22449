//! What the proxy of the sandboxes promises, tried with real servers and real connections on this
//! machine.

// Said although it is always so: it is how clippy knows that helpers may unwrap.
#![cfg(test)]

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
