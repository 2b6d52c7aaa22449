//! Work apart from the request that asked for it: where it holds nobody up, or until it is done
//! although nobody waits any more.
//!
//! A door drops what it is waiting for when its client goes away. Work that has changed something
//! and has more to change must not be dropped so.

use crate::refused::Refused;
use std::future::Future;
use tracing::Instrument;
use types::{Code, Fault};

/// Away from the threads that serve: what people write can take a while to read.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refused> {
    tokio::task::spawn_blocking(work).await.map_err(|_| failed().into())
}

/// To its end, whatever becomes of the one who asked.
pub(crate) async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Refused>> + Send + 'static,
) -> Result<T, Refused> {
    tokio::spawn(work.in_current_span()).await.unwrap_or_else(|_| Err(failed().into()))
}

fn failed() -> Fault {
    let message = "the server failed during this request, and whether it was done is not known";
    Fault::new(Code::SandboxCrashed, message).hint("look at what there is before you send it again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_fault_of_ours_is_not_told_as_one_of_what_was_sent() {
        let fallen = aside::<()>(|| panic!("ours")).await;
        let told = format!("{:?}", fallen.unwrap_err());
        assert!(told.contains("the server failed") && !told.contains("ToolInvalid"), "{told}");
    }
}
