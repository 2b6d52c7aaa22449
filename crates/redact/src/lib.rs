//! Removes the values of secrets from what passes through the server.
//!
//! This crate alone knows in which encodings a value is searched for ([`SecretEncodings`]), and has
//! the one matcher that finds them in a stream, however it is cut into pieces. [`OutputRedactor`]
//! and its [`RedactingStream`] replace values in the output of code that has them;
//! [`MaskingStream`] masks them in the responses of hosts, for code that must not learn them.
//!
//! The time of a search depends on the length of the text alone, because users choose both values
//! and texts. Preparing a search takes time and memory for each byte of a value: it happens within
//! limits, off the threads that serve requests, and once per version of a secret
//! ([`SecretEncodingsCache`]).

mod cache;
mod encodings;
mod masking_stream;
mod matcher;
mod output_redactor;
mod prefilter;
mod redacting_stream;
mod secret;
mod secret_encodings;

pub use cache::{SecretEncodingsCache, SecretEncodingsError};
pub use masking_stream::MaskingStream;
pub use output_redactor::{OutputRedactor, check_secret_limits};
pub use redacting_stream::RedactingStream;
pub use secret::{SecretText, SecretVersion};
pub use secret_encodings::SecretEncodings;
