//! Tasks apart from the request that starts them: blocking work, and work that must complete even
//! if the client disconnects.
//!
//! An interface drops the future of an operation when its client disconnects. An operation that has
//! made one of several changes must therefore run in [`run_to_completion`].

use crate::error::RequestError;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use tokio::sync::oneshot;
use tracing::Instrument;
use types::Error;

/// Runs `work` on a thread that may block, such as parsing untrusted text.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RequestError> {
    let (sender, receiver) = oneshot::channel();
    spawn_blocking(Box::new(move || {
        // The caller may have stopped waiting.
        let _ = sender.send(work());
    }));
    receiver.await.map_err(|_| task_failed().into())
}

/// Starts a job of any kind, so that the tokio task is compiled only once.
fn spawn_blocking(work: Box<dyn FnOnce() + Send>) {
    tokio::task::spawn_blocking(work);
}

/// Runs a future to its end, even if the caller disconnects.
pub(crate) async fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = Result<T, RequestError>> + Send + 'static,
) -> Result<T, RequestError> {
    let (sender, receiver) = oneshot::channel();
    spawn(Box::pin(async move {
        // The caller may have stopped waiting.
        let _ = sender.send(work.await);
    }));
    receiver.await.unwrap_or_else(|_| Err(task_failed().into()))
}

fn spawn(work: BoxFuture<'static, ()>) {
    tokio::spawn(work.in_current_span());
}

fn task_failed() -> Error {
    Error::server_fault("the server failed during this request; its outcome is unknown")
}

/// The output of `work`, or a server error if it panics: a client that waits for an execution must
/// get a response, and its row an end.
pub(crate) async fn catch_panic<T, E: From<Error>>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    // After a panic, only counters and rows of `work` are used, which each step leaves consistent.
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| Err(task_failed().into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::ErrorCode;

    #[tokio::test]
    async fn a_panic_of_the_server_is_reported_as_a_fault_of_the_server() {
        let blocking = run_blocking::<()>(|| panic!("ours")).await;
        let spawned = run_to_completion::<()>(async { panic!("ours") }).await;
        let caught: Result<(), RequestError> = catch_panic(async { panic!("ours") }).await;
        for reported in [blocking, spawned, caught] {
            let error = reported.unwrap_err().error;
            assert_eq!((&error.code, error.retryable), (&ErrorCode::ServerFault, false), "{error}");
        }
    }

    #[tokio::test]
    async fn an_error_of_the_sandbox_stays_one_of_the_sandbox() {
        let crashed = || Error::new(ErrorCode::SandboxCrashed, "ended by signal 11");
        let reported: Result<(), Error> = catch_panic(async { Err(crashed()) }).await;
        assert_eq!(reported, Err(crashed()));
    }
}
