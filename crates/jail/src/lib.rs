//! The walls.
//!
//! A [`Plan`] says, as plain data, what a sandbox sees and what it may do; this crate carries it
//! out in one readable order and knows nothing of Python, tenants or HTTP. It runs in three
//! places, always single-threaded:
//!
//! - the **warden** ([`warden::main`]): pid 1 of an outer pid namespace. It builds the read-only
//!   root once, starts the zygote, and makes empty jails. When it ends, the kernel ends
//!   everything below it.
//! - the **init** of each jail: pid 1 of the sandbox's own pid namespace, which reaps orphans.
//! - the **zygote**: [`zygote`] is the C interface that is loaded into it, and forks a child
//!   straight into a prepared jail with every wall raised before the child returns.
//!
//! [`Bounds`] are something less: for programs of the host that work on what strangers have made.
//!
//! This is the only crate with `unsafe`. A wall that cannot be raised is an error that names the
//! step; nothing here goes on without it unless the plan says so by name.

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
