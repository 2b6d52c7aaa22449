//! Storage: records in one SQLite file, bytes in files beside it, and both deleted when they
//! expire.
//!
//! All SQL of the product is here. Callers compose a transaction from the methods of [`Tx`] and
//! read with [`Reader`]; every method that finds rows of a workspace takes the workspace. A write
//! returns only when it is as durable as its caller required. This crate knows neither HTTP nor
//! sandboxes.

mod agents;
mod approvals;
mod audit;
mod blobs;
mod clock;
mod columns;
mod database;
mod error;
mod executions;
mod files;
mod functions;
mod grants;
mod idempotency;
mod integrity;
mod keys;
mod name_search;
mod named_objects;
mod network;
mod origin;
mod package_policy;
mod page;
mod principals;
mod purge;
mod reader;
mod revision;
mod runs;
mod schema;
mod sealed_values;
mod secrets;
mod sessions;
mod skills;
mod tools;
mod volumes;
mod writer;

pub use approvals::{
    ApprovalHeader, ApprovalMac, AwaitedApproval, DecisionRecord, NewApproval, OpenApproval,
    RememberedApproval,
};
pub use audit::{
    AuditError, AuditFilter, AuditSignOutcome, AuditVerification, ChainBreak, KeyTrouble,
    NewAuditEntry, sign_audit, verify_audit,
};
pub use blobs::{Blobs, QuarantinedFiles};
pub use clock::ClockReading;
pub use database::Database;
pub use error::DatabaseError;
pub use executions::{
    EventBatch, ExecutionFilter, ExecutionJson, ExecutionState, FinishedExecutionRow,
};
pub use grants::GrantFilter;
pub use idempotency::{ClaimOutcome, IdempotencyKey, StoredResponse};
pub use integrity::{quarantine_name, volumes_directory, was_quarantined_before};
pub use keys::ApiKeyRow;
pub use name_search::NameSpace;
pub use network::NetworkFilter;
pub use origin::Origin;
pub use page::{Cursor, PageRequest, RowPage};
pub use principals::OwnedCounts;
pub use purge::{PurgeCounts, PurgeOutcome, Retention};
pub use reader::Reader;
pub use revision::Revision;
pub use runs::RunRow;
pub use sessions::SessionFilter;
pub use tools::{ObjectFilter, ToolsByName};
pub use writer::Tx;
