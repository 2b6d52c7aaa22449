//! One live sandbox, and the pool of them.
//!
//! A [`ZygoteHost`] is a warm Python and its warden; it spawns [`Sandbox`]es, each an isolated
//! interpreter with a working directory. A sandbox has one owner at a time and is killed when it is
//! dropped. The supervisor does not trust it: messages arrive in bounded frames, and time, memory and
//! exit are observed from outside. A [`Pool`] keeps a few prepared sandboxes.

mod channel;
mod control;
mod execution_group;
mod execution_meter;
mod files;
mod frames;
mod install_tracker;
mod output_chunks;
mod output_pipe;
mod pool;
mod read_limiter;
mod reaper;
mod runner_files;
mod sandbox;
mod sandbox_spec;
mod stop_handle;
mod time_slice;
mod truncate;
mod uids;
mod usage;
mod value_budget;
mod zygote_host;

pub use channel::ProtocolError;
pub use execution_group::ExecutionGroup;
pub use files::{DirectoryListing, FileEntry, FileError, SandboxDirectory, check_name};
pub use frames::{
    DeniedFeature, FunctionArguments, PythonException, ReturnedValue, RunnerOutcome, RunnerRequest,
    ValueEncodingError, Variables,
};
pub use install_tracker::{InstallCallback, InstallFailure, InstallFuture, InstallSuccess};
pub use jail::{ProcessPolicy, VolumeContent, VolumeMount};
pub use pool::{Pool, PoolConfig};
pub use runner_files::{RunnerFiles, RunnerSource};
pub use sandbox::{ExitCause, ExitReport, Sandbox};
pub use sandbox_spec::{SandboxSpec, read_only_volume};
pub use stop_handle::StopHandle;
pub use uids::HOST_UIDS;
pub use usage::PROCESS_SESSIONS_MAX;
pub use value_budget::ValueBudget;
pub use zygote_host::{
    DESCRIPTORS_RESERVED, Preload, SpawnError, WARDEN_ARGUMENT, ZygoteHost, ZygoteHostConfig,
};
