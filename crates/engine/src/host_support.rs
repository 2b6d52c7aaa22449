//! The isolation layers that this host supports, for `doctor` and for warnings in results.

use jail::cgroup::{CgroupError, CgroupVersion};
use jail::probe::{
    self, HostIds, LandlockCause, Namespace, NamespaceCause, ProbeFailure, ProcCause, SeccompCause,
};
use std::io;
use types::Warning;

/// Runs the warden and returns its exit code, if this process was started as one. Call it first in
/// `main`, before there is any other thread.
pub fn become_warden_if_asked() -> Option<i32> {
    let first = std::env::args().nth(1);
    (first.as_deref() == Some(sandbox::WARDEN_ARGUMENT)).then(jail::warden::main)
}

/// Results of probing Linux directly.
#[derive(Debug)]
pub struct HostSupport {
    pub namespaces: Vec<(Namespace, Result<(), ProbeFailure<NamespaceCause>>)>,
    pub proc_mount: Result<(), ProbeFailure<ProcCause>>,
    pub landlock_abi: Result<u32, ProbeFailure<LandlockCause>>,
    pub seccomp: Result<(), ProbeFailure<SeccompCause>>,
    pub capabilities: io::Result<()>,
    pub ids: HostIds,
    /// The limit of descriptors for a server that is started here.
    pub descriptors: u64,
    /// Without a cgroup, rlimits and the supervisor's watchdog enforce the limits.
    pub cgroup: Result<CgroupVersion, CgroupError>,
}

impl HostSupport {
    /// Must be called while the process is single-threaded.
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

    /// The layers that this host lacks and that an operator may allow to be missing.
    pub fn missing_layers(&self) -> Vec<jail::IsolationLayer> {
        let missing = |layer: &jail::IsolationLayer| match layer {
            jail::IsolationLayer::Landlock => self.landlock_abi.is_err(),
            jail::IsolationLayer::Seccomp => self.seccomp.is_err(),
        };
        jail::IsolationLayer::ALL.into_iter().filter(missing).collect()
    }
}

/// Returns a warning for each isolation layer that the operator allowed to be missing; every result
/// has them.
pub(crate) fn missing_layer_warnings(without: &[jail::IsolationLayer]) -> Vec<Warning> {
    let warning = |layer: &jail::IsolationLayer| Warning {
        code: "layer.missing".into(),
        message: format!(
            "this ran without the isolation layer {}, as the operator allowed",
            layer.name()
        ),
    };
    without.iter().map(warning).collect()
}
