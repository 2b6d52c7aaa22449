//! Memory and CPU time of a sandbox without a cgroup, added up from what the kernel tells of each
//! of its processes. What it does not tell (what a descriptor or a socket holds) is counted at the
//! most that one can hold, and what could not be bounded that way is refused by the filter.

use super::{INIT, Reading, epoll, kib, sockets, text};
use rustix::fs::{AtFlags, Mode, OFlags, openat, statat};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use types::Limits;

/// `USER_HZ`, the unit of /proc/PID/stat, which is 100 on every architecture we run on.
const CLOCK_TICKS_PER_SECOND: u64 = 100;
/// One end of a pipe holds a page of the two that Linux grants to a user with many pipes; other
/// descriptors hold less.
const DESCRIPTOR_BYTES: u64 = 4096;
/// What the kernel keeps for a file or directory of a tmpfs beside its content.
const INODE_BYTES: u64 = 1024;
/// Processes that hand memory on to a child and end can slip through one look, but not through
/// each of many.
const LOOKS_MAX: usize = 3;

/// What the processes of a sandbox have together.
#[derive(Debug, Default)]
struct Processes {
    pids: Vec<String>,
    cpu: Duration,
    threads: u64,
    /// Of its own or still shared with whoever forked it, in memory or in swap.
    anonymous_bytes: u64,
    /// Mapped files of the working directory, too.
    shared_bytes: u64,
    tables_bytes: u64,
    /// Of each process.
    descriptors: Vec<u64>,
    /// A process ended while its files were read.
    incomplete: bool,
}

pub(super) fn read(proc: &OwnedFd, workspace: &OwnedFd, limits: &Limits) -> Reading {
    let mut most = Reading::default();
    for _ in 0..LOOKS_MAX {
        let (reading, complete) = look(proc, workspace, limits);
        most.cpu = most.cpu.max(reading.cpu);
        most.memory_bytes = most.memory_bytes.max(reading.memory_bytes);
        most.over_memory |= reading.over_memory;
        most.forks_refused = most.forks_refused.max(reading.forks_refused);
        if complete || most.over_memory {
            break;
        }
    }
    most
}

fn look(proc: &OwnedFd, workspace: &OwnedFd, limits: &Limits) -> (Reading, bool) {
    let all = processes(proc);
    // A mapped file would count twice if its pages and its bytes were both added.
    let files = (bytes_in_files(workspace) + bytes_in_scratch(proc)).max(all.shared_bytes);
    let watches = epoll::watches(proc, &all.pids, &all.descriptors);
    let descriptors: u64 = all.descriptors.iter().sum();
    let held =
        files + all.tables_bytes + descriptors * DESCRIPTOR_BYTES + sockets::bytes_at_most(proc);
    let mut memory_bytes = held + all.anonymous_bytes;
    if memory_bytes > limits.memory_bytes {
        // Forked processes share most of what each seems to have. To know how much is dear, so
        // that it is asked only when it decides.
        memory_bytes = held + all.pids.iter().map(|pid| proportional_bytes(proc, pid)).sum::<u64>();
    }
    let reading = Reading {
        cpu: all.cpu,
        memory_bytes,
        over_memory: memory_bytes > limits.memory_bytes || watches > epoll::WATCHES_MAX,
        oom_kills: 0,
        // Nobody counts refusals here; with no room left, a refusal was one for that reason.
        forks_refused: u64::from(all.threads >= limits.processes),
    };
    (reading, !all.incomplete)
}

fn processes(proc: &OwnedFd) -> Processes {
    let mut all = Processes { pids: pids(proc), ..Processes::default() };
    for pid in std::mem::take(&mut all.pids) {
        match add(&mut all, proc, &pid) {
            Some(()) => all.pids.push(pid),
            None => all.incomplete = true,
        }
    }
    all
}

/// The processes of a sandbox, without the init of its jail.
fn pids(proc: &OwnedFd) -> Vec<String> {
    let entries = rustix::fs::Dir::read_from(proc).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name != INIT && name.bytes().all(|byte| byte.is_ascii_digit())).collect()
}

fn add(all: &mut Processes, proc: &OwnedFd, pid: &str) -> Option<()> {
    let stat = text(proc, &format!("{pid}/stat"))?;
    // The command's name is in brackets and may hold anything, spaces and brackets too.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    // User and system time, of itself and of children that were waited for.
    let ticks: u64 = (11..15).filter_map(number).sum();
    let status = text(proc, &format!("{pid}/status"))?;
    // Linux tells the number as the size of the directory since 6.2.
    let descriptors = statat(proc, format!("{pid}/fd"), AtFlags::empty());
    all.cpu += Duration::from_millis(ticks * 1000 / CLOCK_TICKS_PER_SECOND);
    all.threads += number(17)?;
    all.anonymous_bytes += kib(&status, &["RssAnon", "VmSwap"]) * 1024;
    all.shared_bytes += kib(&status, &["RssShmem"]) * 1024;
    all.tables_bytes += kib(&status, &["VmPTE"]) * 1024;
    all.descriptors.push(descriptors.map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0)));
    Some(())
}

/// Pages that several processes have count a part in each. Code can close this to us, and is
/// then taken by its word of having all of them alone.
fn proportional_bytes(proc: &OwnedFd, pid: &str) -> u64 {
    let (text, keys) = match text(proc, &format!("{pid}/smaps_rollup")) {
        Some(rollup) => (rollup, ["Pss_Anon", "SwapPss"]),
        None => (text(proc, &format!("{pid}/status")).unwrap_or_default(), ["RssAnon", "VmSwap"]),
    };
    kib(&text, &keys) * 1024
}

fn bytes_in_files(directory: impl AsFd) -> u64 {
    rustix::fs::fstatvfs(directory).map_or(0, |stat| {
        let content = (stat.f_blocks - stat.f_bfree) * stat.f_frsize;
        content + (stat.f_files - stat.f_ffree) * INODE_BYTES
    })
}

/// `/tmp`, which holds what was put into `/dev/shm` as well.
fn bytes_in_scratch(proc: &OwnedFd) -> u64 {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(proc, format!("{INIT}/root/tmp"), flags, Mode::empty()).map_or(0, bytes_in_files)
}
