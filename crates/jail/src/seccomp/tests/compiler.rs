use std::collections::BTreeMap;

use super::super::simulate::{self, I386, ProgramDefect, SeccompData, X32_BIT};
use super::super::{
    ArgumentCase, ArgumentCases, ArgumentHalf, ArgumentTest, CompileError, NamedValue, Policy,
    Syscall, SyscallArgument, SyscallGroup, SyscallRule, SyscallVerdict, compile,
};
use super::{answer, evaluate, native, sandbox};

const SAMPLES: usize = 1_000_000;

#[test]
fn sandbox_program_agrees_with_its_table() {
    agrees(&Policy::sandbox(), SAMPLES);
}

#[test]
fn init_program_agrees_with_its_table() {
    agrees(&Policy::init(), SAMPLES / 10);
}

#[test]
fn program_with_far_jumps_agrees_with_its_table() {
    let policy = crowded(100, 20);
    let program = compile(&policy).unwrap();
    let far = program.instructions().iter().filter(|i| i.code == 0x05).count();
    assert!(far > 10, "only {far} far jumps: this test tests nothing");
    agrees(&policy, SAMPLES / 10);
}

#[test]
fn programs_pass_the_checks_of_the_kernel() {
    for policy in [Policy::sandbox(), Policy::init(), crowded(100, 20)] {
        let program = compile(&policy).unwrap();
        assert_eq!(simulate::verify(program.instructions()), Ok(()));
    }
}

#[test]
fn checks_of_the_kernel_find_defects() {
    let good = sandbox().instructions().to_vec();
    let last = good.len() - 1;

    let mut cut = good.clone();
    while cut.pop_if(|instruction| instruction.code == 0x06).is_some() {}
    assert!(simulate::verify(&cut).is_err());

    let mut jumps_out = good.clone();
    jumps_out[last - 1] = libc::sock_filter { code: 0x05, jt: 0, jf: 0, k: 1 };
    assert_eq!(simulate::verify(&jumps_out), Err(ProgramDefect::Jump { at: last - 1 }));

    let mut loads_past_the_data = good;
    loads_past_the_data[0].k = 64;
    assert_eq!(simulate::verify(&loads_past_the_data), Err(ProgramDefect::Load { at: 0 }));
}

#[test]
fn same_policy_gives_the_same_program() {
    let (first, second) = (format!("{:?}", sandbox()), format!("{:?}", sandbox()));
    assert_eq!(first, second);
}

/// Load time grows with the program, and each call pays for its path (unless the Linux kernel has cached
/// that it is always allowed).
#[test]
fn sandbox_program_is_small_and_paths_are_short() {
    let program = sandbox();
    let length = program.instructions().len();
    assert!(length <= 370, "{length} instructions");

    let mut paths: Vec<usize> = Policy::sandbox()
        .rules()
        .map(|(call, _)| {
            let mut steps = 0;
            let data = native(call.number.into(), &[]);
            simulate::run(program.instructions(), &data, |_| steps += 1);
            steps
        })
        .collect();
    paths.sort_unstable();
    let (median, longest) = (paths[paths.len() / 2], paths[paths.len() - 1]);
    assert!(median <= 12, "median path of {median} instructions");
    assert!(longest <= 60, "longest path of {longest} instructions");
}

#[test]
fn call_listed_twice_is_refused() {
    let group = || SyscallGroup {
        why: "",
        rule: SyscallRule::Always(SyscallVerdict::Allow),
        calls: leak(vec![call(7)]),
    };
    let error = compile(&policy(vec![group(), group()])).unwrap_err();
    let expected = CompileError::ListedTwice { number: 7, first: "test", second: "test" };
    assert_eq!(error, expected);
}

#[test]
fn seventh_argument_is_refused() {
    let rule = one_of(6, 1);
    let error = compile(&policy(vec![SyscallGroup { why: "", rule, calls: leak(vec![call(7)]) }]));
    assert_eq!(error.unwrap_err(), CompileError::NoSuchArgument { call: "test", index: 6 });
}

#[test]
fn program_the_kernel_would_not_take_is_refused() {
    let error = compile(&crowded(100, 100)).unwrap_err();
    assert!(matches!(error, CompileError::TooLong { instructions } if instructions > 10_000));
}

/// Every other number is decided by an argument with `values` values.
fn crowded(calls: u32, values: u32) -> Policy {
    policy(
        (0..calls)
            .map(|position| SyscallGroup {
                why: "",
                rule: one_of((position % 6) as u8, values),
                calls: leak(vec![call(position * 2)]),
            })
            .collect(),
    )
}

fn policy(groups: Vec<SyscallGroup>) -> Policy {
    Policy {
        tables: leak(vec![leak(groups)]),
        memory: &[],
        processes: &[],
        unlisted: SyscallVerdict::Errno(libc::ENOSYS),
    }
}

fn one_of(index: u8, values: u32) -> SyscallRule {
    let any_of = leak((0..values).map(|bits| NamedValue { name: "value", bits }).collect());
    let tests = leak(vec![ArgumentTest {
        argument: SyscallArgument { index, half: ArgumentHalf::Low, name: "test" },
        mask: 0xff,
        any_of,
    }]);
    let cases = leak(vec![ArgumentCase { tests, then: SyscallVerdict::Allow }]);
    SyscallRule::ByArgument(ArgumentCases { cases, otherwise: SyscallVerdict::Errno(libc::EPERM) })
}

fn call(number: u32) -> Syscall {
    Syscall { name: "test", number }
}

fn leak<T>(items: Vec<T>) -> &'static [T] {
    Box::leak(items.into_boxed_slice())
}

/// Runs random calls through both, and checks that they reached every instruction.
fn agrees(policy: &Policy, samples: usize) {
    let program = compile(policy).unwrap();
    let rules: BTreeMap<u32, &SyscallRule> =
        policy.rules().map(|(call, rule)| (call.number, rule)).collect();
    let mut visited = vec![false; program.instructions().len()];
    let mut dice = Dice::new(&rules);

    for _ in 0..samples {
        let data = dice.call();
        let expected = evaluate(rules.get(&data.number).copied(), policy.unlisted, &data);
        assert_eq!(answer(&program, &data), expected, "{data:?}");
        simulate::run(program.instructions(), &data, |at| visited[at] = true);
    }
    let missed: Vec<_> = (0..visited.len()).filter(|at| !visited[*at]).collect();
    assert_eq!(missed, [0; 0], "instructions that no sample reached");
}

/// Random calls, biased towards the listed numbers and the values in the rules.
struct Dice {
    state: u64,
    listed: Vec<u32>,
    decision: Vec<u32>,
    known: Vec<u32>,
}

impl Dice {
    fn new(rules: &BTreeMap<u32, &SyscallRule>) -> Dice {
        let mut dice = Dice {
            state: 0xbe11_1a12,
            listed: rules.keys().copied().collect(),
            decision: vec![0],
            known: vec![0, u32::MAX],
        };
        for (number, rule) in rules {
            if let SyscallRule::ByArgument(decision) = rule {
                dice.decision.push(*number);
                let tests = decision.cases.iter().flat_map(|case| case.tests);
                dice.known.extend(tests.flat_map(|test| test.any_of).map(|value| value.bits));
            }
        }
        dice.known.sort_unstable();
        dice.known.dedup();
        dice
    }

    fn call(&mut self) -> SeccompData {
        let number = match self.roll(8) {
            0 => self.next() as u32,
            1 => self.roll(600) as u32 | X32_BIT,
            2 => self.roll(600) as u32,
            3 => self.pick(|dice| &dice.listed),
            _ => self.pick(|dice| &dice.decision),
        };
        let mut data = native(number.into(), &[]);
        data.args = std::array::from_fn(|_| self.argument());
        data.instruction_pointer = self.next();
        if self.roll(16) == 0 {
            data.arch = I386;
        }
        data
    }

    fn argument(&mut self) -> u64 {
        let low = match self.roll(8) {
            0 => self.next() as u32,
            1 => 1 << self.roll(32),
            2 => self.pick(|dice| &dice.known) ^ (1 << self.roll(32)),
            3..5 => self.roll(40) as u32,
            _ => self.pick(|dice| &dice.known),
        };
        let high = if self.roll(2) == 0 { self.next() << 32 } else { 0 };
        high | u64::from(low)
    }

    fn pick(&mut self, from: impl Fn(&Dice) -> &Vec<u32>) -> u32 {
        let position = self.roll(from(self).len());
        from(self)[position]
    }

    fn roll(&mut self, sides: usize) -> usize {
        (self.next() % sides as u64) as usize
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
