//! How an engine is set up. Doors read options and variables; the engine sees only this.

use crate::resources::HostResources;
use crate::volumes::VolumeBase;
use environment::{Mount, PackageRoot, PythonChoice};
use jail::IsolationLayer;
use sandbox::{Preload, RunnerSource};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use types::{Error, ErrorCode, OperatorCaps, SandboxId};

#[derive(Debug, Clone)]
pub struct Config {
    /// Where environments and the runtime are kept.
    pub data: PathBuf,
    /// This program, which also becomes the warden.
    pub warden_program: PathBuf,
    /// A Python to be used instead of the newest one found, where an environment names none.
    pub python: Option<PythonChoice>,
    pub preload: Preload,
    pub runner: RunnerSource,
    /// Directories that every sandbox sees besides its environment, read-only. All that is in them
    /// can be read by code, and a socket there could be spoken to.
    pub mounts: Vec<Mount>,
    /// Certificates (PEM) that code inside trusts, in the place of the system's; those by default.
    pub certificates: Option<PathBuf>,
    /// Where packages go that sessions install; without it nothing can be installed.
    pub package_root: Option<Arc<PackageRoot>>,
    /// Where volumes are; without it a session has none.
    pub volumes: Option<VolumeBase>,
    /// Of all copies that sessions have of volumes, by their quotas: memory of the server's own.
    pub volumes_bytes_max: u64,
    /// Walls that the operator has agreed to do without, each shown in every result.
    pub allowed_missing_layers: Vec<IsolationLayer>,
    /// All that code may import besides the standard library; everything if absent.
    pub imports: Option<Vec<String>>,
    pub caps: OperatorCaps,
    /// Sandboxes that may exist at once.
    pub sandboxes_max: u32,
    /// Requests that may wait for one of them; one more is refused at once.
    pub queue_max: usize,
    pub queue_wait: Duration,
    /// Warmed sandboxes kept waiting, for each environment in use.
    pub pool_ready: usize,
    /// Empty jails kept waiting, for each environment in use.
    pub jails_ready: usize,
    pub rotate_after_spawns: u64,
    pub rotate_after: Duration,
    /// Of a session that asks for nothing else, and the most that one can ask for.
    pub expiry: Expiry,
    /// Told of each session that ends though nobody has closed it.
    pub session_ended: Option<UnboundedSender<SessionEnded>>,
}

/// When a session is closed though nobody has asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    /// Without having been used.
    pub idle: Duration,
    /// Since it was opened, however busy it is.
    pub absolute: Duration,
}

/// When a session should be closed by itself; what is absent stays as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExpiryRequest {
    pub idle: Option<Duration>,
    pub absolute: Option<Duration>,
}

impl ExpiryRequest {
    /// `present` with what was asked for, if the operator allows it.
    pub(crate) fn resolve(self, present: Expiry, most: Expiry) -> Result<Expiry, Error> {
        for (name, asked, most) in
            [("idle", self.idle, most.idle), ("absolute", self.absolute, most.absolute)]
        {
            if let Some(asked) = asked.filter(|asked| *asked > most) {
                let (asked, most) = (asked.as_secs(), most.as_secs());
                let message = format!(
                    "the {name} expiry is {asked} s, and the operator allows at most {most} s"
                );
                return Err(Error::new(ErrorCode::ArgsInvalid, message));
            }
        }
        Ok(Expiry {
            idle: self.idle.unwrap_or(present.idle),
            absolute: self.absolute.unwrap_or(present.absolute),
        })
    }
}

/// A session that has ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionEnded {
    pub id: SandboxId,
    pub reason: EndReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// Nobody has used it.
    Idle,
    /// It was as old as a session may become.
    Age,
}

impl Config {
    /// For one caller at a command line: nothing waits, and nothing is imported in advance.
    pub fn for_command_line(data: PathBuf, helper: PathBuf) -> Self {
        Self {
            preload: Preload::Nothing,
            queue_max: 0,
            pool_ready: 0,
            jails_ready: 1,
            ..Self::for_server(data, helper)
        }
    }

    /// For a process that serves many.
    pub fn for_server(data: PathBuf, helper: PathBuf) -> Self {
        Self {
            data,
            warden_program: helper,
            python: None,
            preload: Preload::Modules,
            runner: RunnerSource::Embedded,
            mounts: Vec::new(),
            certificates: None,
            package_root: None,
            volumes: None,
            // Sixteen of the usual quota, beside what sandboxes have.
            volumes_bytes_max: 4 * 1024 * 1024 * 1024,
            allowed_missing_layers: Vec::new(),
            imports: None,
            caps: HostResources::detect().caps(),
            sandboxes_max: 256,
            // A burst that a few seconds can serve; what is longer is a load that must be shed.
            queue_max: 64,
            // Most executions end sooner than that, and a caller gives up later.
            queue_wait: Duration::from_secs(5),
            pool_ready: 2,
            jails_ready: 8,
            // Sandboxes of one zygote share its hash seed and address layout.
            rotate_after_spawns: 10_000,
            rotate_after: Duration::from_secs(10 * 60),
            expiry: Expiry {
                idle: Duration::from_secs(30 * 60),
                absolute: Duration::from_secs(24 * 60 * 60),
            },
            session_ended: None,
        }
    }
}
