//! All egress: the proxy of the sandboxes, the fetches of the server for a user, and the requests of
//! the server for an agent.
//!
//! The crate `policy` decides what is allowed; this crate enforces it, connects only to addresses
//! that were checked, and limits bytes and time. It sends nothing to a host that is not allowed,
//! and trusts nothing that a host returns.

mod ca;
mod error;
mod fetch;
mod file_name;
mod policy_source;
mod proxy;
mod resolve;
mod roots;

pub use ca::{Ca, CaError, CaFileError};
pub use error::FetchError;
pub use fetch::{FetchConfig, FetchedFile, Fetcher};
pub use http::HeaderName;
pub use policy::{FetchException, FetchExceptionParseError, HostPort, HostPortError};
pub use policy_source::{
    Credential, EgressAttempt, EgressPolicy, EgressPolicyFuture, EgressPolicySource,
    IntegrationsField, Scheme,
};
pub use proxy::{OutboundClient, OutboundError, OutboundResponse, Proxy, ProxyConfig, ProxyLimits};
pub use redact::{SecretText, SecretVersion};
pub use resolve::Resolver;
pub use roots::{Roots, RootsError};
pub use tokio_rustls::rustls::Error as TlsError;
