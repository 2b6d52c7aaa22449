//! Options of `serve` and their defaults.

use super::extra_packages::ExtraPackages;
use crate::cli::engine_args::LocalDataArgs;
use crate::cli::{CliError, model_args};
use agent::ModelSettings;
use api::RequestLimits;
use engine::{HostResources, PythonChoice};
use serde::Deserialize;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use types::{Limit, LimitsRequest, OperatorCaps};

/// A client that waits for so long may as well ask again.
pub(in crate::cli) const TASK_SECONDS: u64 = 60;
const MIB: u64 = 1024 * 1024;
/// Two hundred years: a year that records cannot name would be no bound at all.
const RETENTION_DAYS_MAX: u64 = 73_000;

/// Every option of the server. A field is an option, a variable, and a key of the file.
#[derive(Debug, Clone, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct ServeOptions {
    /// TOML file with any of these options as keys [default: none]
    #[arg(long, value_name = "FILE", env = "BELLJAR_CONFIG", hide_env_values = true)]
    #[serde(skip)]
    config: Option<PathBuf>,

    /// Address to listen on; `:PORT` listens on loopback only [default: 127.0.0.1:7117]
    #[arg(long, value_name = "ADDRESS:PORT", env = "BELLJAR_LISTEN", hide_env_values = true)]
    listen: Option<ListenAddress>,

    /// Directory of the environments and records [default: the XDG data directory]
    #[arg(long, value_name = "DIR", env = "BELLJAR_DATA", hide_env_values = true)]
    data: Option<PathBuf>,

    /// Directory of the records and files [default: the data directory]
    #[arg(long, value_name = "DIR", env = "BELLJAR_RECORDS", hide_env_values = true)]
    records: Option<PathBuf>,

    /// File with the key that signs the audit log [default: db/audit.key in the records]
    ///
    /// Store it where accounts that can write to the records cannot read it, and pass the same file
    /// to `belljar audit`.
    #[arg(long, value_name = "FILE", env = "BELLJAR_AUDIT_KEY", hide_env_values = true)]
    audit_key: Option<PathBuf>,

    /// Python to use: a version such as 3.12, or a path [default: the newest one found]
    #[arg(long, value_name = "VERSION | PATH", env = "BELLJAR_PYTHON", hide_env_values = true)]
    python: Option<PythonChoice>,

    /// Additional allowed Host header as host[:port], such as that of a reverse proxy; repeatable
    #[arg(
        long,
        value_name = "HOST",
        env = "BELLJAR_PUBLIC_HOST",
        value_delimiter = ',',
        hide_env_values = true
    )]
    public_host: Option<Vec<String>>,

    /// Issuer URL of the OAuth authorization server whose access tokens are accepted besides API
    /// keys [default: none]
    #[arg(long, value_name = "URL", env = "BELLJAR_OAUTH_ISSUER", hide_env_values = true)]
    oauth_issuer: Option<String>,

    /// Required `aud` claim of access tokens [default: https:// and the first --public-host, or the
    /// address, with /mcp]
    #[arg(long, value_name = "URL", env = "BELLJAR_OAUTH_AUDIENCE", hide_env_values = true)]
    oauth_audience: Option<String>,

    /// Environment of sessions and executions that do not specify one [default: default]
    #[arg(long, value_name = "NAME", env = "BELLJAR_ENVIRONMENT", hide_env_values = true)]
    environment: Option<String>,

    /// Modules that code may import besides the standard library, such as `numpy,pandas` [default:
    /// all installed]
    #[arg(
        long,
        value_name = "NAMES",
        env = "PYTHON_PACKAGES_WHITELIST_IMPORT",
        value_delimiter = ',',
        hide_env_values = true
    )]
    imports: Option<Vec<String>>,

    /// Additional packages of the default environment, such as `tabulate dateparser>=1`; code may
    /// import them [default: none]
    #[arg(
        long,
        value_name = "PACKAGES",
        env = "PYTHON_PACKAGES_AUTO_INSTALL",
        hide_env_values = true
    )]
    packages: Option<ExtraPackages>,

    /// Maximum wall-clock time of an execution in milliseconds [default: 3600000, and 30000 if the
    /// request does not specify one]
    #[arg(long, value_name = "MS", env = "PYTHON_FUNCTIONS_RUN_TIMEOUT", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    run_milliseconds: Option<NonZeroU64>,

    /// Maximum `cpu_ms` of a request [default: one hour per core]
    #[arg(long, value_name = "MS", env = "BELLJAR_MAX_CPU_MS", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    max_cpu_ms: Option<NonZeroU64>,

    /// Maximum `cpu_percent` of a request [default: 100 per core]
    #[arg(long, value_name = "PERCENT", env = "BELLJAR_MAX_CPU_PERCENT", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    max_cpu_percent: Option<NonZeroU64>,

    /// Maximum `memory_bytes` of a request [default: half of the memory]
    #[arg(long, value_name = "BYTES", env = "BELLJAR_MAX_MEMORY_BYTES", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    max_memory_bytes: Option<NonZeroU64>,

    /// Maximum `processes` of a request [default: 512 per core, up to 4096]
    #[arg(long, value_name = "N", env = "BELLJAR_MAX_PROCESSES", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    max_processes: Option<NonZeroU64>,

    /// Maximum `open_files` of a request [default: 16384]
    #[arg(long, value_name = "N", env = "BELLJAR_MAX_OPEN_FILES", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    max_open_files: Option<NonZeroU64>,

    /// Maximum `disk_bytes` of a request [default: half of the memory]
    #[arg(long, value_name = "BYTES", env = "BELLJAR_MAX_DISK_BYTES", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    max_disk_bytes: Option<NonZeroU64>,

    /// Maximum `disk_inodes` of a request [default: one per 16 KiB of `disk_bytes`, up to 1048576]
    #[arg(long, value_name = "N", env = "BELLJAR_MAX_DISK_INODES", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    max_disk_inodes: Option<NonZeroU64>,

    /// Maximum `output_bytes` of a request, up to 67108864 [default: 16777216]
    #[arg(long, value_name = "BYTES", env = "BELLJAR_MAX_OUTPUT_BYTES", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    max_output_bytes: Option<NonZeroU64>,

    /// Maximum `result_bytes` of a request, up to 6291456 [default: 6291456]
    #[arg(long, value_name = "BYTES", env = "BELLJAR_MAX_RESULT_BYTES", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    max_result_bytes: Option<NonZeroU64>,

    /// Lower maximum for one workspace as NAME:LIMIT=VALUE, such as
    /// `guests:memory_bytes=268435456`; repeatable
    #[arg(
        long,
        value_name = "NAME:LIMIT=VALUE",
        env = "BELLJAR_WORKSPACE_LIMIT",
        value_delimiter = ',',
        hide_env_values = true
    )]
    workspace_limit: Option<Vec<WorkspaceLimit>>,

    /// Memory for the output and results of all running executions, in MiB; one workspace can use
    /// half of it [default: an eighth of the memory, from 64 to 4096]
    #[arg(long, value_name = "MIB", env = "BELLJAR_OUTPUT_BUDGET_MIB", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    output_budget_mib: Option<NonZeroU64>,

    /// Number of idle sandboxes kept ready per environment in use [default: 2]
    #[arg(long, value_name = "N", env = "KERNEL_POOL_SIZE", hide_env_values = true)]
    pool: Option<u16>,

    /// Seconds after which an MCP call becomes a task, for clients that support tasks [default: 60]
    #[arg(long, value_name = "S", env = "BELLJAR_TASK_SECONDS", hide_env_values = true)]
    task_seconds: Option<u64>,

    /// Maximum number of concurrent sandboxes [default: 256]
    #[arg(long, value_name = "N", env = "BELLJAR_SANDBOXES", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU32>)]
    sandboxes: Option<NonZeroU32>,

    /// Maximum number of requests that wait for a sandbox; further requests are rejected [default:
    /// 64]
    #[arg(long, value_name = "N", env = "BELLJAR_QUEUE", hide_env_values = true)]
    queue: Option<usize>,

    /// Maximum seconds that a request waits for a sandbox [default: 5]
    #[arg(long, value_name = "S", env = "BELLJAR_QUEUE_SECONDS", hide_env_values = true)]
    queue_seconds: Option<u64>,

    /// Idle timeout of sessions that do not specify one, in seconds [default: 1800]
    #[arg(long, value_name = "S", env = "BELLJAR_IDLE_SECONDS", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    idle_seconds: Option<NonZeroU64>,

    /// Maximum requests per second of an API key [default: 2000]
    #[arg(long, value_name = "N", env = "BELLJAR_KEY_RATE", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU32>)]
    key_rate: Option<NonZeroU32>,

    /// Maximum concurrent requests of an API key [default: 512]
    #[arg(long, value_name = "N", env = "BELLJAR_KEY_CONCURRENCY", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU32>)]
    key_concurrency: Option<NonZeroU32>,

    /// Maximum MCP sessions (legacy revision) per principal; a further session replaces an idle
    /// one, or is rejected [default: 64]
    #[arg(long, value_name = "N", env = "BELLJAR_MCP_SESSIONS", hide_env_values = true, value_parser = parse_nonzero::<NonZeroUsize>)]
    mcp_sessions: Option<NonZeroUsize>,

    /// Maximum size of a document in MiB [default: 256]
    #[arg(long, value_name = "MIB", env = "BELLJAR_DOCUMENT_MIB", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    document_mib: Option<NonZeroU64>,

    /// Maximum total size of the files of a workspace in MiB [default: 10240]
    #[arg(long, value_name = "MIB", env = "BELLJAR_WORKSPACE_MIB", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    workspace_mib: Option<NonZeroU64>,

    /// Maximum size of the source of a tool, and of the input of a call, in bytes [default:
    /// 1048576]
    #[arg(long, value_name = "BYTES", env = "BELLJAR_TOOL_BYTES", hide_env_values = true, value_parser = parse_nonzero::<NonZeroUsize>)]
    tool_bytes: Option<NonZeroUsize>,

    /// Retention of executions and files in days, up to 73000 [default: 30]
    #[arg(long, value_name = "DAYS", env = "BELLJAR_RETENTION_DAYS", hide_env_values = true)]
    retention_days: Option<u64>,

    /// Retention of audit log entries in days, up to 73000 [default: 400]
    #[arg(long, value_name = "DAYS", env = "BELLJAR_AUDIT_DAYS", hide_env_values = true)]
    audit_days: Option<u64>,

    /// Days for which an approval of more than one call is valid, up to 73000 [default: 365]
    #[arg(long, value_name = "DAYS", env = "BELLJAR_ANSWER_DAYS", hide_env_values = true)]
    answer_days: Option<u64>,

    /// Seconds after which a pending approval expires [default: 86400]
    #[arg(long, value_name = "S", env = "BELLJAR_APPROVAL_SECONDS", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    approval_seconds: Option<NonZeroU64>,

    /// host:port of an internal server that documents may be fetched from; repeatable
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "BELLJAR_FETCH_FROM",
        value_delimiter = ',',
        hide_env_values = true
    )]
    fetch_from: Option<Vec<String>>,

    /// Static host entry as NAME=ADDRESS, for allowed hosts that are not in DNS; repeatable
    #[arg(
        long,
        value_name = "NAME=ADDRESS",
        env = "BELLJAR_RESOLVE",
        value_delimiter = ',',
        hide_env_values = true
    )]
    resolve: Option<Vec<HostAddress>>,

    /// Default model: PROVIDER/MODEL, or script:FILE [default: none]
    #[arg(long, value_name = "MODEL", env = "BELLJAR_MODEL", hide_env_values = true)]
    model: Option<String>,

    /// OpenAI-compatible endpoint as NAME=URL; its models are NAME/MODEL. Repeatable
    #[arg(
        long,
        value_name = "NAME=URL",
        env = "BELLJAR_MODEL_ENDPOINT",
        value_delimiter = ',',
        hide_env_values = true
    )]
    model_endpoint: Option<Vec<String>>,

    /// Record the responses of models in this directory, as scripts that can be replayed [default:
    /// off]
    #[arg(long, value_name = "DIR", env = "BELLJAR_RECORD", hide_env_values = true)]
    record: Option<PathBuf>,

    /// Directory of skills that agents may use besides the built-in ones [default: none]
    #[arg(long, value_name = "DIR", env = "BELLJAR_SKILLS", hide_env_values = true)]
    skills: Option<PathBuf>,

    /// Seconds that running executions may continue after a stop signal [default: 20]
    #[arg(long, value_name = "S", env = "BELLJAR_DRAIN_SECONDS", hide_env_values = true)]
    drain_seconds: Option<u64>,

    /// Log filter, such as `info` or `belljar=debug` [default: info]
    #[arg(long, value_name = "FILTER", env = "BELLJAR_LOG", hide_env_values = true)]
    log: Option<String>,

    /// Send traces to this OTLP/HTTP endpoint, such as `http://localhost:4318` [default: off]
    #[arg(long, value_name = "URL", env = "BELLJAR_OTLP_ENDPOINT", hide_env_values = true)]
    otlp_endpoint: Option<String>,
}

/// Parses a number that must not be zero, because nothing would work with zero.
fn parse_nonzero<T: FromStr>(text: &str) -> Result<T, &'static str> {
    text.parse().map_err(|_| "must be a whole number, and at least 1")
}

/// Address that the server listens on. Without an explicit address it is loopback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct ListenAddress(SocketAddr);

impl ListenAddress {
    const DEFAULT: Self = Self(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7117));
}

impl FromStr for ListenAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let port = text.strip_prefix("localhost").unwrap_or(text).strip_prefix(':');
        let here = port.and_then(|port| port.parse().ok()).map(|port| (Ipv4Addr::LOCALHOST, port));
        let address = here.map(SocketAddr::from).or_else(|| text.parse().ok());
        address
            .map(Self)
            .ok_or("must be an address and a port, such as 127.0.0.1:7117 or [::1]:7117")
    }
}

impl TryFrom<String> for ListenAddress {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// A static host entry of the operator.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct HostAddress(String, IpAddr);

impl FromStr for HostAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, address) = text.split_once('=').ok_or("must be NAME=ADDRESS")?;
        let address = address.parse().map_err(|_| "must have an address after the `=`")?;
        Ok(Self(name.to_ascii_lowercase(), address))
    }
}

impl TryFrom<String> for HostAddress {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// The cap of one limit for one workspace.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct WorkspaceLimit {
    workspace: String,
    limit: Limit,
    most: u64,
}

impl FromStr for WorkspaceLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.rsplit_once('=').and_then(|(named, most)| {
            let (workspace, limit) = named.rsplit_once(':')?;
            Some((workspace, limit, most))
        });
        let (workspace, limit, most) =
            parts.ok_or("must be NAME:LIMIT=VALUE, such as guests:memory_bytes=268435456")?;
        let limit = Limit::from_name(limit).ok_or_else(|| {
            let names = Limit::ALL.map(Limit::name).join(", ");
            format!("{limit} is no limit; there are {names}")
        })?;
        let least = limit.min_value();
        match most.parse::<u64>() {
            Ok(most) if most >= least => Ok(Self { workspace: workspace.to_owned(), limit, most }),
            _ => Err(format!("{limit} must be a whole number of at least {least}")),
        }
    }
}

impl TryFrom<String> for WorkspaceLimit {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// The caps of each workspace that has its own.
fn workspace_limits(given: Vec<WorkspaceLimit>) -> HashMap<String, LimitsRequest> {
    let mut limits: HashMap<String, LimitsRequest> = HashMap::new();
    for WorkspaceLimit { workspace, limit, most } in given {
        limits.entry(workspace).or_default().set(limit, most);
    }
    limits
}

/// Not an option, because all users of the machine can see arguments, and many can read the
/// configuration file.
const SECRETS_KEY_VARIABLE: &str = "BELLJAR_SECRETS_KEY";

fn secrets_key() -> Result<Option<service::Keyring>, CliError> {
    let Some(text) = std::env::var_os(SECRETS_KEY_VARIABLE).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let keys = text.to_str().ok_or(service::KeyringParseError).and_then(str::parse);
    keys.map(Some).map_err(|error| CliError::usage(format!("{SECRETS_KEY_VARIABLE} {error}")))
}

/// Resolved configuration of `serve`.
#[derive(Debug, Clone)]
pub(super) struct ServeConfig {
    pub(super) listen: SocketAddr,
    pub(super) public_hosts: Vec<String>,
    pub(super) oauth: Option<OAuth>,
    pub(super) bounds: RequestLimits,
    pub(super) drain: Duration,
    pub(super) task_after: Duration,
    pub(super) log: String,
    pub(super) otlp_endpoint: Option<String>,
    pub(super) models: ModelSettings,
    pub(super) skills: Option<PathBuf>,
    /// Additional packages of the default environment that are not yet installed.
    pub(super) packages: Option<ExtraPackages>,
    pub(super) service: service::Config,
    pub(super) engine: engine::Config,
}

impl ServeOptions {
    pub(super) fn resolve(self) -> Result<ServeConfig, CliError> {
        let file = self.config.as_deref().map_or(Ok(Self::default()), read_config_file)?;
        let options = self.merge(file);
        let said = options.limits();
        let place = LocalDataArgs::new(options.data, options.python);
        let data = place.data()?;
        let seconds = |given: Option<u64>, usual: u64| Duration::from_secs(given.unwrap_or(usual));
        let some = |given: Option<NonZeroU64>| given.map(NonZeroU64::get);
        let engine = place.service_config()?;
        let (caps, resources) = (operator_caps(engine.caps, said)?, HostResources::detect());
        let usual = service::Config::new(options.records.unwrap_or(data));
        let bounds = RequestLimits {
            rate_per_second: options.key_rate.map_or(usual.key_rate_per_second, NonZeroU32::get),
            concurrency: options.key_concurrency.map_or(usual.key_concurrency, NonZeroU32::get),
            mcp_sessions: options
                .mcp_sessions
                .map_or(mcp::SESSIONS_PER_PRINCIPAL, NonZeroUsize::get),
        };
        Ok(ServeConfig {
            listen: options.listen.unwrap_or(ListenAddress::DEFAULT).0,
            public_hosts: options.public_host.unwrap_or_default(),
            oauth: OAuth::from_options(options.oauth_issuer, options.oauth_audience)?,
            bounds,
            drain: seconds(options.drain_seconds, 20),
            task_after: seconds(options.task_seconds, TASK_SECONDS),
            log: options.log.unwrap_or_else(|| "info".to_owned()),
            otlp_endpoint: options.otlp_endpoint,
            models: model_args::model_settings(
                options.model,
                options.model_endpoint.unwrap_or_default(),
                options.record,
            )?,
            skills: options.skills,
            packages: options.packages,
            service: service::Config {
                secrets_key: secrets_key()?,
                audit_key: options.audit_key,
                environment: options.environment.unwrap_or(usual.environment.clone()),
                document_bytes_max: mib_to_bytes(
                    some(options.document_mib),
                    usual.document_bytes_max,
                ),
                output_bytes_max: mib_to_bytes(
                    some(options.output_budget_mib),
                    output_budget_bytes(resources.memory_bytes),
                ),
                workspace_limits: workspace_limits(options.workspace_limit.unwrap_or_default()),
                workspace_bytes_max: mib_to_bytes(
                    some(options.workspace_mib),
                    usual.workspace_bytes_max,
                ),
                tool_bytes_max: options.tool_bytes.map_or(usual.tool_bytes_max, NonZeroUsize::get),
                retention: parse_days("retention", options.retention_days, usual.retention)?,
                audit_retention: parse_days("audit", options.audit_days, usual.audit_retention)?,
                approval_retention: parse_days(
                    "answer",
                    options.answer_days,
                    usual.approval_retention,
                )?,
                approval_timeout: seconds(
                    some(options.approval_seconds),
                    usual.approval_timeout.as_secs(),
                ),
                key_rate_per_second: bounds.rate_per_second,
                key_concurrency: bounds.concurrency,
                fetch_exceptions: options.fetch_from.unwrap_or_default(),
                static_hosts: options
                    .resolve
                    .unwrap_or_default()
                    .into_iter()
                    .map(|HostAddress(name, address)| (name, address))
                    .collect(),
                ..usual
            },
            engine: engine::Config {
                imports: options.imports,
                caps,
                pool_ready: options.pool.map_or(engine.pool_ready, usize::from),
                sandboxes_max: options.sandboxes.map_or(engine.sandboxes_max, NonZeroU32::get),
                queue_max: options.queue.unwrap_or(engine.queue_max),
                queue_wait: seconds(options.queue_seconds, engine.queue_wait.as_secs()),
                expiry: engine::Expiry {
                    idle: seconds(some(options.idle_seconds), engine.expiry.idle.as_secs()),
                    ..engine.expiry
                },
                ..engine
            },
        })
    }

    /// The highest limits that the operator has set.
    fn limits(&self) -> LimitsRequest {
        let value = |given: Option<NonZeroU64>| given.map(NonZeroU64::get);
        LimitsRequest {
            wall_ms: value(self.run_milliseconds),
            cpu_ms: value(self.max_cpu_ms),
            cpu_percent: value(self.max_cpu_percent),
            memory_bytes: value(self.max_memory_bytes),
            processes: value(self.max_processes),
            open_files: value(self.max_open_files),
            disk_bytes: value(self.max_disk_bytes),
            disk_inodes: value(self.max_disk_inodes),
            output_bytes: value(self.max_output_bytes),
            result_bytes: value(self.max_result_bytes),
        }
    }

    /// Merges the options with those of the file; the options take precedence.
    fn merge(self, file: Self) -> Self {
        Self {
            config: self.config,
            listen: self.listen.or(file.listen),
            data: self.data.or(file.data),
            records: self.records.or(file.records),
            audit_key: self.audit_key.or(file.audit_key),
            python: self.python.or(file.python),
            public_host: self.public_host.or(file.public_host),
            oauth_issuer: self.oauth_issuer.or(file.oauth_issuer),
            oauth_audience: self.oauth_audience.or(file.oauth_audience),
            environment: self.environment.or(file.environment),
            imports: self.imports.or(file.imports),
            packages: self.packages.or(file.packages),
            run_milliseconds: self.run_milliseconds.or(file.run_milliseconds),
            max_cpu_ms: self.max_cpu_ms.or(file.max_cpu_ms),
            max_cpu_percent: self.max_cpu_percent.or(file.max_cpu_percent),
            max_memory_bytes: self.max_memory_bytes.or(file.max_memory_bytes),
            max_processes: self.max_processes.or(file.max_processes),
            max_open_files: self.max_open_files.or(file.max_open_files),
            max_disk_bytes: self.max_disk_bytes.or(file.max_disk_bytes),
            max_disk_inodes: self.max_disk_inodes.or(file.max_disk_inodes),
            max_output_bytes: self.max_output_bytes.or(file.max_output_bytes),
            max_result_bytes: self.max_result_bytes.or(file.max_result_bytes),
            workspace_limit: self.workspace_limit.or(file.workspace_limit),
            output_budget_mib: self.output_budget_mib.or(file.output_budget_mib),
            pool: self.pool.or(file.pool),
            task_seconds: self.task_seconds.or(file.task_seconds),
            sandboxes: self.sandboxes.or(file.sandboxes),
            queue: self.queue.or(file.queue),
            queue_seconds: self.queue_seconds.or(file.queue_seconds),
            idle_seconds: self.idle_seconds.or(file.idle_seconds),
            key_rate: self.key_rate.or(file.key_rate),
            key_concurrency: self.key_concurrency.or(file.key_concurrency),
            mcp_sessions: self.mcp_sessions.or(file.mcp_sessions),
            document_mib: self.document_mib.or(file.document_mib),
            workspace_mib: self.workspace_mib.or(file.workspace_mib),
            tool_bytes: self.tool_bytes.or(file.tool_bytes),
            retention_days: self.retention_days.or(file.retention_days),
            audit_days: self.audit_days.or(file.audit_days),
            answer_days: self.answer_days.or(file.answer_days),
            approval_seconds: self.approval_seconds.or(file.approval_seconds),
            fetch_from: self.fetch_from.or(file.fetch_from),
            resolve: self.resolve.or(file.resolve),
            model: self.model.or(file.model),
            model_endpoint: self.model_endpoint.or(file.model_endpoint),
            record: self.record.or(file.record),
            skills: self.skills.or(file.skills),
            drain_seconds: self.drain_seconds.or(file.drain_seconds),
            log: self.log.or(file.log),
            otlp_endpoint: self.otlp_endpoint.or(file.otlp_endpoint),
        }
    }
}

/// OAuth settings: the accepted issuer and audience.
#[derive(Debug, Clone)]
pub(super) struct OAuth {
    issuer: String,
    audience: Option<String>,
}

impl OAuth {
    fn from_options(
        issuer: Option<String>,
        audience: Option<String>,
    ) -> Result<Option<Self>, CliError> {
        match (issuer, audience) {
            (Some(issuer), audience) => Ok(Some(Self { issuer, audience })),
            (None, None) => Ok(None),
            (None, Some(_)) => Err(CliError::usage(
                "--oauth-audience says what tokens are for, and --oauth-issuer whose; give both"
                    .to_owned(),
            )),
        }
    }

    /// The audience is the address by which clients know this server, which may be that of a proxy.
    pub(super) fn issuer(
        &self,
        address: SocketAddr,
        public_hosts: &[String],
    ) -> Result<service::Issuer, CliError> {
        let audience = match (&self.audience, public_hosts.first()) {
            (Some(audience), _) => audience.clone(),
            (None, Some(host)) => format!("https://{host}/mcp"),
            (None, None) if address.ip().is_unspecified() => {
                return Err(CliError::usage(format!(
                    "{address} is no address that tokens can be for; say which with --oauth-audience"
                )));
            }
            (None, None) => format!("http://{address}/mcp"),
        };
        service::Issuer::new(&self.issuer, &audience)
            .map_err(|refused| CliError::usage(format!("tokens cannot be taken: {refused}")))
    }
}

fn mib_to_bytes(given: Option<u64>, usual: u64) -> u64 {
    given.map_or(usual, |mib| mib.saturating_mul(MIB))
}

/// The caps of the machine, with those that the operator has set.
fn operator_caps(usual: OperatorCaps, said: LimitsRequest) -> Result<OperatorCaps, CliError> {
    let (OperatorCaps(mut caps), mut highest) = (usual, OperatorCaps::HIGHEST);
    for (limit, said) in Limit::ALL.into_iter().zip(said.values()) {
        let Some(said) = said else { continue };
        let option = match limit {
            Limit::WallMs => "run-milliseconds".to_owned(),
            limit => format!("max-{}", limit.name().replace('_', "-")),
        };
        let (least, most) = (limit.min_value(), *limit.value_mut(&mut highest));
        if !(least..=most).contains(&said) {
            return Err(CliError::usage(format!(
                "--{option} {said} is not possible; give {least} to {most}"
            )));
        }
        *limit.value_mut(&mut caps) = said;
    }
    Ok(OperatorCaps(caps))
}

/// Returns the default output budget for this much memory. Including all copies of output, the
/// server then stays below a quarter of the memory.
fn output_budget_bytes(memory_bytes: u64) -> u64 {
    (memory_bytes / 8).clamp(64 * MIB, 4096 * MIB)
}

/// Parses the value of `--<option>-days`.
fn parse_days(option: &str, given: Option<u64>, usual: Duration) -> Result<Duration, CliError> {
    match given {
        None => Ok(usual),
        Some(days) if days > RETENTION_DAYS_MAX => Err(CliError::usage(format!(
            "--{option}-days {days} is too long; give at most {RETENTION_DAYS_MAX}"
        ))),
        Some(days) => Ok(Duration::from_secs(days * 24 * 60 * 60)),
    }
}

fn read_config_file(path: &Path) -> Result<ServeOptions, CliError> {
    let failed = |error: String| CliError::usage(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    toml::from_str(&text)
        .map_err(|error| failed(format!("{}{}", error_location(&text, &error), error.message())))
}

/// The line that an error is about, and what it sets.
fn error_location(text: &str, error: &toml::de::Error) -> String {
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else {
        return String::new();
    };
    let number = before.matches('\n').count() + 1;
    let line = text.lines().nth(number - 1).unwrap_or_default();
    let key = line.split('=').next().unwrap_or_default().trim();
    format!("line {number}, `{key}`: ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_open_to_this_machine_only() {
        let listen = |text: &str| text.parse::<ListenAddress>().map(|listen| listen.0.to_string());
        assert_eq!(listen(":7118"), Ok("127.0.0.1:7118".to_owned()));
        assert_eq!(listen("localhost:7118"), Ok("127.0.0.1:7118".to_owned()));
        assert_eq!(listen("0.0.0.0:80"), Ok("0.0.0.0:80".to_owned()));
        assert_eq!(listen("[::1]:7118"), Ok("[::1]:7118".to_owned()));
        for wrong in ["", "localhost", "7118", "localhost7118", "example.org:80", ":70000", "::1"] {
            assert!(
                listen(wrong).is_err_and(|said| said.contains("such as 127.0.0.1:7117")),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_mistake_in_the_file_is_named_by_its_line_and_its_key() {
        let said = |text: &str| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            read_config_file(file.path()).map(|_| ()).unwrap_err().to_string()
        };
        let sandboxes = said("queue = 1\nsandboxes = 0\n");
        assert!(sandboxes.contains(": line 2, `sandboxes`: "), "{sandboxes}");
        let listen = said("listen = \"somewhere\"\n");
        assert!(listen.contains("line 1, `listen`: must be an address and a port"), "{listen}");
        let unknown = said("# of ours\n\npublic-hosts = []\n");
        assert!(unknown.contains("line 3, `public-hosts`: unknown field"), "{unknown}");
    }

    #[test]
    fn tokens_are_for_the_address_by_which_the_server_is_known() {
        let audience = |given: Option<&str>, listen: &str, hosts: &[&str]| {
            let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
            let issuer = Some("https://login.example.org".to_owned());
            let oauth = OAuth::from_options(issuer, given.map(str::to_owned)).unwrap().unwrap();
            oauth.issuer(listen.parse().unwrap(), &hosts).map(|it| it.audience().to_owned())
        };
        let here = "127.0.0.1:7117";
        assert_eq!(audience(None, here, &[]).unwrap(), "http://127.0.0.1:7117/mcp");
        assert_eq!(audience(None, here, &["a.example"]).unwrap(), "https://a.example/mcp");
        let said = "https://b.example/tools";
        assert_eq!(audience(Some(said), "0.0.0.0:80", &["a.example"]).unwrap(), said);
        assert!(audience(None, "0.0.0.0:80", &[]).is_err());
        assert!(OAuth::from_options(None, Some(said.to_owned())).is_err());
    }

    #[test]
    fn t77_a_cap_that_is_said_holds_and_one_that_cannot_be_is_refused_by_its_name() {
        let usual = OperatorCaps::for_machine(2, 2048 * MIB);
        let said = |text: &str| {
            operator_caps(usual, toml::from_str::<ServeOptions>(text).unwrap().limits())
        };
        let OperatorCaps(caps) =
            said("max-memory-bytes = 268435456\nrun-milliseconds = 5000").unwrap();
        assert_eq!((caps.memory_bytes, caps.wall_ms), (256 * MIB, 5000));
        assert_eq!(caps.processes, usual.0.processes);
        for (wrong, name) in [
            ("max-output-bytes = 67108865", "--max-output-bytes"),
            ("max-memory-bytes = 1", "--max-memory-bytes"),
            ("run-milliseconds = 3600001", "--run-milliseconds"),
        ] {
            assert!(said(wrong).unwrap_err().to_string().contains(name), "{wrong}");
        }
    }

    #[test]
    fn the_caps_of_a_workspace_are_read_by_name() {
        let given = ["a:b:memory_bytes=268435456", "guests:processes=8", "guests:cpu_percent=50"];
        let given = given.map(|text| text.parse::<WorkspaceLimit>().unwrap()).to_vec();
        let limits = workspace_limits(given);
        assert_eq!(limits["a:b"].memory_bytes, Some(256 * MIB));
        assert_eq!((limits["guests"].processes, limits["guests"].cpu_percent), (Some(8), Some(50)));
        for wrong in ["guests", "guests:memory=1", "guests:memory_bytes=1", "guests:processes=x"] {
            assert!(wrong.parse::<WorkspaceLimit>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_retention_longer_than_records_can_name_is_refused() {
        let retention = |given| parse_days("retention", Some(given), Duration::ZERO);
        assert_eq!(retention(73_000).unwrap(), Duration::from_secs(73_000 * 86_400));
        for days in [73_001, 200_000, u64::MAX] {
            assert!(retention(days).is_err(), "{days}");
        }
    }
}
