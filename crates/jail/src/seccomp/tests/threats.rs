use std::path::Path;

use libc::*;

use super::super::simulate::{AARCH64, ARM, I386, X32_BIT, X86_64};
use super::super::{BpfProgram, Policy, SyscallRule, SyscallVerdict, compile};
use super::{answer, evaluate, native, sandbox};

const ALLOW: SyscallVerdict = SyscallVerdict::Allow;
const REFUSED: SyscallVerdict = SyscallVerdict::Errno(EPERM);
const MISSING: SyscallVerdict = SyscallVerdict::Errno(ENOSYS);

/// Values of the upper half of a register when only the lower half is the argument.
const UPPER_HALVES: [u64; 4] = [0, 1 << 32, 0xdead_beef << 32, 0xffff_ffff << 32];

/// Numbers past the newest call of any known Linux release.
const NUMBERS: u32 = 600;

/// Every filter that user code may run under.
const SANDBOXES: [Policy; 4] = [
    Policy::sandbox(),
    Policy::sandbox().without_memory_cgroup(),
    Policy::sandbox().without_processes(),
    Policy::sandbox().without_memory_cgroup().without_processes(),
];

/// The flags that glibc passes to `clone` for a thread.
const THREAD: c_int = CLONE_VM
    | CLONE_FS
    | CLONE_FILES
    | CLONE_SIGHAND
    | CLONE_THREAD
    | CLONE_SYSVSEM
    | CLONE_SETTLS
    | CLONE_PARENT_SETTID
    | CLONE_CHILD_CLEARTID;
const FORK: c_int = CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD;
const VFORK: c_int = CLONE_VM | CLONE_VFORK | SIGCHLD;
const FORBIDDEN_FLAGS: [c_int; 8] = [
    CLONE_NEWNS,
    CLONE_NEWCGROUP,
    CLONE_NEWUTS,
    CLONE_NEWIPC,
    CLONE_NEWUSER,
    CLONE_NEWPID,
    CLONE_NEWNET,
    CLONE_PARENT,
];

#[test]
fn t07_socket_family_matrix_filter() {
    let program = sandbox();
    let families = (0..50).chain([255, 256, 0x7fff_ffff, 0x8000_0001, 0xffff_ffff]);
    let types = (0..16).chain([0xffff_ffff]);
    for (family, kind) in families.flat_map(|family| types.clone().map(move |k| (family, k))) {
        let expected = match (family as c_int, kind as c_int) {
            (AF_UNIX, SOCK_STREAM | SOCK_DGRAM | SOCK_SEQPACKET) => ALLOW,
            (AF_INET | AF_INET6, SOCK_STREAM | SOCK_DGRAM) => ALLOW,
            (AF_UNIX | AF_INET | AF_INET6, _) => REFUSED,
            _ => SyscallVerdict::Errno(EAFNOSUPPORT),
        };
        for flags in [0, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_CLOEXEC | SOCK_NONBLOCK] {
            for upper in UPPER_HALVES {
                let args = [family | upper, kind | flags as u64 | upper, upper];
                let seen = answer(&program, &native(SYS_socket, &args));
                assert_eq!(seen, expected, "socket({family:#x}, {kind:#x}, 0), upper {upper:#x}");
            }
        }
    }
}

#[test]
fn t07_socket_protocol_matrix_filter() {
    let program = sandbox();
    for (family, kind) in [AF_INET, AF_INET6]
        .into_iter()
        .flat_map(|family| [(family, SOCK_STREAM), (family, SOCK_DGRAM)])
    {
        for protocol in (0..=300).chain([-1]) {
            let expected = match (kind, protocol) {
                (_, IPPROTO_IP) | (SOCK_STREAM, IPPROTO_TCP) | (SOCK_DGRAM, IPPROTO_UDP) => ALLOW,
                _ => SyscallVerdict::Errno(EPROTONOSUPPORT),
            };
            let args = [family as u64, kind as u64, protocol as u64];
            let seen = answer(&program, &native(SYS_socket, &args));
            assert_eq!(seen, expected, "socket({family}, {kind}, {protocol})");
        }
    }
}

#[test]
fn t07_only_unix_sockets_come_in_pairs() {
    let program = sandbox();
    for family in 0..50 {
        let pair = native(SYS_socketpair, &[family, SOCK_STREAM as u64, 0]);
        let expected = if family == 1 { ALLOW } else { SyscallVerdict::Errno(EAFNOSUPPORT) };
        assert_eq!(answer(&program, &pair), expected, "family {family}");
    }
}

/// `socketcall` of i386 hides its arguments behind a pointer, and number 41 there is `dup`: no rule
/// for the native table may be applied to another one.
#[test]
fn t07_t08_foreign_architectures_have_no_calls() {
    let program = sandbox();
    for number in (0..NUMBERS).chain([u32::MAX]) {
        let native = native(number.into(), &[AF_UNIX as u64, SOCK_STREAM as u64]);
        for arch in [X86_64, I386, AARCH64, ARM, 0].into_iter().filter(|a| *a != native.arch) {
            let mut foreign = native;
            foreign.arch = arch;
            assert_eq!(answer(&program, &foreign), MISSING, "{number} of {arch:#x}");
        }
        let mut x32 = native;
        x32.number |= X32_BIT;
        assert_eq!(answer(&program, &x32), MISSING, "{number} of x32");
    }
}

#[test]
fn t08_syscall_matrix_filter() {
    let policy = Policy::sandbox();
    let text: String = (0..NUMBERS).map(|number| policy.describe(number) + "\n").collect();
    assert_golden("syscalls", &text);
}

/// The verdicts that differ in an environment without processes.
#[test]
fn t08_syscall_matrix_filter_without_processes() {
    let policy = Policy::sandbox().without_processes();
    let differs = |number: &u32| policy.describe(*number) != Policy::sandbox().describe(*number);
    let numbers = (0..NUMBERS).filter(differs);
    let text: String = numbers.map(|number| policy.describe(number) + "\n").collect();
    assert_golden("syscalls-without-processes", &text);
}

fn assert_golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("tests/golden/{name}-{}.txt", std::env::consts::ARCH));
    if std::env::var_os("BELLJAR_REGENERATE").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    let changed: Vec<_> = text.lines().filter(|line| !golden.contains(line)).collect();
    assert!(
        text == golden,
        "the sandbox filter changed; if that is meant, run `BELLJAR_REGENERATE=1 cargo test -p \
         belljar-jail t08_syscall_matrix_filter` and review the diff of {}. New lines:\n{}",
        path.display(),
        changed.join("\n")
    );
}

/// The golden file is rendered from the tables; this test shows that the program agrees with it.
#[test]
fn t08_every_number_is_answered_as_the_table_says() {
    for policy in SANDBOXES {
        let program = compile(&policy).unwrap();
        for number in 0..NUMBERS {
            let rule = policy.rules().find(|(call, _)| call.number == number).map(|(_, rule)| rule);
            for args in [[0; 6], [1; 6], [u64::MAX; 6], [1 << 32; 6], [CLONE_THREAD as u64; 6]] {
                let data = native(number.into(), &args);
                let expected = evaluate(rule, policy.unlisted, &data);
                assert_eq!(answer(&program, &data), expected, "{}", policy.describe(number));
            }
        }
    }
}

#[test]
fn t08_nothing_kills() {
    for policy in SANDBOXES.into_iter().chain([Policy::init()]) {
        for instruction in compile(&policy).unwrap().instructions() {
            let errno = instruction.k & 0xffff;
            match (instruction.code, instruction.k & 0xffff_0000) {
                (0x06, SECCOMP_RET_ALLOW) => assert_eq!(errno, 0),
                (0x06, action) => {
                    assert_eq!(action, SECCOMP_RET_ERRNO);
                    assert!(errno < 134, "{errno} is no errno of Linux");
                }
                _ => {}
            }
        }
    }
}

/// Asserts the verdict of `clone` for these flags, for any upper half of the register.
fn clone_is(program: &BpfProgram, flags: c_int, expected: SyscallVerdict) {
    for upper in UPPER_HALVES {
        let flags = flags as u32 as u64 | upper;
        assert_eq!(answer(program, &native(SYS_clone, &[flags])), expected, "{flags:#x}");
    }
}

#[test]
fn t08_clone_makes_threads_and_processes_but_no_namespaces() {
    let program = sandbox();
    for harmless in [THREAD, FORK, VFORK] {
        clone_is(&program, harmless, ALLOW);
        for flag in FORBIDDEN_FLAGS {
            clone_is(&program, harmless | flag, REFUSED);
        }
    }
    assert_eq!(answer(&program, &native(SYS_clone3, &[0, 88])), MISSING);
}

/// The supervisor counts only the descriptors of a process, as its first thread shows them.
#[test]
fn t137_no_thread_has_descriptors_that_its_process_does_not_show() {
    for policy in SANDBOXES {
        let program = compile(&policy).unwrap();
        clone_is(&program, THREAD & !CLONE_FILES, REFUSED);
        clone_is(&program, THREAD, ALLOW);
        let close_range = |flags: c_uint| native(SYS_close_range, &[3, 9, flags.into()]);
        let both = CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC;
        for unshares in [CLOSE_RANGE_UNSHARE, both] {
            assert_eq!(answer(&program, &close_range(unshares)), SyscallVerdict::Errno(EINVAL));
        }
        for harmless in [0, CLOSE_RANGE_CLOEXEC] {
            assert_eq!(answer(&program, &close_range(harmless)), ALLOW);
        }
    }
}

/// POSIX locks end with the descriptors of their process, by which they are counted. Locks of an
/// open file description stay while the file is in transit in a message.
#[test]
fn t141_there_are_no_locks_that_nobody_can_count() {
    for policy in SANDBOXES {
        let program = compile(&policy).unwrap();
        let fcntl = |command: c_int| answer(&program, &native(SYS_fcntl, &[3, command as u64, 0]));
        assert_eq!([F_OFD_SETLK, F_OFD_SETLKW].map(fcntl), [SyscallVerdict::Errno(EINVAL); 2]);
        assert_eq!([F_SETLK, F_SETLKW, F_GETLK, F_OFD_GETLK].map(fcntl), [ALLOW; 4]);
        assert_eq!(answer(&program, &native(SYS_flock, &[3, LOCK_EX as u64])), ALLOW);
    }
}

#[test]
fn t08_without_processes_there_are_threads_and_nothing_else() {
    let program = compile(&Policy::sandbox().without_processes()).unwrap();
    clone_is(&program, THREAD, ALLOW);
    // A process that shares everything, as a thread does, is still no thread.
    for process in [FORK, VFORK, THREAD & !CLONE_THREAD, 0, SIGCHLD] {
        clone_is(&program, process, REFUSED);
    }
    for flag in FORBIDDEN_FLAGS {
        clone_is(&program, THREAD | flag, REFUSED);
    }
    assert_eq!(answer(&program, &native(SYS_clone3, &[0, 88])), MISSING);
    for program_start in [SYS_execve, SYS_execveat] {
        assert_eq!(answer(&program, &native(program_start, &[1, 1, 1])), REFUSED);
    }
    #[cfg(target_arch = "x86_64")]
    for fork in [SYS_fork, SYS_vfork] {
        assert_eq!(answer(&program, &native(fork, &[])), REFUSED);
    }
    for harmless in [SYS_exit_group, SYS_wait4, SYS_futex, SYS_gettid] {
        assert_eq!(answer(&program, &native(harmless, &[])), ALLOW);
    }
}

#[test]
fn t08_upper_half_of_an_ioctl_request_changes_nothing() {
    let program = sandbox();
    let requests = [
        (TIOCSTI, REFUSED),
        (TIOCLINUX, REFUSED),
        (TIOCSETD, REFUSED),
        (TIOCGWINSZ, ALLOW),
        (TCGETS, ALLOW),
        (FIONBIO, ALLOW),
        (TCSETS, SyscallVerdict::Errno(ENOTTY)),
        (FICLONE, SyscallVerdict::Errno(EOPNOTSUPP)),
    ];
    for (request, expected) in requests {
        for upper in UPPER_HALVES {
            let ioctl = native(SYS_ioctl, &[0, request as u32 as u64 | upper]);
            assert_eq!(answer(&program, &ioctl), expected, "ioctl {request:#x} | {upper:#x}");
        }
    }
}

/// For each call with argument rules: an allowed variant, the refused one, and its errno.
#[test]
fn t08_refused_and_harmless_twins() {
    let fifo = (S_IFIFO | 0o600) as u64;
    let device = (S_IFCHR | 0o666) as u64;
    let disk = (S_IFBLK | 0o666) as u64;
    let bpf = [3, SOL_SOCKET as u64, SO_ATTACH_FILTER as u64];
    let tls = [3, IPPROTO_TCP as u64, TCP_ULP as u64];
    let esp = [3, IPPROTO_UDP as u64, UDP_ENCAP as u64];
    let missing_option = SyscallVerdict::Errno(ENOPROTOOPT);

    let allowed_pairs: &[(c_long, &[u64], &[u64], SyscallVerdict)] = &[
        (SYS_mknodat, &[0, 0, fifo], &[0, 0, device], REFUSED),
        (SYS_mknodat, &[0, 0, 0o600], &[0, 0, disk], REFUSED),
        (SYS_personality, &[u32::MAX as u64], &[ADDR_NO_RANDOMIZE as u64], REFUSED),
        (SYS_personality, &[0], &[READ_IMPLIES_EXEC as u64], REFUSED),
        (SYS_prctl, &[PR_SET_NAME as u64], &[PR_SET_SECCOMP as u64], REFUSED),
        (SYS_prctl, &[PR_GET_DUMPABLE as u64], &[PR_SET_DUMPABLE as u64, 1], REFUSED),
        (SYS_prctl, &[PR_CAPBSET_READ as u64], &[PR_SET_PTRACER as u64], REFUSED),
        (SYS_prctl, &[PR_GET_NAME as u64], &[PR_SET_VMA as u64], SyscallVerdict::Errno(EINVAL)),
        (SYS_sched_setscheduler, &[0, SCHED_BATCH as u64], &[0, SCHED_FIFO as u64], REFUSED),
        (SYS_sched_setscheduler, &[0, SCHED_IDLE as u64], &[0, SCHED_RR as u64], REFUSED),
        (SYS_setsockopt, &[3, SOL_SOCKET as u64, SO_REUSEADDR as u64], &bpf, missing_option),
        (SYS_setsockopt, &[3, IPPROTO_TCP as u64, TCP_NODELAY as u64], &tls, missing_option),
        (SYS_setsockopt, &[3, IPPROTO_IPV6 as u64, IPV6_V6ONLY as u64], &esp, missing_option),
    ];
    let program = sandbox();
    for (number, harmless, error, how) in allowed_pairs {
        let name = Policy::sandbox().describe(*number as u32);
        assert_eq!(answer(&program, &native(*number, harmless)), ALLOW, "{name}");
        assert_eq!(answer(&program, &native(*number, error)), *how, "{name}");
    }
}

/// Calls that `strace -f` saw of CPython 3.13, glibc, numpy, pandas, matplotlib and a few shell
/// tools. A filter that is too tight is an outage, so each of them must be allowed, except where
/// the caller was seen to fall back.
#[cfg(target_arch = "x86_64")]
#[test]
fn t08_what_python_calls_is_possible() {
    let falls_back = ["clone3", "get_mempolicy", "mbind", "sendfile", "set_mempolicy", "setxattr"];
    let policy = Policy::sandbox();
    let used = include_str!("../../../tests/golden/syscalls-used-by-python-x86_64.txt");
    let impossible: Vec<_> = used
        .split_whitespace()
        .filter(|used| {
            let mut rules = policy.rules().filter(|(call, _)| call.name == *used);
            match rules.next() {
                Some((_, SyscallRule::Always(verdict))) => {
                    matches!(verdict, SyscallVerdict::Errno(_))
                }
                Some((_, SyscallRule::ByArgument(_))) => false,
                None => true,
            }
        })
        .collect();
    assert_eq!(impossible, falls_back);
}

#[test]
fn t08_init_can_only_wait_and_end() {
    let program = compile(&Policy::init()).unwrap();
    for needed in [SYS_wait4, SYS_waitid, SYS_rt_sigtimedwait, SYS_rt_sigreturn, SYS_exit_group] {
        assert_eq!(answer(&program, &native(needed, &[])), ALLOW);
    }
    for needless in [SYS_openat, SYS_execve, SYS_clone, SYS_clone3, SYS_kill, SYS_socket, 999] {
        assert_eq!(answer(&program, &native(needless, &[])), REFUSED);
    }
}

/// Refused options by name, each with the nearest allowed one.
#[test]
fn t91_options_that_reach_around_limits_are_refused_and_their_twins_are_not() {
    let program = sandbox();
    let option = |level: c_int, name: c_int| [3, level as u64, name as u64, 0, 4, 0];
    let flags = |index: usize, flags: c_int| {
        let mut args = [3, 0, 0, 0, 0, 0];
        args[index] = flags as u32 as u64;
        args
    };
    let invalid = SyscallVerdict::Errno(EINVAL);
    let unsupported = SyscallVerdict::Errno(EOPNOTSUPP);
    let no_option = SyscallVerdict::Errno(ENOPROTOOPT);
    let no_memory = SyscallVerdict::Errno(ENOMEM);
    let anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
    let cases = [
        (SYS_setsockopt, option(SOL_SOCKET, SO_SNDBUF), SyscallVerdict::Succeed),
        (SYS_setsockopt, option(SOL_SOCKET, SO_RCVBUF), SyscallVerdict::Succeed),
        (SYS_setsockopt, option(SOL_SOCKET, SO_REUSEADDR), ALLOW),
        (SYS_setsockopt, option(IPPROTO_TCP, TCP_MD5SIG), no_option),
        (SYS_setsockopt, option(IPPROTO_TCP, TCP_MD5SIG_EXT), no_option),
        (SYS_setsockopt, option(IPPROTO_TCP, TCP_NODELAY), ALLOW),
        (SYS_getsockopt, option(SOL_SOCKET, SO_SNDBUF), ALLOW),
        (SYS_sendto, flags(3, MSG_OOB | MSG_DONTWAIT), unsupported),
        (SYS_sendmsg, flags(2, MSG_OOB), unsupported),
        (SYS_recvfrom, flags(3, MSG_OOB), unsupported),
        (SYS_recvmsg, flags(2, MSG_OOB), unsupported),
        (SYS_sendmmsg, flags(3, MSG_OOB), unsupported),
        (SYS_sendto, flags(3, MSG_NOSIGNAL), ALLOW),
        (SYS_recvmsg, flags(2, MSG_PEEK), ALLOW),
        (SYS_madvise, flags(2, MADV_MERGEABLE), invalid),
        (SYS_madvise, flags(2, MADV_DONTNEED), ALLOW),
        (SYS_mincore, flags(2, 0), MISSING),
        (SYS_openat2, flags(2, 0), MISSING),
        (SYS_openat, flags(2, O_RDONLY | O_DIRECT), invalid),
        (SYS_openat, flags(2, O_RDONLY | O_DIRECTORY), ALLOW),
        (SYS_fcntl, [3, F_SETFL as u64, (O_NONBLOCK | O_DIRECT) as u64, 0, 0, 0], invalid),
        (SYS_fcntl, [3, F_SETFL as u64, O_NONBLOCK as u64, 0, 0, 0], ALLOW),
        (SYS_fcntl, [3, F_DUPFD as u64, O_DIRECT as u64, 0, 0, 0], ALLOW),
        (SYS_preadv2, flags(5, RWF_NOWAIT), unsupported),
        (SYS_preadv2, flags(5, 0), ALLOW),
        (SYS_pwritev2, flags(5, RWF_APPEND), ALLOW),
        (SYS_mmap, flags(3, anonymous | MAP_HUGETLB), no_memory),
        (SYS_mmap, flags(3, anonymous), ALLOW),
        (SYS_memfd_create, flags(1, MFD_HUGETLB as c_int), no_memory),
        (SYS_memfd_create, flags(1, MFD_CLOEXEC as c_int), ALLOW),
    ];
    for (number, args, expected) in cases {
        assert_eq!(answer(&program, &native(number, &args)), expected, "{number} {args:x?}");
    }
    #[cfg(target_arch = "x86_64")]
    assert_eq!(answer(&program, &native(SYS_open, &flags(1, O_DIRECT))), invalid);
}

#[test]
fn t86_shared_anonymous_memory_is_refused_where_nobody_counts_it() {
    let shared = MAP_SHARED | MAP_ANONYMOUS;
    let allowed_pairs = [MAP_PRIVATE | MAP_ANONYMOUS, MAP_SHARED, MAP_SHARED_VALIDATE, MAP_PRIVATE];
    for policy in SANDBOXES {
        let program = compile(&policy).unwrap();
        let map = |flags: c_int| answer(&program, &native(SYS_mmap, &[0, 4096, 3, flags as u64]));
        let counted = answer(&program, &native(SYS_memfd_create, &[0, 0])) == ALLOW;
        let expected = if counted { ALLOW } else { REFUSED };
        for more in [0, MAP_NORESERVE, MAP_FIXED, MAP_POPULATE, MAP_STACK] {
            assert_eq!(map(shared | more), expected, "{more:#x}");
            for harmless in allowed_pairs {
                assert_eq!(map(harmless | more), ALLOW, "{harmless:#x} {more:#x}");
            }
        }
    }
}
