//! Giving memory that this process has freed back to the system.
//!
//! The allocator keeps freed memory for the next allocation, in pages between others that are in
//! use. After a burst of large answers that can be more than a gigabyte, for as long as the process
//! lives.

/// Blocks of this size and more are mapped, and given back when they are freed. Less would make ordinary
/// requests pay for pages that they could have used again.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: libc::c_int = 1024 * 1024;
/// Free memory at the end of an arena that is kept for the next allocation.
#[cfg(target_env = "gnu")]
const KEPT_BYTES_MAX: libc::c_int = 1024 * 1024;

/// Bounds what the allocator keeps of freed memory at the end of each arena. By default it raises both
/// bounds with the largest block that was freed, to 32 and 64 MiB, and [`give_back`] does not reach the
/// end of any arena but the first. There are eight arenas for each core.
#[cfg(target_env = "gnu")]
pub fn bound_kept() {
    // SAFETY: mallopt takes two numbers and the allocator's own locks, and may be called by any thread
    // at any time (mallopt(3)). A refused one leaves the default.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES_MAX);
    }
}

/// Other allocators than that of glibc have no such bounds.
#[cfg(not(target_env = "gnu"))]
pub fn bound_kept() {}

/// Gives the pages that the allocator holds and nobody uses back. It walks all that is free, with
/// the allocator locked: some milliseconds, so not for a thread that serves.
#[cfg(target_env = "gnu")]
pub fn trim_allocator() {
    // SAFETY: malloc_trim takes the allocator's own locks, frees nothing that is in use, and may be
    // called by any thread at any time (malloc_trim(3)).
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Other allocators than that of glibc have no such call.
#[cfg(not(target_env = "gnu"))]
pub fn trim_allocator() {}
