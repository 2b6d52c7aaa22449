//! Resource usage of a sandbox, observed from outside: CPU time, memory, and the events that explain an
//! exit.
//!
//! With a cgroup the Linux kernel counts usage and enforces the limits. Without one, as for an ordinary
//! user, the supervisor adds up the processes in the `/proc` of the jail at every tick and kills the
//! sandbox that exceeds a limit. Between executions it does so at a slower tick, because processes of a
//! session may continue.

mod kernel_objects;
mod process_totals;
mod reading_clock;
mod sockets;
mod vfork;

use crate::reaper;
use crate::zygote_host::PreparedJail;
use jail::cgroup::{Cgroup, CgroupUsage};
pub use process_totals::PROCESS_SESSIONS_MAX;
use reading_clock::ReadingClock;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;
use types::Limits;

/// Interval of readings during an execution: an exceeded limit is noticed within a fraction of a second.
pub(crate) const TICK: Duration = Duration::from_millis(50);
/// Maximum wait for a reading at the end of an execution. A reading takes a millisecond, unless code
/// delays it.
const READING_PATIENCE: Duration = Duration::from_millis(500);
/// Interval of readings between executions: long enough that hundreds of sessions cost little.
const IDLE_TICK: Duration = Duration::from_millis(250);
/// Interval at which file locks are counted where a cgroup counts the other resources. Native code makes
/// a million locks per second, which take 200 MiB.
const LOCKS_TICK: Duration = Duration::from_secs(1);
/// The pid of the init of a jail, which exists as long as the jail.
const INIT: &str = "1";

/// The resource usage of a sandbox so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UsageReading {
    pub(crate) cpu: Duration,
    pub(crate) memory_bytes: u64,
    /// More memory than the limit, where no cgroup enforces it.
    pub(crate) over_memory: bool,
    /// More process sessions (`setsid`) than a sandbox without a cgroup may have.
    pub(crate) over_process_sessions: bool,
    /// The processes could not be read within the time that a reading may take.
    pub(crate) unmeasured: bool,
    pub(crate) oom_kills: u64,
    pub(crate) forks_refused: u64,
}

/// Reads the usage from the cgroup, or without one from the processes.
fn read_usage(
    group: Option<&Cgroup>,
    proc: &OwnedFd,
    workspace: &OwnedFd,
    limits: &Limits,
) -> UsageReading {
    match group {
        Some(group) => {
            let CgroupUsage { cpu, memory_peak_bytes, oom_kills, forks_refused } = group.usage();
            let over_memory = sockets::has_too_many_tcp_sockets(proc, limits);
            let memory_bytes = memory_peak_bytes;
            UsageReading {
                cpu,
                memory_bytes,
                over_memory,
                over_process_sessions: false,
                unmeasured: false,
                oom_kills,
                forks_refused,
            }
        }
        None => process_totals::read_process_totals(proc, workspace, limits),
    }
}

/// The readings of one sandbox.
///
/// Files of `/proc` are read on a separate thread: the Linux kernel makes the reader wait for locks that
/// processes of the sandbox hold, and many busy ones hold them for seconds. The time limit must not wait
/// for the reader.
#[derive(Debug, Default)]
pub(crate) struct UsageMeter {
    pub(crate) latest: UsageReading,
    pending: Option<PendingReading>,
    locks: Locks,
}

/// The file locks of a sandbox with a cgroup, counted beside its readings.
#[derive(Debug, Default)]
struct Locks {
    too_many: Arc<AtomicBool>,
    count: Option<(Instant, JoinHandle<()>)>,
}

impl Locks {
    /// Whether there were too many when they were last counted; counts them again when that is due.
    fn are_too_many(&mut self, proc: &OwnedFd) -> bool {
        let due = self
            .count
            .as_ref()
            .is_none_or(|(since, count)| count.is_finished() && since.elapsed() > LOCKS_TICK);
        if due && let Ok(proc) = proc.try_clone() {
            let found = Arc::clone(&self.too_many);
            let count = spawn_blocking(move || {
                found.fetch_or(process_totals::too_many_locks(&proc), Ordering::Relaxed);
            });
            self.count = Some((Instant::now(), count));
        }
        self.too_many.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct PendingReading {
    clock: ReadingClock,
    reading: JoinHandle<UsageReading>,
}

impl UsageMeter {
    /// Returns the usage that the cgroup reports. Without a cgroup, starts a reading unless one is
    /// pending; a pending one that is overdue is reported as `unmeasured`.
    pub(crate) fn begin_reading(
        &mut self,
        jail: &PreparedJail,
        limits: &Limits,
    ) -> Option<UsageReading> {
        if jail.cgroup.is_some() {
            self.latest = read_usage(jail.cgroup.as_ref(), &jail.proc, &jail.workspace, limits);
            self.latest.over_memory |= self.locks.are_too_many(&jail.proc);
            return Some(self.latest);
        }
        if let Some(PendingReading { clock, reading }) = &self.pending {
            let late = !reading.is_finished() && clock.is_overdue();
            return late.then_some(UsageReading { unmeasured: true, ..self.latest });
        }
        let (proc, workspace) = (jail.proc.try_clone().ok()?, jail.workspace.try_clone().ok()?);
        let limits = *limits;
        let clock = ReadingClock::new();
        let reading =
            spawn_blocking(clock.timed(move || read_usage(None, &proc, &workspace, &limits)));
        self.pending = Some(PendingReading { clock, reading });
        None
    }

    /// Waits for the pending reading; for ever if there is none.
    pub(crate) async fn next_reading(&mut self) -> UsageReading {
        let Some(PendingReading { reading, .. }) = &mut self.pending else {
            return std::future::pending().await;
        };
        let reading = reading.await;
        self.pending = None;
        self.latest = reading.unwrap_or(self.latest);
        self.latest
    }

    /// Takes a new reading; the latest one if the sandbox delays it too long.
    pub(crate) async fn read_now(&mut self, jail: &PreparedJail, limits: &Limits) -> UsageReading {
        let reading = async {
            if self.pending.is_some() {
                // It was started too early to include everything, and a sandbox has one reading thread.
                self.next_reading().await;
            }
            match self.begin_reading(jail, limits) {
                Some(reading) => reading,
                None => self.next_reading().await,
            }
        };
        timeout(READING_PATIENCE, reading).await.unwrap_or(self.latest)
    }
}

/// Kills a sandbox that exceeds a limit between two executions, until dropped.
#[derive(Debug)]
pub(crate) struct IdleWatch(JoinHandle<()>);

impl IdleWatch {
    pub(crate) fn start(jail: &PreparedJail, limits: Limits) -> io::Result<Self> {
        let counted = jail.cgroup.is_some();
        let init = jail.init.try_clone()?;
        let files = Arc::new((jail.proc.try_clone()?, jail.workspace.try_clone()?));
        Ok(Self(tokio::spawn(async move {
            loop {
                tokio::time::sleep(IDLE_TICK).await;
                let files = Arc::clone(&files);
                let is_over = move || {
                    let (proc, workspace) = &*files;
                    if counted {
                        sockets::has_too_many_tcp_sockets(proc, &limits)
                            || process_totals::too_many_locks(proc)
                    } else {
                        let reading = process_totals::read_process_totals(proc, workspace, &limits);
                        reading.over_memory || reading.over_process_sessions
                    }
                };
                // Off the serving threads: a sandbox with many processes takes a while to read.
                let clock = ReadingClock::new();
                let mut reading = spawn_blocking(clock.timed(is_over));
                let is_over = loop {
                    match timeout(IDLE_TICK, &mut reading).await {
                        Ok(read) => break read.unwrap_or(true),
                        Err(_) if clock.is_overdue() => break true,
                        Err(_) => {}
                    }
                };
                if is_over {
                    reaper::kill_init(&init, None);
                    return;
                }
            }
        })))
    }
}

impl Drop for IdleWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The sum of some lines of a file of /proc.
fn sum_kib(text: &str, keys: &[&str]) -> u64 {
    let counted = text.lines().filter_map(|line| {
        let (key, value) = line.split_once(':')?;
        keys.contains(&key).then(|| value.trim().trim_end_matches(" kB").parse::<u64>().ok())?
    });
    counted.sum()
}

/// The text of a file of `/proc`. A process can have any bytes in its name (`PR_SET_NAME`); those that
/// are not UTF-8 are replaced, so that the other lines can be read.
fn read_proc_file(proc: &OwnedFd, path: &str) -> Result<String, Unreadable> {
    let file = openat(proc, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = Vec::new();
    File::from(file).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Why a file of a listed process was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unreadable {
    /// The process or thread has ended meanwhile.
    Gone,
    /// The process may exist, with any amount of memory.
    Unseen,
}

impl From<Errno> for Unreadable {
    fn from(error: Errno) -> Self {
        if matches!(error, Errno::NOENT | Errno::SRCH) { Self::Gone } else { Self::Unseen }
    }
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        Errno::from_io_error(&error).map_or(Self::Unseen, Self::from)
    }
}

/// Memory of a process that no other process shares, with its page tables.
pub(crate) fn private_bytes(pid: i32) -> u64 {
    let file = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}"));
    let pages =
        sum_kib(&file("smaps_rollup").unwrap_or_default(), &["Private_Clean", "Private_Dirty"]);
    1024 * (pages + sum_kib(&file("status").unwrap_or_default(), &["VmPTE"]))
}
