//! Children of `vfork`, which run in the memory of their parent until they execute a program. `/proc`
//! shows that memory for both, as if each had it alone.
//!
//! The thread of the parent waits in its system call meanwhile, and `/proc/PID/task/TID/syscall` shows
//! the call with its flags, which code cannot change while it waits. A child that only looks similar (the
//! same amounts of memory, or `CLONE_VFORK` without `CLONE_VM`) has its own memory, and counts.

use super::process_totals::{Process, numbers};
use super::read_proc_file;
use rustix::fs::{Mode, OFlags, openat};
use std::os::fd::OwnedFd;

/// Maximum difference between the memory of a parent and of its child, which other threads of the parent
/// cause between the two reads.
const DIFFERENCE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// A child in the memory of its parent, which waits for it (`linux/sched.h`).
const CLONE_VM_AND_VFORK: u64 = 0x0000_0100 | 0x0000_4000;
#[cfg(target_arch = "x86_64")]
const SYS_CLONE: &str = "56";
#[cfg(target_arch = "x86_64")]
const SYS_VFORK: Option<&str> = Some("58");
/// Architectures with the common table of system calls have no `vfork`.
#[cfg(not(target_arch = "x86_64"))]
const SYS_CLONE: &str = "220";
#[cfg(not(target_arch = "x86_64"))]
const SYS_VFORK: Option<&str> = None;

/// A process with threads that each wait for a child in the memory of the process.
#[derive(Debug)]
pub(super) struct WaitingParent {
    pid: String,
    threads: usize,
}

/// The processes that wait for a vfork child. A process that cannot be read is not included: its
/// children count with their memory.
pub(super) fn waiting_threads(proc: &OwnedFd, pids: &[String]) -> Vec<WaitingParent> {
    let waiting =
        pids.iter().map(|pid| WaitingParent { pid: pid.clone(), threads: count(proc, pid) });
    waiting.filter(|parent| parent.threads > 0).collect()
}

fn count(proc: &OwnedFd, pid: &str) -> usize {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(tasks) = openat(proc, format!("{pid}/task"), flags, Mode::empty()) else {
        return 0;
    };
    let threads = numbers(&tasks).unwrap_or_default();
    let calls =
        threads.iter().filter_map(|id| read_proc_file(&tasks, &format!("{id}/syscall")).ok());
    calls.filter(|call| is_vfork(call)).count()
}

/// Whether this is a system call that waits for a child in the same memory.
fn is_vfork(call: &str) -> bool {
    let mut parts = call.split_whitespace();
    let (Some(number), Some(flags)) = (parts.next(), parts.next()) else {
        return false;
    };
    if number != SYS_CLONE {
        return Some(number) == SYS_VFORK;
    }
    let flags = flags.strip_prefix("0x").and_then(|flags| u64::from_str_radix(flags, 16).ok());
    flags.is_some_and(|flags| flags & CLONE_VM_AND_VFORK == CLONE_VM_AND_VFORK)
}

/// Marks one child for each waiting thread, the one that is most like its parent. Where others are as
/// much like it, it does not matter which of them is left out.
pub(super) fn mark_children(processes: &mut [Process], waiting: &[WaitingParent]) {
    for parent in waiting {
        let Some(bytes) = processes
            .iter()
            .find(|process| process.pid == parent.pid)
            .map(|process| process.anonymous_bytes)
        else {
            continue;
        };
        let difference = |process: &Process| process.anonymous_bytes.abs_diff(bytes);
        let mut children: Vec<&mut Process> = processes
            .iter_mut()
            .filter(|process| process.parent == parent.pid)
            .filter(|process| difference(process) <= DIFFERENCE_BYTES_MAX)
            .collect();
        children.sort_by_key(|process| difference(process));
        for child in children.into_iter().take(parent.threads) {
            child.in_parent_memory = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn process(pid: &str, parent: &str, mib: u64) -> Process {
        Process {
            pid: pid.to_owned(),
            parent: parent.to_owned(),
            anonymous_bytes: mib * MIB,
            ..Process::default()
        }
    }

    fn left_out(mut processes: Vec<Process>, waiting: &[(&str, usize)]) -> Vec<String> {
        let parent = |&(pid, threads): &(&str, usize)| WaitingParent { pid: pid.into(), threads };
        mark_children(&mut processes, &waiting.iter().map(parent).collect::<Vec<_>>());
        processes.retain(|process| process.in_parent_memory);
        processes.into_iter().map(|process| process.pid).collect()
    }

    #[test]
    fn t161_only_a_child_in_the_memory_of_its_parent_is_one_of_vfork() {
        let clone =
            |flags: &str| is_vfork(&format!("{SYS_CLONE} {flags} 0x0 0x0 0x0 0x0 0x0 0x1 0x2\n"));
        assert!(clone("0x4111"));
        // A fork, one whose parent waits although the memory is another, and a thread.
        assert!(!clone("0x11") && !clone("0x4011") && !clone("0x3d0f00"));
        assert!(!is_vfork("running\n") && !is_vfork("") && !is_vfork("0 0x4111 0x0\n"));
    }

    #[test]
    fn t161_a_waiting_thread_leaves_out_one_child_and_no_more() {
        let family =
            || vec![process("2", "1", 300), process("3", "2", 300), process("4", "2", 300)];
        assert_eq!(left_out(family(), &[("2", 1)]), ["3"]);
        assert_eq!(left_out(family(), &[("2", 2)]), ["3", "4"]);
        assert!(left_out(family(), &[("3", 1)]).is_empty(), "it has no child");
        // A child of a child of vfork is in the same memory.
        let chain = vec![process("2", "1", 300), process("3", "2", 300), process("4", "3", 300)];
        assert_eq!(left_out(chain, &[("2", 1), ("3", 1)]), ["3", "4"]);
        // One that has other memory by now is not it.
        let other = vec![process("2", "1", 300), process("3", "2", 400), process("4", "2", 2)];
        assert!(left_out(other, &[("2", 1)]).is_empty());
    }
}
