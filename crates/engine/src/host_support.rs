//! What this host offers for walls, for `doctor` and for the warnings of results.

use jail::cgroup::{CgroupError, CgroupVersion};
use jail::probe::{
    self, HostIds, LandlockCause, Namespace, NamespaceCause, ProbeFailure, ProcCause, SeccompCause,
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
pub struct HostSupport {
    pub namespaces: Vec<(Namespace, Result<(), ProbeFailure<NamespaceCause>>)>,
    pub proc_mount: Result<(), ProbeFailure<ProcCause>>,
    pub landlock_abi: Result<u32, ProbeFailure<LandlockCause>>,
    pub seccomp: Result<(), ProbeFailure<SeccompCause>>,
    pub capabilities: io::Result<()>,
    pub ids: HostIds,
    /// How many descriptors a server that is started here can have.
    pub descriptors: u64,
    /// Without one, rlimits and the supervisor's watchdog hold the limits.
    pub cgroup: Result<CgroupVersion, CgroupError>,
}

impl HostSupport {
    /// Must be called while the process has one thread.
    pub fn probe() -> Self {
        Self {
            namespaces: Namespace::ALL.map(|kind| (kind, probe::namespace(kind))).into(),
            proc_mount: probe::proc_mount(),
            landlock_abi: probe::landlock_abi(),
            seccomp: probe::seccomp_filter(),
            capabilities: probe::capabilities(),
            ids: probe::host_ids(&sandbox::HOST_UIDS),
            descriptors: probe::descriptors(),
            cgroup: jail::cgroup::CgroupParent::create(u64::MAX).map(|parent| parent.version()),
        }
    }

    /// The walls that are missing here and that an operator may agree to do without.
    pub fn missing_layers(&self) -> Vec<jail::IsolationLayer> {
        let missing = |wall: &jail::IsolationLayer| match wall {
            jail::IsolationLayer::Landlock => self.landlock_abi.is_err(),
            jail::IsolationLayer::Seccomp => self.seccomp.is_err(),
        };
        jail::IsolationLayer::ALL.into_iter().filter(missing).collect()
    }
}

/// A wall that the operator agreed to do without is named in every result.
pub(crate) fn missing_layer_warnings(without: &[jail::IsolationLayer]) -> Vec<Warning> {
    let missing = |wall: &jail::IsolationLayer| Warning {
        code: "layer.missing".into(),
        message: format!("this ran without the {} wall, as the operator allowed", wall.name()),
    };
    without.iter().map(missing).collect()
}
