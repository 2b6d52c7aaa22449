//! Observing a sandbox from outside: CPU time, memory, and the events that explain an end.
//!
//! With a cgroup the kernel counts and holds the limits itself. Without one, which is what an
//! ordinary user has, the processes are added up through the jail's `/proc` at every tick, and
//! the supervisor does the killing.

use jail::cgroup::{Group, Used};
use rustix::fs::{Mode, OFlags, openat};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Often enough that a limit is noticed well within a second of being passed.
pub(crate) const TICK: Duration = Duration::from_millis(50);
/// `USER_HZ`, the unit of /proc/PID/stat, which is 100 on every architecture we run on.
const CLOCK_TICKS_PER_SECOND: u64 = 100;
const PAGE_BYTES: u64 = 4096;

/// What a sandbox has used up to now.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reading {
    pub(crate) cpu: Duration,
    pub(crate) memory_bytes: u64,
    pub(crate) oom_kills: u64,
    pub(crate) forks_refused: u64,
}

/// Looks at the cgroup, or at the processes where there is none.
pub(crate) fn read(group: Option<&Group>, proc: &OwnedFd, workspace: &OwnedFd) -> Reading {
    match group {
        Some(group) => {
            let Used { cpu, memory_peak_bytes, oom_kills, forks_refused } = group.used();
            Reading { cpu, memory_bytes: memory_peak_bytes, oom_kills, forks_refused }
        }
        None => add_up(proc, workspace),
    }
}

fn add_up(proc: &OwnedFd, workspace: &OwnedFd) -> Reading {
    let mut reading = Reading { memory_bytes: bytes_in_files(workspace), ..Reading::default() };
    let Ok(entries) = rustix::fs::Dir::read_from(proc) else {
        return reading;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.bytes().all(|byte| byte.is_ascii_digit()) {
            let (cpu, memory) = process(proc, &name).unwrap_or_default();
            reading.cpu += cpu;
            reading.memory_bytes += memory;
        }
    }
    reading
}

fn process(proc: &OwnedFd, pid: &str) -> Option<(Duration, u64)> {
    let stat = text(proc, &format!("{pid}/stat"))?;
    // The command's name is in brackets and may hold anything, spaces and brackets too.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    // User and system time, of itself and of children that were waited for.
    let ticks: u64 = (11..15).filter_map(number).sum();
    let statm = text(proc, &format!("{pid}/statm"))?;
    let mut pages = statm.split_whitespace().filter_map(|field| field.parse::<u64>().ok());
    let (resident, shared) = (pages.nth(1)?, pages.next()?);
    let cpu = Duration::from_millis(ticks * 1000 / CLOCK_TICKS_PER_SECOND);
    Some((cpu, resident.saturating_sub(shared) * PAGE_BYTES))
}

fn text(proc: &OwnedFd, path: &str) -> Option<String> {
    let file = openat(proc, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = String::new();
    File::from(file).read_to_string(&mut text).ok()?;
    Some(text)
}

fn bytes_in_files(workspace: &OwnedFd) -> u64 {
    rustix::fs::fstatvfs(workspace)
        .map(|stat| (stat.f_blocks - stat.f_bfree) * stat.f_frsize)
        .unwrap_or(0)
}

/// Pages of a process that no other process has, and its page tables.
pub(crate) fn private_bytes(pid: i32) -> u64 {
    let kib = |file: &str, keys: &[&str]| -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let counted = text.lines().filter_map(|line| {
            let (key, value) = line.split_once(':')?;
            keys.contains(&key).then(|| value.trim().trim_end_matches(" kB").parse::<u64>().ok())?
        });
        counted.sum()
    };
    1024 * (kib("smaps_rollup", &["Private_Clean", "Private_Dirty"]) + kib("status", &["VmPTE"]))
}
