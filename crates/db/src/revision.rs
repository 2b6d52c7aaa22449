//! The revision of the records that decisions depend on: grants, rules, secrets, specifications.
//!
//! A decision can be cached together with the revision that was current before its first row was
//! read, and used while that revision is still current. A write to any row advances the revision,
//! except to rows that the statement marks as irrelevant (`execute_unversioned`). So a missing mark
//! costs time and no correctness.

use std::sync::atomic::{AtomicU64, Ordering};

/// The records are unchanged between two equal revisions.
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
