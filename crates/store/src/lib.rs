//! What is kept: records in one SQLite file, bytes in files beside it, and both forgotten on time.
//!
//! All SQL of the product is here. Callers compose a transaction of the methods of [`Tx`] and
//! [`Reader`]; none of them finds a row of a workspace without naming the workspace. Nothing is
//! answered before it is as durable as was asked for, and nothing here knows of HTTP or sandboxes.

mod agents;
mod approvals;
mod audit;
mod belonging;
mod blobs;
mod clock;
mod column;
mod error;
mod executions;
mod files;
mod functions;
mod grants;
mod idempotency;
mod keys;
mod named;
mod network;
mod origin;
mod packages;
mod page;
mod principals;
mod purge;
mod reader;
mod revision;
mod runs;
mod schema;
mod sealed;
mod secrets;
mod sessions;
mod store;
mod stores;
mod tools;
mod writer;

pub use approvals::{Decision, NewQuestion, Question, Remembered, Seal, Subject};
pub use audit::{
    AuditError, AuditFilter, AuditLine, Break, KeyTrouble, SignedAnew, Verified, sign_audit,
    verify_audit,
};
pub use belonging::{aside_name, volumes, was_set_aside_before};
pub use blobs::{Blobs, SetAside};
pub use clock::Reading;
pub use error::StoreError;
pub use executions::{EventBatch, ExecutionFilter, Finished};
pub use grants::GrantFilter;
pub use idempotency::{Claim, Reply, RequestKey};
pub use keys::KeyRow;
pub use network::NetworkFilter;
pub use origin::Origin;
pub use page::{Cursor, Listed, Page};
pub use principals::Owned;
pub use purge::{Forgetting, Purged, Retention};
pub use reader::Reader;
pub use revision::Revision;
pub use runs::Run;
pub use sessions::SessionFilter;
pub use store::Store;
pub use tools::ObjectFilter;
pub use writer::Tx;
