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

pub use compile::{CompileError, Program, compile};

/// A full decision table: what is listed, and the answer for everything that is not.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    tables: &'static [&'static [Group]],
    /// Two more, in which policies that share the others differ.
    memory: &'static [Group],
    processes: &'static [Group],
    unlisted: Verdict,
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
            unlisted: Verdict::Errno(libc::ENOSYS),
        }
    }

    /// The same where no cgroup counts memory: what no process has mapped would be nobody's.
    pub const fn uncounted(self) -> Policy {
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
            unlisted: Verdict::Errno(libc::EPERM),
        }
    }

    /// Every listed call with its rule, in the order of the tables.
    fn rules(&self) -> impl Iterator<Item = (&'static Call, &'static Rule)> {
        self.groups().flat_map(|group| group.calls.iter().map(|call| (call, &group.rule)))
    }

    fn groups(&self) -> impl Iterator<Item = &'static Group> {
        let shared = self.tables.iter().flat_map(|table| table.iter());
        shared.chain(self.memory).chain(self.processes)
    }
}

/// Calls that share a rule and the reason for it.
#[derive(Debug)]
struct Group {
    why: &'static str,
    rule: Rule,
    calls: &'static [Call],
}

#[derive(Debug)]
struct Call {
    name: &'static str,
    number: u32,
}

#[derive(Debug)]
enum Rule {
    Always(Verdict),
    ByArgument(Decision),
}

/// The first case whose tests all hold decides.
#[derive(Debug)]
struct Decision {
    cases: &'static [Case],
    otherwise: Verdict,
}

#[derive(Debug)]
struct Case {
    tests: &'static [Test],
    then: Verdict,
}

/// Holds when one half of an argument, masked, is one of some values.
///
/// Of numbers only the low half is read because the kernel reads no more of those judged here: all
/// are `int`, `unsigned int` or `umode_t`, and `clone` truncates its flags. Comparing 64 bits would
/// let `TIOCSTI | 1 << 32` pass as an unknown command and act as TIOCSTI (CVE-2019-7303,
/// CVE-2019-10063). A pointer is null only when both halves are zero.
#[derive(Debug)]
struct Test {
    argument: Argument,
    mask: u32,
    any_of: &'static [Value],
}

/// Position of an argument, and the word the manual page has for it.
#[derive(Debug)]
struct Argument {
    index: u8,
    half: Half,
    name: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    Low,
    High,
}

#[derive(Debug)]
struct Value {
    name: &'static str,
    bits: u32,
}

/// What the kernel answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Allow,
    /// Return 0 without making the call.
    Pretend,
    Errno(i32),
}

/// `calls![SYS_read SYS_write]`: the name is taken from the constant, so that the two agree.
macro_rules! calls {
    ($($constant:ident)*) => {
        &[$($crate::seccomp::Call {
            name: stringify!($constant).split_at("SYS_".len()).1,
            number: $constant as u32,
        }),*]
    };
}
use calls;
