//! Work apart from the request that started it: where it delays no request, or until it is done
//! although the caller no longer waits.
//!
//! A door drops what it is waiting for when its client goes away. Work that has changed something
//! and has more to change must not be dropped so.

use crate::error::RequestError;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use tokio::sync::oneshot;
use tracing::Instrument;
use types::Error;

/// Away from the threads that serve: what people write can take a while to read.
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

/// Starts a job of any kind; the task of the runtime is compiled once for all of them.
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
    Error::server_fault("the server failed during this request; whether it was done is unknown")
}

/// The output of `work`, or a server fault if it panics: a client that waits for an execution must get an
/// answer, and its row an end.
pub(crate) async fn catch_panic<T, E: From<Error>>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    // Nothing of `work` is used after a panic but counters and rows, which each step leaves whole.
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
