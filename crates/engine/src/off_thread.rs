//! Work on large values, off the threads that serve requests.

use tokio::task::spawn_blocking;

/// Larger values, in bytes, are processed on a blocking thread. This size takes less than a
/// millisecond, whatever the schema of the value is.
pub(crate) const SMALL_BYTES_MAX: usize = 4 * 1024;

/// Processes a value of that size. Only the caller waits if it is large: checking schemas and
/// searching for secrets touches every part of it.
pub(crate) async fn run_off_thread<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes <= SMALL_BYTES_MAX {
        return work();
    }
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime shuts down, and with it all callers.
            Err(_) => std::future::pending().await,
        },
    }
}
