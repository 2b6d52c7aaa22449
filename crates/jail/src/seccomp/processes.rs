//! Calls that create a process or execute another program. Their rules differ between environments.

use super::arguments::{ALLOW, FORBIDDEN, ZERO, argument, bits, by_argument, values, when};
use super::numbers::*;
use super::table::{allow, forbid};
use super::{NamedValue, Syscall, SyscallArgument, SyscallGroup, calls};

const PROGRAMS: &[Syscall] = calls![SYS_execve SYS_execveat];
const CLONE: &[Syscall] = calls![SYS_clone];
/// Newer architectures have `clone` only.
#[cfg(target_arch = "x86_64")]
const FORKS: &[Syscall] = calls![SYS_fork SYS_vfork];
#[cfg(target_arch = "aarch64")]
const FORKS: &[Syscall] = &[];

pub(super) const ALLOWED: &[SyscallGroup] = &[
    allow("subprocess, multiprocessing, os.wait", PROGRAMS),
    allow("subprocess starts programs with vfork", FORKS),
    by_argument(
        "fork and threads, but no new namespace; CLONE_PARENT would make the child one of the \
         zygote's, outside (CLONE_NEWTIME is a signal number here: only clone3 knows it); a thread \
         with descriptors of its own would hide them from who counts those of its process",
        CLONE,
        &[
            when(&[bits(FORBIDDEN_CLONE_FLAGS | THREAD, FLAGS, ZERO)], ALLOW),
            when(
                &[bits(
                    FORBIDDEN_CLONE_FLAGS | CLONE_THREAD_AND_FILES,
                    FLAGS,
                    values![CLONE_THREAD_AND_FILES],
                )],
                ALLOW,
            ),
        ],
        FORBIDDEN,
    ),
];

pub(super) const DENIED: &[SyscallGroup] = &[
    forbid("this environment has no processes: no program replaces the interpreter", PROGRAMS),
    forbid("this environment has no processes", FORKS),
    by_argument(
        "threads, which the kernel knows by one flag; whatever lacks it would be a process",
        CLONE,
        &[when(
            &[bits(
                FORBIDDEN_CLONE_FLAGS | CLONE_THREAD_AND_FILES,
                FLAGS,
                values![CLONE_THREAD_AND_FILES],
            )],
            ALLOW,
        )],
        FORBIDDEN,
    ),
];

const FLAGS: SyscallArgument = argument(0, "flags");
const THREAD: u32 = CLONE_THREAD as u32;
/// The flags of a thread that shares the descriptors of its process, as every library creates it.
const CLONE_THREAD_AND_FILES: u32 = (CLONE_THREAD | CLONE_FILES) as u32;
const FORBIDDEN_CLONE_FLAGS: u32 = (CLONE_NEWNS
    | CLONE_NEWCGROUP
    | CLONE_NEWUTS
    | CLONE_NEWIPC
    | CLONE_NEWUSER
    | CLONE_NEWPID
    | CLONE_NEWNET
    | CLONE_PARENT) as u32;
