//! The only way out: the proxy of the sandboxes, and what the server itself fetches for a user.
//!
//! Whether something may leave is decided in `policy`; here it is carried out, to exactly the
//! addresses that were judged, within bounds of bytes and time. Nothing is asked of a host that
//! was not let through, and nothing that a host answers is believed.

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
pub use policy::{FetchException, FetchExceptionParseError};
pub use policy_source::{
    Credential, EgressAttempt, EgressPolicy, EgressPolicyFuture, EgressPolicySource,
    IntegrationsField, Scheme, SecretText,
};
pub use proxy::{Proxy, ProxyConfig, ProxyLimits};
pub use resolve::Resolver;
pub use roots::{Roots, RootsError};
pub use tokio_rustls::rustls::Error as TlsError;
