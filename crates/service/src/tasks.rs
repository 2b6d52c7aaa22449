//! Work apart from the request that asked for it: where it holds nobody up, or until it is done
//! although nobody waits any more.
//!
//! A door drops what it is waiting for when its client goes away. Work that has changed something
//! and has more to change must not be dropped so.

use crate::error::RequestError;
use std::future::Future;
use tracing::Instrument;
use types::{Error, ErrorCode};

/// Away from the threads that serve: what people write can take a while to read.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RequestError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| task_failed().into())
}

/// To its end, whatever becomes of the one who asked.
pub(crate) async fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = Result<T, RequestError>> + Send + 'static,
) -> Result<T, RequestError> {
    tokio::spawn(work.in_current_span()).await.unwrap_or_else(|_| Err(task_failed().into()))
}

fn task_failed() -> Error {
    let message = "the server failed during this request, and whether it was done is not known";
    Error::new(ErrorCode::SandboxCrashed, message)
        .hint("look at what there is before you send it again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_fault_of_ours_is_not_told_as_one_of_what_was_sent() {
        let fallen = run_blocking::<()>(|| panic!("ours")).await;
        let told = format!("{:?}", fallen.unwrap_err());
        assert!(told.contains("the server failed") && !told.contains("ToolInvalid"), "{told}");
    }
}
