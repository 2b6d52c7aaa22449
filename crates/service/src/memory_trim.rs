//! Giving back memory that is free: after a burst of large requests, the allocator would otherwise
//! keep what they needed for as long as the server lives.

use crate::service::Service;
use crate::tasks::run_blocking;
use std::fs;
use std::sync::Weak;
use std::time::Duration;

/// Between two looks.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// So much more than the least that the server has had is worth looking for what is free of it.
const GROWTH_BYTES_MIN: u64 = 32 * 1024 * 1024;
/// To give back less than this was not worth it: the walk over what is free takes some milliseconds.
const TRIMMED_BYTES_MIN: u64 = 4 * 1024 * 1024;
/// Looks without a try after one that was not worth it; then memory may have been freed that was in
/// use before.
const SKIPPED_CHECKS: u32 = 2;

/// Looks until the service ends.
pub(crate) async fn trim_periodically(service: Weak<Service>) {
    engine::bound_kept_memory();
    let mut watch = MemoryTrimmer { least: u64::MAX, after: 0, pause: 0 };
    let mut clock = tokio::time::interval(CHECK_INTERVAL);
    while service.strong_count() > 0 {
        clock.tick().await;
        // A look that failed is followed by another.
        watch = run_blocking(move || watch.trim_if_grown()).await.unwrap_or(watch);
    }
}

/// Readings of the memory of this process.
#[derive(Debug, Clone, Copy)]
struct MemoryTrimmer {
    /// The least that it has had so far.
    least: u64,
    /// What it had after some was given back.
    after: u64,
    /// Looks to be left out.
    pause: u32,
}

impl MemoryTrimmer {
    /// Gives back what is free, if that may be much.
    fn trim_if_grown(self) -> Self {
        let Some(now) = resident_bytes() else { return self };
        if now <= self.least.saturating_add(GROWTH_BYTES_MIN) {
            return Self { least: self.least.min(now), ..self };
        }
        if self.pause > 0 && now <= self.after + GROWTH_BYTES_MIN {
            return Self { pause: self.pause - 1, ..self };
        }
        engine::trim_allocator();
        let after = resident_bytes().unwrap_or(now);
        let pause = if now < after + TRIMMED_BYTES_MIN { SKIPPED_CHECKS } else { 0 };
        Self { after, pause, ..self }
    }
}

/// Memory of this process that is in no file.
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
        // What is in use between them keeps the allocator from giving them back by itself.
        let pieces: Vec<Vec<u8>> = (0..PIECES).map(|_| vec![1; 64 * 1024]).collect();
        let kept: Vec<Vec<u8>> = pieces.into_iter().step_by(64).collect();
        let watch = MemoryTrimmer { least: before, after: 0, pause: 0 };
        let after = watch.trim_if_grown().after;
        assert!(after < before + 64 * 1024 * 1024, "{before} {after}");
        drop(kept);
    }
}
