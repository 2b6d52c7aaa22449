//! Observing a sandbox from outside: CPU time, memory, and the events that explain an end.
//!
//! With a cgroup the kernel counts and holds the limits itself. Without one, which is what an
//! ordinary user has, the processes are added up through the jail's `/proc` at every tick, and
//! the supervisor does the killing. Between executions a slower tick goes on, because processes of
//! a session may run on.

mod added_up;
mod epoll;
mod sockets;

use crate::nursery::Jail;
use crate::undertaker;
use jail::cgroup::{Group, Used};
use rustix::fs::{Mode, OFlags, openat};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use types::Limits;

/// Often enough that a limit is noticed well within a second of being passed.
pub(crate) const TICK: Duration = Duration::from_millis(50);
/// Between executions: rare enough that hundreds of sessions cost little.
const IDLE_TICK: Duration = Duration::from_millis(250);
/// The init of a jail, which is there as long as the jail is.
const INIT: &str = "1";

/// What a sandbox has used up to now.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reading {
    pub(crate) cpu: Duration,
    pub(crate) memory_bytes: u64,
    /// More memory than the limit, where the kernel does not hold it.
    pub(crate) over_memory: bool,
    pub(crate) oom_kills: u64,
    pub(crate) forks_refused: u64,
}

/// Looks at the cgroup, or at the processes where there is none.
pub(crate) fn read(
    group: Option<&Group>,
    proc: &OwnedFd,
    workspace: &OwnedFd,
    limits: &Limits,
) -> Reading {
    match group {
        Some(group) => {
            let Used { cpu, memory_peak_bytes, oom_kills, forks_refused } = group.used();
            let over_memory = sockets::too_many(proc, limits);
            let memory_bytes = memory_peak_bytes;
            Reading { cpu, memory_bytes, over_memory, oom_kills, forks_refused }
        }
        None => added_up::read(proc, workspace, limits),
    }
}

/// Ends a sandbox that goes over its memory limit while nothing is executed in it, until dropped.
#[derive(Debug)]
pub(crate) struct IdleWatch(JoinHandle<()>);

impl IdleWatch {
    pub(crate) fn start(jail: &Jail, limits: Limits) -> io::Result<Self> {
        let counted = jail.group.is_some();
        let init = jail.init.try_clone()?;
        let files = Arc::new((jail.proc.try_clone()?, jail.workspace.try_clone()?));
        Ok(Self(tokio::spawn(async move {
            loop {
                tokio::time::sleep(IDLE_TICK).await;
                let files = Arc::clone(&files);
                let is_over = move || {
                    let (proc, workspace) = &*files;
                    if counted {
                        sockets::too_many(proc, &limits)
                    } else {
                        added_up::read(proc, workspace, &limits).over_memory
                    }
                };
                // Off the serving threads: a sandbox with many processes takes a while to read.
                if tokio::task::spawn_blocking(is_over).await.unwrap_or(true) {
                    undertaker::kill(&init);
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

/// Pages of a process that no other process has, and its page tables.
pub(crate) fn private_bytes(pid: i32) -> u64 {
    let file = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}"));
    let pages = kib(&file("smaps_rollup").unwrap_or_default(), &["Private_Clean", "Private_Dirty"]);
    1024 * (pages + kib(&file("status").unwrap_or_default(), &["VmPTE"]))
}
