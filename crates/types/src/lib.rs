//! The shared vocabulary: objects, limits, the Execution record, its events, and the errors.
//!
//! This crate has no side effects: no I/O, no clock, no async. It defines every type that two
//! crates would otherwise each define. The serde form of a type is its public form in REST, MCP and
//! `--json`.

mod approval;
mod audit;
mod environment;
mod error;
mod event;
mod execution;
mod file;
mod function;
mod grant;
mod id;
mod json_size;
mod limits;
mod members;
mod network;
mod package;
mod principal;
mod run;
mod secret;
mod session;
mod shared_cache;
mod tool;
mod turn_queue;
mod uploaded_skill;
mod volume;
mod work_kind;

pub use approval::{Approval, ApprovalScope, ApprovalState, Permission};
pub use audit::AuditEntry;
pub use environment::{Environment, EnvironmentOrigin, EnvironmentStatus, InstalledPackage};
pub use error::{Assertion, Error, ErrorCode};
pub use event::{Event, Transcript};
pub use execution::{
    DisplayData, Execution, ExecutionStatus, FileKind, OutputChunk, OutputFile, OutputStream,
    ResourceUsage, SkippedFile, TOOL_UNISOLATED, TestOutcome, Truncation, Warning,
};
pub use file::{File, FileSource};
pub use function::{
    Deployment, Function, FunctionCall, FunctionCallStatus, FunctionFile, FunctionResponse,
    FunctionStatus, LogLine,
};
pub use grant::{Grant, GrantedObject, ObjectRef, OwnershipOffer, Privilege};
pub use id::{
    AgentId, ApprovalId, ExecutionId, FileId, FunctionId, GrantId, IntegrationId, KeyId,
    NetworkRuleId, OfferId, ParseIdError, PrincipalId, SandboxId, SecretId, SkillId, ToolId,
    VolumeId, WorkspaceId,
};
pub use json_size::JsonSize;
pub use limits::{Limit, LimitError, Limits, LimitsRequest, OperatorCaps};
pub use members::{JsonMembers, MembersError};
pub use network::{
    AllowedSecrets, CallerTokenClient, CallerTokenUse, Integration, NetworkAttempt,
    NetworkLogEntry, NetworkRule, RuleMode, RuleType,
};
pub use package::PackagePolicy;
pub use principal::{ApiKey, Principal, PrincipalKind, Workspace};
pub use run::{ModelUsage, Round, ToolUse};
pub use secret::{
    ClientInjection, ClientKind, HeaderInjection, REDACTED_BYTES_MIN, SECRET_BYTES_PER_SANDBOX_MAX,
    SECRETS_PER_SANDBOX_MAX, SealContext, SealedValue, SealingKeyId, Secret, SecretInjection,
    SecretScope,
};
pub use session::{Session, SessionStatus};
pub use shared_cache::SharedCache;
pub use tool::{Agent, ApprovalAction, RunAs, SpecificationFormat, Tool, ToolBinding};
pub use turn_queue::TurnQueue;
pub use uploaded_skill::UploadedSkill;
pub use volume::{Volume, VolumeAccess, VolumeGrant};
pub use work_kind::WorkKind;
