//! The comparison with bubblewrap and a new Python process each time.

use engine::UnsandboxedPython;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Returns the time that `code` takes in a new bubblewrap sandbox, or `None` if bubblewrap is missing or does
/// not work.
pub(super) fn run(outside: &UnsandboxedPython, code: &str) -> Option<Duration> {
    let started = Instant::now();
    let output = Command::new("bwrap")
        .args(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"])
        .args(["--unshare-all", "--die-with-parent", "--"])
        .arg(&outside.interpreter)
        .args(["-B", "-c", code])
        .env("PYTHONPATH", &outside.site_packages)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    output.status.success().then(|| started.elapsed())
}
