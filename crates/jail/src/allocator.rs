//! Returns freed memory of this process to the operating system.
//!
//! The allocator keeps freed memory for later allocations, in pages between others that are in use.
//! After a burst of large responses it can keep more than a gigabyte for the lifetime of the
//! process.

/// The allocator maps blocks of at least this size and unmaps them when they are freed. With a
/// lower threshold ordinary requests would pay for fresh pages instead of reusing old ones.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: libc::c_int = 1024 * 1024;
/// Free memory at the end of an arena that the allocator keeps for the next allocation.
#[cfg(target_env = "gnu")]
const KEPT_BYTES_MAX: libc::c_int = 1024 * 1024;

/// Bounds the freed memory that the allocator keeps at the end of each arena. By default glibc
/// raises both thresholds with the largest freed block, up to 32 and 64 MiB, and [`trim_allocator`]
/// reaches the end of the first arena only. glibc has up to eight arenas per core.
#[cfg(target_env = "gnu")]
pub fn bound_kept_memory() {
    // SAFETY: mallopt takes two numbers and the allocator's own locks, and any thread may call it
    // at any time (mallopt(3)). If it fails, the default stays.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES_MAX);
    }
}

/// Only glibc's allocator has these thresholds.
#[cfg(not(target_env = "gnu"))]
pub fn bound_kept_memory() {}

/// Returns unused pages of the allocator to the operating system. It scans all free memory with the
/// allocator locked, which takes some milliseconds: do not call it on a thread that serves
/// requests.
#[cfg(target_env = "gnu")]
pub fn trim_allocator() {
    // SAFETY: malloc_trim takes the allocator's own locks, frees nothing that is in use, and any
    // thread may call it at any time (malloc_trim(3)).
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Only glibc's allocator has such a call.
#[cfg(not(target_env = "gnu"))]
pub fn trim_allocator() {}
