//! Memory and CPU time of a sandbox without a cgroup, added up from what the Linux kernel reports for each
//! of its processes. Memory that it does not report (of descriptors and sockets) is counted as the most
//! that one can hold, and the seccomp filter refuses what cannot be bounded that way.

use super::{
    INIT, Unreadable, UsageReading, kernel_objects, read_proc_file, sockets, sum_kib, vfork,
};
use rustix::fs::{AtFlags, Mode, OFlags, openat, statat};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use types::Limits;

/// `USER_HZ`, the unit of /proc/PID/stat, which is 100 on every supported architecture.
const CLOCK_TICKS_PER_SECOND: u64 = 100;
/// One end of a pipe holds a page of the two that Linux grants to a user with many pipes; other
/// descriptors hold less.
const DESCRIPTOR_BYTES: u64 = 4096;
/// Kernel memory of a file or directory of a tmpfs besides its content.
const INODE_BYTES: u64 = 1024;
/// Scans in one reading: processes that pass memory to a child and exit can escape one scan, but not
/// each of several.
const SCANS_MAX: usize = 3;
/// Maximum process sessions (`setsid`) of a sandbox where the scheduler gives each session the same share
/// of a core, independent of the priority of its processes: with more of them the supervisor, which is
/// one session, could not enforce any limit. A program may have a session for each of a few jobs.
pub const PROCESS_SESSIONS_MAX: usize = 16;
const AUTOGROUP: &str = "/proc/sys/kernel/sched_autogroup_enabled";

/// The totals of all processes of a sandbox.
#[derive(Debug, Default)]
struct ProcessTotals {
    all: Vec<Process>,
    cpu: Duration,
    threads: u64,
    sessions: BTreeSet<String>,
    /// A process ended while its files were read.
    incomplete: bool,
    /// A process could not be read: its first thread has ended, and each other thread ended before it
    /// was read, or its files are not readable.
    unseen: bool,
}

/// One process with memory of its own.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) pid: String,
    pub(super) parent: String,
    /// The directory of the process below `/proc`.
    pub(super) path: String,
    /// Private, or still shared with the process that forked it; in memory or in swap.
    pub(super) anonymous_bytes: u64,
    /// Mapped files of the working directory, too.
    pub(super) shared_bytes: u64,
    pub(super) tables_bytes: u64,
    pub(super) descriptors: u64,
    /// The process runs in the memory of its parent, by `vfork`, and has no separate memory.
    pub(super) in_parent_memory: bool,
}

impl Process {
    fn has_own_memory(&self) -> bool {
        !self.in_parent_memory
    }
}

/// Whether a scan excludes processes that run in the memory of their parent. That costs a read for each
/// thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VforkChildren {
    Count,
    LeaveOut,
}

/// The `status` of a process, from a thread whose files show the whole process.
enum ProcessStatus {
    /// The directory of the thread below `/proc`, and the text of its `status`.
    Readable(String, String),
    /// All threads are exiting and run no code any more.
    Ending,
}

pub(super) fn read_process_totals(
    proc: &OwnedFd,
    workspace: &OwnedFd,
    limits: &Limits,
) -> UsageReading {
    let mut most = UsageReading::default();
    let mut unseen = true;
    let (mut scans, mut vfork_children) = (0, VforkChildren::Count);
    while scans < SCANS_MAX {
        let all = processes(proc, vfork_children);
        if are_too_many_process_sessions(all.sessions.len(), is_grouped_by_session) {
            // Nothing else is read, because the sessions could make that arbitrarily slow.
            return UsageReading {
                over_process_sessions: true,
                cpu: most.cpu.max(all.cpu),
                ..most
            };
        }
        let reading = sum_usage(proc, workspace, limits, &all);
        if reading.over_memory && vfork_children == VforkChildren::Count {
            // It may be that memory was counted once for a process and once for its vfork child.
            vfork_children = VforkChildren::LeaveOut;
            continue;
        }
        scans += 1;
        most.cpu = most.cpu.max(reading.cpu);
        most.memory_bytes = most.memory_bytes.max(reading.memory_bytes);
        most.over_memory |= reading.over_memory;
        most.forks_refused = most.forks_refused.max(reading.forks_refused);
        unseen &= all.unseen;
        if !all.incomplete || most.over_memory {
            break;
        }
    }
    // Ordinary threads do not end that fast, and memory that was never readable may be any amount.
    most.over_memory |= unseen;
    most
}

/// Whether there are more file locks than a sandbox may have, with or without a cgroup.
pub(super) fn too_many_locks(proc: &OwnedFd) -> bool {
    for _ in 0..SCANS_MAX {
        let all = processes(proc, VforkChildren::Count);
        if kernel_objects::examine(proc, &all.all, &[kernel_objects::LOCK]).too_many {
            return true;
        }
        if !all.unseen {
            return false;
        }
    }
    // A process that was never readable may have any number.
    true
}

fn are_too_many_process_sessions(sessions: usize, is_grouped: impl FnOnce() -> bool) -> bool {
    sessions > PROCESS_SESSIONS_MAX && is_grouped()
}

fn is_grouped_by_session() -> bool {
    std::fs::read_to_string(AUTOGROUP).is_ok_and(|setting| setting.trim() != "0")
}

fn sum_usage(
    proc: &OwnedFd,
    workspace: &OwnedFd,
    limits: &Limits,
    all: &ProcessTotals,
) -> UsageReading {
    let with_memory = || all.all.iter().filter(|process| process.has_own_memory());
    let shared: u64 = with_memory().map(|process| process.shared_bytes).sum();
    let tables: u64 = with_memory().map(|process| process.tables_bytes).sum();
    // A mapped file would count twice if its pages and its bytes were both added.
    let files = (bytes_in_files(workspace) + bytes_in_scratch(proc)).max(shared);
    let objects =
        kernel_objects::examine(proc, &all.all, &[kernel_objects::WATCH, kernel_objects::LOCK]);
    let descriptors: u64 = all.all.iter().map(|process| process.descriptors).sum();
    let held = files
        + tables
        + descriptors * DESCRIPTOR_BYTES
        + objects.listing_bytes
        + sockets::max_socket_bytes(proc);
    let mut memory_bytes = held + with_memory().map(|process| process.anonymous_bytes).sum::<u64>();
    if memory_bytes > limits.memory_bytes {
        memory_bytes =
            held + proportional_bytes(proc, &all.all, limits.memory_bytes.saturating_sub(held));
    }
    UsageReading {
        cpu: all.cpu,
        memory_bytes,
        over_memory: memory_bytes > limits.memory_bytes || objects.too_many,
        over_process_sessions: false,
        unmeasured: false,
        oom_kills: 0,
        // Refusals are not counted without a cgroup; at the limit, a refusal had that reason.
        forks_refused: u64::from(all.threads >= limits.processes),
    }
}

fn processes(proc: &OwnedFd, vfork_children: VforkChildren) -> ProcessTotals {
    let mut all = ProcessTotals::default();
    let Ok(mut pids) = numbers(proc) else {
        all.incomplete = true;
        all.unseen = true;
        return all;
    };
    pids.retain(|pid| pid != INIT);
    // After the processes were listed and before their memory is read: the parent of one that is in
    // its memory at both times waits for it in between.
    let waiting = match vfork_children {
        VforkChildren::Count => Vec::new(),
        VforkChildren::LeaveOut => vfork::waiting_threads(proc, &pids),
    };
    for pid in &pids {
        if let Err(unreadable) = add_process(&mut all, proc, pid) {
            all.incomplete = true;
            all.unseen |= unreadable == Unreadable::Unseen;
        }
    }
    vfork::mark_children(&mut all.all, &waiting);
    all
}

/// The processes in `/proc`, or the threads in the `task` directory of one.
pub(super) fn numbers(directory: &OwnedFd) -> Result<Vec<String>, Unreadable> {
    let mut numbers = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.bytes().all(|byte| byte.is_ascii_digit()) {
            numbers.push(name);
        }
    }
    Ok(numbers)
}

fn add_process(all: &mut ProcessTotals, proc: &OwnedFd, pid: &str) -> Result<(), Unreadable> {
    let stat = read_proc_file(proc, &format!("{pid}/stat"))?;
    // The command's name is in brackets and may hold anything, spaces and brackets too.
    let (_, fields) = stat.rsplit_once(')').ok_or(Unreadable::Unseen)?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    // User and system time, of itself and of children that were waited for.
    let ticks: u64 = (11..15).filter_map(number).sum();
    let threads = number(17).ok_or(Unreadable::Unseen)?;
    all.cpu += Duration::from_millis(ticks * 1000 / CLOCK_TICKS_PER_SECOND);
    all.threads += threads;
    let (path, status) = match read_process_status(proc, pid, threads)? {
        ProcessStatus::Readable(path, status) => (path, status),
        ProcessStatus::Ending => return Ok(()),
    };
    all.sessions.extend(fields.get(3).map(|&session| session.to_owned()));
    // Linux tells the number as the size of the directory since 6.2.
    let descriptors = statat(proc, format!("{path}/fd"), AtFlags::empty());
    all.all.push(Process {
        pid: pid.to_owned(),
        parent: fields.get(1).map(|&parent| parent.to_owned()).unwrap_or_default(),
        anonymous_bytes: sum_kib(&status, &["RssAnon", "VmSwap"]) * 1024,
        shared_bytes: sum_kib(&status, &["RssShmem"]) * 1024,
        tables_bytes: sum_kib(&status, &["VmPTE"]) * 1024,
        descriptors: descriptors.map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0)),
        path,
        in_parent_memory: false,
    });
    Ok(())
}

/// Reads the `status` of a process, as a rule of its first thread. A first thread that has ended while
/// others continue shows neither the memory nor the descriptors of the process. Any other thread shows
/// both: the seccomp filter lets no thread have its own descriptors.
fn read_process_status(
    proc: &OwnedFd,
    pid: &str,
    threads: u64,
) -> Result<ProcessStatus, Unreadable> {
    // A line break in a process's name is written as `\n` there, and begins no line.
    let has_memory = |status: &String| status.contains("\nRssAnon:");
    let status = read_proc_file(proc, &format!("{pid}/status"))?;
    if has_memory(&status) {
        return Ok(ProcessStatus::Readable(pid.to_owned(), status));
    }
    if threads <= 1 {
        return Ok(ProcessStatus::Ending);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let tasks = openat(proc, format!("{pid}/task"), flags, Mode::empty())?;
    let mut status = Ok(ProcessStatus::Ending);
    for thread in numbers(&tasks)? {
        let path = format!("{pid}/task/{thread}");
        match read_proc_file(proc, &format!("{path}/status")) {
            Ok(status) if has_memory(&status) => return Ok(ProcessStatus::Readable(path, status)),
            // It has released its memory, as an exiting thread does.
            Ok(_) => {}
            // Others may have been started since they were listed, with all of its memory.
            Err(_) => status = Err(Unreadable::Unseen),
        }
    }
    status
}

/// Proportional memory of processes: pages that several share count in part for each. It is expensive to
/// read, so the largest processes are read first, and no more once their sum exceeds `most`.
fn proportional_bytes(proc: &OwnedFd, processes: &[Process], most: u64) -> u64 {
    let mut largest_first: Vec<&Process> =
        processes.iter().filter(|process| process.has_own_memory()).collect();
    largest_first.sort_by_key(|process| std::cmp::Reverse(process.anonymous_bytes));
    let mut bytes = 0;
    for process in largest_first {
        // Code can make this unreadable; all of its memory then counts as private.
        let rollup = read_proc_file(proc, &format!("{}/smaps_rollup", process.path));
        bytes += rollup.map_or(process.anonymous_bytes, |rollup| {
            sum_kib(&rollup, &["Pss_Anon", "SwapPss"]) * 1024
        });
        if bytes > most {
            break;
        }
    }
    bytes
}

fn bytes_in_files(directory: impl AsFd) -> u64 {
    rustix::fs::fstatvfs(directory).map_or(0, |stat| {
        let content = (stat.f_blocks - stat.f_bfree) * stat.f_frsize;
        content + (stat.f_files - stat.f_ffree) * INODE_BYTES
    })
}

/// Bytes of files in `/tmp`, which also has those of `/dev/shm`.
fn bytes_in_scratch(proc: &OwnedFd) -> u64 {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(proc, format!("{INIT}/root/tmp"), flags, Mode::empty()).map_or(0, bytes_in_files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t139_sessions_are_bounded_only_where_the_scheduler_groups_by_them() {
        assert!(are_too_many_process_sessions(PROCESS_SESSIONS_MAX + 1, || true));
        assert!(!are_too_many_process_sessions(PROCESS_SESSIONS_MAX, || true));
        assert!(!are_too_many_process_sessions(1_000, || false));
    }
}
