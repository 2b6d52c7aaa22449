//! Giving memory that this process has freed back to the system.
//!
//! The allocator keeps freed memory for the next allocation, in pages between others that are in
//! use. After a burst of large answers that can be more than a gigabyte, for as long as the process
//! lives.

/// Gives the pages that the allocator holds and nobody uses back. It walks all that is free, with
/// the allocator locked: some milliseconds, so not for a thread that serves.
#[cfg(target_env = "gnu")]
pub fn give_back() {
    // SAFETY: malloc_trim takes the allocator's own locks, frees nothing that is in use, and may be
    // called by any thread at any time (malloc_trim(3)).
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Other allocators than that of glibc have no such call.
#[cfg(not(target_env = "gnu"))]
pub fn give_back() {}
