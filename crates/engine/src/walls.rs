//! What this host offers for walls, for `doctor` and for the warnings of results.

use std::io;
use types::Warning;

/// Runs the warden and gives its exit code, if that is what this process was started for. To be
/// called first in `main`, before there is any thread.
pub fn become_warden_if_asked() -> Option<i32> {
    let first = std::env::args().nth(1);
    (first.as_deref() == Some(sandbox::WARDEN_ARGUMENT)).then(jail::warden::main)
}

/// The answers of the kernel to direct questions.
#[derive(Debug)]
pub struct Host {
    pub namespaces: io::Result<()>,
    pub landlock_abi: io::Result<u32>,
    pub seccomp: io::Result<()>,
    pub cgroup: Result<jail::cgroup::Version, jail::cgroup::Missing>,
    pub is_root: bool,
}

impl Host {
    /// Must be called while the process has one thread.
    pub fn look() -> Self {
        Self {
            namespaces: jail::probe::namespaces(),
            landlock_abi: jail::probe::landlock_abi(),
            seccomp: jail::probe::seccomp_filters(),
            cgroup: jail::cgroup::Parent::create(u64::MAX).map(|parent| parent.version()),
            is_root: jail::probe::is_root(),
        }
    }
}

/// A wall that the operator agreed to do without is named in every result.
pub(crate) fn warnings(without: &[jail::Wall]) -> Vec<Warning> {
    let missing = |wall: &jail::Wall| Warning {
        code: "wall.missing".into(),
        message: format!("this ran without the {} wall, as the operator allowed", wall.name()),
    };
    without.iter().map(missing).collect()
}
