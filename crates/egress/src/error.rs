//! Why a fetch failed, by step.
//!
//! The text of an error contains only what a user may know. It never contains an address, the
//! target of a redirect, or more of a response than its status: those are in the fields and the
//! sources, for logs.

use policy::{RouteError, UrlError};
use std::io;
use std::time::Duration;
use types::{Error, ErrorCode};

#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("{0}")]
    Url(UrlError),

    #[error("the URL redirects to a URL that is not allowed")]
    Redirect(#[source] UrlError),

    // One text for both failures: the difference would reveal which names the internal network has.
    #[error("the host of the URL is unknown, or it is not on the public internet")]
    Unresolved { host: String, source: io::Error },
    #[error("the host of the URL is unknown, or it is not on the public internet")]
    Route { host: String, source: RouteError },

    #[error("this server has no root certificates")]
    Client(#[source] reqwest::Error),

    #[error("cannot connect to the server of the URL, or its certificate is invalid")]
    Connect(#[source] reqwest::Error),

    #[error("the server of the URL sent an invalid response")]
    InvalidResponse(#[source] reqwest::Error),

    #[error("the server of the URL responded with status {status}")]
    Status { status: u16 },

    #[error("the URL redirects without a valid Location header")]
    MissingLocation,

    #[error("the URL redirects more than {max} times")]
    TooManyRedirects { max: usize },

    #[error("the file is larger than the maximum of {max} bytes")]
    TooLarge { max: u64 },

    #[error("the file did not arrive within {} seconds", .max.as_secs_f32())]
    Timeout { max: Duration },

    #[error("the server of the URL sent nothing for {} seconds", .max.as_secs_f32())]
    IdleTimeout { max: Duration },

    #[error("the connection closed before the end of the file")]
    Incomplete(#[source] reqwest::Error),

    #[error("the file could not be written")]
    Write(#[source] io::Error),
}

impl FetchError {
    fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Connect(_)
                | Self::Timeout { .. }
                | Self::IdleTimeout { .. }
                | Self::Incomplete(_)
        )
    }
}

impl From<FetchError> for Error {
    fn from(error: FetchError) -> Self {
        let mut api_error = Self::new(ErrorCode::FileFetchFailed, error.to_string())
            .hint("check the URL, or download the file and upload it");
        api_error.retryable = error.is_retryable();
        api_error
    }
}
