//! What one sandbox can use of the proxy.

use std::time::Duration;

/// More than any pool of clients opens; each takes two descriptors of the server.
const CONNECTIONS_MAX: usize = 256;
/// A host that does not answer sooner is not there.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// For one request to begin, and for a client to keep a connection that it does not use.
const HEADER_TIME_MAX: Duration = Duration::from_secs(60);
/// A model may think for ten minutes before it says its first word, and its clients wait as long.
const IDLE_TIME_MAX: Duration = Duration::from_secs(600);
/// What a working directory can hold, several times over.
const BYTES_UP_MAX: u64 = 4 << 30;
const BYTES_DOWN_MAX: u64 = 16 << 30;

/// The bounds of one sandbox.
#[derive(Debug, Clone)]
pub struct Limits {
    /// At once.
    pub connections: usize,
    /// To look up a name, to connect, and to greet, each.
    pub connect: Duration,
    pub header: Duration,
    /// Without a byte in either direction.
    pub idle: Duration,
    /// Of all connections together, as they are on the wire.
    pub bytes_up: u64,
    pub bytes_down: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: CONNECTIONS_MAX,
            connect: CONNECT_TIME_MAX,
            header: HEADER_TIME_MAX,
            idle: IDLE_TIME_MAX,
            bytes_up: BYTES_UP_MAX,
            bytes_down: BYTES_DOWN_MAX,
        }
    }
}
