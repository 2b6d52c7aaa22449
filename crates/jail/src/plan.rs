//! The plan: what a sandbox sees and may do, as data that can be printed, compared and sent.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::{fmt, io};

/// User and group id of code inside every sandbox.
pub const SANDBOX_ID: u32 = 1000;

/// Everything that the supervisor sends to the warden at its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WardenPlan {
    pub identity: HostIdentity,
    /// Steps that build the read-only root directory of zygote and sandboxes, in this order.
    pub root: Vec<RootStep>,
    pub zygote: ProgramSpec,
    pub sandbox: SandboxPlan,
    /// Cgroup directories that the launcher removes, with all below them, once no process is left.
    pub cgroups: Vec<PathBuf>,
}

/// The host user that sandboxes run as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostIdentity {
    /// Root started Belljar: each sandbox gets its own host uid out of this range.
    Range { first: u32, count: u32 },
    /// An ordinary user started Belljar, who can map only their own id.
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

/// The settings of the isolation layers that all sandboxes of one zygote share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxPlan {
    pub hostname: String,
    pub landlock: Vec<(PathBuf, PathAccess)>,
    pub processes: ProcessPolicy,
    /// Whether a cgroup counts the memory of the sandbox.
    pub memory_counted: bool,
    /// Directories of the root that every sandbox sees empty.
    pub hidden: Vec<PathBuf>,
    /// Isolation layers that the operator has allowed to be missing.
    pub without: Vec<IsolationLayer>,
}

/// Whether code may start processes. It may start threads in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessPolicy {
    Allow,
    Deny,
}

/// Access that Landlock allows beneath a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathAccess {
    /// List directories, without reading files.
    List,
    Read,
    /// Read, create, change and remove; no device nodes.
    Write,
    /// Open an existing device node.
    Device,
}

/// An isolation layer that a host may lack, by the name that `--allow-missing-layer` takes.
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

/// A jail to prepare: namespaces and mounts with only its init inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JailRequest {
    pub jail: u64,
    /// Index of the sandbox's id in [`HostIdentity::Range`]; ignored for [`HostIdentity::Own`].
    pub slot: u32,
    pub disk_bytes: u64,
    pub disk_inodes: u64,
    pub volumes: Vec<VolumeMount>,
}

/// Port of a jail's egress proxy on its own loopback: the usual port of an HTTP proxy, which no
/// other program inside expects to be free.
pub const PROXY_PORT: u16 = 3128;

/// Directory of a jail's volumes.
pub const VOLUMES: &str = "/mnt";
/// Each volume takes a mount and a descriptor.
pub const VOLUMES_MAX: usize = 16;

/// A directory mounted beside the working directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeMount {
    /// Below [`VOLUMES`], and not below another volume.
    pub path: PathBuf,
    pub content: VolumeContent,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeContent {
    /// Shows, read-only, a directory of the root that is hidden otherwise.
    Shown { from: PathBuf },
    /// A tmpfs of bounded size that the supervisor fills and reads from outside.
    Held { bytes: u64, inodes: u64 },
}

/// Requests of the supervisor to the warden.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WardenRequest {
    Jail(JailRequest),
    /// The warden answers with [`WardenReply::Pong`]. This distinguishes a warden that hangs from
    /// one that has nothing to report.
    Ping,
}

/// Replies of the warden, or of the init of a new jail, to the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WardenReply {
    /// Comes with four descriptors, a pidfd of the init, the working directory, `/proc` and the
    /// proxy socket, and then the directory of each held volume, in the order of the request.
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
    /// Limit of the address space, so that an impossible allocation raises MemoryError instead of
    /// killing the process.
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

/// The step that failed, and the error that Linux returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{step}: {}", io::Error::from_raw_os_error(*errno))]
pub struct JailError {
    pub step: JailStep,
    pub errno: i32,
}

/// The steps of building and entering a jail, in their order.
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
    ProxySocket,
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
            Self::UnshareMounts => "creating a mount namespace",
            Self::UnshareUser => "creating a user namespace",
            Self::MapIds => "mapping user ids",
            Self::BuildRoot(path) => {
                return write!(f, "mounting {} in the new root", path.display());
            }
            Self::PivotRoot => "changing to the new root",
            Self::NewNamespaces => "creating namespaces",
            Self::TakeIdentity => "switching to the user id of the sandbox",
            Self::MountProc => "mounting /proc",
            Self::MountScratch(path) => return write!(f, "mounting {}", path.display()),
            Self::MountVolume(path) => {
                return write!(f, "mounting the volume at {}", path.display());
            }
            Self::Hide(path) => return write!(f, "hiding {}", path.display()),
            Self::StartZygote => "starting Python",
            Self::Hostname => "setting the host name",
            Self::Loopback => "enabling the loopback interface",
            Self::ProxySocket => "listening on the proxy socket",
            Self::Sysctl => "setting limits of the namespaces",
            Self::HandOver => "sending the jail to the supervisor",
            Self::EnterPidNamespace => "selecting the pid namespace for children",
            Self::Fork => "forking the zygote",
            Self::EnterNamespaces => "entering the namespaces",
            Self::Descriptors => "moving file descriptors",
            Self::WorkingDirectory => "entering the working directory",
            Self::Limits => "setting resource limits",
            Self::Capabilities => "dropping capabilities",
            Self::NoNewPrivileges => "setting no_new_privs",
            Self::Landlock => "applying Landlock",
            Self::Seccomp => "loading the seccomp filter",
        };
        f.write_str(text)
    }
}
