//! Every operation of the product for an authenticated caller: `policy` allows it, `db` stores it,
//! `engine` runs it.
//!
//! Interfaces (`api`, `mcp`, `cli`) translate requests into these operations and decide nothing. An
//! operation checks first, then does its work, and returns when the changes are on the disk.

mod audit;
mod catalog;
mod check_slots;
mod config;
mod data;
mod error;
mod idempotency;
mod identity;
mod mac_keys;
mod maintenance;
mod memory_trim;
pub mod metrics;
mod names;
mod network;
mod origins;
mod page;
mod readiness;
mod runs;
mod secrets;
mod serde_helpers;
mod service;
mod sql;
mod tasks;

pub use audit::AuditQuery;
pub use catalog::agent_skills::{AgentSkill, ListedSkill};
pub use catalog::agents::{
    AgentQuery, AgentRequest, AgentRights, AgentView, OfferedTool, RemoteToolRef, ResolvedAgent,
};
pub use catalog::callable_tools::CallableTools;
pub use catalog::capabilities::{AgentContents, AgentTool, ListedMcpServer, SpecificationPart};
pub use catalog::environments::{EnvironmentBuild, EnvironmentRequest};
pub use catalog::explain::{ExplainQuery, Explanation};
pub use catalog::functions::{
    DeploymentHandle, FunctionCallQuery, FunctionCallRequest, FunctionRequest, FunctionSource,
};
pub use catalog::mcp_servers::MCP_TOOL;
pub use catalog::skills::{SkillFile, SkillUpload, SkillView};
pub use catalog::specification::{
    CodeExecution, CodeToolName, McpServerAddress, McpServerEntry, Orchestration, ROUNDS_MAX,
    SECONDS_MAX, SkillLoad, SkillReference, SpecificationText, ToolChoice, agent_name,
};
pub use catalog::tool_bindings::ApprovalActionChange;
pub use catalog::tool_definition::{
    InvalidTool, PythonToolQuery, ToolRequest, ToolValidation, ValidTool,
};
pub use catalog::tools::ToolChange;
pub use config::{Config, McpCommand};
pub use data::documents::{DocumentQuery, FetchRequest};
pub use data::file_urls::{
    FILE_URL_LIFETIME, FILE_URL_LIFETIME_MAX, FileRef, FileUrlConfig, FileUrlSigner, has_signature,
};
pub use data::inputs::FileInput;
pub use data::staging::{StagedFile, StagingFile};
pub use data::volumes::{VolumeChange, VolumeFile, VolumeRequest, VolumeView};
pub use db::{
    AuditError, AuditSignOutcome, AuditVerification, ExecutionJson, StoredResponse, sign_audit,
    verify_audit,
};
pub use engine::Clock;
pub use error::{ErrorDetail, RequestError};
pub use idempotency::RequestClaim;
pub use identity::api_key::ApiKeyText;
pub use identity::caller::{Caller, RateLimitSubject, RateLimits, RequestCaller};
pub use identity::code_authors::ConfirmRequest;
pub use identity::grants::{GrantQuery, GrantRequest, ObjectKind};
pub use identity::keys::{IssuedKey, KeyQuery, KeyRequest};
pub use identity::ownership::ObjectQuery;
pub use identity::ownership_offers::{OfferQuery, OfferRequest};
pub use identity::principals::{Me, PrincipalChange, PrincipalQuery, PrincipalRequest};
pub use identity::tokens::{Issuer, IssuerError};
pub use identity::workspaces::{NewWorkspace, WorkspaceRequest};
pub use identity::{CallerTokenService, CallerTokenServiceError};
pub use network::{IntegrationChange, IntegrationRequest, NetworkQuery, NetworkRuleRequest};
pub use page::Page;
pub use readiness::{CheckResult, Readiness, ReadinessStatus};
pub use runs::SKILLS_ROOT;
pub use runs::approvals::{ApprovalDecision, ApprovalJson, ApprovalQuery, DecisionRequest};
pub use runs::call_target::EXECUTE_PYTHON;
pub use runs::code_permission::{PermissionChange, ToolPermission};
pub use runs::executions::{
    EventLog, ExecutionHandle, ExecutionQuery, ExecutionRecord, ResponseBudget, StoredExecution,
    SubmitOptions,
};
pub use runs::launch::Submitted;
pub use runs::live_log::NumberedEvent;
pub use runs::model_runs::{NewRun, PreviousRun, RunEnd, RunHandle};
pub use runs::run_request::{
    CallRequest, EntryKind, ExecuteRequest, RunRequest, RunTarget, SubmittedCode, TestRequest,
    UnsavedTestRequest,
};
pub use runs::sessions::{
    OpenedSession, SessionChange, SessionFile, SessionFiles, SessionQuery, SessionRequest,
};
pub use runs::tool_result::{ResultForm, code_runner_result};
pub use secrets::{
    RotationResult, SecretChange, SecretInjectionRequest, SecretRequest, SecretValue, SecretView,
};
pub use service::{Service, StartError, StartedService};
pub use sql::{
    NamedObjectRef, ParsedStatements, StatementAction, StatementResult, StatementsOutcome,
    StatementsRequest, StatementsResponse,
};
pub use vault::{Keyring, KeyringParseError, Plaintext};
