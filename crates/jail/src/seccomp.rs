//! Which system calls a sandbox may make.
//!
//! The answer is a value ([`Policy`]) written down in `table.rs` and `arguments.rs`, turned into
//! classic BPF by `compile.rs` and proved in a simulator by the tests. Loading the program into a
//! process is not done here.
//!
//! A refusal is an errno, never a signal: libraries probe for calls and fall back, and a process
//! killed for probing is an outage (dify-sandbox lost 0.1 % of its runs that way). So a call that
//! nobody decided about answers ENOSYS, as an older kernel would, and a call that is known and
//! forbidden answers EPERM. [`Verdict`] has no word for killing.
//!
//! What must never happen: a call judged by bits that the kernel does not read (see [`Test`]), or
//! a call made through another architecture's table, where the same number means something else.

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

/// A full decision table: what is listed, and the answer for everything that is not.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    tables: &'static [&'static [SyscallGroup]],
    /// Two more, in which policies that share the others differ.
    memory: &'static [SyscallGroup],
    processes: &'static [SyscallGroup],
    unlisted: SyscallVerdict,
}

impl Policy {
    /// For everything that runs user code: ordinary Python, its threads and its subprocesses.
    pub const fn sandbox() -> Policy {
        Policy {
            tables: &[
                table::ALLOWED,
                table::ALLOWED_ON_THIS_ARCH,
                table::PRETENDED,
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

    /// The same where no cgroup counts memory: what no process has mapped would be nobody's.
    pub const fn without_memory_cgroup(self) -> Policy {
        Policy { memory: memory::UNCOUNTED, ..self }
    }

    /// The same where code has one process for all its life, with as many threads as it likes.
    pub const fn without_processes(self) -> Policy {
        Policy { processes: processes::DENIED, ..self }
    }

    /// For pid 1 of a sandbox, which only reaps orphans and waits to be killed.
    ///
    /// What it does not need is EPERM: it is our own code, and nothing in it probes.
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
/// Of numbers only the low half is read because the kernel reads no more of those judged here: all
/// are `int`, `unsigned int` or `umode_t`, and `clone` truncates its flags. Comparing 64 bits would
/// let `TIOCSTI | 1 << 32` pass as an unknown command and act as TIOCSTI (CVE-2019-7303,
/// CVE-2019-10063). A pointer is null only when both halves are zero.
#[derive(Debug)]
struct ArgumentTest {
    argument: SyscallArgument,
    mask: u32,
    any_of: &'static [NamedValue],
}

/// Position of an argument, and the word the manual page has for it.
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

/// What the kernel answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SyscallVerdict {
    Allow,
    /// Return 0 without making the call.
    Succeed,
    Errno(i32),
}

/// `calls![SYS_read SYS_write]`: the name is taken from the constant, so that the two agree.
macro_rules! calls {
    ($($constant:ident)*) => {
        &[$($crate::seccomp::Syscall {
            name: stringify!($constant).split_at("SYS_".len()).1,
            number: $constant as u32,
        }),*]
    };
}
use calls;
