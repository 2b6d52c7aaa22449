//! The system calls that a sandbox may make.
//!
//! The decision is a value ([`Policy`]), written in `table.rs` and `arguments.rs`, compiled to
//! classic BPF by `compile.rs` and proved in a simulator by the tests. This module does not load
//! the program into a process.
//!
//! A refused call returns an errno and never raises a signal: libraries probe for calls and fall
//! back, and a process killed for probing is an outage (dify-sandbox lost 0.1 % of its runs that
//! way). An unlisted call returns ENOSYS, as an older Linux kernel would, and a known, forbidden
//! call returns EPERM. `SyscallVerdict` has no variant for killing.
//!
//! Two things must never happen: a verdict based on bits that Linux does not read (see
//! `ArgumentTest`), and a call made through another architecture's table, where the same number
//! means something else.

mod arguments;
mod compile;
mod memory;
mod numbers;
mod processes;
mod render;
mod table;

#[cfg(test)]
mod simulate;
#[cfg(test)]
mod tests;

pub use compile::{BpfProgram, CompileError, compile};

/// A complete decision table: the listed calls, and the verdict for all others.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    tables: &'static [&'static [SyscallGroup]],
    /// Two more groups, in which policies that share the others differ.
    memory: &'static [SyscallGroup],
    processes: &'static [SyscallGroup],
    unlisted: SyscallVerdict,
}

impl Policy {
    /// For processes that run user code: ordinary Python, its threads and its subprocesses.
    pub const fn sandbox() -> Policy {
        Policy {
            tables: &[
                table::ALLOWED,
                table::ALLOWED_ON_THIS_ARCH,
                table::PRETENDED,
                table::UNSUPPORTED,
                table::FORBIDDEN,
                table::FORBIDDEN_ON_THIS_ARCH,
                table::ABSENT,
                table::ABSENT_ON_THIS_ARCH,
                arguments::RULES,
                arguments::RULES_ON_THIS_ARCH,
            ],
            memory: memory::COUNTED,
            processes: processes::ALLOWED,
            unlisted: SyscallVerdict::Errno(libc::ENOSYS),
        }
    }

    /// The same policy where no cgroup counts memory: it refuses memory that no process has mapped,
    /// because the supervisor could not count it.
    pub const fn without_memory_cgroup(self) -> Policy {
        Policy { memory: memory::UNCOUNTED, ..self }
    }

    /// The same policy for code that has a single process, with any number of threads.
    pub const fn without_processes(self) -> Policy {
        Policy { processes: processes::DENIED, ..self }
    }

    /// For pid 1 of a sandbox, which only reaps orphans and waits to be killed.
    ///
    /// Calls that it does not need return EPERM: it is trusted code that never probes for calls.
    pub const fn init() -> Policy {
        Policy {
            tables: &[table::INIT, table::INIT_ON_THIS_ARCH],
            memory: &[],
            processes: &[],
            unlisted: SyscallVerdict::Errno(libc::EPERM),
        }
    }

    /// Every listed call with its rule, in the order of the tables.
    fn rules(&self) -> impl Iterator<Item = (&'static Syscall, &'static SyscallRule)> {
        self.syscall_groups().flat_map(|group| group.calls.iter().map(|call| (call, &group.rule)))
    }

    fn syscall_groups(&self) -> impl Iterator<Item = &'static SyscallGroup> {
        let shared = self.tables.iter().flat_map(|table| table.iter());
        shared.chain(self.memory).chain(self.processes)
    }
}

/// Calls that share a rule and the reason for it.
#[derive(Debug)]
struct SyscallGroup {
    why: &'static str,
    rule: SyscallRule,
    calls: &'static [Syscall],
}

#[derive(Debug)]
struct Syscall {
    name: &'static str,
    number: u32,
}

#[derive(Debug)]
enum SyscallRule {
    Always(SyscallVerdict),
    ByArgument(ArgumentCases),
}

/// The first case whose tests all hold decides.
#[derive(Debug)]
struct ArgumentCases {
    cases: &'static [ArgumentCase],
    otherwise: SyscallVerdict,
}

#[derive(Debug)]
struct ArgumentCase {
    tests: &'static [ArgumentTest],
    then: SyscallVerdict,
}

/// Holds when one half of an argument, masked, is one of some values.
///
/// For numbers it reads only the low half, because Linux reads no more of the arguments tested
/// here: all are `int`, `unsigned int` or `umode_t`, and `clone` truncates its flags. Comparing 64
/// bits would let `TIOCSTI
///
/// 1 << 32` pass as an unknown command and act as TIOCSTI (CVE-2019-7303, CVE-2019-10063). A
/// pointer is null only when both halves are zero.
#[derive(Debug)]
struct ArgumentTest {
    argument: SyscallArgument,
    mask: u32,
    any_of: &'static [NamedValue],
}

/// Position of an argument, and its name in the manual page.
#[derive(Debug)]
struct SyscallArgument {
    index: u8,
    half: ArgumentHalf,
    name: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArgumentHalf {
    Low,
    High,
}

#[derive(Debug)]
struct NamedValue {
    name: &'static str,
    bits: u32,
}

/// The result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SyscallVerdict {
    Allow,
    /// Return 0 without making the call.
    Succeed,
    Errno(i32),
}

/// `calls![SYS_read SYS_write]`: takes the name from the constant, so that the two agree.
macro_rules! calls {
    ($($constant:ident)*) => {
        &[$($crate::seccomp::Syscall {
            name: stringify!($constant).split_at("SYS_".len()).1,
            number: $constant as u32,
        }),*]
    };
}
use calls;
