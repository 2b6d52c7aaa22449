//! Compiles a [`Policy`] to classic BPF.
//!
//! The program is a binary search over ranges of call numbers that share a verdict. A chain of
//! comparisons is as easy to write, but Linux simulates the program once per call number when it
//! loads it, and a chain took 200 µs to load where the tree took 60 µs.
//!
//! The compiler emits instructions from the last to the first. BPF only jumps forward, so every
//! target is already placed when a jump needs it, and no offset is patched afterwards.

use std::collections::BTreeMap;

use super::{
    ArgumentCase, ArgumentCases, ArgumentHalf, ArgumentTest, Policy, SyscallRule, SyscallVerdict,
};

/// The kernel's BPF_MAXINSNS.
const MAX_INSTRUCTIONS: usize = 4096;

/// AUDIT_ARCH_* of the architecture that this policy was written for.
#[cfg(target_arch = "x86_64")]
pub(super) const NATIVE_ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
pub(super) const NATIVE_ARCH: u32 = 0xc000_00b7;

/// The verdict for any call of another architecture (`int 0x80` on x86_64).
const FOREIGN: SyscallVerdict = SyscallVerdict::Errno(libc::ENOSYS);

/// Offsets into `struct seccomp_data`; the low half of an argument comes first (little endian).
const OFFSET_OF_NUMBER: u32 = 0;
const OFFSET_OF_ARCH: u32 = 4;
const OFFSET_OF_ARGUMENTS: u32 = 16;
const ARGUMENT_SIZE: u32 = 8;
const ARGUMENTS: u8 = 6;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const GOTO: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// A filter, ready for `SECCOMP_SET_MODE_FILTER`.
#[derive(Debug, Clone)]
pub struct BpfProgram {
    instructions: Vec<libc::sock_filter>,
}

impl BpfProgram {
    /// At least one and at most 4096 instructions, so that their number fits `sock_fprog::len`.
    pub fn instructions(&self) -> &[libc::sock_filter] {
        &self.instructions
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    #[error("system call {number} is listed twice, as {first} and as {second}")]
    ListedTwice { number: u32, first: &'static str, second: &'static str },
    #[error("a rule of {call} reads argument {index}; a system call has six")]
    NoSuchArgument { call: &'static str, index: u8 },
    #[error("the filter has {instructions} instructions, more than the kernel accepts")]
    TooLong { instructions: usize },
}

/// The same policy always gives the same program.
pub fn compile(policy: &Policy) -> Result<BpfProgram, CompileError> {
    let ranges = ranges(policy)?;

    let mut code = ReverseAssembler::default();
    let search = code.search(&ranges);
    let search = code.load(OFFSET_OF_NUMBER, search);
    let foreign = code.answer(FOREIGN);
    let check_arch = code.branch(IF_EQUAL, NATIVE_ARCH, search, foreign);
    code.load(OFFSET_OF_ARCH, check_arch);

    code.finish()
}

/// Call numbers from `start` up to the next range's start.
struct NumberRange {
    start: u32,
    leaf: RangeAction,
}

#[derive(Clone, Copy)]
enum RangeAction {
    Answer(SyscallVerdict),
    Decide(&'static ArgumentCases),
}

impl RangeAction {
    fn merges_with(self, next: RangeAction) -> bool {
        match (self, next) {
            (RangeAction::Answer(a), RangeAction::Answer(b)) => a == b,
            (RangeAction::Decide(a), RangeAction::Decide(b)) => std::ptr::eq(a, b),
            _ => false,
        }
    }
}

/// All numbers from 0 to `u32::MAX`, without gaps. The x32 calls of x86_64 (bit 30 set) are in the
/// last range and unlisted like any other number.
fn ranges(policy: &Policy) -> Result<Vec<NumberRange>, CompileError> {
    let unlisted = RangeAction::Answer(policy.unlisted);
    let mut by_start = BTreeMap::from([(0, unlisted)]);
    for (number, leaf) in leaves(policy)? {
        by_start.insert(number, leaf);
        by_start.insert(number + 1, unlisted);
    }
    let mut ranges: Vec<NumberRange> =
        by_start.into_iter().map(|(start, leaf)| NumberRange { start, leaf }).collect();
    ranges.dedup_by(|next, kept| kept.leaf.merges_with(next.leaf));
    Ok(ranges)
}

fn leaves(policy: &Policy) -> Result<BTreeMap<u32, RangeAction>, CompileError> {
    let mut listed = BTreeMap::new();
    for (call, rule) in policy.rules() {
        let leaf = match rule {
            SyscallRule::Always(verdict) => RangeAction::Answer(*verdict),
            SyscallRule::ByArgument(decision) => {
                check_arguments(call.name, decision)?;
                RangeAction::Decide(decision)
            }
        };
        if let Some((first, _)) = listed.insert(call.number, (call.name, leaf)) {
            let (number, second) = (call.number, call.name);
            return Err(CompileError::ListedTwice { number, first, second });
        }
    }
    Ok(listed.into_iter().map(|(number, (_, leaf))| (number, leaf)).collect())
}

fn check_arguments(call: &'static str, decision: &ArgumentCases) -> Result<(), CompileError> {
    let tests = decision.cases.iter().flat_map(|case| case.tests);
    match tests.map(|test| test.argument.index).find(|index| *index >= ARGUMENTS) {
        Some(index) => Err(CompileError::NoSuchArgument { call, index }),
        None => Ok(()),
    }
}

/// Position of emitted code, counted from the end of the program.
#[derive(Clone, Copy, PartialEq, Eq)]
struct CodeLabel(usize);

#[derive(Default)]
struct ReverseAssembler {
    /// The last instruction of the program comes first.
    reversed: Vec<libc::sock_filter>,
    /// The nearest code that returns each verdict.
    answers: BTreeMap<SyscallVerdict, CodeLabel>,
    /// The nearest code for each decision: calls of one group share it.
    decisions: BTreeMap<*const ArgumentCases, CodeLabel>,
}

impl ReverseAssembler {
    fn search(&mut self, ranges: &[NumberRange]) -> CodeLabel {
        match ranges {
            [] => self.answer(FOREIGN),
            [only] => match only.leaf {
                RangeAction::Answer(verdict) => self.answer(verdict),
                RangeAction::Decide(decision) => self.decide(decision),
            },
            _ => {
                let (low, high) = ranges.split_at(ranges.len() / 2);
                let pivot = high.first().map_or(0, |range| range.start);
                let high = self.search(high);
                let low = self.search(low);
                self.branch(IF_AT_LEAST, pivot, high, low)
            }
        }
    }

    fn decide(&mut self, decision: &ArgumentCases) -> CodeLabel {
        if let Some(label) = self.decisions.get(&std::ptr::from_ref(decision))
            && self.reaches(*label)
        {
            return *label;
        }
        let label = self.decide_here(decision);
        self.decisions.insert(decision, label);
        label
    }

    fn decide_here(&mut self, decision: &ArgumentCases) -> CodeLabel {
        let mut otherwise = self.answer(decision.otherwise);
        for (index, case) in decision.cases.iter().enumerate().rev() {
            let before = index.checked_sub(1).and_then(|before| decision.cases.get(before));
            let mut holds = self.answer(case.then);
            for (position, test) in case.tests.iter().enumerate().rev() {
                let is_loaded = position == 0 && before.is_some_and(|case| has_loaded(case, test));
                holds = self.test(test, holds, otherwise, is_loaded);
            }
            otherwise = holds;
        }
        otherwise
    }

    fn test(
        &mut self,
        test: &ArgumentTest,
        yes: CodeLabel,
        no: CodeLabel,
        is_loaded: bool,
    ) -> CodeLabel {
        let mut compare = no;
        for value in test.any_of.iter().rev() {
            compare = self.branch(IF_EQUAL, value.bits, yes, compare);
        }
        if test.mask != u32::MAX {
            self.next_is(compare);
            compare = self.push(AND, test.mask);
        }
        if is_loaded {
            return compare;
        }
        let index = u32::from(test.argument.index);
        let half = match test.argument.half {
            ArgumentHalf::Low => 0,
            ArgumentHalf::High => ARGUMENT_SIZE / 2,
        };
        self.load(OFFSET_OF_ARGUMENTS + ARGUMENT_SIZE * index + half, compare)
    }

    /// A `ret` costs as much as a jump to one, so a new one is emitted when the last is out of
    /// reach.
    fn answer(&mut self, verdict: SyscallVerdict) -> CodeLabel {
        match self.answers.get(&verdict) {
            Some(label) if self.reaches(*label) => *label,
            _ => {
                let label = self.push(RETURN, encode(verdict));
                self.answers.insert(verdict, label);
                label
            }
        }
    }

    fn load(&mut self, offset: u32, then: CodeLabel) -> CodeLabel {
        self.next_is(then);
        self.push(LOAD, offset)
    }

    fn branch(&mut self, condition: u16, k: u32, yes: CodeLabel, no: CodeLabel) -> CodeLabel {
        let yes = self.near(yes);
        let no = self.near(no);
        // `near` left both distances below 256.
        let (jt, jf) = (self.distance(yes) as u8, self.distance(no) as u8);
        self.reversed.push(libc::sock_filter { code: condition, jt, jf, k });
        self.last()
    }

    /// The target itself, or a jump to it when it is too far for the eight bits of a branch.
    fn near(&mut self, target: CodeLabel) -> CodeLabel {
        if self.reaches(target) { target } else { self.goto(target) }
    }

    /// Makes the next instruction fall through to the code at `target`.
    fn next_is(&mut self, target: CodeLabel) {
        if self.distance(target) != 0 {
            self.goto(target);
        }
    }

    fn goto(&mut self, target: CodeLabel) -> CodeLabel {
        let distance = self.distance(target) as u32;
        self.push(GOTO, distance)
    }

    /// One less than the reach of a branch, because placing its other side may move it by one.
    fn reaches(&self, target: CodeLabel) -> bool {
        self.distance(target) < usize::from(u8::MAX)
    }

    /// Instructions between the one placed next and `target`.
    fn distance(&self, target: CodeLabel) -> usize {
        self.reversed.len() - 1 - target.0
    }

    fn push(&mut self, code: u16, k: u32) -> CodeLabel {
        self.reversed.push(libc::sock_filter { code, jt: 0, jf: 0, k });
        self.last()
    }

    fn last(&self) -> CodeLabel {
        CodeLabel(self.reversed.len() - 1)
    }

    fn finish(mut self) -> Result<BpfProgram, CompileError> {
        self.reversed.reverse();
        match self.reversed.len() {
            instructions if instructions > MAX_INSTRUCTIONS => {
                Err(CompileError::TooLong { instructions })
            }
            _ => Ok(BpfProgram { instructions: self.reversed }),
        }
    }
}

/// Whether the single path out of a failed case has the unmasked argument of `test` loaded.
fn has_loaded(case: &ArgumentCase, test: &ArgumentTest) -> bool {
    let argument = |test: &ArgumentTest| (test.argument.index, test.argument.half);
    match case.tests {
        [only] => only.mask == u32::MAX && argument(only) == argument(test),
        _ => false,
    }
}

pub(super) fn encode(verdict: SyscallVerdict) -> u32 {
    match verdict {
        SyscallVerdict::Allow => libc::SECCOMP_RET_ALLOW,
        SyscallVerdict::Succeed => libc::SECCOMP_RET_ERRNO,
        SyscallVerdict::Errno(errno) => libc::SECCOMP_RET_ERRNO | errno as u32,
    }
}
