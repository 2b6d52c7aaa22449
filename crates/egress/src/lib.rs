//! The only way out: what the server itself fetches for a user.
//!
//! Whether something may leave is decided in `policy`; here it is carried out, to exactly the
//! addresses that were judged, within bounds of bytes and time. Nothing is asked of a host that
//! was not let through, and nothing that a host answers is believed.

mod error;
mod fetch;
mod file_name;
mod resolve;

pub use error::FetchError;
pub use fetch::{FetchConfig, Fetched, Fetcher};
pub use policy::{Exception, NotAnException};
pub use resolve::Resolver;
