//! Access to a sandbox's files with the sandbox's own rights.

use rustix::process::geteuid;

/// Runs `work` with the file-system identity of `uid`, on this thread only.
///
/// A supervisor that runs as root must not read or write a working directory as root: files it
/// creates would have an owner that the sandbox's user namespace does not know, and it would open
/// files of untrusted code with more rights than that code has. Any other supervisor owns the
/// sandbox's files already.
pub fn as_owner<T>(uid: u32, work: impl FnOnce() -> T) -> T {
    if !geteuid().is_root() {
        return work();
    }
    let _restore = FsIdentity::switch(uid);
    work()
}

struct FsIdentity;

impl FsIdentity {
    fn switch(id: u32) -> Self {
        // SAFETY: setfsgid and setfsuid change the credentials of this thread and touch no memory.
        // They cannot fail for root.
        unsafe {
            libc::setfsgid(id);
            libc::setfsuid(id);
        }
        Self
    }
}

impl Drop for FsIdentity {
    fn drop(&mut self) {
        // SAFETY: as in `switch`; the effective ids are still root's.
        unsafe {
            libc::setfsuid(0);
            libc::setfsgid(0);
        }
    }
}
