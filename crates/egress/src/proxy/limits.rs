//! What one sandbox can use of the proxy, and what all of them can use of the machine.

use rustix::process::{Resource, getrlimit};
use std::time::Duration;

/// More than any pool of clients opens; each takes two descriptors of the server.
const CONNECTIONS_MAX: usize = 256;
/// Of all sandboxes together.
const CONNECTIONS_TOTAL_MAX: usize = 4_096;
/// One workspace takes at most this part of them.
const WORKSPACE_SHARE: usize = 4;
/// Connections of one sandbox on which nothing is asked for: what pools of clients keep. One more closes the oldest.
const IDLE_CONNECTIONS_MAX: usize = 256;
/// Of all sandboxes together, this part of the number of connections.
const IDLE_CONNECTIONS_SHARE: usize = 2;
/// A connection takes two descriptors of the server: all of them take no more than a quarter.
const DESCRIPTORS_PER_CONNECTION: usize = 8;
/// Each takes a thread, which may wait for a name server for half a minute.
const LOOKUPS_MAX: usize = 8;
/// Few of the threads that everything in the server shares.
const LOOKUPS_TOTAL_MAX: usize = 32;
/// A host that does not answer sooner is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// For one request to begin, and for a client to keep a connection that it does not use.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);
/// A model may think for ten minutes before it says its first word, and its clients wait as long.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// What a working directory can hold, several times over.
const BYTES_UP_MAX: u64 = 4 << 30;
const BYTES_DOWN_MAX: u64 = 16 << 30;

/// The bounds of one sandbox, and where it is said of all.
#[derive(Debug, Clone)]
pub struct ProxyLimits {
    /// At once.
    pub connections: usize,
    pub connections_per_workspace: usize,
    pub connections_total: usize,
    /// Connections without a request, which take no place of another and give way to new ones.
    pub idle_connections: usize,
    pub idle_connections_total: usize,
    /// Questions for a name, at once.
    pub lookups: usize,
    pub lookups_total: usize,
    /// To wait for room to look up a name, to look it up a name, to connect, and to greet, each.
    pub connect_timeout: Duration,
    pub header_timeout: Duration,
    /// Without a byte in either direction.
    pub idle_timeout: Duration,
    /// Of all connections together, as they are on the wire.
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
