//! The path of one execution: admit, find capacity, lease a sandbox, run, collect, record.
//!
//! The module `run` has that path on one screen. Everything that a server or command can request is
//! a method of [`Engine`]. The engine never prints, and reports every failure as a
//! [`types::Error`].

mod build_queues;
mod capacity;
pub mod catalog;
mod clock;
mod collect;
mod command;
mod config;
mod directory_digest;
mod egress;
mod engine;
mod environment_cache;
mod event_redactor;
mod execution_outcome;
mod files;
mod host_support;
mod limits;
mod off_thread;
mod package_installer;
pub mod preflight;
mod record;
mod resources;
mod run;
mod runner_request;
mod running_executions;
mod sandbox_grants;
mod session;
mod session_files;
mod shared_directory;
mod slot_queue;
mod start_queue;
mod volumes;

pub use capacity::EngineLoad;
pub use clock::Clock;
pub use command::{
    Code, CodeError, Command, EntryPoint, FileCollection, FileContent, InputFile, NewSession,
    StagingDirectory,
};
pub use config::{Config, EndReason, Expiry, ExpiryRequest, SessionEnded};
pub use egress::{EgressGuard, EgressHandler};
pub use engine::Engine;
pub use environment_cache::{InstalledVersions, UnsandboxedPython};
pub use files::check_file_name;
pub use host_support::{HostSupport, become_warden_if_asked};
pub use package_installer::{
    InstallHandler, InstallRequest, InstallResult, ResolvedInstall, install_denied_error,
};
pub use resources::HostResources;
pub use run::{Admitted, FinishedExecution};
pub use sandbox::{DirectoryListing, ValueBudget};
pub use sandbox_grants::SandboxGrants;
pub use session::SessionInfo;
pub use shared_directory::{GrantedDirectory, SharedDirectory};
pub use volumes::{
    FileStamp, GrantedVolume, VOLUME_FILES_MAX, VolumeBase, VolumeDirectory, VolumeFileError,
};

pub use environment::{
    BuildError, BuildRequest, Definition, DiscoveredPythons, Environments, Header, HostSettings,
    Mount, Name, PackageName, PackageRoot, PackageVersion, PreparedEnvironment, ProcessesSetting,
    Progress, PythonChoice, PythonInstallation, PythonVersion, Recipe, Requirement,
    SOURCE_BYTES_MAX, SkippedPython, SourceKind, UnlockedDefinition, UnmetRequirement, UvSource,
    discover, source_kind,
};
pub use jail::IsolationLayer;
pub use jail::allocator::{bound_kept_memory, trim_allocator};
/// The results in a [`HostSupport`](crate::HostSupport).
pub mod host {
    pub use jail::cgroup::{CgroupError, CgroupVersion};
    pub use jail::probe::{
        ContainerRuntime, HostIds, LandlockCause, Namespace, NamespaceCause, ProbeFailure,
        ProcCause, SeccompCause,
    };
    pub use sandbox::DESCRIPTORS_RESERVED;
}
pub use sandbox::{Pool, Preload, RunnerSource, Sandbox, StopHandle, ZygoteHost, ZygoteHostConfig};
