//! Detects that the reader of standard output has gone.

use tokio::io::Interest;
use tokio::net::unix::pipe;

/// Opened separately, so that the descriptor for writing is not changed.
const OUTPUT: &str = "/proc/self/fd/1";

/// Returns when the reader has closed the pipe, which is visible without writing to it. Never
/// returns if standard output is not a pipe.
pub(super) async fn stdout_closed() {
    if let Ok(output) = pipe::OpenOptions::new().open_sender(OUTPUT)
        && output.ready(Interest::ERROR).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}
