//! The revision of everything that decisions depend on: rights, rules, secrets, specifications.
//!
//! A decision that was made of the records may be kept together with the revision that was there
//! before the first of them was read, and used as long as it is still there. Every row counts but
//! those that the database itself knows to be mere notes, so that a table that is forgotten costs time
//! and nothing else.

use std::sync::atomic::{AtomicU64, Ordering};

/// Two that are equal have the same records between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revision(u64);

#[derive(Debug, Default)]
pub(crate) struct RevisionCounter(AtomicU64);

impl RevisionCounter {
    pub(crate) fn current(&self) -> Revision {
        Revision(self.0.load(Ordering::SeqCst))
    }

    pub(crate) fn advance(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
