//! Whoever reads what is written to standard output.

use tokio::io::Interest;
use tokio::net::unix::pipe;

/// Opened once more, so that nothing about the one that is written to changes.
const OUTPUT: &str = "/proc/self/fd/1";

/// Returns when nobody reads it any more, which can be seen without writing to it. What is no pipe
/// has no reader that could go.
pub(super) async fn stdout_closed() {
    if let Ok(output) = pipe::OpenOptions::new().open_sender(OUTPUT)
        && output.ready(Interest::ERROR).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}
