//! Creates processes with `clone3`. Unlike libc's `fork` it can create namespaces, make the child a
//! sibling of the caller, and return a pidfd atomically.

use rustix::process::Pid;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

pub(crate) enum Forked {
    Child,
    Parent { pid: Pid, pidfd: OwnedFd },
}

/// Forks the calling process, which must be single-threaded: a lock that another thread holds would
/// stay locked in the child for ever.
///
/// glibc does not see this fork. `CLONE_CHILD_SETTID` therefore updates glibc's cached thread id in
/// the child, at the address that Linux knows for it.
pub(crate) fn clone3(flags: libc::c_int, exit_signal: libc::c_int) -> io::Result<Forked> {
    let tid_address = tid_address()?;
    let mut pidfd: RawFd = -1;
    // SAFETY: all-zero is a valid clone_args: no flags, no stack, no ids.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = (flags as u64 & 0xffff_ffff)
        | (libc::CLONE_PIDFD | libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID) as u64;
    args.pidfd = (&raw mut pidfd) as u64;
    args.child_tid = tid_address;
    args.exit_signal = exit_signal as u64;
    // SAFETY: without CLONE_VM and without a stack this is a fork: the child continues here on a
    // copy of this stack. `args` and `pidfd` outlive the call.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of_val(&args)) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            let pid = pid.ok_or(io::ErrorKind::InvalidData)?;
            // SAFETY: CLONE_PIDFD has put a new descriptor there that has no other owner.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Forked::Parent { pid, pidfd })
        }
    }
}

fn tid_address() -> io::Result<u64> {
    let mut address: u64 = 0;
    // SAFETY: the Linux kernel writes one pointer-sized word to the address we pass.
    let result = unsafe { libc::prctl(libc::PR_GET_TID_ADDRESS, &raw mut address) };
    if result == 0 { Ok(address) } else { Err(io::Error::last_os_error()) }
}
