//! The words everybody uses: the nouns, limits, the Execution record, its events, and the faults.
//!
//! Nothing here does anything with the world: no I/O, no clock, no async. A type that two crates would
//! otherwise each define lives here, and its serde form is the public form of REST, MCP and
//! `--json`.

mod approval;
mod audit;
mod environment;
mod event;
mod execution;
mod fault;
mod file;
mod function;
mod grant;
mod id;
mod limits;
mod members;
mod network;
mod package;
mod principal;
mod run;
mod secret;
mod session;
mod shared_cache;
mod store;
mod tool;

pub use approval::{Approval, ApprovalScope, ApprovalState, Permission};
pub use audit::AuditEntry;
pub use environment::{Environment, EnvironmentOrigin, EnvironmentStatus, InstalledPackage};
pub use event::{Event, Transcript};
pub use execution::{
    Execution, FileKind, FileOut, Output, Rich, SkippedFile, Status, Stream, TOOL_UNISOLATED,
    Truncated, Usage, Warning,
};
pub use fault::{Assertion, Code, Fault};
pub use file::{File, FileSource};
pub use function::{
    Deployment, Function, FunctionCall, FunctionCallStatus, FunctionFile, FunctionResponse,
    FunctionStatus, LogLine,
};
pub use grant::{Grant, GrantedObject, Object, OwnershipOffer, Privilege};
pub use id::{
    AgentId, ApprovalId, ExecutionId, FileId, FunctionId, GrantId, IntegrationId, KeyId,
    NetworkRuleId, NotAnId, OfferId, PrincipalId, SandboxId, SecretId, StoreId, ToolId,
    WorkspaceId,
};
pub use limits::{Limit, LimitError, Limits, LimitsRequest, OperatorCaps};
pub use members::{JsonMembers, MembersError};
pub use network::{
    AllowedSecrets, Integration, NetworkAttempt, NetworkEntry, NetworkRule, RuleMode, RuleType,
};
pub use package::PackagePolicy;
pub use principal::{Key, Principal, PrincipalKind, Workspace};
pub use run::{ModelUse, Round, ToolUse};
pub use secret::{
    ClientInject, ClientKind, HeaderInject, Inject, Label, REDACTED_BYTES_MIN,
    SECRET_BYTES_PER_SANDBOX_MAX, SECRETS_PER_SANDBOX_MAX, Sealed, SealingKeyId, Secret,
    SecretScope, html_escaped,
};
pub use session::{Session, SessionStatus};
pub use shared_cache::SharedCache;
pub use store::{Store, StoreAccess, StoreGrant};
pub use tool::{Agent, ApprovalAction, Binding, RunAs, SpecificationFormat, Tool};
