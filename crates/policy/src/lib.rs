//! Policy: pure decisions, each with a named reason.
//!
//! This crate has no side effects: no I/O and no clock. Callers pass in everything that a decision
//! depends on, and what it allows comes back as a type that cannot be constructed in another way.

mod address;
mod approval;
mod destination;
mod fetch;
mod file_url;
mod host_port;
mod integration_rules;
mod package_policy;
mod privilege;

pub use address::{NonPublicAddress, check_public};
pub use approval::{
    ApprovalKey, ApprovalStage, BoundCall, BoundExecution, MacTag, RememberedCoverage,
    effective_action, mac_for_elicitation, mac_for_execution, mac_for_remembered, macs_equal,
};
pub use destination::{Destination, DestinationError};
pub use fetch::{
    FetchException, FetchExceptionParseError, FetchRoute, FetchTarget, RouteError, URL_BYTES_MAX,
    UrlError,
};
pub use file_url::{FileUrlCredential, FileUrlGrant, FileUrlKey, mac_for_file_url};
pub use host_port::{BroadAccess, HostPort, HostPortError};
pub use integration_rules::{
    IntegrationRules, allowed_addresses, internet_integration, matching_integration,
};
pub use package_policy::{PackagePolicyError, check_install};
pub use privilege::{Permit, PrivilegeDenied, check_privilege};
