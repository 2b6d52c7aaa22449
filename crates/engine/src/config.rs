//! How an engine is set up. Doors read options and variables; the engine sees only this.

use jail::Wall;
use sandbox::{Kernel, Warmth};
use std::path::PathBuf;
use std::time::Duration;
use types::OperatorCaps;

#[derive(Debug, Clone)]
pub struct Config {
    /// Where environments and the runtime are kept.
    pub data: PathBuf,
    /// This program, which also becomes the warden.
    pub helper: PathBuf,
    /// A Python to be used instead of the newest one found.
    pub python: Option<PathBuf>,
    pub warmth: Warmth,
    pub kernel: Kernel,
    /// Walls that the operator has agreed to do without, each shown in every result.
    pub without: Vec<Wall>,
    pub caps: OperatorCaps,
    /// Sandboxes that may exist at once; one more is refused at once.
    pub sandboxes_max: usize,
    /// Warmed sandboxes kept waiting, for each environment in use.
    pub pool_ready: usize,
    /// Empty jails kept waiting, for each environment in use.
    pub jails_ready: usize,
    pub rotate_after_births: u64,
    pub rotate_after: Duration,
    pub expiry: Expiry,
}

/// When a session is closed though nobody has asked for it.
#[derive(Debug, Clone, Copy)]
pub struct Expiry {
    pub idle: Duration,
    pub absolute: Duration,
}

impl Config {
    /// For one caller at a command line: nothing waits, and nothing is imported in advance.
    pub fn single(data: PathBuf, helper: PathBuf) -> Self {
        Self { warmth: Warmth::Bare, pool_ready: 0, jails_ready: 1, ..Self::service(data, helper) }
    }

    /// For a process that serves many.
    pub fn service(data: PathBuf, helper: PathBuf) -> Self {
        Self {
            data,
            helper,
            python: None,
            warmth: Warmth::Preloaded,
            kernel: Kernel::Embedded,
            without: Vec::new(),
            caps: OperatorCaps::default(),
            sandboxes_max: 256,
            pool_ready: 2,
            jails_ready: 8,
            // Sandboxes of one zygote share its hash seed and address layout.
            rotate_after_births: 10_000,
            rotate_after: Duration::from_secs(10 * 60),
            expiry: Expiry {
                idle: Duration::from_secs(30 * 60),
                absolute: Duration::from_secs(24 * 60 * 60),
            },
        }
    }
}
