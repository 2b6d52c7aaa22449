//! Builds a Python and its packages once, and returns their paths.
//!
//! An environment starts as a [`Definition`]: a small TOML file and a lock with the hash of every
//! package. [`Environments::ensure`] turns it into a [`BuiltEnvironment`]: a directory with a
//! virtual environment written for the *inside* of a sandbox, where it is mounted read-only at
//! [`INSIDE_ENVIRONMENT`], and a list of the required mounts. The second call only reads one
//! record.
//!
//! A directory is an environment when it has its record, which is written last; a failure before
//! that leaves nothing behind. This crate never prints and knows nothing of sandboxes.

mod builder;
mod bytecode;
mod cache_pruning;
mod definition;
mod definition_files;
mod discovery;
mod disk_usage;
mod environment;
mod environments;
mod error;
mod garbage_collection;
mod host_settings;
mod lease;
mod lock;
mod lock_resolver;
mod package_root;
mod progress;
mod python_choice;
mod requirement;
mod requirement_lines;
mod sandbox_paths;
mod script_metadata;
mod session_installer;
mod startup_hooks;
mod subprocess;
mod unlocked_definition;
mod uv;
mod version;

pub use definition::{
    Definition, DefinitionError, Imports, ModuleName, Name, PackageIndex, ProcessesSetting,
};
pub use definition_files::{DefinitionStamp, Origin, Recipe};
pub use discovery::{DiscoveredPythons, PythonInstallation, SkipReason, SkippedPython, discover};
pub use disk_usage::DiskUsage;
pub use environment::{BuiltEnvironment, Mount, PackageVersion};
pub use environments::{BuildRequest, Environments, PreparedEnvironment};
pub use error::{BuildError, ResolutionFailure};
pub use host_settings::{HostSettings, IndexUrl};
pub use lease::EnvironmentLease;
pub use lock::LockError;
pub use package_root::{PackageRoot, SessionPackages};
pub use progress::Progress;
pub use python_choice::PythonChoice;
pub use requirement::{PackageName, Requirement, RequirementError};
pub use sandbox_paths::{INSIDE_ENVIRONMENT, INSIDE_INTERPRETER, INSIDE_PYTHON, INSIDE_SITE};
pub use script_metadata::{Header, HeaderError, UnmetRequirement};
pub use session_installer::{InstallError, PackageRequest, ResolvedPackages, SessionInstaller};
pub use subprocess::CancelFlag;
pub use unlocked_definition::{
    SOURCE_BYTES_MAX, SourceError, SourceKind, SourceLine, UnlockedDefinition, source_kind,
};
pub use uv::UvSource;
pub use version::{PythonVersion, VersionRange};
