//! A simulator of classic BPF as seccomp runs it, for tests.
//!
//! A probe inside a sandbox cannot distinguish a refused call from a Linux kernel that lacks the
//! feature (on the build machines AF_ALG is not even compiled in), so the tests run the filter
//! itself. The simulator uses the numbers in linux/bpf_common.h, not the constants of `compile.rs`.

use libc::sock_filter;

pub(super) const X86_64: u32 = 0xc000_003e;
pub(super) const I386: u32 = 0x4000_0003;
pub(super) const AARCH64: u32 = 0xc000_00b7;
pub(super) const ARM: u32 = 0x4000_0028;
pub(super) const X32_BIT: u32 = 0x4000_0000;

/// `struct seccomp_data`.
#[derive(Debug, Clone, Copy)]
pub(super) struct SeccompData {
    pub(super) number: u32,
    pub(super) arch: u32,
    pub(super) instruction_pointer: u64,
    pub(super) args: [u64; 6],
}

impl SeccompData {
    fn bytes(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[0..4].copy_from_slice(&self.number.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.arch.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.instruction_pointer.to_ne_bytes());
        for (field, arg) in bytes[16..].chunks_mut(8).zip(self.args) {
            field.copy_from_slice(&arg.to_ne_bytes());
        }
        bytes
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProgramDefect {
    Length(usize),
    Opcode { at: usize },
    Load { at: usize },
    Jump { at: usize },
    RunsOffTheEnd,
}

/// The checks of Linux (bpf_check_classic, seccomp_check_filter) for the opcodes in use. Jumps only
/// go forward, so a program without these defects ends on every path.
pub(super) fn verify(program: &[sock_filter]) -> Result<(), ProgramDefect> {
    if program.is_empty() || program.len() > 4096 {
        return Err(ProgramDefect::Length(program.len()));
    }
    for (at, instruction) in program.iter().enumerate() {
        let left = program.len() - at - 1;
        match instruction.code {
            0x20 if instruction.k >= 64 || !instruction.k.is_multiple_of(4) => {
                return Err(ProgramDefect::Load { at });
            }
            0x05 if instruction.k as usize >= left => return Err(ProgramDefect::Jump { at }),
            0x15 | 0x35 if instruction.jt.max(instruction.jf) as usize >= left => {
                return Err(ProgramDefect::Jump { at });
            }
            0x20 | 0x54 | 0x05 | 0x15 | 0x35 | 0x06 => {}
            _ => return Err(ProgramDefect::Opcode { at }),
        }
    }
    match program[program.len() - 1].code {
        0x06 => Ok(()),
        _ => Err(ProgramDefect::RunsOffTheEnd),
    }
}

/// Returns the program's result. Calls `visit` with the position of each executed instruction.
pub(super) fn run(
    program: &[sock_filter],
    data: &SeccompData,
    mut visit: impl FnMut(usize),
) -> u32 {
    let bytes = data.bytes();
    let (mut at, mut accumulator) = (0, 0u32);
    loop {
        visit(at);
        let sock_filter { code, jt, jf, k } = program[at];
        at += 1;
        match code {
            0x20 => {
                let field = bytes[k as usize..][..4].try_into().expect("four bytes");
                accumulator = u32::from_ne_bytes(field);
            }
            0x54 => accumulator &= k,
            0x05 => at += k as usize,
            0x15 => at += usize::from(if accumulator == k { jt } else { jf }),
            0x35 => at += usize::from(if accumulator >= k { jt } else { jf }),
            0x06 => return k,
            _ => panic!("no such instruction: {code:#x}"),
        }
    }
}
