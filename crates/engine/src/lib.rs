//! The walk of one request: admit, find capacity, lease a sandbox, run, collect, record.
//!
//! [`run`] has the walk on one screen. Everything a door can ask for is a method of [`Engine`];
//! it never prints, and what went wrong is always a [`types::Fault`].

mod builds;
mod capacity;
pub mod catalog;
mod collect;
mod command;
mod config;
mod digest;
mod engine;
mod environments;
mod files;
mod installs;
mod job;
mod limits;
mod outcome;
mod outlet;
pub mod preflight;
mod record;
mod redact;
mod resources;
mod run;
mod running;
mod session;
mod stores;
mod walls;

pub use capacity::Load;
pub use command::{
    Bring, Code, CodeError, Command, Content, Entry, FileIn, Lent, NewSession, Staging,
};
pub use config::{Config, EndReason, Expiry, ExpiryRequest, SessionEnded};
pub use engine::Engine;
pub use environments::{Installed, Outside};
pub use files::check_file_name;
pub use installs::{Added, Chosen, Installer, Wanted, without_agent};
pub use outlet::{Outlet, OutletGuard};
pub use redact::{Redactor, RedactorCache, SecretVersion, check_secrets};
pub use resources::HostResources;
pub use run::{Admitted, Finished};
pub use sandbox::{Listing, ValueRoom};
pub use session::SessionInfo;
pub use stores::{STORE_FILES_MAX, Stamp, StoreBase, StoreDirectory, StoreFileError, StoreIn};
pub use walls::{Host, become_warden_if_asked};

pub use environment::{
    BuildError, Definition, Discovery, Draft, Environments, Header, House, Machine, Mount, Name,
    Order, Package, PackageName, Prepared, Processes, Progress, Python, PythonChoice,
    PythonVersion, Recipe, Requirement, SOURCE_BYTES_MAX, Skipped, SourceKind, Unmet, UvSource,
    discover, kind_of,
};
pub use jail::Wall;
pub use jail::memory::{bound_kept as bound_kept_memory, give_back as give_back_memory};
/// The answers in a [`Host`].
pub mod host {
    pub use jail::cgroup::{Missing as CgroupMissing, Version as CgroupVersion};
    pub use jail::probe::{
        HostIds, LandlockCause, Namespace, NamespaceCause, ProcCause, Refused, SeccompCause,
        Surroundings,
    };
    pub use sandbox::DESCRIPTORS_RESERVED;
}
pub use sandbox::{Kernel, Nursery, NurseryConfig, Pool, Sandbox, Stopper, Warmth};
