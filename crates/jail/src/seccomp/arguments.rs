//! Calls whose verdict depends on their arguments.
//!
//! Where a Linux kernel without the feature has a well-known error (EAFNOSUPPORT, ENOTTY, EINVAL),
//! the filter returns it too, because libraries handle it. EPERM is for known, forbidden calls.

use super::numbers::*;
use super::{
    ArgumentCase, ArgumentCases, ArgumentHalf, ArgumentTest, NamedValue, Syscall, SyscallArgument,
    SyscallGroup, SyscallRule, SyscallVerdict, calls,
};

pub(super) const ALLOW: SyscallVerdict = SyscallVerdict::Allow;
pub(super) const FORBIDDEN: SyscallVerdict = SyscallVerdict::Errno(EPERM);

/// `values![AF_UNIX AF_INET]`: constants of any integer type under their own names.
macro_rules! values {
    ($($constant:tt)*) => {
        &[$(NamedValue { name: stringify!($constant), bits: $constant as u32 }),*]
    };
}
pub(super) use values;

pub(super) const ZERO: &[NamedValue] = values![0];
const CORE: &[NamedValue] = values![RLIMIT_CORE];
const OPEN_FILE_LOCKS: &[NamedValue] = values![F_OFD_SETLK F_OFD_SETLKW];
const FCNTL_FORBIDDEN: &[NamedValue] = values![F_NOTIFY F_SETLEASE];
const DIRECT: u32 = O_DIRECT as u32;
/// The error of a file system without direct I/O.
const NO_DIRECT: SyscallVerdict = SyscallVerdict::Errno(EINVAL);
const URGENT: u32 = MSG_OOB as u32;
const NOT_SUPPORTED: SyscallVerdict = SyscallVerdict::Errno(EOPNOTSUPP);

pub(super) const fn by_argument(
    why: &'static str,
    calls: &'static [Syscall],
    cases: &'static [ArgumentCase],
    otherwise: SyscallVerdict,
) -> SyscallGroup {
    SyscallGroup { why, rule: SyscallRule::ByArgument(ArgumentCases { cases, otherwise }), calls }
}

pub(super) const fn when(tests: &'static [ArgumentTest], then: SyscallVerdict) -> ArgumentCase {
    ArgumentCase { tests, then }
}

pub(super) const fn argument(index: u8, name: &'static str) -> SyscallArgument {
    SyscallArgument { index, half: ArgumentHalf::Low, name }
}

const fn high_half(index: u8, name: &'static str) -> SyscallArgument {
    SyscallArgument { index, half: ArgumentHalf::High, name }
}

/// The argument is one of the values.
const fn is(argument: SyscallArgument, any_of: &'static [NamedValue]) -> ArgumentTest {
    ArgumentTest { argument, mask: u32::MAX, any_of }
}

/// The argument is one of the values once the bits of `ignored` are cleared.
const fn is_but_for(
    ignored: i32,
    argument: SyscallArgument,
    any_of: &'static [NamedValue],
) -> ArgumentTest {
    ArgumentTest { argument, mask: !(ignored as u32), any_of }
}

/// The bits of `mask` are one of the values; other bits do not matter.
pub(super) const fn bits(
    mask: u32,
    argument: SyscallArgument,
    any_of: &'static [NamedValue],
) -> ArgumentTest {
    ArgumentTest { argument, mask, any_of }
}

pub(super) const RULES: &[SyscallGroup] = &[
    by_argument(
        "close descriptors, but not in a table of one's own, which a thread would have beside that of \
         its process; EINVAL is the answer of a kernel that does not know the flag",
        calls![SYS_close_range],
        &[when(&[bits(CLOSE_RANGE_UNSHARE, argument(2, "flags"), ZERO)], ALLOW)],
        SyscallVerdict::Errno(EINVAL),
    ),
    by_argument(
        "limits may be lowered, but not that on core dumps: at one byte it stops both kinds, at \
         zero a host that pipes them to a handler would start it on what hostile code has prepared",
        calls![SYS_prlimit64],
        &[
            when(
                &[
                    is(argument(1, "resource"), CORE),
                    is(argument(2, "new limit"), ZERO),
                    is(high_half(2, "new limit's high half"), ZERO),
                ],
                ALLOW,
            ),
            when(&[is(argument(1, "resource"), CORE)], FORBIDDEN),
        ],
        ALLOW,
    ),
    by_argument(
        "duplicate, lock and size descriptors; but no leases and no notices, which reach files that \
         are shared with the host, and no locks of open files: charged to no cgroup, they stay while \
         the file is on its way in a message, where they cannot be counted (EINVAL is the answer of a \
         kernel without them)",
        calls![SYS_fcntl],
        &[
            when(&[is(argument(1, "command"), FCNTL_FORBIDDEN)], FORBIDDEN),
            when(&[is(argument(1, "command"), OPEN_FILE_LOCKS)], SyscallVerdict::Errno(EINVAL)),
            when(
                &[
                    is(argument(1, "command"), values![F_SETFL]),
                    bits(DIRECT, argument(2, "flags"), values![O_DIRECT]),
                ],
                NO_DIRECT,
            ),
        ],
        ALLOW,
    ),
    by_argument(
        "open files, but not to read past the page cache: that would load the host's disks",
        calls![SYS_openat],
        &[when(&[bits(DIRECT, argument(2, "flags"), values![O_DIRECT])], NO_DIRECT)],
        ALLOW,
    ),
    by_argument(
        "os.preadv, os.pwritev; RWF_NOWAIT would tell which files of the host are in its page \
         cache",
        calls![SYS_preadv2 SYS_pwritev2],
        &[when(
            &[is_but_for(RWF_DSYNC | RWF_SYNC | RWF_APPEND, argument(5, "flags"), ZERO)],
            ALLOW,
        )],
        SyscallVerdict::Errno(EOPNOTSUPP),
    ),
    by_argument(
        "advice about one's own memory; not to share its pages with other processes of the host, \
         which is a side channel",
        calls![SYS_madvise],
        &[when(
            &[is(argument(2, "advice"), values![MADV_MERGEABLE])],
            SyscallVerdict::Errno(EINVAL),
        )],
        ALLOW,
    ),
    by_argument(
        "send and receive; urgent data on unix sockets is rarely used code of the kernel with \
         flaws in its past, and the filter cannot tell those sockets from others (with recvmmsg \
         there is none to receive)",
        calls![SYS_sendto SYS_recvfrom SYS_sendmmsg],
        &[when(&[bits(URGENT, argument(3, "flags"), values![MSG_OOB])], NOT_SUPPORTED)],
        ALLOW,
    ),
    by_argument(
        "as sendto",
        calls![SYS_sendmsg SYS_recvmsg],
        &[when(&[bits(URGENT, argument(2, "flags"), values![MSG_OOB])], NOT_SUPPORTED)],
        ALLOW,
    ),
    by_argument(
        "as prlimit64",
        calls![SYS_setrlimit],
        &[when(&[is(argument(0, "resource"), CORE)], FORBIDDEN)],
        ALLOW,
    ),
    by_argument(
        "exotic families are where page-cache bugs live (AF_ALG, AF_RXRPC, NETLINK_XFRM); raw \
         packets and MPTCP, SCTP or ICMP are not needed to reach a proxy on loopback",
        calls![SYS_socket],
        &[
            when(&[is(FAMILY, values![AF_UNIX]), UNIX_TYPE], ALLOW),
            when(
                &[
                    is(FAMILY, INTERNET),
                    is_but_for(TYPE_FLAGS, TYPE, values![SOCK_STREAM]),
                    is(PROTOCOL, values![IPPROTO_IP IPPROTO_TCP]),
                ],
                ALLOW,
            ),
            when(
                &[
                    is(FAMILY, INTERNET),
                    is_but_for(TYPE_FLAGS, TYPE, values![SOCK_DGRAM]),
                    is(PROTOCOL, values![IPPROTO_IP IPPROTO_UDP]),
                ],
                ALLOW,
            ),
            when(
                &[
                    is(FAMILY, INTERNET),
                    is_but_for(TYPE_FLAGS, TYPE, values![SOCK_STREAM SOCK_DGRAM]),
                ],
                SyscallVerdict::Errno(EPROTONOSUPPORT),
            ),
            when(&[is(FAMILY, values![AF_UNIX AF_INET AF_INET6])], FORBIDDEN),
        ],
        SyscallVerdict::Errno(EAFNOSUPPORT),
    ),
    by_argument(
        "asyncio and multiprocessing talk over unix pairs; no other family makes pairs",
        calls![SYS_socketpair],
        &[
            when(&[is(FAMILY, values![AF_UNIX]), UNIX_TYPE], ALLOW),
            when(&[is(FAMILY, values![AF_UNIX])], FORBIDDEN),
        ],
        SyscallVerdict::Errno(EAFNOSUPPORT),
    ),
    by_argument(
        "ordinary options of ordinary sockets; not those that load BPF or hand the stream to \
         another protocol of the kernel (kTLS, ESP in UDP)",
        calls![SYS_setsockopt],
        &[
            when(
                &[is(LEVEL, values![SOL_SOCKET]), is(OPTION_NAME, LOADS_CODE)],
                SyscallVerdict::Errno(ENOPROTOOPT),
            ),
            // Socket buffers keep their default bounds, so the memory of one socket is known.
            // Forcing another size (SO_SNDBUFFORCE) takes a capability.
            when(
                &[is(LEVEL, values![SOL_SOCKET]), is(OPTION_NAME, BUFFER_SIZES)],
                SyscallVerdict::Succeed,
            ),
            when(
                &[is(LEVEL, values![IPPROTO_TCP]), is(OPTION_NAME, CHANGES_PROTOCOL)],
                SyscallVerdict::Errno(ENOPROTOOPT),
            ),
            when(
                &[is(LEVEL, values![IPPROTO_UDP]), is(OPTION_NAME, values![UDP_ENCAP])],
                SyscallVerdict::Errno(ENOPROTOOPT),
            ),
            when(
                &[is(LEVEL, values![SOL_SOCKET IPPROTO_IP IPPROTO_IPV6 IPPROTO_TCP IPPROTO_UDP])],
                ALLOW,
            ),
        ],
        SyscallVerdict::Errno(ENOPROTOOPT),
    ),
    by_argument(
        "isatty, terminal size, non-blocking sockets, bytes waiting, names of interfaces; there \
         is no terminal inside, so nothing that changes one, and never what types into one",
        calls![SYS_ioctl],
        &[
            when(&[is(REQUEST, QUESTIONS_AND_FLAGS)], ALLOW),
            when(&[is(REQUEST, TERMINAL_INJECTION)], FORBIDDEN),
            // The error of tmpfs; pathlib.Path.copy falls back on this errno and not on ENOTTY.
            when(&[is(REQUEST, values![FICLONE FICLONERANGE])], SyscallVerdict::Errno(EOPNOTSUPP)),
        ],
        SyscallVerdict::Errno(ENOTTY),
    ),
    by_argument(
        "thread names, questions about oneself, and settings that only take something away; \
         memory maps (PR_SET_VMA) stay unnamed because the names are charged to no cgroup",
        calls![SYS_prctl],
        &[when(&[is(OPTION, ABOUT_ONESELF)], ALLOW), when(&[is(OPTION, PRIVILEGES)], FORBIDDEN)],
        SyscallVerdict::Errno(EINVAL),
    ),
    by_argument(
        "ask for the personality or keep the usual one; others switch off address randomisation",
        calls![SYS_personality],
        &[when(&[is(argument(0, "persona"), values![0 QUERY])], ALLOW)],
        FORBIDDEN,
    ),
    by_argument(
        "os.sched_setscheduler among the policies that wait for their turn",
        calls![SYS_sched_setscheduler],
        &[when(
            &[is_but_for(
                SCHED_RESET_ON_FORK,
                argument(1, "policy"),
                values![SCHED_OTHER SCHED_BATCH SCHED_IDLE],
            )],
            ALLOW,
        )],
        FORBIDDEN,
    ),
    by_argument(
        "os.mkfifo and os.mknod of files, no devices",
        calls![SYS_mknodat],
        &[when(&[bits(S_IFMT, argument(2, "mode"), NODE_TYPES)], ALLOW)],
        FORBIDDEN,
    ),
];

#[cfg(target_arch = "x86_64")]
pub(super) const RULES_ON_THIS_ARCH: &[SyscallGroup] = &[
    by_argument(
        "os.mkfifo and os.mknod of files, no devices",
        calls![SYS_mknod],
        &[when(&[bits(S_IFMT, argument(1, "mode"), NODE_TYPES)], ALLOW)],
        FORBIDDEN,
    ),
    by_argument(
        "as openat",
        calls![SYS_open],
        &[when(&[bits(DIRECT, argument(1, "flags"), values![O_DIRECT])], NO_DIRECT)],
        ALLOW,
    ),
];
#[cfg(target_arch = "aarch64")]
pub(super) const RULES_ON_THIS_ARCH: &[SyscallGroup] = &[];

const FAMILY: SyscallArgument = argument(0, "family");
const TYPE: SyscallArgument = argument(1, "type");
const PROTOCOL: SyscallArgument = argument(2, "protocol");
const TYPE_FLAGS: i32 = SOCK_NONBLOCK | SOCK_CLOEXEC;
const INTERNET: &[NamedValue] = values![AF_INET AF_INET6];
const UNIX_TYPE: ArgumentTest =
    is_but_for(TYPE_FLAGS, TYPE, values![SOCK_STREAM SOCK_DGRAM SOCK_SEQPACKET]);

const LEVEL: SyscallArgument = argument(1, "level");
const OPTION_NAME: SyscallArgument = argument(2, "option");
const LOADS_CODE: &[NamedValue] = values![
    SO_ATTACH_FILTER SO_ATTACH_BPF SO_ATTACH_REUSEPORT_CBPF SO_ATTACH_REUSEPORT_EBPF SO_ZEROCOPY
];
const BUFFER_SIZES: &[NamedValue] = values![SO_SNDBUF SO_RCVBUF];
const CHANGES_PROTOCOL: &[NamedValue] =
    values![TCP_ULP TCP_MD5SIG TCP_MD5SIG_EXT TCP_REPAIR TCP_AO_ADD_KEY];

const REQUEST: SyscallArgument = argument(1, "request");
const QUESTIONS_AND_FLAGS: &[NamedValue] = values![
    TCGETS FIONBIO FIOCLEX FIONREAD TIOCGWINSZ FIONCLEX FIOASYNC FIOQSIZE TCGETS2 TIOCGPGRP TIOCGSID
    TIOCOUTQ SIOCGIFCONF SIOCGIFNAME SIOCGIFINDEX SIOCGIFFLAGS SIOCGIFADDR SIOCGIFNETMASK
    SIOCGIFBRDADDR SIOCGIFMTU SIOCGIFHWADDR
];
const TERMINAL_INJECTION: &[NamedValue] = values![TIOCSTI TIOCLINUX TIOCSETD TIOCCONS TIOCSCTTY];

const OPTION: SyscallArgument = argument(0, "option");
const ABOUT_ONESELF: &[NamedValue] = values![
    PR_SET_NAME PR_GET_NAME PR_SET_PDEATHSIG PR_GET_PDEATHSIG PR_GET_DUMPABLE PR_GET_KEEPCAPS
    PR_GET_SECCOMP PR_CAPBSET_READ PR_GET_SECUREBITS PR_SET_TIMERSLACK PR_GET_TIMERSLACK
    PR_SET_CHILD_SUBREAPER PR_GET_CHILD_SUBREAPER PR_SET_NO_NEW_PRIVS PR_GET_NO_NEW_PRIVS
    PR_GET_TID_ADDRESS PR_SET_THP_DISABLE PR_GET_THP_DISABLE PR_GET_SPECULATION_CTRL
];
const PRIVILEGES: &[NamedValue] = values![
    PR_SET_DUMPABLE PR_SET_KEEPCAPS PR_SET_SECCOMP PR_CAPBSET_DROP PR_SET_SECUREBITS PR_SET_MM
    PR_SET_PTRACER PR_CAP_AMBIENT PR_SET_SPECULATION_CTRL PR_SCHED_CORE
];

/// The argument of `personality` that only queries the current one.
const QUERY: u32 = u32::MAX;

const NODE_TYPES: &[NamedValue] = values![0 S_IFREG S_IFIFO S_IFSOCK];
