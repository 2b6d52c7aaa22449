//! Reserves memory with the supervisor before a value of the code is parsed.
//!
//! A value is text until it is parsed, and a tree takes many times the memory of its text. The callback
//! knows how much memory all executions may have together.

use std::fmt;
use std::sync::Arc;

/// Reserves so many bytes, or returns why it cannot. The owner of the callback releases them.
type Take = dyn Fn(u64) -> Result<(), String> + Send + Sync;

/// The memory that the value of one execution may take; by default unlimited.
#[derive(Clone, Default)]
pub struct ValueBudget(Option<Arc<Take>>);

impl ValueBudget {
    /// `take` is called once for each value, on any thread.
    pub fn new(take: impl Fn(u64) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(take)))
    }

    pub(crate) fn take(&self, bytes: u64) -> Result<(), String> {
        self.0.as_ref().map_or(Ok(()), |take| take(bytes))
    }
}

impl fmt::Debug for ValueBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueBudget").field("is_bounded", &self.0.is_some()).finish()
    }
}
