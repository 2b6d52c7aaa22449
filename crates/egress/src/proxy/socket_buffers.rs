//! Sizes of socket buffers, which the Linux kernel holds for peers that do not read.
//!
//! By default they grow to many megabytes, which count against no sandbox.

use rustix::io;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use std::os::fd::AsFd;

/// Each direction, to a sandbox on the same machine. The kernel uses up to twice as much, for its
/// bookkeeping.
pub(super) const SANDBOX_BUFFER_BYTES: usize = 256 * 1024;
/// To a host: the bandwidth-delay product of 10 MB/s and 100 ms.
pub(super) const UPSTREAM_BUFFER_BYTES: usize = 1024 * 1024;

/// Fixes the buffer sizes of a connection; before connecting, if the proxy opens it.
pub(super) fn set_socket_buffers(socket: impl AsFd, bytes: usize) -> io::Result<()> {
    set_socket_recv_buffer_size(&socket, bytes)?;
    set_socket_send_buffer_size(&socket, bytes)
}
