//! Landlock: a second isolation layer for files, effective even if a mount is there by mistake, and
//! the layer for signals and abstract sockets.

use crate::plan::PathAccess;
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const MAKE_CHAR: u64 = 1 << 6;
const MAKE_BLOCK: u64 = 1 << 11;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;
/// Rights that apply to a file; Linux refuses the others for one.
const FILE_RIGHTS: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;
const SCOPE_ABSTRACT_UNIX_SOCKET: u64 = 1 << 0;
const SCOPE_SIGNAL: u64 = 1 << 1;
const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: libc::c_int = 1;

#[repr(C)]
struct RulesetAttr {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathBeneathAttr {
    allowed_access: u64,
    parent_fd: RawFd,
}

/// The Landlock ABI version of this Linux kernel, or why it has none.
pub(crate) fn abi() -> io::Result<u32> {
    // SAFETY: with the version flag Linux takes no pointer.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<RulesetAttr>(),
            0usize,
            CREATE_RULESET_VERSION,
        )
    };
    u32::try_from(version).map_err(|_| io::Error::last_os_error())
}

/// Every file-system right that ABI version `abi` can restrict.
fn handled_access(abi: u32) -> u64 {
    let bits = match abi {
        0 | 1 => 13,
        2 => 14,
        3 | 4 => 15,
        _ => 16,
    };
    (1 << bits) - 1
}

fn rights(access: PathAccess) -> u64 {
    match access {
        PathAccess::List => READ_DIR,
        PathAccess::Read => EXECUTE | READ_FILE | READ_DIR,
        PathAccess::Write => !(MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV),
        PathAccess::Device => READ_FILE | WRITE_FILE | IOCTL_DEV,
    }
}

/// Restricts this process, and all its future children, to `rules`. Every path outside of the rules
/// is inaccessible.
pub(crate) fn restrict(rules: &[(PathBuf, PathAccess)]) -> io::Result<()> {
    restrict_self(&ruleset(rules)?)
}

/// The first step of [`restrict`], which allocates memory.
pub(crate) fn ruleset(rules: &[(PathBuf, PathAccess)]) -> io::Result<OwnedFd> {
    let abi = abi()?;
    let handled = handled_access(abi);
    let scoped = if abi >= 6 { SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL } else { 0 };
    let ruleset =
        create_ruleset(&RulesetAttr { handled_access_fs: handled, handled_access_net: 0, scoped })?;
    for (path, access) in rules {
        allow(&ruleset, path, rights(*access) & handled)?;
    }
    Ok(ruleset)
}

/// The second step of [`restrict`]: system calls only.
pub(crate) fn restrict_self(ruleset: &OwnedFd) -> io::Result<()> {
    // SAFETY: takes a descriptor and flags, no memory.
    let result =
        unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0u32) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn create_ruleset(attr: &RulesetAttr) -> io::Result<OwnedFd> {
    // An older Linux kernel accepts a longer struct if the fields it does not know are zero.
    // SAFETY: `attr` outlives the call, and its size is passed with it.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::from_ref(attr),
            size_of_val(attr),
            0u32,
        )
    };
    let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: Linux has just created this descriptor for this call.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn allow(ruleset: &OwnedFd, path: &Path, allowed: u64) -> io::Result<()> {
    let target = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let is_dir = rustix::fs::fstat(&target)?.st_mode & libc::S_IFMT == libc::S_IFDIR;
    let rule = PathBeneathAttr {
        allowed_access: if is_dir { allowed } else { allowed & FILE_RIGHTS },
        parent_fd: target.as_fd().as_raw_fd(),
    };
    // SAFETY: `rule` outlives the call, and the rule type says which struct it is.
    let result = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            RULE_PATH_BENEATH,
            &raw const rule,
            0u32,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
