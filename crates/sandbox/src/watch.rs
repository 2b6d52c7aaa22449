//! Observing a sandbox from outside: CPU time, memory, and the events that explain an end.
//!
//! With a cgroup the kernel counts and holds the limits itself. Without one, which is what an
//! ordinary user has, the processes are added up through the jail's `/proc` at every tick, and
//! the supervisor does the killing.

use crate::nursery::Jail;
use jail::cgroup::{Group, Used};
use rustix::fs::{Mode, OFlags, openat};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;
use types::Limits;

/// Often enough that a limit is noticed well within a second of being passed.
pub(crate) const TICK: Duration = Duration::from_millis(50);
/// A reading takes a millisecond, and longer only where code makes it so.
const READING_PATIENCE: Duration = Duration::from_millis(500);
/// `USER_HZ`, the unit of /proc/PID/stat, which is 100 on every architecture we run on.
const CLOCK_TICKS_PER_SECOND: u64 = 100;
const INIT: &str = "1";

/// What a sandbox has used up to now.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reading {
    pub(crate) cpu: Duration,
    pub(crate) memory_bytes: u64,
    pub(crate) oom_kills: u64,
    pub(crate) forks_refused: u64,
}

/// Looks at the cgroup, or at the processes where there is none.
fn read(group: Option<&Group>, proc: &OwnedFd, workspace: &OwnedFd, limits: &Limits) -> Reading {
    match group {
        Some(group) => {
            let Used { cpu, memory_peak_bytes, oom_kills, forks_refused } = group.used();
            Reading { cpu, memory_bytes: memory_peak_bytes, oom_kills, forks_refused }
        }
        None => add_up(proc, workspace, limits),
    }
}

/// The readings of one sandbox.
///
/// Files of `/proc` are read on a thread of their own: the kernel makes the reader wait for locks that
/// processes of the sandbox hold, and many busy ones hold them for seconds. The clock must not wait
/// with it.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pub(crate) latest: Reading,
    under_way: Option<JoinHandle<Reading>>,
}

impl Meter {
    /// What the cgroup says now. Without one a reading is begun, unless one is under way.
    pub(crate) fn begin(&mut self, jail: &Jail, limits: &Limits) -> Option<Reading> {
        if jail.group.is_some() {
            self.latest = read(jail.group.as_ref(), &jail.proc, &jail.workspace, limits);
            return Some(self.latest);
        }
        if self.under_way.is_none() {
            let (proc, workspace) = (jail.proc.try_clone().ok()?, jail.workspace.try_clone().ok()?);
            let limits = *limits;
            let reading = move || read(None, &proc, &workspace, &limits);
            self.under_way = Some(spawn_blocking(reading));
        }
        None
    }

    /// The reading that is under way, once it is there.
    pub(crate) async fn taken(&mut self) -> Reading {
        let Some(reading) = &mut self.under_way else {
            return std::future::pending().await;
        };
        let reading = reading.await;
        self.under_way = None;
        self.latest = reading.unwrap_or(self.latest);
        self.latest
    }

    /// A reading that was begun now, or the latest one if the sandbox does not let it be taken.
    pub(crate) async fn read_now(&mut self, jail: &Jail, limits: &Limits) -> Reading {
        let reading = async {
            if self.under_way.is_some() {
                // Begun too early to know of everything; no sandbox has two threads.
                self.taken().await;
            }
            match self.begin(jail, limits) {
                Some(reading) => reading,
                None => self.taken().await,
            }
        };
        timeout(READING_PATIENCE, reading).await.unwrap_or(self.latest)
    }
}

/// What one process has, as far as it can be told cheaply.
#[derive(Debug, Default)]
struct Process {
    cpu: Duration,
    threads: u64,
    /// Of its own or still shared with whoever forked it.
    anonymous_bytes: u64,
    /// Mapped files of the working directory, too.
    shared_bytes: u64,
}

fn add_up(proc: &OwnedFd, workspace: &OwnedFd, limits: &Limits) -> Reading {
    let pids = pids(proc);
    let mut all = Process::default();
    for found in pids.iter().filter_map(|pid| process(proc, pid)) {
        all.cpu += found.cpu;
        all.threads += found.threads;
        all.anonymous_bytes += found.anonymous_bytes;
        all.shared_bytes += found.shared_bytes;
    }
    // A mapped file would count twice if its pages and its bytes were both added.
    let files = (bytes_in_files(workspace) + bytes_in_scratch(proc)).max(all.shared_bytes);
    let mut memory_bytes = files + all.anonymous_bytes;
    if memory_bytes > limits.memory_bytes {
        // Forked processes share most of what each seems to have. To know how much is dear, so
        // that it is asked only when it decides.
        memory_bytes = files + pids.iter().map(|pid| proportional_bytes(proc, pid)).sum::<u64>();
    }
    Reading {
        cpu: all.cpu,
        memory_bytes,
        oom_kills: 0,
        // Nobody counts refusals here; with no room left, a refusal was one for that reason.
        forks_refused: u64::from(all.threads >= limits.processes),
    }
}

/// The processes of a sandbox, without the init of its jail.
fn pids(proc: &OwnedFd) -> Vec<String> {
    let entries = rustix::fs::Dir::read_from(proc).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name != INIT && name.bytes().all(|byte| byte.is_ascii_digit())).collect()
}

fn process(proc: &OwnedFd, pid: &str) -> Option<Process> {
    let stat = text(proc, &format!("{pid}/stat"))?;
    // The command's name is in brackets and may hold anything, spaces and brackets too.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    // User and system time, of itself and of children that were waited for.
    let ticks: u64 = (11..15).filter_map(number).sum();
    let status = text(proc, &format!("{pid}/status"))?;
    Some(Process {
        cpu: Duration::from_millis(ticks * 1000 / CLOCK_TICKS_PER_SECOND),
        threads: number(17)?,
        anonymous_bytes: kib(&status, &["RssAnon"]) * 1024,
        shared_bytes: kib(&status, &["RssShmem"]) * 1024,
    })
}

/// Pages that several processes have count a part in each. Code can close this to us, and is
/// then taken by its word of having all of them alone.
fn proportional_bytes(proc: &OwnedFd, pid: &str) -> u64 {
    match text(proc, &format!("{pid}/smaps_rollup")) {
        Some(rollup) => kib(&rollup, &["Pss_Anon"]) * 1024,
        None => process(proc, pid).map_or(0, |process| process.anonymous_bytes),
    }
}

/// The sum of some lines of a file of /proc.
fn kib(text: &str, keys: &[&str]) -> u64 {
    let counted = text.lines().filter_map(|line| {
        let (key, value) = line.split_once(':')?;
        keys.contains(&key).then(|| value.trim().trim_end_matches(" kB").parse::<u64>().ok())?
    });
    counted.sum()
}

fn text(proc: &OwnedFd, path: &str) -> Option<String> {
    let file = openat(proc, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = String::new();
    File::from(file).read_to_string(&mut text).ok()?;
    Some(text)
}

fn bytes_in_files(directory: impl AsFd) -> u64 {
    rustix::fs::fstatvfs(directory)
        .map(|stat| (stat.f_blocks - stat.f_bfree) * stat.f_frsize)
        .unwrap_or(0)
}

/// `/tmp`, which holds what was put into `/dev/shm` as well.
fn bytes_in_scratch(proc: &OwnedFd) -> u64 {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(proc, format!("{INIT}/root/tmp"), flags, Mode::empty()).map_or(0, bytes_in_files)
}

/// Pages of a process that no other process has, and its page tables.
pub(crate) fn private_bytes(pid: i32) -> u64 {
    let file = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}"));
    let pages = kib(&file("smaps_rollup").unwrap_or_default(), &["Private_Clean", "Private_Dirty"]);
    1024 * (pages + kib(&file("status").unwrap_or_default(), &["VmPTE"]))
}
