//! Measures what uv unpacks while it does: a small wheel can unpack to a very large one.
//!
//! uv unpacks each wheel into a temporary directory at the top of its cache, and moves it when it
//! is complete. It is unknown which of two uv processes such a directory belongs to, so two
//! concurrent installs both end when one of the wheels is too large.

use std::fs;
use std::io;
use std::ops::Add;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::subprocess::CancelFlag;

/// Interval of the measurements: a fast disk writes half a gigabyte meanwhile.
const PAUSE: Duration = Duration::from_millis(200);

/// The disk usage of a directory, as far as it was counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskUsage {
    pub bytes: u64,
    pub files: u64,
}

impl Add for DiskUsage {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self { bytes: self.bytes + more.bytes, files: self.files + more.files }
    }
}

impl DiskUsage {
    pub(crate) fn exceeds(self, most: Self) -> bool {
        self.bytes > most.bytes || self.files > most.files
    }

    /// Counts what is below, until it exceeds `most`. Files that disappear meanwhile do not count.
    fn measure(directory: &Path, most: Self) -> Self {
        let mut amount = Self::default();
        let mut open = vec![directory.to_owned()];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                let Ok(found) = entry.metadata() else { continue };
                amount.files += 1;
                amount.bytes += found.len();
                if found.is_dir() {
                    open.push(entry.path());
                }
                if amount.exceeds(most) {
                    return amount;
                }
            }
        }
        amount
    }
}

/// Runs `work` and cancels it when a wheel that is unpacked into `cache` exceeds `most`. It then
/// returns `None` and removes the partial wheel.
pub(crate) fn run_bounded<T: Send>(
    cache: &Path,
    most: DiskUsage,
    cancel: &CancelFlag,
    work: impl FnOnce() -> T + Send,
) -> io::Result<Option<T>> {
    thread::scope(|scope| {
        let working = scope.spawn(work);
        let mut too_large = None;
        while !working.is_finished() {
            thread::park_timeout(PAUSE);
            too_large = too_large.or_else(|| {
                unpack_directories(cache)
                    .into_iter()
                    .find(|it| DiskUsage::measure(it, most).exceeds(most))
            });
            if too_large.is_some() {
                cancel.cancel();
            }
        }
        let done =
            working.join().map_err(|_| io::Error::other("the installation thread panicked"))?;
        match too_large {
            None => Ok(Some(done)),
            Some(wheel) if wheel.exists() => fs::remove_dir_all(wheel).map(|()| None),
            Some(_) => Ok(None),
        }
    })
}

/// The directories of a cache into which wheels are unpacked.
pub(crate) fn unpack_directories(cache: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(cache).into_iter().flatten().flatten();
    let temporary = entries.filter(|it| it.file_name().as_encoded_bytes().starts_with(b".tmp"));
    temporary.map(|it| it.path()).filter(|path| path.is_dir()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const MOST: DiskUsage = DiskUsage { bytes: 100_000, files: 50 };

    /// Simulates uv: works until it is cancelled, or for as long as a valid wheel takes.
    fn wait_until_cancelled(cancel: &CancelFlag, long: Duration) -> bool {
        let end = Instant::now() + long;
        while Instant::now() < end && !cancel.is_cancelled() {
            thread::yield_now();
        }
        !cancel.is_cancelled()
    }

    #[test]
    fn a_wheel_with_too_many_bytes_or_files_is_given_up_and_goes() {
        for (files, bytes) in [(1, 200_000), (60, 0)] {
            let cache = tempfile::tempdir().unwrap();
            let wheel = cache.path().join(".tmpAbc").join("inner");
            fs::create_dir_all(&wheel).unwrap();
            for file in 0..files {
                fs::write(wheel.join(file.to_string()), vec![0; bytes]).unwrap();
            }
            let cancel = CancelFlag::default();
            let work = || wait_until_cancelled(&cancel, Duration::from_secs(20));
            assert_eq!(run_bounded(cache.path(), MOST, &cancel, work).unwrap(), None);
            assert!(unpack_directories(cache.path()).is_empty());
        }
    }

    #[test]
    fn a_wheel_of_a_good_size_is_left_alone_and_what_is_in_the_cache_does_not_count() {
        let cache = tempfile::tempdir().unwrap();
        fs::create_dir_all(cache.path().join("archive-v0")).unwrap();
        fs::write(cache.path().join("archive-v0/large"), vec![0; 200_000]).unwrap();
        fs::create_dir_all(cache.path().join(".tmpAbc")).unwrap();
        fs::write(cache.path().join(".tmpAbc/file"), vec![0; 50_000]).unwrap();
        let cancel = CancelFlag::default();
        let work = || wait_until_cancelled(&cancel, Duration::from_millis(500));
        assert_eq!(run_bounded(cache.path(), MOST, &cancel, work).unwrap(), Some(true));
        assert_eq!(unpack_directories(cache.path()).len(), 1);
    }
}
