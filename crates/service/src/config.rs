//! Configuration of a service. The interfaces read options and variables; the service sees only this.

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
    /// One upload, or one file that is fetched.
    pub document_bytes_max: u64,
    /// Files that one execution leaves, together.
    pub execution_files_bytes_max: u64,
    /// Output and results in memory, of all executions under way; one workspace has half of it.
    pub output_bytes_max: u64,
    /// Quota of all files of a workspace.
    pub workspace_bytes_max: u64,
    /// The source of a new tool, of which a contract has a bound of its own, and the input of a call.
    pub tool_bytes_max: usize,
    /// Records and files are forgotten after this.
    pub retention: Duration,
    /// Entries of the audit log are forgotten after this.
    pub audit_retention: Duration,
    /// Answers that are good for more than one call are forgotten after this, and asked for again.
    pub approval_retention: Duration,
    /// An approval without a decision expires after this.
    pub approval_timeout: Duration,
    /// Requests a second of a key that has no bound of its own.
    pub key_rate_per_second: u32,
    /// Requests at once of a key that has no bound of its own.
    pub key_concurrency: u32,
    /// `host:port` of servers inside the network that documents may be fetched from.
    pub fetch_exceptions: Vec<String>,
    /// The maximum limits of code of a workspace, by the name of the workspace; an absent one is
    /// as for everybody.
    pub workspace_limits: HashMap<String, LimitsRequest>,
    /// Names that the proxy of the sandboxes knows the addresses of without asking anybody.
    pub static_hosts: HashMap<String, IpAddr>,
    /// The issuer of tokens that are accepted besides keys.
    pub issuer: Option<Issuer>,
    /// The master keys of secrets; if absent, a key file of the server in its data directory.
    pub secrets_key: Option<Keyring>,
    /// The file of the key that signs the audit log; absent, it is beside the records.
    pub audit_key: Option<PathBuf>,
    /// By which everything expires, also in the engine.
    pub clock: Clock,
}

impl Config {
    pub fn new(data: PathBuf) -> Self {
        Self {
            data,
            environment: "default".to_owned(),
            // Larger inputs than a working directory holds by default are of no use.
            document_bytes_max: 256 * MIB,
            execution_files_bytes_max: 256 * MIB,
            // For a machine of 2 GB; a server derives it from its own.
            output_bytes_max: 256 * MIB,
            // Some hundred conversations with charts and tables.
            workspace_bytes_max: 10 * 1024 * MIB,
            tool_bytes_max: contract::SOURCE_BYTES_MAX,
            retention: Duration::from_secs(30 * DAY_SECONDS),
            // More than a year, since some look at it once a year.
            audit_retention: Duration::from_secs(400 * DAY_SECONDS),
            approval_retention: Duration::from_secs(365 * DAY_SECONDS),
            approval_timeout: Duration::from_secs(24 * 60 * 60),
            // More than one client needs, and less than would hold up the others.
            key_rate_per_second: 2_000,
            key_concurrency: 512,
            fetch_exceptions: Vec::new(),
            workspace_limits: HashMap::new(),
            static_hosts: HashMap::new(),
            issuer: None,
            secrets_key: None,
            audit_key: None,
            clock: Clock::system(),
        }
    }
}
