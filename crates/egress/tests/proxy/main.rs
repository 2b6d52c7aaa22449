//! Promises of the proxy, tested with real servers and connections on this machine.

// Always true, but it tells clippy that helpers may unwrap.
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
