//! The rule book: pure decisions, each with the reason by name.
//!
//! Nothing here does anything: no I/O and no clock. What a decision depends on is handed in, and
//! what it allows comes back as a type that cannot be made in another way.

mod address;
mod approval;
mod destination;
mod fetch;
mod host_port;
mod opening;
mod packages;
mod privilege;

pub use address::{NotPublic, public};
pub use approval::{
    Bound, BoundOnce, Covers, Seal, SealKey, Stage, action, seal_asked_back, seal_once,
    seal_remembered, seals_match,
};
pub use destination::{Destination, DestinationRefused};
pub use fetch::{
    Exception, NotAnException, Route, RouteRefused, Target, URL_BYTES_MAX, UrlRefused,
};
pub use host_port::{HostPort, HostPortRefused};
pub use opening::{Opening, internet, opened_by, reachable};
pub use packages::{PackageRefused, may_install};
pub use privilege::{Permit, Refusal, permit};
