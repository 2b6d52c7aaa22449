//! What this host offers for walls, for `doctor` and for the warnings of results.

use jail::cgroup::{Missing, Version};
use jail::probe::{
    self, HostIds, LandlockCause, Namespace, NamespaceCause, ProcCause, Refused, SeccompCause,
};
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
    pub namespaces: Vec<(Namespace, Result<(), Refused<NamespaceCause>>)>,
    pub proc_mount: Result<(), Refused<ProcCause>>,
    pub landlock_abi: Result<u32, Refused<LandlockCause>>,
    pub seccomp: Result<(), Refused<SeccompCause>>,
    pub capabilities: io::Result<()>,
    pub ids: HostIds,
    /// How many descriptors a server that is started here can have.
    pub descriptors: u64,
    /// Without one, rlimits and the supervisor's watchdog hold the limits.
    pub cgroup: Result<Version, Missing>,
}

impl Host {
    /// Must be called while the process has one thread.
    pub fn look() -> Self {
        Self {
            namespaces: Namespace::ALL.map(|kind| (kind, probe::namespace(kind))).into(),
            proc_mount: probe::proc_mount(),
            landlock_abi: probe::landlock_abi(),
            seccomp: probe::seccomp_filter(),
            capabilities: probe::capabilities(),
            ids: probe::host_ids(&sandbox::HOST_UIDS),
            descriptors: probe::descriptors(),
            cgroup: jail::cgroup::Parent::create(u64::MAX).map(|parent| parent.version()),
        }
    }

    /// The walls that are missing here and that an operator may agree to do without.
    pub fn missing_walls(&self) -> Vec<jail::Wall> {
        let missing = |wall: &jail::Wall| match wall {
            jail::Wall::Landlock => self.landlock_abi.is_err(),
            jail::Wall::Seccomp => self.seccomp.is_err(),
        };
        jail::Wall::ALL.into_iter().filter(missing).collect()
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
