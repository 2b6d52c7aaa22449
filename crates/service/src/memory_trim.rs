//! Returns free memory to the operating system: after a burst of large requests, the allocator
//! would otherwise keep it for the life of the server.

use crate::service::Service;
use crate::tasks::run_blocking;
use std::fs;
use std::sync::Weak;
use std::time::Duration;

/// Time between two checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Growth since the smallest observed size that makes a trim worthwhile.
const GROWTH_BYTES_MIN: u64 = 32 * 1024 * 1024;
/// A trim that releases less is not worthwhile, because it takes some milliseconds.
const TRIMMED_BYTES_MIN: u64 = 4 * 1024 * 1024;
/// Checks that are skipped after a trim that was not worthwhile.
const SKIPPED_CHECKS: u32 = 2;

/// Checks the memory until the service ends.
pub(crate) async fn trim_periodically(service: Weak<Service>) {
    engine::bound_kept_memory();
    let mut trimmer = MemoryTrimmer { smallest: u64::MAX, after: 0, skipped_checks: 0 };
    let mut clock = tokio::time::interval(CHECK_INTERVAL);
    while service.strong_count() > 0 {
        clock.tick().await;
        // A failed check is followed by the next one.
        trimmer = run_blocking(move || trimmer.trim_if_grown()).await.unwrap_or(trimmer);
    }
}

/// Observed memory of this process.
#[derive(Debug, Clone, Copy)]
struct MemoryTrimmer {
    /// The smallest size so far.
    smallest: u64,
    /// The size after the last trim.
    after: u64,
    /// The number of checks to skip.
    skipped_checks: u32,
}

impl MemoryTrimmer {
    /// Trims the allocator if the process has grown.
    fn trim_if_grown(self) -> Self {
        let Some(now) = resident_bytes() else { return self };
        if now <= self.smallest.saturating_add(GROWTH_BYTES_MIN) {
            return Self { smallest: self.smallest.min(now), ..self };
        }
        if self.skipped_checks > 0 && now <= self.after + GROWTH_BYTES_MIN {
            return Self { skipped_checks: self.skipped_checks - 1, ..self };
        }
        engine::trim_allocator();
        let after = resident_bytes().unwrap_or(now);
        let skipped_checks = if now < after + TRIMMED_BYTES_MIN { SKIPPED_CHECKS } else { 0 };
        Self { after, skipped_checks, ..self }
    }
}

/// Anonymous memory of this process.
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_was_freed_is_given_back() {
        const PIECES: usize = 4096;
        let before = resident_bytes().unwrap();
        // Allocations in between keep the allocator from releasing the free ones by itself.
        let pieces: Vec<Vec<u8>> = (0..PIECES).map(|_| vec![1; 64 * 1024]).collect();
        let kept: Vec<Vec<u8>> = pieces.into_iter().step_by(64).collect();
        let trimmer = MemoryTrimmer { smallest: before, after: 0, skipped_checks: 0 };
        let after = trimmer.trim_if_grown().after;
        assert!(after < before + 64 * 1024 * 1024, "{before} {after}");
        drop(kept);
    }
}
