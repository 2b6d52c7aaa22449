//! Control groups: version 2 where its controllers are delegated to this process, version 1 where
//! the host has only that. This module creates and removes plain directories and files.

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, openat, unlinkat};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

/// The Linux default accounting period, 100 ms. CPU quotas are relative to it.
const CPU_PERIOD_US: u64 = 100_000;
/// Divisor of the memory limit: in version 1, TCP and UDP socket buffers may hold this fraction of
/// it in addition.
const SOCKET_SHARE: u64 = 4;
/// Despite its name, this limit covers UDP as well.
const SOCKET_LIMIT_V1: &str = "memory.kmem.tcp.limit_in_bytes";
/// Prefix of every cgroup directory that this module creates. The supervisor's pid, the number of
/// its zygote host and the pid namespace of that pid follow.
const PREFIX: &str = "belljar-";
/// Number of groups per hierarchy that one start searches for orphans. A machine with that many
/// takes some 50 ms.
const SEARCHED_MAX: usize = 2_048;
/// The group into which a supervisor moves when its own group gets child groups.
const SUPERVISOR: &str = "belljar-supervisor";
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];
const CONTROLLERS_V1: [&str; 4] = ["memory", "pids", "cpu", "cpuacct"];
/// Maximum time for a removal. A group can be removed once its last process is reaped, and Linux
/// may take a moment longer than the supervisor's view of the exit.
const REMOVE_PATIENCE: Duration = Duration::from_secs(2);
const REMOVE_PAUSE: Duration = Duration::from_millis(2);

/// Why this host's cgroups are unusable.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("no cgroup file system is mounted")]
    NotMounted,
    #[error("cgroup controller {0} is neither mounted (v1) nor delegated (v2)")]
    Controller(&'static str),
    #[error("cannot write {}: {source}", path.display())]
    NotWritable { path: PathBuf, source: io::Error },
}

/// The directories below which this process creates groups.
#[derive(Debug)]
pub struct CgroupParent {
    version: CgroupVersion,
    /// One directory per hierarchy; version 2 has a single one.
    directories: BTreeMap<&'static str, PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupVersion {
    V1,
    V2,
}

/// Resource limits of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CgroupLimits {
    pub memory_bytes: u64,
    pub processes: u64,
    pub cpu_percent: u64,
}

/// The share of the CPU that a group gets while groups compete for it, in the unit of `cpu.shares`.
/// Without competition it has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuShares(u32);

impl CpuShares {
    /// The Linux default.
    pub const DEFAULT: Self = Self(1024);

    /// One of this many equal parts.
    pub fn divided_by(self, parts: u32) -> Self {
        Self(self.0 / parts.max(1))
    }
}

/// Resource usage of a group, as Linux counted it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CgroupUsage {
    pub cpu: Duration,
    pub memory_peak_bytes: u64,
    pub oom_kills: u64,
    pub forks_refused: u64,
}

impl CgroupParent {
    /// Creates a directory for one zygote host of this process in every required hierarchy.
    pub fn create(number: u64) -> Result<Self, CgroupError> {
        let name = format!("{PREFIX}{}-{number}-{}", std::process::id(), pid_namespace());
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let (version, places) = find_hierarchies(&mounts, &own)?;
        remove_orphans(&mounts);
        // Constructed first: if a later step fails, dropping it removes the directories made so
        // far.
        let mut parent = Self { version, directories: BTreeMap::new() };
        for (controller, place) in places {
            let path = place.join(&name);
            if let Err(source) = fs::create_dir(&path)
                && source.kind() != io::ErrorKind::AlreadyExists
            {
                return Err(CgroupError::NotWritable { path, source });
            }
            parent.directories.insert(controller, path);
        }
        match version {
            CgroupVersion::V1 => parent.check_sockets_are_counted()?,
            CgroupVersion::V2 => parent.enable_controllers()?,
        }
        Ok(parent)
    }

    pub fn version(&self) -> CgroupVersion {
        self.version
    }

    pub fn paths(&self) -> Vec<PathBuf> {
        self.directories.values().cloned().collect()
    }

    /// Fails if this host does not count socket buffers. The supervisor counts them only when there
    /// are no cgroups at all.
    fn check_sockets_are_counted(&self) -> Result<(), CgroupError> {
        let directory = self.directories.get("memory").cloned().unwrap_or_default();
        let counted = directory.join(SOCKET_LIMIT_V1).exists();
        if counted { Ok(()) } else { Err(CgroupError::Controller("memory.kmem.tcp")) }
    }

    fn enable_controllers(&self) -> Result<(), CgroupError> {
        for directory in self.directories.values().take(1) {
            let path = directory.join("cgroup.subtree_control");
            fs::write(&path, "+memory +pids +cpu")
                .map_err(|source| CgroupError::NotWritable { path, source })?;
        }
        Ok(())
    }

    /// Creates an empty group.
    pub fn create_cgroup(&self, name: &str) -> io::Result<Cgroup> {
        let mut directories = BTreeMap::new();
        for (controller, directory) in &self.directories {
            let path = directory.join(name);
            if !directories.values().any(|created| *created == path) {
                fs::create_dir(&path)?;
            }
            directories.insert(*controller, path);
        }
        let counters = CgroupCounters::open(self.version, &directories);
        Ok(Cgroup { version: self.version, directories, counters })
    }
}

impl Drop for CgroupParent {
    fn drop(&mut self) {
        for directory in self.directories.values() {
            remove_when_empty(directory);
        }
    }
}

/// Delegates the controllers of a version 2 group to its child groups. The group must then have no
/// processes of its own, so this process moves into a child group.
fn delegate_controllers(place: &Path, is_root: bool) -> io::Result<()> {
    let enabled = fs::read_to_string(place.join("cgroup.subtree_control"))?;
    let enabled: Vec<&str> = enabled.split_whitespace().collect();
    if CONTROLLERS.iter().all(|name| enabled.contains(name)) {
        return Ok(());
    }
    if !is_root {
        let leaf = place.join(SUPERVISOR);
        fs::create_dir(&leaf).or_else(|error| {
            if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) }
        })?;
        fs::write(leaf.join("cgroup.procs"), std::process::id().to_string())?;
    }
    fs::write(place.join("cgroup.subtree_control"), "+memory +pids +cpu")
}

/// Removes groups of supervisors that were killed together with their launchers, once in the life
/// of this process. It searches all of each hierarchy, because a supervisor of another service or
/// login has created its groups below another parent.
fn remove_orphans(mountinfo: &str) {
    static SEARCHED: Once = Once::new();
    SEARCHED.call_once(|| {
        let is_relevant = |mount: &CgroupMount<'_>| {
            mount.v2 || mount.options.split(',').any(|option| CONTROLLERS_V1.contains(&option))
        };
        let mounts = mountinfo.lines().filter_map(CgroupMount::parse).filter(is_relevant);
        let tops: BTreeSet<&str> = mounts.map(|mount| mount.point).collect();
        tops.into_iter().for_each(|top| remove_orphans_below(Path::new(top)));
    });
}

fn remove_orphans_below(top: &Path) {
    let namespace = pid_namespace().to_string();
    let mut left = VecDeque::from([top.to_owned()]);
    for _ in 0..SEARCHED_MAX {
        let Some(directory) = left.pop_front() else {
            break;
        };
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            match name.to_str().and_then(|name| name.strip_prefix(PREFIX)) {
                Some(owner) if is_orphan(owner, &namespace) => {
                    CgroupSweeper::open(&[entry.path()]).sweep();
                }
                Some(_) => {}
                None if entry.file_type().is_ok_and(|kind| kind.is_dir()) => {
                    left.push_back(entry.path());
                }
                None => {}
            }
        }
    }
}

/// Whether the supervisor in a group's name has exited. False for another pid namespace, such as a
/// container's, where that is unknown.
fn is_orphan(owner: &str, namespace: &str) -> bool {
    let mut parts = owner.split('-');
    let (pid, same) = (parts.next().unwrap_or_default(), parts.nth(1) == Some(namespace));
    let is_pid = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
    is_pid && same && !Path::new("/proc").join(pid).exists()
}

/// The inode number of this process's pid namespace.
fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// Chooses the directory to create groups in, for each controller.
fn find_hierarchies(
    mountinfo: &str,
    own: &str,
) -> Result<(CgroupVersion, BTreeMap<&'static str, PathBuf>), CgroupError> {
    let mounts: Vec<CgroupMount<'_>> = mountinfo.lines().filter_map(CgroupMount::parse).collect();
    if mounts.is_empty() {
        return Err(CgroupError::NotMounted);
    }
    if let Some(place) =
        mounts.iter().find(|mount| mount.v2).and_then(|mount| mount.v2_directory(own))
    {
        return Ok((CgroupVersion::V2, CONTROLLERS.map(|name| (name, place.clone())).into()));
    }
    let mut places = BTreeMap::new();
    for controller in CONTROLLERS_V1 {
        let place = mounts.iter().find_map(|mount| mount.v1_directory(controller, own));
        places.insert(controller, place.ok_or(CgroupError::Controller(controller))?);
    }
    Ok((CgroupVersion::V1, places))
}

struct CgroupMount<'a> {
    root: &'a str,
    point: &'a str,
    v2: bool,
    options: &'a str,
}

impl<'a> CgroupMount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, point) = (left.next()?, left.next()?);
        let mut right = right.split(' ');
        let v2 = match right.next()? {
            "cgroup2" => true,
            "cgroup" => false,
            _ => return None,
        };
        Some(Self { root, point, v2, options: right.nth(1)? })
    }

    /// A process may not be a sibling of groups that have limits, except in the root group. Root
    /// therefore creates its groups in the root group, any other user where a service manager has
    /// delegated a group to this process alone.
    fn v2_directory(&self, own: &str) -> Option<PathBuf> {
        let is_root = rustix::process::geteuid().is_root();
        let place = if is_root {
            PathBuf::from(self.point)
        } else {
            // This process's group, or its parent once this process has moved into the supervisor
            // group.
            let own = self.beneath(own.lines().find_map(|line| line.strip_prefix("0::"))?);
            let moved = own.file_name().is_some_and(|name| name == SUPERVISOR);
            if moved { own.parent()?.to_owned() } else { own }
        };
        let offered = fs::read_to_string(place.join("cgroup.controllers")).ok()?;
        let offered: Vec<&str> = offered.split_whitespace().collect();
        let all = CONTROLLERS.iter().all(|name| offered.contains(name));
        (all && delegate_controllers(&place, is_root).is_ok()).then_some(place)
    }

    fn v1_directory(&self, controller: &str, own: &str) -> Option<PathBuf> {
        if self.v2 || !self.options.split(',').any(|option| option == controller) {
            return None;
        }
        let path = own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let controllers = parts.next()?;
            controllers.split(',').any(|name| name == controller).then(|| parts.next())?
        })?;
        Some(self.beneath(path))
    }

    /// The directory of a cgroup path, as seen through this mount.
    fn beneath(&self, path: &str) -> PathBuf {
        let relative = Path::new(path).strip_prefix(self.root).unwrap_or(Path::new(""));
        Path::new(self.point).join(relative)
    }
}

/// One group. Dropping it removes its directories if they are empty, without waiting for that.
#[derive(Debug)]
pub struct Cgroup {
    version: CgroupVersion,
    directories: BTreeMap<&'static str, PathBuf>,
    counters: CgroupCounters,
}

/// Counter files that every execution reads. They stay open, because opening is most of the cost of
/// a read.
#[derive(Debug)]
struct CgroupCounters {
    cpu: CounterFile,
    memory_peak: CounterFile,
    /// Version 1 only, which counts socket buffers separately.
    sockets_peak: CounterFile,
    oom_kills: CounterFile,
    forks_refused: CounterFile,
}

/// A number in a file, alone or after a key.
#[derive(Debug)]
struct CounterFile {
    file: Option<File>,
    key: Option<&'static str>,
}

impl CounterFile {
    fn open(path: PathBuf, key: Option<&'static str>) -> Self {
        // A counter that this Linux kernel lacks reads as zero.
        Self { file: File::open(path).ok(), key }
    }

    fn read(&self) -> u64 {
        let mut buffer = [0; 1024];
        let length = self.file.as_ref().and_then(|file| file.read_at(&mut buffer, 0).ok());
        let text = std::str::from_utf8(&buffer[..length.unwrap_or(0)]).unwrap_or("");
        let number = match self.key {
            None => Some(text),
            Some(key) => text.lines().find_map(|line| line.strip_prefix(key)),
        };
        number.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
    }
}

impl CgroupCounters {
    fn open(version: CgroupVersion, directories: &BTreeMap<&'static str, PathBuf>) -> Self {
        let open = |controller, name: &str, key| {
            let directory = directories.get(controller).cloned().unwrap_or_default();
            CounterFile::open(directory.join(name), key)
        };
        let forks_refused = open("pids", "pids.events", Some("max "));
        match version {
            CgroupVersion::V2 => Self {
                cpu: open("cpu", "cpu.stat", Some("usage_usec ")),
                memory_peak: open("memory", "memory.peak", None),
                sockets_peak: CounterFile { file: None, key: None },
                oom_kills: open("memory", "memory.events", Some("oom_kill ")),
                forks_refused,
            },
            CgroupVersion::V1 => Self {
                cpu: open("cpuacct", "cpuacct.usage", None),
                memory_peak: open("memory", "memory.max_usage_in_bytes", None),
                sockets_peak: open("memory", "memory.kmem.tcp.max_usage_in_bytes", None),
                oom_kills: open("memory", "memory.oom_control", Some("oom_kill ")),
                forks_refused,
            },
        }
    }
}

impl Cgroup {
    fn file(&self, controller: &'static str, name: &str) -> PathBuf {
        self.directories.get(controller).map(|path| path.join(name)).unwrap_or_default()
    }

    fn write(&self, controller: &'static str, name: &str, value: u64) -> io::Result<()> {
        fs::write(self.file(controller, name), value.to_string())
    }

    pub fn set_limits(&self, allowance: &CgroupLimits) -> io::Result<()> {
        let quota = allowance.cpu_percent.saturating_mul(CPU_PERIOD_US / 100);
        self.write("pids", "pids.max", allowance.processes)?;
        match self.version {
            CgroupVersion::V2 => {
                self.write("memory", "memory.max", allowance.memory_bytes)?;
                self.write("memory", "memory.oom.group", 1)?;
                let swap = self.file("memory", "memory.swap.max");
                if swap.exists() {
                    fs::write(swap, "0")?;
                }
                fs::write(self.file("cpu", "cpu.max"), format!("{quota} {CPU_PERIOD_US}"))
            }
            CgroupVersion::V1 => {
                self.limit_memory_v1(allowance.memory_bytes)?;
                self.limit_sockets_v1(allowance.memory_bytes / SOCKET_SHARE)?;
                self.write("cpu", "cpu.cfs_quota_us", quota)
            }
        }
    }

    /// The limit with swap may never be below the limit without it, so a raise sets it first. The
    /// file exists only where Linux accounts for swap.
    fn limit_memory_v1(&self, bytes: u64) -> io::Result<()> {
        let (alone, with_swap) = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes");
        if !self.file("memory", with_swap).exists() {
            return self.write("memory", alone, bytes);
        }
        let held = fs::read_to_string(self.file("memory", alone))?;
        let raised = held.trim().parse::<u64>().is_ok_and(|held| bytes > held);
        let order = if raised { [with_swap, alone] } else { [alone, with_swap] };
        order.into_iter().try_for_each(|name| self.write("memory", name, bytes))
    }

    /// Version 1 counts TCP and UDP socket buffers apart from all other memory, and only under a
    /// separate limit. Above it, datagrams are dropped and connections wait.
    fn limit_sockets_v1(&self, bytes: u64) -> io::Result<()> {
        self.write("memory", SOCKET_LIMIT_V1, bytes)
    }

    /// Moves a process into the group. Its future children start in the group too.
    pub fn add_process(&self, pid: i32) -> io::Result<()> {
        let mut done: Vec<&Path> = Vec::new();
        for directory in self.directories.values() {
            if !done.contains(&directory.as_path()) {
                fs::write(directory.join("cgroup.procs"), pid.to_string())?;
                done.push(directory);
            }
        }
        Ok(())
    }

    pub fn usage(&self) -> CgroupUsage {
        let cpu = self.counters.cpu.read();
        CgroupUsage {
            cpu: match self.version {
                CgroupVersion::V2 => Duration::from_micros(cpu),
                CgroupVersion::V1 => Duration::from_nanos(cpu),
            },
            memory_peak_bytes: self.counters.memory_peak.read() + self.counters.sockets_peak.read(),
            oom_kills: self.counters.oom_kills.read(),
            forks_refused: self.counters.forks_refused.read(),
        }
    }

    pub fn set_cpu_shares(&self, CpuShares(shares): CpuShares) -> io::Result<()> {
        // The least that Linux accepts is 2 in version 1, and 1 in version 2, whose default is 100.
        let (file, value) = match self.version {
            CgroupVersion::V1 => ("cpu.shares", shares.max(2)),
            CgroupVersion::V2 => {
                ("cpu.weight", (shares * 100).div_ceil(CpuShares::DEFAULT.0).max(1))
            }
        };
        self.write("cpu", file, value.into())
    }

    /// Removes the CPU quota of a group whose processes are about to be killed. If that fails, they
    /// still end, only later.
    pub fn lift_cpu_limit(&self) {
        let _ = match self.version {
            CgroupVersion::V2 => fs::write(self.file("cpu", "cpu.max"), "max"),
            CgroupVersion::V1 => fs::write(self.file("cpu", "cpu.cfs_quota_us"), "-1"),
        };
    }

    /// Removes the group's directories as far as they are empty. Returns whether all are gone.
    pub fn remove(&mut self) -> bool {
        self.directories.retain(|_, directory| {
            let removed = fs::remove_dir(directory);
            removed.is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
        });
        self.directories.is_empty()
    }

    /// The number of processes and threads in the group.
    pub fn task_count(&self) -> u64 {
        let text = fs::read_to_string(self.file("pids", "pids.current")).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        self.remove();
    }
}

fn remove_when_empty(directory: &Path) {
    let until = Instant::now() + REMOVE_PATIENCE;
    while let Err(error) = fs::remove_dir(directory) {
        if error.raw_os_error() != Some(libc::EBUSY) || Instant::now() > until {
            return;
        }
        thread::sleep(REMOVE_PAUSE);
    }
}

/// Removes the groups of a supervisor that could not do so itself. It uses directories that were
/// opened while their paths were still reachable.
pub(crate) struct CgroupSweeper(Vec<SweepTarget>);

struct SweepTarget {
    above: OwnedFd,
    name: CString,
    directory: OwnedFd,
}

impl CgroupSweeper {
    pub(crate) fn open(paths: &[PathBuf]) -> Self {
        Self(paths.iter().filter_map(|path| SweepTarget::open(path)).collect())
    }

    pub(crate) fn sweep(&self) {
        for SweepTarget { above, name, directory } in &self.0 {
            let Ok(entries) = Dir::read_from(directory) else {
                continue;
            };
            for entry in entries.flatten() {
                remove_group(directory, entry.file_name());
            }
            remove_group(above, name);
        }
    }
}

impl SweepTarget {
    fn open(path: &Path) -> Option<Self> {
        let open = |path| openat(CWD, path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        Some(Self {
            above: open(path.parent()?).ok()?,
            name: CString::new(path.file_name()?.as_bytes()).ok()?,
            directory: open(path).ok()?,
        })
    }
}

fn remove_group(above: &OwnedFd, name: &CStr) {
    let until = Instant::now() + REMOVE_PATIENCE;
    while unlinkat(above, name, AtFlags::REMOVEDIR) == Err(rustix::io::Errno::BUSY) {
        if Instant::now() > until {
            return;
        }
        thread::sleep(REMOVE_PAUSE);
    }
}
