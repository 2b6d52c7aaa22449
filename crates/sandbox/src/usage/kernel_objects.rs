//! Limits on objects that the Linux kernel keeps for descriptors of a sandbox and that nothing else
//! bounds: epoll watches, of which all sandboxes of an ordinary user and the supervisor share the number
//! that Linux grants to one user (`fs.epoll.max_user_watches`), and file locks, which no cgroup is
//! charged for.
//!
//! The number of descriptors bounds neither. A watch stays as long as its open file, under each number
//! that the file had when it was watched; a file has a lock for each range.

use super::process_totals::Process;
use rustix::fs::{Dir, Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;
use std::ffi::CString;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::time::SystemTime;

/// Maximum watches and locks of one sandbox: more than a program has that watches or locks each of its
/// descriptors once, at some 200 bytes each, and a small part of the watches that Linux grants to a user
/// (4 % of memory).
pub(super) const OBJECTS_MAX: u64 = 16_384;
/// Descriptors after which a reading examines no further process: some 20 ms. With more of them, each
/// reading begins at another process, so that none is left out for long.
const EXAMINED_MAX: u64 = 4_096;

/// The names of watches and locks in `/proc/PID/fdinfo`.
pub(super) const WATCH: &str = "tfd:";
pub(super) const LOCK: &str = "lock:";

/// Watches that a process may list without a count of its open listings: 24 KiB of text.
const LISTED_FREE: u64 = 256;
/// Memory of an open `/proc/PID/fdinfo/N` for each watch that it lists: a line, and the doubling of the
/// buffer that holds it.
const LISTED_BYTES: u64 = 2 * 96;

/// What the kernel keeps for the descriptors of a sandbox, as far as one reading shows.
pub(super) struct KernelObjects {
    /// There are more than a sandbox may have.
    pub(super) too_many: bool,
    /// The most that open listings of watches hold. Each has all of its text in memory once it was read,
    /// and no other file of `/proc` does.
    pub(super) listing_bytes: u64,
}

pub(super) fn examine(proc: &OwnedFd, processes: &[Process], kinds: &[&str]) -> KernelObjects {
    let (mut found, mut examined) = (0, 0);
    let (later, first) = processes.split_at(random_below(processes.len()));
    let mut seen = Vec::new();
    for process in first.iter().chain(later) {
        match count_of_process(proc, process, kinds, OBJECTS_MAX - found) {
            Ok(count) => found += count,
            // It has ended meanwhile.
            Err(Errno::NOENT | Errno::SRCH) => {}
            // A process that cannot be read may have any number.
            Err(_) => return KernelObjects { too_many: true, listing_bytes: 0 },
        }
        seen.push(process);
        examined += process.descriptors;
        if found > OBJECTS_MAX || examined > EXAMINED_MAX {
            break;
        }
    }
    let listings = match found > LISTED_FREE {
        true => seen.iter().map(|process| listings_of_process(proc, process)).sum(),
        false => 0,
    };
    KernelObjects {
        too_many: found > OBJECTS_MAX,
        listing_bytes: listings * found.min(OBJECTS_MAX) * LISTED_BYTES,
    }
}

/// How many listings of descriptors a process has open.
fn listings_of_process(proc: &OwnedFd, process: &Process) -> u64 {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(proc, format!("{}/fd", process.path), flags, Mode::empty());
    let Ok(entries) = directory.and_then(|fd| Ok((Dir::read_from(&fd)?, fd))) else { return 0 };
    let is_listing = |link: &CString| link.to_bytes().windows(8).any(|part| part == b"/fdinfo/");
    let links = entries
        .0
        .flatten()
        .filter_map(|entry| readlinkat(&entries.1, entry.file_name(), Vec::new()).ok());
    links.filter(is_listing).count() as u64
}

/// A number below `count` that code in the sandbox cannot know.
fn random_below(count: usize) -> usize {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    (now.subsec_nanos() as usize / 100).checked_rem(count).unwrap_or(0)
}

/// The watches and locks of one process; when there are more than `most`, any number above that.
fn count_of_process(
    proc: &OwnedFd,
    process: &Process,
    kinds: &[&str],
    most: u64,
) -> Result<u64, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(proc, format!("{}/fdinfo", process.path), flags, Mode::empty())?;
    let mut found = 0;
    for entry in Dir::read_from(&directory)?.flatten() {
        let number = entry.file_name().to_string_lossy();
        if number.starts_with('.') {
            continue;
        }
        found += match count_of_descriptor(&directory, &number, kinds, most - found) {
            Ok(count) => count,
            // Closed meanwhile: it has no watches and locks any more.
            Err(Errno::NOENT | Errno::SRCH) => 0,
            Err(error) => return Err(error),
        };
        if found > most {
            break;
        }
    }
    Ok(found)
}

/// The watches and locks of one descriptor. Stops at one above `most`, and reads line by line, because
/// code can make the file long.
fn count_of_descriptor(
    directory: &OwnedFd,
    number: &str,
    kinds: &[&str],
    most: u64,
) -> Result<u64, Errno> {
    let file = openat(directory, number, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut found = 0;
    // As bytes: a line that is not UTF-8 ends no count.
    for line in BufReader::new(File::from(file)).split(b'\n') {
        let line = line.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        found += u64::from(kinds.iter().any(|kind| line.starts_with(kind.as_bytes())));
        if found > most {
            break;
        }
    }
    Ok(found)
}
