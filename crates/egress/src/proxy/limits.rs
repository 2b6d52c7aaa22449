//! Limits of the proxy, per sandbox and in total.

use rustix::process::{Resource, getrlimit};
use std::time::Duration;

/// Connections of one sandbox: more than any client pool opens; each takes two file descriptors of the server.
const CONNECTIONS_MAX: usize = 256;
/// Connections of all sandboxes together.
const CONNECTIONS_TOTAL_MAX: usize = 4_096;
/// One workspace gets at most this fraction of them (a quarter).
const WORKSPACE_SHARE: usize = 4;
/// Idle connections of one sandbox, as client pools keep them. One more evicts the oldest.
const IDLE_CONNECTIONS_MAX: usize = 256;
/// Idle connections of all sandboxes, as a fraction of the connections (a half).
const IDLE_CONNECTIONS_SHARE: usize = 2;
/// A connection takes two file descriptors; all of them together use at most a quarter.
const DESCRIPTORS_PER_CONNECTION: usize = 8;
/// Each takes a thread, which may wait half a minute for a name server.
const LOOKUPS_MAX: usize = 8;
/// A small part of the threads that the whole server shares.
const LOOKUPS_TOTAL_MAX: usize = 32;
/// A host that does not respond sooner is unreachable.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// For a request head, and for a client to keep an unused connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);
/// A model may think for ten minutes before its first word, and its clients wait as long.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// Several times the size of a working directory.
const BYTES_UP_MAX: u64 = 4 << 30;
const BYTES_DOWN_MAX: u64 = 16 << 30;

/// Limits of one sandbox, or of all where it says so.
#[derive(Debug, Clone)]
pub struct ProxyLimits {
    /// Concurrent connections.
    pub connections: usize,
    pub connections_per_workspace: usize,
    pub connections_total: usize,
    /// Connections without a request. They take no slot, and are evicted for new ones.
    pub idle_connections: usize,
    pub idle_connections_total: usize,
    /// Concurrent name lookups.
    pub lookups: usize,
    pub lookups_total: usize,
    /// For each of: waiting for a lookup permit, the lookup, the connection, and the TLS handshake.
    pub connect_timeout: Duration,
    pub header_timeout: Duration,
    /// Without a byte in either direction.
    pub idle_timeout: Duration,
    /// Bytes of all connections together, as counted on the wire.
    pub bytes_up: u64,
    pub bytes_down: u64,
}

impl Default for ProxyLimits {
    fn default() -> Self {
        let of_all = default_connections_total();
        Self {
            connections: CONNECTIONS_MAX,
            connections_per_workspace: (of_all / WORKSPACE_SHARE).max(1),
            connections_total: of_all,
            idle_connections: IDLE_CONNECTIONS_MAX,
            idle_connections_total: (of_all / IDLE_CONNECTIONS_SHARE).max(1),
            lookups: LOOKUPS_MAX,
            lookups_total: LOOKUPS_TOTAL_MAX,
            connect_timeout: CONNECT_TIMEOUT,
            header_timeout: HEADER_TIMEOUT,
            idle_timeout: IDLE_TIMEOUT,
            bytes_up: BYTES_UP_MAX,
            bytes_down: BYTES_DOWN_MAX,
        }
    }
}

fn default_connections_total() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current;
    let descriptors = descriptors.and_then(|bound| usize::try_from(bound).ok());
    let room = descriptors.unwrap_or(usize::MAX) / DESCRIPTORS_PER_CONNECTION;
    room.clamp(1, CONNECTIONS_TOTAL_MAX)
}
