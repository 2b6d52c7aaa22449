//! The isolation layers of a sandbox.
//!
//! A [`WardenPlan`] says, as plain data, what a sandbox sees and what it may do. This crate carries
//! it out in one readable order and knows nothing of Python, tenants or HTTP. It runs in three
//! processes, each single-threaded:
//!
//! - the **warden** ([`warden::main`]): pid 1 of an outer pid namespace. It builds the read-only
//!   root once, starts the zygote, and creates empty jails. When it ends, Linux kills every process
//!   below it.
//! - the **init** of each jail: pid 1 of the sandbox's own pid namespace, which reaps orphans.
//! - the **zygote**: [`zygote`] is the C interface that is loaded into it. It forks a child into a
//!   prepared jail and applies every isolation layer before the child returns.
//!
//! [`Confinement`] is weaker: it restricts trusted host programs that process untrusted input.
//!
//! This is the only crate with `unsafe`. If a layer cannot be applied, the error names the step,
//! and nothing continues without that layer unless the plan names it as optional.

pub mod allocator;
pub mod cgroup;
mod clone;
mod confinement;
mod init;
mod isolation;
mod landlock;
pub mod message;
mod mount;
mod owner;
mod plan;
pub mod probe;
pub mod seccomp;
mod userns;
pub mod warden;
pub mod zygote;

pub use confinement::Confinement;
pub use owner::as_owner;
pub use plan::{
    HostIdentity, IsolationLayer, JailError, JailRequest, JailStep, PROXY_PORT, PathAccess,
    ProcessPolicy, ProgramSpec, RootStep, SANDBOX_ID, SandboxPlan, SpawnReply, SpawnRequest,
    VOLUMES, VOLUMES_MAX, VolumeContent, VolumeMount, WardenPlan, WardenReply, WardenRequest,
};
