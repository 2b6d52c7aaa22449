//! The resource limits of an execution. Every limit is on by default, has a unit in its name and a
//! reason. A request may lower it, or raise it up to the operator's cap.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

const MIB: u64 = 1024 * 1024;
const HOUR_MS: u64 = 3_600_000;

/// The effective limits of one execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Wall-clock time from the moment the code is sent to the runner.
    pub wall_ms: u64,
    /// CPU time of all processes of the sandbox together, so that threads cannot multiply it.
    pub cpu_ms: u64,
    /// Share of one core that the sandbox may use, in percent; 200 is two cores.
    pub cpu_percent: u64,
    /// Memory of all processes and of the files in the working directory, which is in memory.
    pub memory_bytes: u64,
    /// Processes and threads together.
    pub processes: u64,
    /// Descriptors open at once in one process.
    pub open_files: u64,
    /// Bytes in the working directory; `/tmp` has as much again.
    pub disk_bytes: u64,
    /// Files and directories in the working directory.
    pub disk_inodes: u64,
    /// Bytes of stdout and stderr that are stored; the rest is counted and dropped.
    pub output_bytes: u64,
    /// Bytes of one displayed result.
    pub result_bytes: u64,
}

impl Limits {
    pub const DEFAULT: Self = Self {
        // A model waits for the result; longer work is a function or a task.
        wall_ms: 30_000,
        // A run that is alone on its core may use it for all its wall-clock time.
        cpu_ms: 30_000,
        // One core: other sandboxes on a small host stay responsive.
        cpu_percent: 100,
        // Space for a data frame of some hundred thousand rows besides the libraries.
        memory_bytes: 512 * MIB,
        // Enough for a process pool or a thread pool of ordinary size.
        processes: 64,
        // The soft limit of a login shell.
        open_files: 1024,
        // Inputs and charts of one conversation.
        disk_bytes: 256 * MIB,
        // A package unpacked by hand still fits.
        disk_inodes: 16_384,
        // More than a model can read.
        output_bytes: MIB,
        // A large chart as PNG, or a table as HTML.
        result_bytes: 2 * MIB,
    };
}

impl Limits {
    /// The request for exactly these limits.
    pub fn to_request(self) -> LimitsRequest {
        LimitsRequest {
            wall_ms: Some(self.wall_ms),
            cpu_ms: Some(self.cpu_ms),
            cpu_percent: Some(self.cpu_percent),
            memory_bytes: Some(self.memory_bytes),
            processes: Some(self.processes),
            open_files: Some(self.open_files),
            disk_bytes: Some(self.disk_bytes),
            disk_inodes: Some(self.disk_inodes),
            output_bytes: Some(self.output_bytes),
            result_bytes: Some(self.result_bytes),
        }
    }
}

impl Limits {
    /// The lower value of each limit.
    pub fn capped_by(mut self, most: &Self) -> Self {
        let mut most = *most;
        for limit in Limit::ALL {
            let value = limit.value_mut(&mut self);
            *value = (*value).min(*limit.value_mut(&mut most));
        }
        self
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The name of one limit, as in JSON and on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    WallMs,
    CpuMs,
    CpuPercent,
    MemoryBytes,
    Processes,
    OpenFiles,
    DiskBytes,
    DiskInodes,
    OutputBytes,
    ResultBytes,
}

impl Limit {
    pub const ALL: [Self; 10] = [
        Self::WallMs,
        Self::CpuMs,
        Self::CpuPercent,
        Self::MemoryBytes,
        Self::Processes,
        Self::OpenFiles,
        Self::DiskBytes,
        Self::DiskInodes,
        Self::OutputBytes,
        Self::ResultBytes,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::WallMs => "wall_ms",
            Self::CpuMs => "cpu_ms",
            Self::CpuPercent => "cpu_percent",
            Self::MemoryBytes => "memory_bytes",
            Self::Processes => "processes",
            Self::OpenFiles => "open_files",
            Self::DiskBytes => "disk_bytes",
            Self::DiskInodes => "disk_inodes",
            Self::OutputBytes => "output_bytes",
            Self::ResultBytes => "result_bytes",
        }
    }

    /// The limit of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|limit| limit.name() == name)
    }

    /// The minimum, below which the interpreter itself cannot start.
    pub fn min_value(self) -> u64 {
        match self {
            Self::MemoryBytes => 32 * MIB,
            Self::Processes => 4,
            // The runner keeps its spare descriptors from 100 on, away from those of programs.
            Self::OpenFiles => 128,
            Self::DiskBytes => MIB,
            Self::DiskInodes => 64,
            Self::WallMs
            | Self::CpuMs
            | Self::CpuPercent
            | Self::OutputBytes
            | Self::ResultBytes => 1,
        }
    }

    /// The value of this limit.
    pub fn value_mut(self, limits: &mut Limits) -> &mut u64 {
        match self {
            Self::WallMs => &mut limits.wall_ms,
            Self::CpuMs => &mut limits.cpu_ms,
            Self::CpuPercent => &mut limits.cpu_percent,
            Self::MemoryBytes => &mut limits.memory_bytes,
            Self::Processes => &mut limits.processes,
            Self::OpenFiles => &mut limits.open_files,
            Self::DiskBytes => &mut limits.disk_bytes,
            Self::DiskInodes => &mut limits.disk_inodes,
            Self::OutputBytes => &mut limits.output_bytes,
            Self::ResultBytes => &mut limits.result_bytes,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Limits that a caller requests: absent ones keep their defaults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsRequest {
    pub wall_ms: Option<u64>,
    pub cpu_ms: Option<u64>,
    pub cpu_percent: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub processes: Option<u64>,
    pub open_files: Option<u64>,
    pub disk_bytes: Option<u64>,
    pub disk_inodes: Option<u64>,
    pub output_bytes: Option<u64>,
    pub result_bytes: Option<u64>,
}

impl LimitsRequest {
    /// Requests this value of one limit.
    pub fn set(&mut self, limit: Limit, value: u64) {
        let place = match limit {
            Limit::WallMs => &mut self.wall_ms,
            Limit::CpuMs => &mut self.cpu_ms,
            Limit::CpuPercent => &mut self.cpu_percent,
            Limit::MemoryBytes => &mut self.memory_bytes,
            Limit::Processes => &mut self.processes,
            Limit::OpenFiles => &mut self.open_files,
            Limit::DiskBytes => &mut self.disk_bytes,
            Limit::DiskInodes => &mut self.disk_inodes,
            Limit::OutputBytes => &mut self.output_bytes,
            Limit::ResultBytes => &mut self.result_bytes,
        };
        *place = Some(value);
    }

    /// Every limit, in the order of [`Limit::ALL`].
    pub fn values(&self) -> [Option<u64>; Limit::ALL.len()] {
        Limit::ALL.map(|limit| self.get(limit))
    }

    fn get(&self, limit: Limit) -> Option<u64> {
        match limit {
            Limit::WallMs => self.wall_ms,
            Limit::CpuMs => self.cpu_ms,
            Limit::CpuPercent => self.cpu_percent,
            Limit::MemoryBytes => self.memory_bytes,
            Limit::Processes => self.processes,
            Limit::OpenFiles => self.open_files,
            Limit::DiskBytes => self.disk_bytes,
            Limit::DiskInodes => self.disk_inodes,
            Limit::OutputBytes => self.output_bytes,
            Limit::ResultBytes => self.result_bytes,
        }
    }

    /// The effective limits: the defaults, overridden by the request as far as the operator allows.
    pub fn resolve(&self, caps: &OperatorCaps) -> Result<Limits, LimitError> {
        let mut most = caps.0;
        let mut limits = Limits::DEFAULT.capped_by(&most);
        for limit in Limit::ALL {
            let Some(requested) = self.get(limit) else {
                continue;
            };
            let (least, most) = (limit.min_value(), *limit.value_mut(&mut most));
            if requested < least {
                return Err(LimitError::TooLow { limit, requested, least });
            }
            if requested > most {
                return Err(LimitError::OverCap { limit, requested, most });
            }
            *limit.value_mut(&mut limits) = requested;
        }
        if let (Some(wall), None) = (self.wall_ms, self.cpu_ms) {
            let all_of_it = wall.saturating_mul(limits.cpu_percent.div_ceil(100));
            limits.cpu_ms = all_of_it.min(most.cpu_ms);
        }
        Ok(limits)
    }
}

/// The maximum of each limit on this installation. A request above it is refused, and a default
/// above it is lowered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperatorCaps(pub Limits);

impl OperatorCaps {
    /// The maximum that an operator can allow.
    pub const HIGHEST: Limits = Limits {
        // Longer work is a separate function or task.
        wall_ms: HOUR_MS,
        cpu_ms: 1024 * HOUR_MS,
        // 1,024 cores.
        cpu_percent: 102_400,
        memory_bytes: 16 * 1024 * 1024 * MIB,
        processes: 4_096,
        open_files: 65_536,
        disk_bytes: 16 * 1024 * 1024 * MIB,
        disk_inodes: 4_194_304,
        // The maximum of a record, and of a frame of the control channel.
        output_bytes: 64 * MIB,
        result_bytes: 6 * MIB,
    };

    /// The default caps on a host with that many cores and that much memory.
    pub fn for_machine(cores: u64, memory_bytes: u64) -> Self {
        let cores = cores.clamp(1, 1024);
        // One sandbox leaves as much to the server and to the others.
        let memory = (memory_bytes / 2).max(64 * MIB);
        Self(
            Limits {
                wall_ms: HOUR_MS,
                cpu_ms: cores * HOUR_MS,
                // More than all cores would be no limit.
                cpu_percent: cores * 100,
                memory_bytes: memory,
                // A pool of ordinary size for each core, many times over; Linux allows 32,768 by
                // default.
                processes: (512 * cores).min(4_096),
                open_files: 16_384,
                // Files of a sandbox are in memory.
                disk_bytes: memory,
                // Each takes about 1 KiB of memory in Linux.
                disk_inodes: (memory / (16 * 1024)).clamp(4_096, 1_048_576),
                // Sixteen times the default; more output of one execution belongs in a file.
                output_bytes: 16 * MIB,
                result_bytes: 6 * MIB,
            }
            .capped_by(&Self::HIGHEST),
        )
    }

    /// These caps, lowered to the requested values.
    pub fn lowered_by(&self, requested: &LimitsRequest) -> Self {
        let mut caps = *self;
        for limit in Limit::ALL {
            let cap = limit.value_mut(&mut caps.0);
            *cap = requested.get(limit).map_or(*cap, |requested| requested.min(*cap));
        }
        caps
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    #[error("limit {limit} is {requested}; it must be at least {least}")]
    TooLow { limit: Limit, requested: u64, least: u64 },
    #[error("limit {limit} is {requested}; the operator allows at most {most}")]
    OverCap { limit: Limit, requested: u64, most: u64 },
}

impl LimitError {
    /// The limit that was refused.
    pub fn limit(&self) -> Limit {
        match self {
            Self::TooLow { limit, .. } | Self::OverCap { limit, .. } => *limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_refused_and_one_above_the_cap_too() {
        let caps = OperatorCaps(OperatorCaps::HIGHEST);
        for limit in Limit::ALL {
            let mut most = caps.0;
            let requested = |value: u64| {
                let mut request = serde_json::Map::new();
                request.insert(limit.name().into(), value.into());
                let request: LimitsRequest = serde_json::from_value(request.into()).unwrap();
                request.resolve(&caps)
            };
            assert!(matches!(requested(0), Err(LimitError::TooLow { .. })), "{limit}");
            let cap = *limit.value_mut(&mut most);
            assert!(matches!(requested(cap + 1), Err(LimitError::OverCap { .. })), "{limit}");
            assert_eq!(*limit.value_mut(&mut requested(cap).unwrap()), cap);
        }
    }

    #[test]
    fn an_operator_can_hold_what_nobody_asked_for() {
        let caps =
            OperatorCaps(Limits { memory_bytes: 64 * MIB, wall_ms: 5_000, ..Limits::DEFAULT });
        let limits = LimitsRequest::default().resolve(&caps).unwrap();
        assert_eq!((limits.memory_bytes, limits.wall_ms), (64 * MIB, 5_000));
        assert_eq!(limits.disk_bytes, Limits::DEFAULT.disk_bytes);
    }

    #[test]
    fn nothing_asked_for_is_the_defaults() {
        let limits = LimitsRequest::default().resolve(&OperatorCaps(OperatorCaps::HIGHEST));
        assert_eq!(limits, Ok(Limits::DEFAULT));
    }

    #[test]
    fn t77_caps_follow_from_the_machine() {
        let OperatorCaps(small) = OperatorCaps::for_machine(2, 2048 * MIB);
        assert_eq!((small.cpu_percent, small.memory_bytes), (200, 1024 * MIB));
        assert_eq!((small.disk_bytes, small.processes), (1024 * MIB, 1024));
        let OperatorCaps(large) = OperatorCaps::for_machine(64, 512 * 1024 * MIB);
        assert_eq!((large.cpu_percent, large.memory_bytes), (6_400, 256 * 1024 * MIB));
        for machine in [(0, 0), (1, MIB), (u64::MAX, u64::MAX)] {
            let OperatorCaps(mut caps) = OperatorCaps::for_machine(machine.0, machine.1);
            for limit in Limit::ALL {
                assert!(*limit.value_mut(&mut caps) >= limit.min_value(), "{limit} {machine:?}");
            }
        }
    }

    #[test]
    fn a_workspace_can_have_lower_caps_and_no_higher_ones() {
        let caps = OperatorCaps::for_machine(2, 2048 * MIB);
        let requested = LimitsRequest {
            memory_bytes: Some(256 * MIB),
            cpu_percent: Some(9_000),
            ..LimitsRequest::default()
        };
        let OperatorCaps(lowered) = caps.lowered_by(&requested);
        assert_eq!(lowered, Limits { memory_bytes: 256 * MIB, ..caps.0 });
    }
}
