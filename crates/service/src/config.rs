//! Configuration of a service. The interfaces read options and variables; the service sees only
//! this.

use crate::identity::tokens::Issuer;
use engine::Clock;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use types::LimitsRequest;
use vault::Keyring;

const MIB: u64 = 1024 * 1024;
const DAY_SECONDS: u64 = 24 * 60 * 60;

#[derive(Debug, Clone)]
pub struct Config {
    /// The directory of records, files and keys.
    pub data: PathBuf,
    /// The environment of sessions and executions that name none.
    pub environment: String,
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
    /// `host:port` of internal servers that documents may be fetched from.
    pub fetch_exceptions: Vec<String>,
    /// Upper bounds of limits for code of a workspace, by workspace name; other workspaces have the
    /// general ones.
    pub workspace_limits: HashMap<String, LimitsRequest>,
    /// Host names that the egress proxy resolves without DNS.
    pub static_hosts: HashMap<String, IpAddr>,
    /// The issuer of access tokens that are accepted besides API keys.
    pub issuer: Option<Issuer>,
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
    pub fn new(data: PathBuf) -> Self {
        Self {
            data,
            environment: "default".to_owned(),
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
            fetch_exceptions: Vec::new(),
            workspace_limits: HashMap::new(),
            static_hosts: HashMap::new(),
            issuer: None,
            secrets_key: None,
            audit_key: None,
            skills: None,
            clock: Clock::system(),
        }
    }
}
