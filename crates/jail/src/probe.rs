//! What this host offers, found out by asking the kernel and not by reading version numbers.

use crate::clone::{Forked, clone3};
use crate::landlock;
use rustix::process::{WaitOptions, waitpid};
use std::io;

/// The version of Landlock.
pub fn landlock_abi() -> io::Result<u32> {
    landlock::abi()
}

/// Whether seccomp filters can be loaded, asked in a way that loads none.
pub fn seccomp_filters() -> io::Result<()> {
    let action: u32 = libc::SECCOMP_RET_ERRNO;
    // SAFETY: reads one u32, which outlives the call.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes a process in namespaces of every kind that a sandbox has, and lets it end.
///
/// Must be called while the process has one thread.
pub fn namespaces() -> io::Result<()> {
    let all = libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    match clone3(all, libc::SIGCHLD)? {
        // SAFETY: ends the copy at once.
        Forked::Child => unsafe { libc::_exit(0) },
        Forked::Parent { pid, .. } => {
            waitpid(Some(pid), WaitOptions::empty())?;
            Ok(())
        }
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
