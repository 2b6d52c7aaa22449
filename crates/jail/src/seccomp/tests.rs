//! Proofs about the filters, all in the simulator.
//!
//! `threats` holds the promises of docs/threat-model.md (T07, T08); `compiler` shows that the
//! program does what the tables say.

mod compiler;
mod threats;

use super::compile::NATIVE_ARCH;
use super::simulate::{self, SeccompData};
use super::{
    ArgumentCases, ArgumentHalf, BpfProgram, Policy, SyscallRule, SyscallVerdict, compile,
};

fn sandbox() -> BpfProgram {
    compile(&Policy::sandbox()).expect("the sandbox policy compiles")
}

fn native(number: libc::c_long, args: &[u64]) -> SeccompData {
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    SeccompData {
        number: number as u32,
        arch: NATIVE_ARCH,
        instruction_pointer: 0x7fff_dead_beef,
        args: all,
    }
}

/// The program's verdict, in the terms of the table.
fn answer(program: &BpfProgram, data: &SeccompData) -> SyscallVerdict {
    match simulate::run(program.instructions(), data, |_| {}) {
        0x7fff_0000 => SyscallVerdict::Allow,
        0x0005_0000 => SyscallVerdict::Succeed,
        errno if errno & 0xffff_0000 == 0x0005_0000 => {
            SyscallVerdict::Errno((errno & 0xffff) as i32)
        }
        other => panic!("neither allow nor errno: {other:#x} for {data:?}"),
    }
}

/// The table's verdict, computed without the compiler.
fn evaluate(
    rule: Option<&SyscallRule>,
    unlisted: SyscallVerdict,
    data: &SeccompData,
) -> SyscallVerdict {
    match rule {
        _ if data.arch != NATIVE_ARCH => SyscallVerdict::Errno(libc::ENOSYS),
        None => unlisted,
        Some(SyscallRule::Always(verdict)) => *verdict,
        Some(SyscallRule::ByArgument(decision)) => judge_arguments(decision, data),
    }
}

fn judge_arguments(decision: &ArgumentCases, data: &SeccompData) -> SyscallVerdict {
    for case in decision.cases {
        let holds = case.tests.iter().all(|test| {
            let whole = data.args[usize::from(test.argument.index)];
            let half = match test.argument.half {
                ArgumentHalf::Low => whole & 0xffff_ffff,
                ArgumentHalf::High => whole >> 32,
            };
            let masked = half & u64::from(test.mask);
            test.any_of.iter().any(|value| masked == u64::from(value.bits))
        });
        if holds {
            return case.then;
        }
    }
    decision.otherwise
}
