//! Configuration of an engine. Servers and commands read options and variables; the engine sees
//! only this.

use crate::clock::Clock;
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
    /// Directory of environments and the runtime.
    pub data: PathBuf,
    /// This program, which also runs as the warden.
    pub warden_program: PathBuf,
    /// A Python that replaces the newest one found, where an environment names none.
    pub python: Option<PythonChoice>,
    pub preload: Preload,
    pub runner: RunnerSource,
    /// Directories that every sandbox sees besides its environment, read-only. Code can read every
    /// file in them, and could connect to a socket there.
    pub mounts: Vec<Mount>,
    /// Certificates (PEM) that code inside trusts, instead of the system's, which are the default.
    pub certificates: Option<PathBuf>,
    /// Directory of packages that sessions install; without it no session can install any.
    pub package_root: Option<Arc<PackageRoot>>,
    /// Directory of volumes; without it a session has none.
    pub volumes: Option<VolumeBase>,
    /// Limit of the sum of the quotas of all copies of volumes in sessions. They use the server's
    /// memory.
    pub volumes_bytes_max: u64,
    /// Isolation layers that the operator allows to be missing; every result lists them.
    pub allowed_missing_layers: Vec<IsolationLayer>,
    /// Modules that code may import besides the standard library; all if absent.
    pub imports: Option<Vec<String>>,
    pub caps: OperatorCaps,
    /// Maximum number of sandboxes at once.
    pub sandboxes_max: u32,
    /// Requests that may wait for a sandbox; one more is refused at once.
    pub queue_max: usize,
    pub queue_wait: Duration,
    /// Warm sandboxes kept ready, for each environment in use.
    pub pool_ready: usize,
    /// Empty jails kept ready, for each environment in use.
    pub jails_ready: usize,
    pub rotate_after_spawns: u64,
    pub rotate_after: Duration,
    /// Default expiry of a session, and the longest one that it can request.
    pub expiry: Expiry,
    /// Receives each session that ends without having been closed.
    pub session_ended: Option<UnboundedSender<SessionEnded>>,
    /// The clock by which sessions expire.
    pub clock: Clock,
}

/// When the engine closes a session by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    /// Closed after this time without use.
    pub idle: Duration,
    /// Closed this long after it was opened, however busy it is.
    pub absolute: Duration,
}

/// A change of the expiry of a session; absent fields stay as they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExpiryRequest {
    pub idle: Option<Duration>,
    pub absolute: Option<Duration>,
}

impl ExpiryRequest {
    /// Applies the request to `current`, if the operator's maximum allows it.
    pub(crate) fn resolve(self, current: Expiry, max: Expiry) -> Result<Expiry, Error> {
        for (name, requested, max) in
            [("idle", self.idle, max.idle), ("absolute", self.absolute, max.absolute)]
        {
            if let Some(requested) = requested.filter(|requested| *requested > max) {
                let (requested, max) = (requested.as_secs(), max.as_secs());
                let message = format!(
                    "the {name} expiry of {requested} s is longer than the operator's maximum of \
                     {max} s"
                );
                return Err(Error::new(ErrorCode::ArgsInvalid, message));
            }
        }
        Ok(Expiry {
            idle: self.idle.unwrap_or(current.idle),
            absolute: self.absolute.unwrap_or(current.absolute),
        })
    }
}

/// A session that the engine has closed by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionEnded {
    pub id: SandboxId,
    pub reason: EndReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// It was unused for too long.
    Idle,
    /// It reached the maximum age of a session.
    Age,
}

impl Config {
    /// For one caller at a command line: nothing is kept ready, and nothing is imported in advance.
    pub fn for_command_line(data: PathBuf, helper: PathBuf) -> Self {
        Self {
            preload: Preload::Nothing,
            queue_max: 0,
            pool_ready: 0,
            jails_ready: 1,
            ..Self::for_server(data, helper)
        }
    }

    /// For a server with many callers.
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
            // Sixteen times the default quota, in addition to the memory of sandboxes.
            volumes_bytes_max: 4 * 1024 * 1024 * 1024,
            allowed_missing_layers: Vec::new(),
            imports: None,
            caps: HostResources::detect().caps(),
            sandboxes_max: 256,
            // A burst that takes a few seconds to serve; a longer one is a load to shed.
            queue_max: 64,
            // Most executions end sooner than that, and callers give up later.
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
            clock: Clock::system(),
        }
    }
}
