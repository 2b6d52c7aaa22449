//! Limits how much output of all running executions the server holds in memory, and how much of
//! that one workspace may use.
//!
//! The first bytes of every execution are free, so that ordinary output is never dropped because of
//! a flood of another execution.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use types::WorkspaceId;

/// Free bytes of each execution, never refused: more than a model reads.
pub(crate) const FREE_BYTES: u64 = 64 * 1024;
/// The part of the budget that one workspace may use, so that some is left for others.
const WORKSPACE_PART: u64 = 2;

/// Bytes of output and results in memory, of all executions.
#[derive(Debug)]
pub(crate) struct OutputBudget {
    bytes_max: u64,
    used: Mutex<BudgetUsage>,
}

#[derive(Debug, Default)]
struct BudgetUsage {
    bytes: u64,
    by_workspace: HashMap<WorkspaceId, u64>,
}

/// The part of the budget that one execution has. Dropping it releases all of it.
#[derive(Debug)]
pub(crate) struct OutputLease {
    budget: Arc<OutputBudget>,
    workspace: WorkspaceId,
    bytes: u64,
}

impl OutputBudget {
    pub(crate) fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self { bytes_max, used: Mutex::default() })
    }

    pub(crate) fn lease_output(self: &Arc<Self>, workspace: WorkspaceId) -> OutputLease {
        OutputLease { budget: Arc::clone(self), workspace, bytes: 0 }
    }

    /// Bytes in memory now.
    pub(crate) fn in_use(&self) -> u64 {
        self.usage().bytes
    }

    fn usage(&self) -> MutexGuard<'_, BudgetUsage> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutputLease {
    /// Takes this many further bytes, if the budget allows it.
    pub(crate) fn grow(&mut self, bytes: u64) -> bool {
        let OutputBudget { bytes_max, .. } = *self.budget;
        let mut used = self.budget.usage();
        let BudgetUsage { bytes: all, by_workspace } = &mut *used;
        let of_workspace = by_workspace.entry(self.workspace).or_default();
        let fits = *all + bytes <= bytes_max && *of_workspace + bytes <= bytes_max / WORKSPACE_PART;
        let granted = fits || self.bytes + bytes <= FREE_BYTES;
        if granted {
            *all += bytes;
            *of_workspace += bytes;
            self.bytes += bytes;
        }
        granted
    }

    /// Bytes that are never refused.
    pub(crate) fn free_bytes(&self) -> u64 {
        FREE_BYTES.saturating_sub(self.bytes)
    }

    /// Releases all but this many bytes.
    pub(crate) fn shrink_to(&mut self, bytes: u64) {
        let less = self.bytes.saturating_sub(bytes);
        let mut used = self.budget.usage();
        used.bytes = used.bytes.saturating_sub(less);
        if let Some(of_workspace) = used.by_workspace.get_mut(&self.workspace) {
            *of_workspace = of_workspace.saturating_sub(less);
            if *of_workspace == 0 {
                used.by_workspace.remove(&self.workspace);
            }
        }
        self.bytes -= less;
    }
}

impl Drop for OutputLease {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const MIB: u64 = 1024 * 1024;

    fn workspace(number: u128) -> WorkspaceId {
        WorkspaceId::new(Uuid::from_u128(number))
    }

    #[test]
    fn t79_one_workspace_has_half_of_the_budget_and_another_finds_the_rest() {
        let budget = OutputBudget::new(8 * MIB);
        let (mut flood, mut more) =
            (budget.lease_output(workspace(1)), budget.lease_output(workspace(1)));
        assert!(flood.grow(4 * MIB));
        assert!(!more.grow(MIB));
        let mut neighbour = budget.lease_output(workspace(2));
        assert!(neighbour.grow(3 * MIB));
        flood.shrink_to(MIB);
        assert!(more.grow(2 * MIB) && !more.grow(2 * MIB));
        drop(flood);
        assert!(more.grow(2 * MIB));
        assert_eq!(budget.in_use(), 7 * MIB);
    }

    #[test]
    fn the_first_bytes_of_an_execution_are_never_refused() {
        let budget = OutputBudget::new(MIB);
        let (mut one, mut two) =
            (budget.lease_output(workspace(1)), budget.lease_output(workspace(2)));
        assert!(one.grow(MIB / 2) && two.grow(MIB / 2));
        let mut third = budget.lease_output(workspace(3));
        assert!(third.grow(FREE_BYTES) && !third.grow(1));
        drop((one, two, third));
        assert_eq!(budget.in_use(), 0);
        assert!(budget.usage().by_workspace.is_empty());
    }
}
