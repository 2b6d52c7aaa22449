//! Configuration of a service. The interfaces read options and variables; the service sees only
//! this.

use crate::data::file_urls::FileUrlConfig;
use crate::identity::CallerTokenService;
use crate::identity::tokens::Issuer;
use engine::Clock;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use types::{LimitsRequest, WorkKind};
use vault::Keyring;

const MIB: u64 = 1024 * 1024;
const DAY_SECONDS: u64 = 24 * 60 * 60;

/// A command of the operator that speaks MCP on its standard input and output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpCommand {
    /// The name by which specifications refer to it.
    pub name: String,
    pub program: PathBuf,
    pub arguments: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct Config {
    /// The directory of records, files and keys.
    pub data: PathBuf,
    /// The environment of sessions and executions that name none.
    pub environment: String,
    /// The environments of other kinds of work that name none; default: that of the kind.
    pub environments: HashMap<WorkKind, String>,
    /// Limit of an upload or a fetched file.
    pub document_bytes_max: u64,
    /// Limit of all output files of one execution together.
    pub execution_files_bytes_max: u64,
    /// Memory for output and results of all running executions; one workspace may use half of it.
    pub output_bytes_max: u64,
    /// Quota of a workspace: the bytes of its files and pending approvals together, and separately
    /// the sum of the quotas of its volumes.
    pub workspace_bytes_max: u64,
    /// Limit of the source code of a new tool and of the input of a call. A contract has a lower
    /// limit of its own.
    pub tool_bytes_max: usize,
    /// Retention of records and files.
    pub retention: Duration,
    /// Retention of audit entries.
    pub audit_retention: Duration,
    /// Retention of remembered decisions; after it, a new approval is needed.
    pub approval_retention: Duration,
    /// An approval without a decision expires after this.
    pub approval_timeout: Duration,
    /// Requests per second of a key without a limit of its own.
    pub key_rate_per_second: u32,
    /// Concurrent requests of a key without a limit of its own.
    pub key_concurrency: u32,
    /// The addresses of this server in URLs of files.
    pub file_urls: FileUrlConfig,
    /// Hosts of MCP servers that agents may use, as values of a network rule.
    pub mcp_hosts: Vec<String>,
    /// Commands that agents may use as MCP servers.
    pub mcp_commands: Vec<McpCommand>,
    /// `host:port` of internal servers that documents may be fetched from.
    pub fetch_exceptions: Vec<String>,
    /// Upper bounds of limits for code of a workspace, by workspace name; other workspaces have the
    /// general ones.
    pub workspace_limits: HashMap<String, LimitsRequest>,
    /// Host names that the egress proxy resolves without DNS.
    pub static_hosts: HashMap<String, IpAddr>,
    /// The issuer of access tokens that are accepted besides API keys.
    pub issuer: Option<Issuer>,
    /// The service to which the egress proxy passes the access tokens of callers. It requires an
    /// issuer.
    pub caller_token_service: Option<CallerTokenService>,
    /// The master keys of secrets; default: a key file in the data directory.
    pub secrets_key: Option<Keyring>,
    /// The file of the key that signs the audit log; default: beside the records.
    pub audit_key: Option<PathBuf>,
    /// Directory of the operator's own skills.
    pub skills: Option<PathBuf>,
    /// The clock of every expiry, also in the engine.
    pub clock: Clock,
}

impl Config {
    /// Runs every kind of work that names no environment in this one.
    pub fn in_environment(self, name: &str) -> Self {
        let environments = WorkKind::ALL.map(|kind| (kind, name.to_owned())).into();
        Self { environment: name.to_owned(), environments, ..self }
    }

    /// The environment of this kind of work, if nothing nearer names one.
    pub(crate) fn environment_of(&self, kind: WorkKind) -> &str {
        self.environments.get(&kind).map_or(kind.default_environment(), String::as_str)
    }

    pub fn new(data: PathBuf) -> Self {
        Self {
            data,
            environment: "default".to_owned(),
            environments: HashMap::new(),
            // Larger inputs would not fit into a working directory of the default size.
            document_bytes_max: 256 * MIB,
            execution_files_bytes_max: 256 * MIB,
            // For a host with 2 GB; a server derives the value from its memory.
            output_bytes_max: 256 * MIB,
            // Some hundred conversations with charts and tables.
            workspace_bytes_max: 10 * 1024 * MIB,
            tool_bytes_max: contract::SOURCE_BYTES_MAX,
            retention: Duration::from_secs(30 * DAY_SECONDS),
            // More than a year, for auditors that look once a year.
            audit_retention: Duration::from_secs(400 * DAY_SECONDS),
            approval_retention: Duration::from_secs(365 * DAY_SECONDS),
            approval_timeout: Duration::from_secs(24 * 60 * 60),
            // More than one client needs, and few enough to leave capacity for other clients.
            key_rate_per_second: 2_000,
            key_concurrency: 512,
            file_urls: FileUrlConfig::default(),
            mcp_hosts: Vec::new(),
            mcp_commands: Vec::new(),
            fetch_exceptions: Vec::new(),
            workspace_limits: HashMap::new(),
            static_hosts: HashMap::new(),
            issuer: None,
            caller_token_service: None,
            secrets_key: None,
            audit_key: None,
            skills: None,
            clock: Clock::system(),
        }
    }
}
