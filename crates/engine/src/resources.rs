//! The resources of this host for sandboxes and the server together. Defaults follow from them.

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use types::OperatorCaps;

const GIB: u64 = 1024 * 1024 * 1024;

/// Cores and memory that this process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostResources {
    pub cores: u64,
    /// The memory of the host, or the limit of this process's cgroup if that is lower.
    pub memory_bytes: u64,
}

impl HostResources {
    /// Asks the operating system. Unknown values default to those of a small machine.
    pub fn detect() -> Self {
        let cores = available_parallelism().map_or(1, NonZero::get) as u64;
        let machine = read("/proc/meminfo").and_then(|text| total(&text)).unwrap_or(GIB);
        let own = read("/proc/self/cgroup").map(|text| limit_files(&text)).unwrap_or_default();
        let limits = own.iter().filter_map(|file| read(file)?.trim().parse::<u64>().ok());
        Self { cores, memory_bytes: limits.fold(machine, u64::min) }
    }

    /// The default caps if the operator configures none.
    pub fn caps(self) -> OperatorCaps {
        OperatorCaps::for_machine(self.cores, self.memory_bytes)
    }
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// `MemTotal` of `/proc/meminfo`.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The files with the memory limits of the groups in `/proc/self/cgroup` and of their parents.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (root, name) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => continue,
        };
        let within = Path::new(path.trim_start_matches('/'));
        files.extend(within.ancestors().map(|group| Path::new(root).join(group).join(name)));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_machine_is_read() {
        let meminfo = "MemFree:  1 kB\nMemTotal:       24682012 kB\n";
        assert_eq!(total(meminfo), Some(24_682_012 * 1024));
        assert_eq!(total("MemFree: 1 kB"), None);
    }

    #[test]
    fn the_limits_of_a_group_and_of_those_above_it_count() {
        let files = limit_files("5:cpu,cpuacct:/\n4:memory:/a/b\n0::/c\n");
        let expected = [
            "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/c/memory.max",
            "/sys/fs/cgroup/memory.max",
        ];
        assert_eq!(files, expected.map(PathBuf::from));
    }
}
