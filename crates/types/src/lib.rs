//! The words everybody uses: limits, the Execution record, its events, and the faults.
//!
//! Nothing here does anything: no I/O, no clock, no async. A type that two crates would
//! otherwise each define lives here, and its serde form is the public form of REST, MCP and
//! `--json`.

mod execution;
mod fault;
mod id;
mod limits;

pub use execution::{
    Event, Execution, FileKind, FileOut, Output, Rich, SkippedFile, Status, Stream, Truncated,
    Usage, Warning,
};
pub use fault::{Assertion, Code, Fault};
pub use id::{ExecutionId, SandboxId};
pub use limits::{Limit, LimitError, Limits, LimitsRequest, OperatorCaps};
