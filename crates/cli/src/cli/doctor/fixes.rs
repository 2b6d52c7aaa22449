//! Fixes that make an isolation layer available: one per cause.

use engine::host::{
    CgroupError, ContainerRuntime, HostIds, LandlockCause, NamespaceCause, ProcCause, SeccompCause,
};
use std::fs;
use std::path::Path;

/// Recommended limit of namespaces: as many as a busy server has sandboxes, and some more.
const NAMESPACES: u32 = 15_000;

const DOCKER: &str = "docker run --security-opt seccomp=unconfined --security-opt \
                      apparmor=unconfined \\\n    --security-opt systempaths=unconfined ...";
const PODMAN: &str = "podman run --security-opt seccomp=unconfined --security-opt unmask=ALL ...";
const NOT_FILTERED: &str = "a seccomp filter of the parent process blocks it; in a systemd unit,\nset \
                            RestrictNamespaces=no and remove SystemCallFilter=";

pub(super) fn namespace(cause: NamespaceCause) -> String {
    match cause {
        NamespaceCause::NotBuiltIn => "use a kernel with CONFIG_USER_NS=y".into(),
        NamespaceCause::NoneAllowed(kind) => {
            format!("sysctl -w user.max_{}_namespaces={NAMESPACES}", kind.name())
        }
        NamespaceCause::Unprivileged => "sysctl -w kernel.unprivileged_userns_clone=1".into(),
        NamespaceCause::AppArmor => apparmor(),
        NamespaceCause::Filtered(runtime) => seccomp_filtered(runtime),
        NamespaceCause::Unknown => {
            "the cause is unknown; check `dmesg`\n(the kernel always denies \
                                    it inside a chroot)"
                .into()
        }
    }
}

/// Ubuntu recommends a profile for each program that needs namespaces; the sysctl applies to all
/// programs.
fn apparmor() -> String {
    let program = std::env::current_exe().unwrap_or_else(|_| "/usr/local/bin/belljar".into());
    format!(
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0\n\
         or, for this program only:\n\
         printf 'abi <abi/4.0>,\\nprofile belljar {} flags=(unconfined) {{ userns, }}\\n' \\\n    \
         > /etc/apparmor.d/belljar && apparmor_parser -r /etc/apparmor.d/belljar",
        program.display()
    )
}

fn seccomp_filtered(runtime: ContainerRuntime) -> String {
    match runtime {
        ContainerRuntime::Docker => DOCKER.into(),
        ContainerRuntime::Podman => PODMAN.into(),
        ContainerRuntime::NoContainer => NOT_FILTERED.into(),
    }
}

/// `None` if namespaces must be fixed first.
pub(super) fn proc_mount(cause: ProcCause) -> Option<String> {
    match cause {
        ProcCause::Covered(ContainerRuntime::NoContainer) => Some(
            "unmount file systems that cover parts of /proc: grep ' /proc/' /proc/self/mountinfo"
                .into(),
        ),
        ProcCause::Covered(container) => Some(seccomp_filtered(container)),
        ProcCause::NoNamespaces => None,
        ProcCause::Unknown => Some("the cause is unknown; check `dmesg`".into()),
    }
}

pub(super) fn landlock(cause: LandlockCause) -> String {
    match cause {
        LandlockCause::NotBuiltIn => "use Linux 5.13 or newer with CONFIG_SECURITY_LANDLOCK=y\n\
             (or run without this layer: --allow-missing-layer landlock)"
            .into(),
        LandlockCause::NotEnabled => {
            let others = fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default();
            let others = if others.trim().is_empty() { "yama,apparmor" } else { others.trim() };
            format!(
                "in /etc/default/grub: GRUB_CMDLINE_LINUX=\"lsm=landlock,{others}\"\n\
                 then: update-grub && reboot"
            )
        }
        LandlockCause::Filtered(runtime) => seccomp_filtered(runtime),
        LandlockCause::Unknown => "the cause is unknown; check `dmesg | grep -i landlock`".into(),
    }
}

pub(super) fn seccomp(cause: SeccompCause) -> String {
    match cause {
        SeccompCause::NotBuiltIn => "use a kernel with CONFIG_SECCOMP_FILTER=y\n\
                                     (or run without this layer: --allow-missing-layer seccomp)"
            .into(),
        SeccompCause::Filtered(runtime) => seccomp_filtered(runtime),
        SeccompCause::Unknown => "the cause is unknown; check `dmesg | grep -i seccomp`".into(),
    }
}

pub(super) fn shared_ids() -> String {
    "start as root: sudo belljar ...".into()
}

pub(super) fn root_without_capabilities() -> String {
    "start as an ordinary user: docker run --user 1000:1000 ...\n\
     or with the capability: docker run --cap-add SYS_ADMIN ..."
        .into()
}

pub(super) fn descriptors(needed: u64) -> String {
    format!(
        "raise the hard limit to {needed} or more: ulimit -Hn {needed}, or LimitNOFILE={needed} in a \
         systemd unit;\nuntil then, sandboxes get fewer open files than they request"
    )
}

pub(super) fn cgroup(missing: &CgroupError, ids: HostIds) -> String {
    let v2 = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    match (missing, ids) {
        (CgroupError::NotMounted, _) => "mount -t cgroup2 none /sys/fs/cgroup".into(),
        (_, HostIds::Shared) if v2 => {
            "systemd-run --user --scope -p Delegate=yes belljar ...".into()
        }
        (_, HostIds::Shared) => "start as root: cgroup version 1 cannot be delegated".into(),
        (CgroupError::Controller(name), _) => {
            format!(
                "enable the {name} controller for this process; in a systemd unit: Delegate=yes"
            )
        }
        (CgroupError::NotWritable { .. }, _) => {
            "mount the cgroups of the host writable; in a systemd unit: Delegate=yes".into()
        }
    }
}
