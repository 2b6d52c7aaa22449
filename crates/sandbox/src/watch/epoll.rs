//! Epoll watches of a sandbox without a cgroup. All sandboxes of an ordinary user and the supervisor
//! share the number that Linux grants to one user (`fs.epoll.max_user_watches`): a sandbox that had
//! all of them would leave the server unable to take connections.

use super::text;
use rustix::fs::{Dir, Mode, OFlags, openat, readlinkat};
use std::os::fd::OwnedFd;

/// How many watches one sandbox may have: more than any program has that watches each of its
/// descriptors once, and a small part of what Linux grants to a user (4 % of memory, at some 200
/// bytes each).
pub(super) const WATCHES_MAX: u64 = 16_384;
/// Descriptors that one look examines. A sandbox with more of them is taken to use them all.
const EXAMINED_MAX: u64 = 8_192;

/// How many watches the processes have, or none where their descriptors are too few for many.
pub(super) fn watches(proc: &OwnedFd, pids: &[String], descriptors: &[u64]) -> u64 {
    if descriptors.iter().map(|count| possible(*count)).sum::<u64>() <= WATCHES_MAX {
        return 0;
    }
    let (mut found, mut examined) = (0, 0);
    for (pid, descriptors) in pids.iter().zip(descriptors) {
        examined += descriptors;
        found += if examined > EXAMINED_MAX {
            possible(*descriptors)
        } else {
            watches_of(proc, pid).unwrap_or_else(|| possible(*descriptors))
        };
        if found > WATCHES_MAX {
            break;
        }
    }
    found
}

/// The most watches that a process can have: half of its descriptors watch the other half.
fn possible(descriptors: u64) -> u64 {
    (descriptors / 2).saturating_mul(descriptors / 2)
}

fn watches_of(proc: &OwnedFd, pid: &str) -> Option<u64> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(proc, format!("{pid}/fd"), flags, Mode::empty()).ok()?;
    let mut found = 0;
    for entry in Dir::read_from(&directory).ok()?.flatten() {
        let target = readlinkat(&directory, entry.file_name(), Vec::new()).unwrap_or_default();
        if target.as_bytes() == b"anon_inode:[eventpoll]" {
            let number = entry.file_name().to_string_lossy();
            let info = text(proc, &format!("{pid}/fdinfo/{number}")).unwrap_or_default();
            found += info.lines().filter(|line| line.starts_with("tfd:")).count() as u64;
        }
        if found > WATCHES_MAX {
            break;
        }
    }
    Some(found)
}
