//! Work that is done to its end when the one who asked for it goes away.
//!
//! A handler is dropped with its connection, also between a commit and what has to follow it.

use crate::refused::Refused;
use tracing::Instrument;
use types::{Code, Fault};

pub(crate) async fn seen_through<T: Send + 'static>(
    work: impl Future<Output = Result<T, Refused>> + Send + 'static,
) -> Result<T, Refused> {
    tokio::spawn(work.in_current_span()).await.unwrap_or_else(|_| Err(failed().into()))
}

fn failed() -> Fault {
    let message = "the server failed during this request, and whether it was done is not known";
    Fault::new(Code::SandboxCrashed, message).hint("look at what there is before you send it again")
}
