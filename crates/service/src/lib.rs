//! Every operation of the product, for a caller who is known: allowed by `policy`, kept by `store`,
//! run by `engine`.
//!
//! Doors translate between the outside and these operations; they decide nothing. An operation
//! checks first, does its work, and answers only when what it has done is on the disk.

mod agents;
mod apart;
mod approvals;
mod assets;
mod audit;
mod authors;
mod bindings;
mod budget;
mod callable;
mod callee;
mod caller;
mod calls;
mod claims;
mod config;
mod definition;
mod documents;
mod embedded;
mod environments;
mod executions;
mod explain;
mod functions;
mod grants;
mod housekeeping;
mod inputs;
mod keys;
mod live;
mod memory;
mod names;
mod network;
mod object;
mod objects;
mod offers;
mod origins;
mod own_changes;
mod owners;
mod packages;
mod page;
mod permissions;
mod plan;
mod principals;
mod readiness;
mod refused;
mod runs;
mod seal_key;
mod secret;
mod secrets;
mod service;
mod sessions;
mod specification;
mod staging;
mod stores;
mod tokens;
mod tools;
mod variables;
mod workspaces;

pub use agents::{AgentQuery, AgentRequest, AgentView, AgentWork, OfferedTool, Reach};
pub use approvals::{ApprovalQuery, Decision, DecisionRequest, QuestionText};
pub use audit::AuditQuery;
pub use authors::ConfirmRequest;
pub use bindings::ActionChange;
pub use callee::EXECUTE_PYTHON;
pub use caller::{Allowance, Caller, Counted};
pub use calls::{Asked, CallRequest, TestRequest};
pub use claims::Claimed;
pub use config::Config;
pub use definition::{InvalidTool, PythonTool, ToolRequest, ValidTool, Validation};
pub use documents::{DocumentQuery, FetchRequest};
pub use environments::{EnvironmentRequest, Making};
pub use executions::{
    AnswerRoom, Attached, EntryKind, EventLog, ExecuteRequest, ExecutionQuery, Manner, Record,
};
pub use explain::{ExplainQuery, Explanation};
pub use functions::{
    Deploying, FunctionCallQuery, FunctionCallRequest, FunctionRequest, FunctionSource,
};
pub use grants::{GrantQuery, GrantRequest, ObjectKind};
pub use inputs::FileInput;
pub use keys::{IssuedKey, KeyQuery, KeyRequest};
pub use live::Numbered;
pub use network::{IntegrationChange, IntegrationRequest, NetworkQuery, NetworkRuleRequest};
pub use objects::ObjectQuery;
pub use offers::{OfferQuery, OfferRequest};
pub use page::Listed;
pub use permissions::{PermissionChange, ToolPermission};
pub use principals::{Me, PrincipalChange, PrincipalQuery, PrincipalRequest};
pub use readiness::{Check, Readiness, Status};
pub use refused::{Detail, Refused};
pub use runs::{Before, NewRun, Run, RunEnd};
pub use secret::Secret;
pub use secrets::{InjectRequest, KeptSecret, Rotated, SecretChange, SecretRequest, SecretValue};
pub use service::{Service, StartError, Started};
pub use sessions::{
    Opened, SessionChange, SessionFile, SessionFiles, SessionQuery, SessionRequest,
};
pub use specification::{
    CodeExecution, Orchestration, ROUNDS_MAX, SECONDS_MAX, SpecificationText, ToolChoice,
    agent_name,
};
pub use staging::{Staged, Staging};
pub use store::{AuditError, Reply, SignedAnew, Verified, sign_audit, verify_audit};
pub use stores::{StoreChange, StoreFile, StoreRequest, StoreView};
pub use tokens::{Issuer, IssuerRefused};
pub use tools::ToolChange;
pub use vault::{Keyring, NotAKeyring, Plain};
pub use workspaces::{NewWorkspace, WorkspaceRequest};
