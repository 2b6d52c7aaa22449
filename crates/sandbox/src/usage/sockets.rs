//! The sockets of a sandbox, from its network namespace, and the memory that they can hold.

use super::{INIT, read_proc_file};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use types::Limits;

/// A sandbox may have a TCP socket for so many bytes of its memory limit. A connection that was not
/// accepted yet is charged to no cgroup, and can hold a quarter of this (`jail::init` bounds it).
const MEMORY_BYTES_PER_TCP_SOCKET: u64 = 256 * 1024;
/// Sockets that are not counted without a cgroup: those of an event loop, and the proxy socket.
const SOCKETS_FREE: u64 = 16;
/// The default of Linux for either direction of a socket.
const BUFFER_BYTES: u64 = 212_992;

/// Whether there are more TCP sockets than the memory limit allows, with or without a cgroup.
pub(super) fn has_too_many_tcp_sockets(proc: &OwnedFd, limits: &Limits) -> bool {
    let tcp = inuse(proc, "sockstat", "TCP: inuse ") + inuse(proc, "sockstat6", "TCP6: inuse ");
    tcp > limits.memory_bytes / MEMORY_BYTES_PER_TCP_SOCKET
}

/// The most memory that all sockets can hold. Linux does not report what they hold to an ordinary user.
pub(super) fn max_socket_bytes(proc: &OwnedFd) -> u64 {
    let sockets = inuse(proc, "sockstat", "sockets: used ");
    sockets.saturating_sub(SOCKETS_FREE) * bytes_of_one()
}

fn inuse(proc: &OwnedFd, file: &str, key: &str) -> u64 {
    let table = read_proc_file(proc, &format!("{INIT}/net/{file}")).unwrap_or_default();
    let line = table.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|line| line.split(' ').next()?.parse().ok()).unwrap_or(0)
}

/// Both buffers at their default size, which the filter keeps code from changing. `jail::init` bounds
/// those of TCP to the usual default; an operator may have raised that of the others.
fn bytes_of_one() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| {
        ["rmem_default", "wmem_default"].map(default_buffer_bytes).into_iter().sum()
    })
}

fn default_buffer_bytes(name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/sys/net/core/{name}"));
    let set = text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(BUFFER_BYTES);
    BUFFER_BYTES.max(set)
}
