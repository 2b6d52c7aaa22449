//! The plan: what a sandbox sees and may do, as data that can be printed, compared and sent.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::{fmt, io};

/// The user and group that code has inside every sandbox.
pub const SANDBOX_ID: u32 = 1000;

/// Everything the warden is told at its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WardenPlan {
    pub identity: HostIdentity,
    /// Builds the root directory that zygote and sandboxes share, in this order, read-only.
    pub root: Vec<RootStep>,
    pub zygote: ProgramSpec,
    pub sandbox: SandboxPlan,
    /// Cgroup directories to be removed, with all below them, once nothing runs any more.
    pub cgroups: Vec<PathBuf>,
}

/// Whose rights the sandboxes have on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostIdentity {
    /// Started by root: each sandbox is given a host uid of its own out of this range.
    Range { first: u32, count: u32 },
    /// Started by an ordinary user, who may map nobody but himself.
    Own { uid: u32, gid: u32 },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RootStep {
    Dir {
        path: PathBuf,
    },
    Symlink {
        path: PathBuf,
        target: PathBuf,
    },
    File {
        path: PathBuf,
        content: String,
    },
    /// A directory or a file of the host.
    Bind {
        from: PathBuf,
        to: PathBuf,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramSpec {
    pub path: PathBuf,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
}

/// The walls around one sandbox that do not differ from sandbox to sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxPlan {
    pub hostname: String,
    pub landlock: Vec<(PathBuf, PathAccess)>,
    pub processes: ProcessPolicy,
    /// Whether a cgroup counts the memory of the sandbox.
    pub memory_counted: bool,
    /// Directories of the root that no sandbox may look into.
    pub hidden: Vec<PathBuf>,
    /// Walls that the operator has agreed to do without.
    pub without: Vec<IsolationLayer>,
}

/// Whether code may start processes of its own. Threads it may have in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessPolicy {
    Allow,
    Deny,
}

/// What Landlock lets a process do beneath a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathAccess {
    /// See the names in directories, and nothing of what is in the files.
    List,
    Read,
    /// Read, make, change and remove; no device nodes.
    Write,
    /// Open a device node that is already there.
    Device,
}

/// A wall that can be missing on a host, by the name that `--allow-missing-layer` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IsolationLayer {
    Landlock,
    Seccomp,
}

impl IsolationLayer {
    pub const ALL: [Self; 2] = [Self::Landlock, Self::Seccomp];

    pub fn name(self) -> &'static str {
        match self {
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
        }
    }
}

/// A jail to be prepared: namespaces and mounts with only its init inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JailRequest {
    pub jail: u64,
    /// Which id of [`Identity::Range`] the sandbox gets; ignored for [`Identity::Own`].
    pub slot: u32,
    pub disk_bytes: u64,
    pub disk_inodes: u64,
    pub volumes: Vec<VolumeMount>,
}

/// Where the outlet of a jail listens, on its own loopback: the usual port of an HTTP proxy, which no
/// other program inside expects to have to itself.
pub const PROXY_PORT: u16 = 3128;

/// Where volumes are in a jail that has some.
pub const VOLUMES: &str = "/mnt";
/// Each is a mount and a descriptor.
pub const VOLUMES_MAX: usize = 16;

/// A directory beside the working directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeMount {
    /// Below [`VOLUMES`], and not below another one.
    pub path: PathBuf,
    pub content: VolumeContent,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeContent {
    /// What a directory of the root holds that is hidden otherwise, read-only.
    Shown { from: PathBuf },
    /// Writable memory of a bounded size, for somebody outside to fill and to look at.
    Held { bytes: u64, inodes: u64 },
}

/// What the supervisor asks of the warden.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WardenRequest {
    Jail(JailRequest),
    /// To be answered with [`WardenReply::Pong`], by which a warden that hangs is told from one that
    /// has nothing to report.
    Ping,
}

/// What the warden, or the init of a new jail, tells the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WardenReply {
    /// Comes with four descriptors, a pidfd of the init, the working directory, `/proc` and the
    /// outlet, and then the directory of each volume that is held, in the order in which they were
    /// asked for.
    JailReady {
        jail: u64,
    },
    JailFailed {
        jail: u64,
        error: JailError,
    },
    /// A process that the zygote forked has ended. The pid is as the zygote saw it.
    Exited {
        pid: i32,
        status: i32,
    },
    Pong,
    ZygoteExited {
        status: i32,
    },
    WardenFailed {
        error: JailError,
    },
}

/// Asks the zygote for one child. Comes with four descriptors: a pidfd of the jail's init, the
/// control channel, and the write ends of stdout and stderr.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnRequest {
    pub open_files: u64,
    pub processes: u64,
    pub file_bytes: u64,
    /// A bound on address space, so that a hopeless allocation is a MemoryError and not a kill.
    pub address_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpawnReply {
    /// Comes with a pidfd of the zygote.
    ZygoteReady,
    /// Comes with a pidfd of the child.
    Started {
        pid: i32,
    },
    Failed(JailError),
}

/// Which step failed, and how the kernel put it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{step}: {}", io::Error::from_raw_os_error(*errno))]
pub struct JailError {
    pub step: JailStep,
    pub errno: i32,
}

/// The steps of building and entering a jail, in the order in which they happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JailStep {
    ReadPlan,
    UnshareMounts,
    UnshareUser,
    MapIds,
    BuildRoot(PathBuf),
    PivotRoot,
    NewNamespaces,
    TakeIdentity,
    MountProc,
    MountScratch(PathBuf),
    MountVolume(PathBuf),
    Hide(PathBuf),
    StartZygote,
    Hostname,
    Loopback,
    Outlet,
    Sysctl,
    HandOver,
    EnterPidNamespace,
    Fork,
    EnterNamespaces,
    Descriptors,
    WorkingDirectory,
    Limits,
    Capabilities,
    NoNewPrivileges,
    Landlock,
    Seccomp,
}

impl JailStep {
    pub(crate) fn failed(self, error: impl Into<io::Error>) -> JailError {
        let errno = error.into().raw_os_error().unwrap_or(libc::EIO);
        JailError { step: self, errno }
    }
}

impl fmt::Display for JailStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::ReadPlan => "reading the plan",
            Self::UnshareMounts => "making a mount namespace",
            Self::UnshareUser => "making a user namespace",
            Self::MapIds => "mapping user ids",
            Self::BuildRoot(path) => return write!(f, "building {} of the root", path.display()),
            Self::PivotRoot => "changing to the new root",
            Self::NewNamespaces => "making namespaces",
            Self::TakeIdentity => "taking the sandbox's user id",
            Self::MountProc => "mounting /proc",
            Self::MountScratch(path) => return write!(f, "mounting {}", path.display()),
            Self::MountVolume(path) => {
                return write!(f, "mounting the volume at {}", path.display());
            }
            Self::Hide(path) => return write!(f, "hiding {}", path.display()),
            Self::StartZygote => "starting Python",
            Self::Hostname => "setting the host name",
            Self::Loopback => "bringing the loopback interface up",
            Self::Outlet => "opening the outlet",
            Self::Sysctl => "setting limits of the namespaces",
            Self::HandOver => "handing the jail over",
            Self::EnterPidNamespace => "choosing the pid namespace",
            Self::Fork => "forking the zygote",
            Self::EnterNamespaces => "entering the namespaces",
            Self::Descriptors => "arranging descriptors",
            Self::WorkingDirectory => "entering the working directory",
            Self::Limits => "setting resource limits",
            Self::Capabilities => "dropping capabilities",
            Self::NoNewPrivileges => "setting no_new_privs",
            Self::Landlock => "restricting itself with Landlock",
            Self::Seccomp => "loading the seccomp filter",
        };
        f.write_str(text)
    }
}
