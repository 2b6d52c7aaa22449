//! Probes what this host supports by trying it, not by reading version numbers, and finds the
//! setting that causes a failure.
//!
//! Every trial runs in a forked child, so this process does not change. The caller must be
//! single-threaded.

use crate::clone::{Forked, clone3};
use crate::mount;
use crate::seccomp::{Policy, compile};
use crate::{isolation, landlock};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{Pid, Resource, WaitOptions, getrlimit, waitpid};
use rustix::thread::CapabilitySet;
use std::ops::Range;
use std::path::Path;
use std::{fs, io};

/// The kinds of namespace that every sandbox has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespace {
    User,
    Pid,
    Mount,
    Net,
    Ipc,
    Uts,
    Cgroup,
}

impl Namespace {
    pub const ALL: [Self; 7] =
        [Self::User, Self::Pid, Self::Mount, Self::Net, Self::Ipc, Self::Uts, Self::Cgroup];

    fn flag(self) -> libc::c_int {
        match self {
            Self::User => libc::CLONE_NEWUSER,
            Self::Pid => libc::CLONE_NEWPID,
            Self::Mount => libc::CLONE_NEWNS,
            Self::Net => libc::CLONE_NEWNET,
            Self::Ipc => libc::CLONE_NEWIPC,
            Self::Uts => libc::CLONE_NEWUTS,
            Self::Cgroup => libc::CLONE_NEWCGROUP,
        }
    }

    /// The name in `/proc/sys/user/max_NAME_namespaces`.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Pid => "pid",
            Self::Mount => "mnt",
            Self::Net => "net",
            Self::Ipc => "ipc",
            Self::Uts => "uts",
            Self::Cgroup => "cgroup",
        }
    }
}

/// Why an isolation layer is missing: the error of Linux, and its cause if known.
#[derive(Debug)]
pub struct ProbeFailure<Cause> {
    pub cause: Cause,
    pub error: io::Error,
}

/// Settings that disable namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamespaceCause {
    /// Linux was built without them.
    NotBuiltIn,
    /// `user.max_NAME_namespaces` is zero.
    NoneAllowed(Namespace),
    /// `kernel.unprivileged_userns_clone` is zero, as on older Debian releases.
    Unprivileged,
    /// `kernel.apparmor_restrict_unprivileged_userns` is one, as on Ubuntu.
    AppArmor,
    /// A seccomp filter that this process inherited from its parent.
    Filtered(ContainerRuntime),
    Unknown,
}

/// Settings that forbid mounting a new `/proc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcCause {
    /// Parts of `/proc` are covered, and Linux refuses a new mount that would show them.
    Covered(ContainerRuntime),
    /// There are no namespaces to mount it in.
    NoNamespaces,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LandlockCause {
    NotBuiltIn,
    /// Linux contains it, but its `lsm=` list does not.
    NotEnabled,
    Filtered(ContainerRuntime),
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeccompCause {
    NotBuiltIn,
    Filtered(ContainerRuntime),
    Unknown,
}

/// The container runtime that this process runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerRuntime {
    Docker,
    Podman,
    /// No known container.
    NoContainer,
}

/// Creates a process in a namespace of that kind, inside a user namespace as sandboxes do.
pub fn namespace(kind: Namespace) -> Result<(), ProbeFailure<NamespaceCause>> {
    in_forked_child(libc::CLONE_NEWUSER | kind.flag(), || Ok(())).map_err(|error| ProbeFailure {
        cause: KernelSettings::read().namespace_cause(kind),
        error,
    })
}

/// Mounts a `/proc` for a pid namespace, as every sandbox needs it.
pub fn proc_mount() -> Result<(), ProbeFailure<ProcCause>> {
    let namespaces = libc::CLONE_NEWUSER | libc::CLONE_NEWPID | libc::CLONE_NEWNS;
    if let Err(error) = in_forked_child(namespaces, || Ok(())) {
        return Err(ProbeFailure { cause: ProcCause::NoNamespaces, error });
    }
    in_forked_child(namespaces, || {
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        mount::proc(None).map_err(|failed| io::Error::from_raw_os_error(failed.errno))
    })
    .map_err(|error| {
        let covered = proc_is_covered(&read_or_empty("/proc/self/mountinfo"));
        let cause = if covered {
            ProcCause::Covered(KernelSettings::read().container_runtime)
        } else {
            ProcCause::Unknown
        };
        ProbeFailure { cause, error }
    })
}

/// The limit of descriptors for a process that is started here.
pub fn descriptors() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// The Landlock ABI version.
pub fn landlock_abi() -> Result<u32, ProbeFailure<LandlockCause>> {
    landlock::abi().map_err(|error| {
        let settings = KernelSettings::read();
        let cause = match error.raw_os_error() {
            Some(libc::EOPNOTSUPP) => LandlockCause::NotEnabled,
            Some(_) if settings.filtered => LandlockCause::Filtered(settings.container_runtime),
            Some(libc::ENOSYS) => LandlockCause::NotBuiltIn,
            _ => LandlockCause::Unknown,
        };
        ProbeFailure { cause, error }
    })
}

/// Loads the filter of a sandbox into a forked child.
pub fn seccomp_filter() -> Result<(), ProbeFailure<SeccompCause>> {
    in_plain_forked_child(|| {
        let filter = compile(&Policy::sandbox()).map_err(|_| io::ErrorKind::InvalidInput)?;
        rustix::thread::set_no_new_privs(true)?;
        isolation::load_seccomp_filter(&filter)
    })
    .map_err(|error| {
        let settings = KernelSettings::read();
        let cause = match error.raw_os_error() {
            Some(_) if settings.filtered => SeccompCause::Filtered(settings.container_runtime),
            Some(libc::ENOSYS | libc::EINVAL) => SeccompCause::NotBuiltIn,
            _ => SeccompCause::Unknown,
        };
        ProbeFailure { cause, error }
    })
}

/// Drops every capability permanently, in a forked child.
pub fn capabilities() -> io::Result<()> {
    in_forked_child(libc::CLONE_NEWUSER, || {
        isolation::drop_capabilities().map_err(|failed| io::Error::from_raw_os_error(failed.errno))
    })
}

/// The host ids that sandboxes can get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostIds {
    /// Each sandbox has its own id.
    OneEach,
    /// All sandboxes have the id of the user that started Belljar: an ordinary user, or the root of
    /// a user namespace without further ids, as in a rootless container.
    Shared,
    /// Uid 0 without the rights to build a root directory or to map ids.
    RootWithoutRights,
}

/// Checks whether the ids meant for sandboxes are available.
pub fn host_ids(wanted: &Range<u32>) -> HostIds {
    if !rustix::process::geteuid().is_root()
        || !is_mapped(&read_or_empty("/proc/self/uid_map"), wanted)
    {
        return HostIds::Shared;
    }
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::SETUID | CapabilitySet::SETGID;
    let held = rustix::thread::capabilities(None).map(|sets| sets.effective.contains(needed));
    if held.unwrap_or(false) { HostIds::OneEach } else { HostIds::RootWithoutRights }
}

/// Runs `trial` in a forked child, in new namespaces, and returns its result.
fn in_forked_child(
    namespaces: libc::c_int,
    trial: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    match clone3(namespaces, libc::SIGCHLD)? {
        Forked::Child => exit_with(trial()),
        Forked::Parent { pid, .. } => wait_for_child(pid),
    }
}

/// Like [`in_forked_child`], without namespaces. It uses `fork`, which a host without `clone3` has
/// too, so that a missing `clone3` is not mistaken for something else.
fn in_plain_forked_child(trial: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    // SAFETY: there is one thread, so that the copy may do whatever this process may.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => exit_with(trial()),
        pid => wait_for_child(Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?),
    }
}

/// Every errno is below 256, so that an exit code can carry it.
fn exit_with(result: io::Result<()>) -> ! {
    let code = result.map_or_else(|error| error.raw_os_error().unwrap_or(libc::EIO), |()| 0);
    // SAFETY: ends the copy at once, without running handlers that belong to the original.
    unsafe { libc::_exit(code) }
}

fn wait_for_child(copy: Pid) -> io::Result<()> {
    let ended = waitpid(Some(copy), WaitOptions::empty())?;
    match ended.and_then(|(_, status)| status.exit_status()) {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(io::ErrorKind::Interrupted.into()),
    }
}

/// Settings of the host, read after something was refused.
#[derive(Debug)]
struct KernelSettings {
    built_in: bool,
    /// `user.max_NAME_namespaces`, for the kinds that are set to zero.
    none_allowed: Vec<Namespace>,
    unprivileged_off: bool,
    apparmor_on: bool,
    /// Whether a seccomp filter is active on this process.
    filtered: bool,
    root: bool,
    container_runtime: ContainerRuntime,
}

impl KernelSettings {
    fn read() -> Self {
        let is = |path: &str, value: &str| read_or_empty(path).trim() == value;
        let none =
            |kind: &Namespace| is(&format!("/proc/sys/user/max_{}_namespaces", kind.name()), "0");
        Self {
            built_in: Path::new("/proc/self/ns/user").exists(),
            none_allowed: Namespace::ALL.into_iter().filter(none).collect(),
            unprivileged_off: is("/proc/sys/kernel/unprivileged_userns_clone", "0"),
            apparmor_on: is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
            filtered: has_seccomp_filter(&read_or_empty("/proc/self/status")),
            root: rustix::process::geteuid().is_root(),
            container_runtime: detect_container_runtime(),
        }
    }

    /// The first setting that explains the failure. A limit of zero applies to every user; the two
    /// switches after it apply to unprivileged users only.
    fn namespace_cause(&self, kind: Namespace) -> NamespaceCause {
        if !self.built_in {
            NamespaceCause::NotBuiltIn
        } else if self.none_allowed.contains(&Namespace::User) {
            NamespaceCause::NoneAllowed(Namespace::User)
        } else if self.none_allowed.contains(&kind) {
            NamespaceCause::NoneAllowed(kind)
        } else if self.unprivileged_off && !self.root {
            NamespaceCause::Unprivileged
        } else if self.filtered {
            NamespaceCause::Filtered(self.container_runtime)
        } else if self.apparmor_on && !self.root {
            NamespaceCause::AppArmor
        } else {
            NamespaceCause::Unknown
        }
    }
}

/// Whether all of these ids exist in this process's user namespace.
fn is_mapped(uid_map: &str, wanted: &Range<u32>) -> bool {
    uid_map.lines().any(|line| {
        let mut numbers = line.split_whitespace().filter_map(|number| number.parse::<u64>().ok());
        let (inside, _outside, count) = (numbers.next(), numbers.next(), numbers.next());
        inside.zip(count).is_some_and(|(inside, count)| {
            (inside..inside + count).contains(&u64::from(wanted.start))
                && inside + count >= u64::from(wanted.end)
        })
    })
}

fn read_or_empty(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn has_seccomp_filter(status: &str) -> bool {
    status.lines().any(|line| line.split_whitespace().eq(["Seccomp:", "2"]))
}

fn detect_container_runtime() -> ContainerRuntime {
    if Path::new("/run/.containerenv").exists() {
        ContainerRuntime::Podman
    } else if Path::new("/.dockerenv").exists() {
        ContainerRuntime::Docker
    } else {
        ContainerRuntime::NoContainer
    }
}

/// Whether something is mounted over a part of `/proc`.
fn proc_is_covered(mountinfo: &str) -> bool {
    let points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    points.filter_map(|point| point.strip_prefix("/proc/")).any(|part| {
        // A separate file system, not a cover.
        part != "sys/fs/binfmt_misc"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_host() -> KernelSettings {
        KernelSettings {
            built_in: true,
            none_allowed: Vec::new(),
            unprivileged_off: false,
            apparmor_on: false,
            filtered: false,
            root: false,
            container_runtime: ContainerRuntime::NoContainer,
        }
    }

    #[test]
    fn each_setting_that_refuses_namespaces_is_named() {
        let cause = |settings: KernelSettings| settings.namespace_cause(Namespace::Net);
        assert_eq!(cause(open_host()), NamespaceCause::Unknown);
        assert_eq!(
            cause(KernelSettings { built_in: false, ..open_host() }),
            NamespaceCause::NotBuiltIn
        );
        for kind in [Namespace::User, Namespace::Net] {
            let settings = KernelSettings { none_allowed: vec![kind], ..open_host() };
            assert_eq!(cause(settings), NamespaceCause::NoneAllowed(kind));
        }
        let other = KernelSettings { none_allowed: vec![Namespace::Ipc], ..open_host() };
        assert_eq!(cause(other), NamespaceCause::Unknown);
        let debian = KernelSettings { unprivileged_off: true, ..open_host() };
        assert_eq!(cause(debian), NamespaceCause::Unprivileged);
        let ubuntu = KernelSettings { apparmor_on: true, ..open_host() };
        assert_eq!(cause(ubuntu), NamespaceCause::AppArmor);
        let docker = KernelSettings {
            filtered: true,
            container_runtime: ContainerRuntime::Docker,
            ..open_host()
        };
        assert_eq!(cause(docker), NamespaceCause::Filtered(ContainerRuntime::Docker));
    }

    #[test]
    fn root_gets_no_advice_that_applies_to_ordinary_users_only() {
        let settings =
            KernelSettings { unprivileged_off: true, apparmor_on: true, root: true, ..open_host() };
        assert_eq!(settings.namespace_cause(Namespace::Pid), NamespaceCause::Unknown);
    }

    #[test]
    fn a_covered_proc_is_distinguished_from_a_plain_one() {
        let plain = "22 1 0:20 / /proc rw,nosuid - proc proc rw\n\
                     23 22 0:21 / /proc/sys/fs/binfmt_misc rw - binfmt_misc none rw\n";
        assert!(!proc_is_covered(plain));
        let docker = "30 22 0:5 /null /proc/kcore rw,nosuid - tmpfs tmpfs rw\n";
        assert!(proc_is_covered(&format!("{plain}{docker}")));
    }

    #[test]
    fn ids_are_given_away_only_where_they_exist() {
        let wanted = 2_000_000_000..2_000_065_536;
        assert!(is_mapped("         0          0 4294967295\n", &wanted));
        assert!(!is_mapped("         0       1000          1\n", &wanted));
        let rootless = "0 1000 1\n1 100000 65536\n";
        assert!(!is_mapped(rootless, &wanted));
        assert!(is_mapped(rootless, &(1..65_537)));
        assert!(!is_mapped(rootless, &(1..65_538)));
        assert!(!is_mapped("", &wanted));
    }

    #[test]
    fn only_a_filter_counts_as_filtered() {
        assert!(has_seccomp_filter("NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n"));
        assert!(!has_seccomp_filter("NoNewPrivs:\t0\nSeccomp:\t0\nSeccomp_filters:\t2\n"));
    }
}
