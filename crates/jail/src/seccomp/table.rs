//! Calls whose verdict does not depend on their arguments, each group with its reason.
//!
//! There are three kinds of refusal. FORBIDDEN returns EPERM, because pretending that Linux has no
//! `mount` would only confuse. ABSENT returns ENOSYS, and names calls that are omitted on purpose
//! although an unlisted call would get the same error. PRETENDED returns success and does nothing.
//! UNSUPPORTED returns the error of a file system without the feature.
//!
//! A call belongs in ALLOWED when Python, its common packages or glibc make it, and when it can
//! reach nothing outside the sandbox's own namespaces, cgroup and limits.

use super::numbers::*;
use super::{Syscall, SyscallGroup, SyscallRule, SyscallVerdict, calls};

pub(super) const fn allow(why: &'static str, calls: &'static [Syscall]) -> SyscallGroup {
    SyscallGroup { why, rule: SyscallRule::Always(SyscallVerdict::Allow), calls }
}

const fn pretend(why: &'static str, calls: &'static [Syscall]) -> SyscallGroup {
    SyscallGroup { why, rule: SyscallRule::Always(SyscallVerdict::Succeed), calls }
}

pub(super) const fn forbid(why: &'static str, calls: &'static [Syscall]) -> SyscallGroup {
    SyscallGroup { why, rule: SyscallRule::Always(SyscallVerdict::Errno(EPERM)), calls }
}

pub(super) const fn absent(why: &'static str, calls: &'static [Syscall]) -> SyscallGroup {
    SyscallGroup { why, rule: SyscallRule::Always(SyscallVerdict::Errno(ENOSYS)), calls }
}

const fn unsupported(why: &'static str, calls: &'static [Syscall]) -> SyscallGroup {
    SyscallGroup { why, rule: SyscallRule::Always(SyscallVerdict::Errno(EOPNOTSUPP)), calls }
}

pub(super) const ALLOWED: &[SyscallGroup] = &[
    allow(
        "read and write files and pipes",
        calls![
            SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_preadv SYS_pwritev
            SYS_close SYS_lseek SYS_dup SYS_dup3 SYS_pipe2 SYS_flock
        ],
    ),
    allow(
        "size and copy files within the workspace",
        calls![
            SYS_truncate SYS_ftruncate SYS_fallocate SYS_copy_file_range
        ],
    ),
    allow(
        "os.stat, os.access, os.scandir, os.statvfs",
        calls![
            SYS_fstat SYS_newfstatat SYS_statx SYS_statfs SYS_fstatfs SYS_faccessat SYS_faccessat2
            SYS_readlinkat SYS_getdents64 SYS_getcwd SYS_chdir SYS_fchdir
        ],
    ),
    allow(
        "make, rename, link and remove names",
        calls![
            SYS_mkdirat SYS_unlinkat SYS_renameat SYS_renameat2 SYS_linkat SYS_symlinkat SYS_umask
        ],
    ),
    allow(
        "shutil.copy2 and tarfile carry modes, owners, times and attributes along; the user \
         namespace has one id, so an owner can only be kept",
        calls![
            SYS_fchmod SYS_fchmodat SYS_fchmodat2 SYS_fchown SYS_fchownat SYS_utimensat SYS_getxattr
            SYS_lgetxattr SYS_fgetxattr SYS_listxattr SYS_llistxattr SYS_flistxattr SYS_removexattr
            SYS_lremovexattr SYS_fremovexattr
        ],
    ),
    allow(
        "wait for events: asyncio, select, selectors",
        calls![
            SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_ppoll SYS_pselect6
            SYS_eventfd2 SYS_signalfd4 SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime
        ],
    ),
    allow(
        "allocate memory; writable and executable pages stay possible, since numba, cffi and \
         ctypes callbacks need them and native code is assumed to be hostile anyway",
        calls![
            SYS_brk SYS_munmap SYS_mremap SYS_mprotect SYS_mseal
        ],
    ),
    allow(
        "keep pages in memory, within RLIMIT_MEMLOCK",
        calls![SYS_mlock SYS_mlock2 SYS_munlock SYS_mlockall SYS_munlockall],
    ),
    allow("use shared memory that is there", calls![SYS_shmat SYS_shmctl SYS_shmdt]),
    allow(
        "threads and locks",
        calls![
            SYS_futex SYS_set_robust_list SYS_get_robust_list SYS_set_tid_address SYS_rseq
            SYS_membarrier SYS_gettid
        ],
    ),
    allow(
        "subprocess, multiprocessing, os.wait",
        calls![SYS_wait4 SYS_waitid SYS_exit SYS_exit_group SYS_pidfd_open],
    ),
    allow(
        "signals; only processes of the own pid namespace can be named",
        calls![
            SYS_kill SYS_tkill SYS_tgkill SYS_pidfd_send_signal SYS_rt_sigqueueinfo
            SYS_rt_tgsigqueueinfo SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigpending
            SYS_rt_sigtimedwait SYS_rt_sigsuspend SYS_rt_sigreturn SYS_sigaltstack
            SYS_restart_syscall
        ],
    ),
    allow(
        "who am I; setting ids is left to the kernel, which allows an unprivileged process only \
         what it already is",
        calls![
            SYS_getpid SYS_getppid SYS_getpgid SYS_setpgid SYS_getsid SYS_setsid SYS_getuid
            SYS_geteuid SYS_getgid SYS_getegid SYS_getresuid SYS_getresgid SYS_getgroups SYS_setuid
            SYS_setgid SYS_setreuid SYS_setregid SYS_setresuid SYS_setresgid SYS_setfsuid
            SYS_setfsgid SYS_setgroups SYS_capget SYS_capset
        ],
    ),
    allow(
        "limits and usage; hard limits are set and only a capability could raise them",
        calls![
            SYS_getrlimit SYS_getrusage SYS_times SYS_sysinfo SYS_uname SYS_getcpu SYS_getrandom
        ],
    ),
    allow(
        "os.nice, os.sched_*: lower the own priority, choose among the cores of the cpuset",
        calls![
            SYS_getpriority SYS_setpriority SYS_ioprio_get SYS_ioprio_set SYS_sched_yield
            SYS_sched_getaffinity SYS_sched_setaffinity SYS_sched_getscheduler SYS_sched_getparam
            SYS_sched_setparam SYS_sched_getattr SYS_sched_rr_get_interval
            SYS_sched_get_priority_min SYS_sched_get_priority_max
        ],
    ),
    allow(
        "time.*, signal.setitimer, threading.Timer",
        calls![
            SYS_clock_gettime SYS_clock_getres SYS_clock_nanosleep SYS_nanosleep SYS_gettimeofday
            SYS_getitimer SYS_setitimer SYS_timer_create SYS_timer_settime SYS_timer_gettime
            SYS_timer_getoverrun SYS_timer_delete
        ],
    ),
    allow(
        "use a socket; which sockets exist is decided where they are made",
        calls![
            SYS_bind SYS_listen SYS_accept SYS_accept4 SYS_connect SYS_shutdown SYS_getsockname
            SYS_getpeername SYS_getsockopt SYS_recvmmsg
        ],
    ),
];

/// Calls that newer architectures lack; glibc on x86_64 still makes many of them.
#[cfg(target_arch = "x86_64")]
pub(super) const ALLOWED_ON_THIS_ARCH: &[SyscallGroup] = &[
    allow(
        "older spellings of the file calls",
        calls![
            SYS_creat SYS_stat SYS_lstat SYS_access SYS_readlink SYS_getdents SYS_mkdir
            SYS_rmdir SYS_unlink SYS_rename SYS_link SYS_symlink SYS_chmod SYS_chown SYS_lchown
            SYS_utime SYS_utimes SYS_futimesat SYS_dup2 SYS_pipe
        ],
    ),
    allow(
        "older spellings of waiting and time",
        calls![
            SYS_poll SYS_select SYS_epoll_create SYS_epoll_wait SYS_eventfd SYS_signalfd
            SYS_pause SYS_alarm SYS_time
        ],
    ),
    allow("an older spelling of getpgid", calls![SYS_getpgrp]),
    allow(
        "thread-local storage, AMX state, shadow stacks",
        calls![SYS_arch_prctl SYS_map_shadow_stack],
    ),
];
#[cfg(target_arch = "aarch64")]
pub(super) const ALLOWED_ON_THIS_ARCH: &[SyscallGroup] = &[];

pub(super) const PRETENDED: &[SyscallGroup] = &[
    pretend(
        "os.sync() is ordinary, and flushing the disks of the whole host is not; the workspace is \
         in memory, so there is nothing to flush (syncfs reaches the host through any file of the \
         root)",
        calls![SYS_sync SYS_syncfs],
    ),
    pretend(
        "the same for one file: on a read-only file of the host it would flush the host's disk, \
         and everything that can be written here is in memory",
        calls![SYS_fsync SYS_fdatasync SYS_sync_file_range SYS_msync],
    ),
    pretend(
        "hints; on files that are shared with the host they move pages in and out of its cache, \
         which others can see",
        calls![SYS_fadvise64 SYS_readahead],
    ),
];

pub(super) const UNSUPPORTED: &[SyscallGroup] = &[unsupported(
    "an access control list of 64 KiB can be set for each file, and no cgroup is charged for it; the \
     name of an attribute cannot be seen here, and file systems without attributes are common: \
     shutil.copy2 and tarfile go on",
    calls![SYS_setxattr SYS_lsetxattr SYS_fsetxattr],
)];

pub(super) const FORBIDDEN: &[SyscallGroup] = &[
    forbid("enter or make a namespace", calls![SYS_unshare SYS_setns]),
    forbid(
        "change or explore the mounts",
        calls![
            SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_open_tree SYS_open_tree_attr
            SYS_move_mount SYS_fsopen SYS_fsconfig SYS_fsmount SYS_fspick SYS_mount_setattr
            SYS_statmount SYS_listmount
        ],
    ),
    forbid(
        "open files by handle, past every path check",
        calls![SYS_name_to_handle_at SYS_open_by_handle_at],
    ),
    forbid(
        "look into another process",
        calls![SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_pidfd_getfd SYS_kcmp],
    ),
    forbid(
        "programs, probes and fault handlers in the kernel",
        calls![SYS_bpf SYS_perf_event_open SYS_userfaultfd SYS_seccomp],
    ),
    forbid(
        "keyrings are inherited across namespaces",
        calls![SYS_add_key SYS_request_key SYS_keyctl],
    ),
    forbid(
        "set the clock of the host",
        calls![SYS_settimeofday SYS_clock_settime SYS_adjtimex SYS_clock_adjtime],
    ),
    forbid(
        "run the machine",
        calls![
            SYS_reboot SYS_kexec_load SYS_kexec_file_load SYS_init_module SYS_finit_module
            SYS_delete_module SYS_swapon SYS_swapoff SYS_quotactl SYS_quotactl_fd SYS_acct
            SYS_syslog SYS_sethostname SYS_setdomainname SYS_vhangup
        ],
    ),
    forbid("watch the whole file system", calls![SYS_fanotify_init SYS_fanotify_mark]),
    forbid(
        "its policy is behind a pointer, where the filter cannot look; os.sched_setscheduler \
         does without",
        calls![SYS_sched_setattr],
    ),
];

#[cfg(target_arch = "x86_64")]
pub(super) const FORBIDDEN_ON_THIS_ARCH: &[SyscallGroup] =
    &[forbid("I/O ports and segment descriptors", calls![SYS_iopl SYS_ioperm SYS_modify_ldt])];
#[cfg(target_arch = "aarch64")]
pub(super) const FORBIDDEN_ON_THIS_ARCH: &[SyscallGroup] = &[];

pub(super) const ABSENT: &[SyscallGroup] = &[
    absent(
        "its flags are behind a pointer, where the filter cannot look; told ENOSYS, glibc uses \
         clone, whose flags are seen",
        calls![SYS_clone3],
    ),
    absent(
        "its flags are behind a pointer as well, and O_DIRECT among them; open and openat do the \
         same",
        calls![SYS_openat2],
    ),
    absent(
        "put pages of read-only files into pipes and sockets, where Dirty Pipe and Copy Fail \
         overwrote them; shutil, socket.sendfile and asyncio fall back to read and write",
        calls![SYS_splice SYS_tee SYS_vmsplice SYS_sendfile],
    ),
    absent(
        "watches follow the file and not the mount: one on /usr/bin tells what the host runs",
        calls![SYS_inotify_init1 SYS_inotify_add_watch SYS_inotify_rm_watch],
    ),
    absent(
        "run calls that no filter sees",
        calls![SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register],
    ),
    absent(
        "kernel AIO: memory charged to no cgroup, and Python has no way to it",
        calls![SYS_io_setup SYS_io_destroy SYS_io_submit SYS_io_cancel SYS_io_getevents],
    ),
    absent(
        "message queues and System V semaphores: a favourite of kernel exploits for shaping the \
         heap; multiprocessing builds its own from futexes and shared memory",
        calls![
            SYS_msgget SYS_msgsnd SYS_msgrcv SYS_msgctl SYS_semget SYS_semop SYS_semtimedop
            SYS_semctl SYS_mq_open SYS_mq_unlink SYS_mq_timedsend SYS_mq_timedreceive SYS_mq_notify
            SYS_mq_getsetattr
        ],
    ),
    absent(
        "NUMA placement: libnuma and OpenMP take ENOSYS for a machine without nodes and go on \
         quietly, while a half-open family makes them complain",
        calls![
            SYS_get_mempolicy SYS_set_mempolicy SYS_set_mempolicy_home_node SYS_mbind
            SYS_migrate_pages SYS_move_pages
        ],
    ),
    absent(
        "memory features that Python does not need; memfd_secret hides pages from the supervisor, cachestat \
         and mincore tell what the neighbours read",
        calls![
            SYS_memfd_secret SYS_cachestat SYS_mincore SYS_remap_file_pages SYS_process_madvise
            SYS_process_mrelease SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect
        ],
    ),
    absent(
        "too new to be needed: everybody who tries them has an older way",
        calls![
            SYS_futex_waitv SYS_futex_wake SYS_futex_wait SYS_futex_requeue SYS_lsm_get_self_attr
            SYS_lsm_set_self_attr SYS_lsm_list_modules SYS_setxattrat SYS_getxattrat SYS_listxattrat
            SYS_removexattrat SYS_file_getattr SYS_file_setattr
        ],
    ),
    absent("left from another time", calls![SYS_lookup_dcookie SYS_nfsservctl]),
];

#[cfg(target_arch = "x86_64")]
pub(super) const ABSENT_ON_THIS_ARCH: &[SyscallGroup] = &[absent(
    "left from another time",
    calls![
        SYS_inotify_init SYS_uselib SYS_ustat SYS_sysfs SYS__sysctl SYS_set_thread_area SYS_get_thread_area
        SYS_epoll_ctl_old SYS_epoll_wait_old SYS_getpmsg SYS_putpmsg SYS_afs_syscall SYS_tuxcall
        SYS_security SYS_vserver
    ],
)];
#[cfg(target_arch = "aarch64")]
pub(super) const ABSENT_ON_THIS_ARCH: &[SyscallGroup] = &[];

pub(super) const INIT: &[SyscallGroup] = &[allow(
    "wait for children and signals, return from a handler, end",
    calls![
        SYS_wait4 SYS_waitid SYS_ppoll SYS_rt_sigtimedwait SYS_rt_sigreturn SYS_restart_syscall
        SYS_exit SYS_exit_group
    ],
)];

#[cfg(target_arch = "x86_64")]
pub(super) const INIT_ON_THIS_ARCH: &[SyscallGroup] =
    &[allow("older spellings of waiting", calls![SYS_pause SYS_poll])];
#[cfg(target_arch = "aarch64")]
pub(super) const INIT_ON_THIS_ARCH: &[SyscallGroup] = &[];
