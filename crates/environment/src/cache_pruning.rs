//! Removes cache entries that no environment has used for long.
//!
//! Wheels and bytecode are hard-linked into environments, not copied. The link count of a file
//! tells whether an environment uses it, and its ctime since when none does. A build that links a
//! file at the moment of its removal fails, and succeeds when it is retried.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::disk_usage;

/// Long enough that a monthly rebuild does not need the index.
const UNUSED_RETENTION: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// Scanning every file of a cache takes about a second.
const PRUNE_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// Prunes the caches in `cache`, unless that was done recently.
pub(crate) fn prune(cache: &Path, now: SystemTime) -> io::Result<()> {
    let mark = cache.join("pruned");
    let last = fs::metadata(&mark).and_then(|found| found.modified()).ok();
    let is_early = |last| now.duration_since(last).unwrap_or_default() < PRUNE_INTERVAL;
    if !cache.is_dir() || last.is_some_and(is_early) {
        return Ok(());
    }
    fs::write(&mark, "")?;
    let before = now - UNUSED_RETENTION;
    // uv keeps the contents of a wheel in a directory, and notices by itself when one is missing.
    let wheels = entries(&cache.join("uv")).into_iter().filter(|path| is_archive(path));
    for directory in wheels.chain(entries(&cache.join("bytecode"))) {
        for entry in entries(&directory) {
            if is_unused(&entry, before).unwrap_or(false) {
                remove(&entry)?;
            }
        }
    }
    // Remains of a uv that was killed.
    for wheel in disk_usage::unpack_directories(&cache.join("uv")) {
        if is_unused(&wheel, now - PRUNE_INTERVAL).unwrap_or(false) {
            remove(&wheel)?;
        }
    }
    Ok(())
}

fn is_archive(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"archive-"))
}

/// Whether no environment uses any file of it, nor has used one since `before`.
fn is_unused(path: &Path, before: SystemTime) -> io::Result<bool> {
    let found = fs::symlink_metadata(path)?;
    if changed(&found) >= before || (found.is_file() && found.nlink() > 1) {
        return Ok(false);
    }
    if found.is_dir() {
        for entry in fs::read_dir(path)? {
            if !is_unused(&entry?.path(), before)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// When it was last written, linked or unlinked.
fn changed(found: &Metadata) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(found.ctime().try_into().unwrap_or_default())
}

/// Empty if the directory does not exist.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.flatten().map(|entry| entry.path()).collect()
}

fn remove(path: &Path) -> io::Result<()> {
    if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}
