//! What the system keeps of a connection for those who do not read it.
//!
//! It grows with what was read before, to many megabytes, and is counted for no sandbox.

use rustix::io;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use std::os::fd::AsFd;

/// In each direction, to a sandbox on the same machine. The system takes up to twice as much, for what it
/// writes down beside it.
pub(super) const SANDBOX_BUFFER_BYTES: usize = 256 * 1024;
/// To a host: what is on the way at 10 MB a second over 100 ms.
pub(super) const UPSTREAM_BUFFER_BYTES: usize = 1024 * 1024;

/// Keeps the buffers of a connection from growing; before it is made, where it is the proxy's own.
pub(super) fn set_socket_buffers(socket: impl AsFd, bytes: usize) -> io::Result<()> {
    set_socket_recv_buffer_size(&socket, bytes)?;
    set_socket_send_buffer_size(&socket, bytes)
}
