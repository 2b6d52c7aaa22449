//! Proofs about the filters, all in the simulator.
//!
//! `threats` holds the promises of docs/threat-model.md (T07, T08), `compiler` shows that the
//! program says what the tables say.

mod compiler;
mod threats;

use super::compile::NATIVE_ARCH;
use super::simulate::{self, Data};
use super::{Decision, Half, Policy, Program, Rule, Verdict, compile};

fn sandbox() -> Program {
    compile(&Policy::sandbox()).expect("the sandbox policy compiles")
}

fn native(number: libc::c_long, args: &[u64]) -> Data {
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    Data {
        number: number as u32,
        arch: NATIVE_ARCH,
        instruction_pointer: 0x7fff_dead_beef,
        args: all,
    }
}

/// The program's answer, in the words of the table.
fn answer(program: &Program, data: &Data) -> Verdict {
    match simulate::run(program.instructions(), data, |_| {}) {
        0x7fff_0000 => Verdict::Allow,
        0x0005_0000 => Verdict::Pretend,
        errno if errno & 0xffff_0000 == 0x0005_0000 => Verdict::Errno((errno & 0xffff) as i32),
        other => panic!("neither allow nor errno: {other:#x} for {data:?}"),
    }
}

/// The table's answer, read without the compiler.
fn judge(rule: Option<&Rule>, unlisted: Verdict, data: &Data) -> Verdict {
    match rule {
        _ if data.arch != NATIVE_ARCH => Verdict::Errno(libc::ENOSYS),
        None => unlisted,
        Some(Rule::Always(verdict)) => *verdict,
        Some(Rule::ByArgument(decision)) => judge_arguments(decision, data),
    }
}

fn judge_arguments(decision: &Decision, data: &Data) -> Verdict {
    for case in decision.cases {
        let holds = case.tests.iter().all(|test| {
            let whole = data.args[usize::from(test.argument.index)];
            let half = match test.argument.half {
                Half::Low => whole & 0xffff_ffff,
                Half::High => whole >> 32,
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
