//! Options of `serve`.
//!
//! Each field of [`ServeOptions`] is an option of the command line, an environment variable and a
//! key of the configuration file. This is also the order of precedence.

use super::extra_packages::ExtraPackages;
use super::public_url::PublicUrl;
use crate::cli::CliError;
use clap::{ArgMatches, FromArgMatches};
use engine::PythonChoice;
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use types::{Limit, WorkKind};

/// All options of the server; `None` means that the option is not set.
#[derive(Debug, Clone, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct ServeOptions {
    /// TOML file with any of these options as keys [default: none]
    #[arg(long, value_name = "FILE", env = "BELLJAR_CONFIG", hide_env_values = true)]
    #[serde(skip)]
    config: Option<PathBuf>,

    /// Address to listen on; `:PORT` listens on loopback only [default: 127.0.0.1:7117]
    #[arg(long, value_name = "ADDRESS:PORT", env = "BELLJAR_LISTEN", hide_env_values = true)]
    pub(super) listen: Option<ListenAddress>,

    /// Directory of the environments and records [default: the XDG data directory]
    #[arg(long, value_name = "DIR", env = "BELLJAR_DATA", hide_env_values = true)]
    pub(super) data: Option<PathBuf>,

    /// Directory of the records and files [default: the data directory]
    #[arg(long, value_name = "DIR", env = "BELLJAR_RECORDS", hide_env_values = true)]
    pub(super) records: Option<PathBuf>,

    /// File with the key that signs the audit log [default: db/audit.key in the records]
    ///
    /// Store it where accounts that can write to the records cannot read it, and pass the same file
    /// to `belljar audit`.
    #[arg(long, value_name = "FILE", env = "BELLJAR_AUDIT_KEY", hide_env_values = true)]
    pub(super) audit_key: Option<PathBuf>,

    /// Python to use: a version such as 3.12, or a path [default: the newest one found]
    #[arg(long, value_name = "VERSION | PATH", env = "BELLJAR_PYTHON", hide_env_values = true)]
    pub(super) python: Option<PythonChoice>,

    /// Additional allowed Host header as host[:port], such as that of a reverse proxy; repeatable
    #[arg(
        long,
        value_name = "HOST",
        env = "BELLJAR_PUBLIC_HOST",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub(super) public_host: Option<Vec<String>>,

    /// URL by which clients reach the server, such as `https://belljar.example.org`: the beginning of
    /// the URLs of files in answers [default: http://ADDRESS:PORT]
    ///
    /// Its host is an allowed Host header.
    #[arg(long, value_name = "URL", env = "BELLJAR_PUBLIC_URL", hide_env_values = true)]
    pub(super) public_url: Option<PublicUrl>,

    /// Seconds for which a signed URL of a file is valid, up to 604800 [default: 86400]
    #[arg(long, value_name = "S", env = "BELLJAR_FILE_URL_SECONDS", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    pub(super) file_url_seconds: Option<NonZeroU64>,

    /// Issuer URL of the OAuth authorization server whose access tokens are accepted besides API
    /// keys [default: none]
    #[arg(long, value_name = "URL", env = "BELLJAR_OAUTH_ISSUER", hide_env_values = true)]
    pub(super) oauth_issuer: Option<String>,

    /// Required `aud` claim of access tokens [default: URL/mcp with --public-url, https://HOST/mcp with
    /// the first --public-host, otherwise http://ADDRESS:PORT/mcp]
    #[arg(long, value_name = "URL", env = "BELLJAR_OAUTH_AUDIENCE", hide_env_values = true)]
    pub(super) oauth_audience: Option<String>,

    /// Pass the access token of the caller to this service when code calls it, if AUDIENCE is among the
    /// audiences of the token. Only code that names an integration with `caller_token` gets it, and
    /// only through the egress proxy. Requires --oauth-issuer [default: none]
    #[arg(
        long,
        value_name = "URL=AUDIENCE",
        env = "BELLJAR_PASS_CALLER_TOKEN",
        hide_env_values = true
    )]
    pub(super) pass_caller_token: Option<String>,

    /// Environment of sessions and executions that do not specify one [default: default]
    #[arg(long, value_name = "NAME", env = "BELLJAR_ENVIRONMENT", hide_env_values = true)]
    pub(super) environment: Option<String>,

    /// Environment of one kind of work that does not specify one, as KIND=NAME; the kinds are
    /// run_python_code, code_runner and code_execution. Repeatable [default: run_python_code=atlas,
    /// code_runner=coderunner, code_execution=cortex]
    #[arg(
        long,
        value_name = "KIND=NAME",
        env = "BELLJAR_ENVIRONMENT_FOR",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub(super) environment_for: Option<Vec<KindEnvironment>>,

    /// Modules that code may import besides the standard library, such as `numpy,pandas` [default:
    /// all installed]
    #[arg(
        long,
        value_name = "NAMES",
        env = "PYTHON_PACKAGES_WHITELIST_IMPORT",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub(super) imports: Option<Vec<String>>,

    /// Additional packages of the default environment, such as `tabulate dateparser>=1`; code may
    /// import them [default: none]
    #[arg(
        long,
        value_name = "PACKAGES",
        env = "PYTHON_PACKAGES_AUTO_INSTALL",
        hide_env_values = true
    )]
    pub(super) packages: Option<ExtraPackages>,

    /// Maximum wall-clock time of an execution in milliseconds [default: 3600000]. Requests without a
    /// limit get 30000, or this maximum if it is lower
    #[arg(long, value_name = "MS", env = "PYTHON_FUNCTIONS_RUN_TIMEOUT", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    pub(super) run_milliseconds: Option<NonZeroU64>,

    /// Maximum `cpu_ms` of a request [default: one hour per core]
    #[arg(long, value_name = "MS", env = "BELLJAR_MAX_CPU_MS", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    pub(super) max_cpu_ms: Option<NonZeroU64>,

    /// Maximum `cpu_percent` of a request [default: 100 per core]
    #[arg(long, value_name = "PERCENT", env = "BELLJAR_MAX_CPU_PERCENT", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    pub(super) max_cpu_percent: Option<NonZeroU64>,

    /// Maximum `memory_bytes` of a request [default: half of the memory]
    #[arg(long, value_name = "BYTES", env = "BELLJAR_MAX_MEMORY_BYTES", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    pub(super) max_memory_bytes: Option<NonZeroU64>,

    /// Maximum `processes` of a request [default: 512 per core, up to 4096]
    #[arg(long, value_name = "N", env = "BELLJAR_MAX_PROCESSES", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    pub(super) max_processes: Option<NonZeroU64>,

    /// Maximum `open_files` of a request [default: 16384]
    #[arg(long, value_name = "N", env = "BELLJAR_MAX_OPEN_FILES", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    pub(super) max_open_files: Option<NonZeroU64>,

    /// Maximum `disk_bytes` of a request [default: half of the memory]
    #[arg(long, value_name = "BYTES", env = "BELLJAR_MAX_DISK_BYTES", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    pub(super) max_disk_bytes: Option<NonZeroU64>,

    /// Maximum `disk_inodes` of a request [default: one per 16 KiB of `disk_bytes`, up to 1048576]
    #[arg(long, value_name = "N", env = "BELLJAR_MAX_DISK_INODES", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    pub(super) max_disk_inodes: Option<NonZeroU64>,

    /// Maximum `output_bytes` of a request, up to 67108864 [default: 16777216]
    #[arg(long, value_name = "BYTES", env = "BELLJAR_MAX_OUTPUT_BYTES", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    pub(super) max_output_bytes: Option<NonZeroU64>,

    /// Maximum `result_bytes` of a request, up to 6291456 [default: 6291456]
    #[arg(long, value_name = "BYTES", env = "BELLJAR_MAX_RESULT_BYTES", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    pub(super) max_result_bytes: Option<NonZeroU64>,

    /// Lower maximum for one workspace as NAME:LIMIT=VALUE, such as
    /// `guests:memory_bytes=268435456`; repeatable
    #[arg(
        long,
        value_name = "NAME:LIMIT=VALUE",
        env = "BELLJAR_WORKSPACE_LIMIT",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub(super) workspace_limit: Option<Vec<WorkspaceLimit>>,

    /// Memory for the output and results of all running executions, in MiB; one workspace can use
    /// half of it [default: an eighth of the memory, from 64 to 4096]
    #[arg(long, value_name = "MIB", env = "BELLJAR_OUTPUT_BUDGET_MIB", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    pub(super) output_budget_mib: Option<NonZeroU64>,

    /// Number of idle sandboxes kept ready per environment in use [default: 2]
    #[arg(long, value_name = "N", env = "KERNEL_POOL_SIZE", hide_env_values = true)]
    pub(super) pool: Option<u16>,

    /// Seconds after which an MCP call becomes a task, for clients that support tasks [default: 60]
    #[arg(long, value_name = "S", env = "BELLJAR_TASK_SECONDS", hide_env_values = true)]
    pub(super) task_seconds: Option<u64>,

    /// Maximum number of concurrent sandboxes [default: 256]
    #[arg(long, value_name = "N", env = "BELLJAR_SANDBOXES", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU32>)]
    pub(super) sandboxes: Option<NonZeroU32>,

    /// Maximum number of requests that wait for a sandbox; further requests are rejected [default:
    /// 64]
    #[arg(long, value_name = "N", env = "BELLJAR_QUEUE", hide_env_values = true)]
    pub(super) queue: Option<usize>,

    /// Maximum seconds that a request waits for a sandbox [default: 5]
    #[arg(long, value_name = "S", env = "BELLJAR_QUEUE_SECONDS", hide_env_values = true)]
    pub(super) queue_seconds: Option<u64>,

    /// Idle timeout of sessions that do not specify one, in seconds [default: 1800]
    #[arg(long, value_name = "S", env = "BELLJAR_IDLE_SECONDS", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    pub(super) idle_seconds: Option<NonZeroU64>,

    /// Maximum requests per second of an API key [default: 2000]
    #[arg(long, value_name = "N", env = "BELLJAR_KEY_RATE", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU32>)]
    pub(super) key_rate: Option<NonZeroU32>,

    /// Maximum concurrent requests of an API key [default: 512]
    #[arg(long, value_name = "N", env = "BELLJAR_KEY_CONCURRENCY", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU32>)]
    pub(super) key_concurrency: Option<NonZeroU32>,

    /// Maximum MCP sessions (legacy revision) per principal; a further session replaces an idle
    /// one, or is rejected [default: 64]
    #[arg(long, value_name = "N", env = "BELLJAR_MCP_SESSIONS", hide_env_values = true, value_parser = parse_nonzero::<NonZeroUsize>)]
    pub(super) mcp_sessions: Option<NonZeroUsize>,

    /// Maximum size of a document in MiB [default: 256]
    #[arg(long, value_name = "MIB", env = "BELLJAR_DOCUMENT_MIB", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    pub(super) document_mib: Option<NonZeroU64>,

    /// Maximum total size of the files of a workspace in MiB [default: 10240]
    #[arg(long, value_name = "MIB", env = "BELLJAR_WORKSPACE_MIB", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    pub(super) workspace_mib: Option<NonZeroU64>,

    /// Maximum size of the source of a tool, and of the input of a call, in bytes [default:
    /// 1048576]
    #[arg(long, value_name = "BYTES", env = "BELLJAR_TOOL_BYTES", hide_env_values = true, value_parser = parse_nonzero::<NonZeroUsize>)]
    pub(super) tool_bytes: Option<NonZeroUsize>,

    /// Retention of executions and files in days, up to 73000 [default: 30]
    #[arg(long, value_name = "DAYS", env = "BELLJAR_RETENTION_DAYS", hide_env_values = true)]
    pub(super) retention_days: Option<u64>,

    /// Retention of audit log entries in days, up to 73000 [default: 400]
    #[arg(long, value_name = "DAYS", env = "BELLJAR_AUDIT_DAYS", hide_env_values = true)]
    pub(super) audit_days: Option<u64>,

    /// Days for which an approval of more than one call is valid, up to 73000 [default: 365]
    #[arg(long, value_name = "DAYS", env = "BELLJAR_APPROVAL_DAYS", hide_env_values = true)]
    pub(super) approval_days: Option<u64>,

    /// Seconds after which a pending approval expires [default: 86400]
    #[arg(long, value_name = "S", env = "BELLJAR_APPROVAL_SECONDS", hide_env_values = true, value_parser = parse_nonzero::<NonZeroU64>)]
    pub(super) approval_seconds: Option<NonZeroU64>,

    /// host:port of an internal server that documents may be fetched from; repeatable
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "BELLJAR_FETCH_FROM",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub(super) fetch_from: Option<Vec<String>>,

    /// Host of MCP servers that agents may use as tools, as a value of a network rule, such as
    /// `mcp.example.com` or `10.0.0.5:8000`; repeatable [default: none]
    #[arg(
        long,
        value_name = "HOST[:PORT]",
        env = "BELLJAR_MCP_SERVER",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub(super) mcp_server: Option<Vec<String>>,

    /// MCP server that agents may use as NAME=PROGRAM ARGUMENTS, separated by spaces; it runs on this
    /// host, with the rights of this server. Repeatable [default: none]
    #[arg(long, value_name = "NAME=COMMAND", env = "BELLJAR_MCP_COMMAND", hide_env_values = true)]
    pub(super) mcp_command: Option<Vec<McpCommandLine>>,

    /// Static host entry as NAME=ADDRESS, for allowed hosts that are not in DNS; repeatable
    #[arg(
        long,
        value_name = "NAME=ADDRESS",
        env = "BELLJAR_RESOLVE",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub(super) resolve: Option<Vec<HostAddress>>,

    /// Default model: PROVIDER/MODEL, or script:FILE [default: none]
    #[arg(long, value_name = "MODEL", env = "BELLJAR_MODEL", hide_env_values = true)]
    pub(super) model: Option<String>,

    /// OpenAI-compatible endpoint as NAME=URL; its models are NAME/MODEL. Repeatable
    #[arg(
        long,
        value_name = "NAME=URL",
        env = "BELLJAR_MODEL_ENDPOINT",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub(super) model_endpoint: Option<Vec<String>>,

    /// Record the responses of models in this directory, as scripts that can be replayed [default:
    /// off]
    #[arg(long, value_name = "DIR", env = "BELLJAR_RECORD", hide_env_values = true)]
    pub(super) record: Option<PathBuf>,

    /// Directory of skills that agents may use besides the built-in ones [default: none]
    #[arg(long, value_name = "DIR", env = "BELLJAR_SKILLS", hide_env_values = true)]
    pub(super) skills: Option<PathBuf>,

    /// Seconds that running executions may continue after a stop signal [default: 20]
    #[arg(long, value_name = "S", env = "BELLJAR_DRAIN_SECONDS", hide_env_values = true)]
    pub(super) drain_seconds: Option<u64>,

    /// Log filter, such as `info` or `belljar=debug` [default: info]
    #[arg(long, value_name = "FILTER", env = "BELLJAR_LOG", hide_env_values = true)]
    pub(super) log: Option<String>,

    /// Send traces to this OTLP/HTTP endpoint, such as `http://localhost:4318` [default: off]
    #[arg(long, value_name = "URL", env = "BELLJAR_OTLP_ENDPOINT", hide_env_values = true)]
    pub(super) otlp_endpoint: Option<String>,
}

/// The options of the command line and of environment variables, as clap has parsed them. The
/// fields of [`ServeOptions`] define them.
#[derive(Debug)]
pub(in crate::cli) struct Args(ArgMatches);

impl FromArgMatches for Args {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(matches.clone()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Args {
    fn augment_args(command: clap::Command) -> clap::Command {
        ServeOptions::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        ServeOptions::augment_args_for_update(command)
    }
}

impl Args {
    /// Returns the options of the configuration file, overridden by those of the command line and of
    /// environment variables.
    pub(super) fn merge_with_file(self) -> Result<ServeOptions, CliError> {
        let mut options = match self.0.get_one::<PathBuf>("config") {
            Some(path) => read_config_file(path)?,
            None => ServeOptions::default(),
        };
        // Replaces only the fields that have a value in the matches.
        options
            .update_from_arg_matches(&self.0)
            .map_err(|error| CliError::usage(error.to_string()))?;
        Ok(options)
    }
}

fn read_config_file(path: &Path) -> Result<ServeOptions, CliError> {
    let failed = |error: String| CliError::usage(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    toml::from_str(&text)
        .map_err(|error| failed(format!("{}{}", error_location(&text, &error), error.message())))
}

/// The line number and the key that an error is about.
fn error_location(text: &str, error: &toml::de::Error) -> String {
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else {
        return String::new();
    };
    let number = before.matches('\n').count() + 1;
    let line = text.lines().nth(number - 1).unwrap_or_default();
    let key = line.split('=').next().unwrap_or_default().trim();
    format!("line {number}, `{key}`: ")
}

/// Parses a number that must not be zero, because nothing would work with zero.
fn parse_nonzero<T: FromStr>(text: &str) -> Result<T, &'static str> {
    text.parse().map_err(|_| "must be a whole number, and at least 1")
}

/// Address that the server listens on. Without an explicit address it is loopback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct ListenAddress(pub(super) SocketAddr);

impl ListenAddress {
    pub(super) const DEFAULT: Self = Self(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7117));
}

impl FromStr for ListenAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let port = text.strip_prefix("localhost").unwrap_or(text).strip_prefix(':');
        let loopback =
            port.and_then(|port| port.parse().ok()).map(|port| (Ipv4Addr::LOCALHOST, port));
        let address = loopback.map(SocketAddr::from).or_else(|| text.parse().ok());
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
pub(super) struct HostAddress(pub(super) String, pub(super) IpAddr);

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

/// The environment of one kind of work.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct KindEnvironment(pub(super) WorkKind, pub(super) String);

impl FromStr for KindEnvironment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=').filter(|(_, name)| !name.is_empty());
        let (kind, name) =
            parts.ok_or("must be KIND=NAME, such as run_python_code=bare".to_owned())?;
        let known = WorkKind::from_name(kind).ok_or_else(|| {
            let names = WorkKind::ALL.map(WorkKind::name).join(", ");
            format!("unknown kind {kind}; use one of {names}")
        })?;
        Ok(Self(known, name.to_owned()))
    }
}

impl TryFrom<String> for KindEnvironment {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// A command that speaks MCP.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct McpCommandLine(pub(super) service::McpCommand);

impl FromStr for McpCommandLine {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, command) = text.split_once('=').ok_or("must be NAME=COMMAND")?;
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if name.is_empty() || !name.bytes().all(fits) {
            return Err("must begin with a name of letters, digits, `-` and `_`");
        }
        let mut words = command.split_whitespace().map(str::to_owned);
        let program = words.next().ok_or("must have a program after the `=`")?.into();
        let (name, arguments) = (name.to_owned(), words.collect());
        Ok(Self(service::McpCommand { name, program, arguments }))
    }
}

impl TryFrom<String> for McpCommandLine {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// The cap of one limit for one workspace.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct WorkspaceLimit {
    pub(super) workspace: String,
    pub(super) limit: Limit,
    pub(super) max: u64,
}

impl FromStr for WorkspaceLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.rsplit_once('=').and_then(|(name, max)| {
            let (workspace, limit) = name.rsplit_once(':')?;
            Some((workspace, limit, max))
        });
        let (workspace, limit, max) =
            parts.ok_or("must be NAME:LIMIT=VALUE, such as guests:memory_bytes=268435456")?;
        let limit = Limit::from_name(limit).ok_or_else(|| {
            let names = Limit::ALL.map(Limit::name).join(", ");
            format!("unknown limit {limit}; use one of {names}")
        })?;
        let min = limit.min_value();
        match max.parse::<u64>() {
            Ok(max) if max >= min => Ok(Self { workspace: workspace.to_owned(), limit, max }),
            _ => Err(format!("{limit} must be a whole number of at least {min}")),
        }
    }
}

impl TryFrom<String> for WorkspaceLimit {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
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
                listen(wrong).is_err_and(|error| error.contains("such as 127.0.0.1:7117")),
                "{wrong}"
            );
        }
    }

    #[test]
    fn the_environment_of_a_kind_is_read_by_the_name_of_the_kind() {
        let read = |text: &str| text.parse::<KindEnvironment>();
        let atlas = KindEnvironment(WorkKind::RunPythonCode, "mine".to_owned());
        assert_eq!(read("run_python_code=mine"), Ok(atlas));
        for wrong in ["", "mine", "runPythonCode=mine", "code_runner=", "execution=mine"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_mistake_in_the_file_is_named_by_its_line_and_its_key() {
        let error = |text: &str| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            read_config_file(file.path()).map(|_| ()).unwrap_err().to_string()
        };
        let sandboxes = error("queue = 1\nsandboxes = 0\n");
        assert!(sandboxes.contains(": line 2, `sandboxes`: "), "{sandboxes}");
        let listen = error("listen = \"somewhere\"\n");
        assert!(listen.contains("line 1, `listen`: must be an address and a port"), "{listen}");
        let unknown = error("# of ours\n\npublic-hosts = []\n");
        assert!(unknown.contains("line 3, `public-hosts`: unknown field"), "{unknown}");
    }

    #[derive(Debug, clap::Parser)]
    struct Serve {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn an_option_of_the_command_line_overrides_the_file_and_no_other_option() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "queue = 7\nsandboxes = 9\npublic-host = [\"a\", \"b\"]")
            .unwrap();
        let path = file.path().to_str().unwrap();
        let parse = |options: &[&str]| {
            let arguments = [&["serve", "--config", path], options].concat();
            let Serve { args } = clap::Parser::try_parse_from(arguments).unwrap();
            args.merge_with_file().unwrap()
        };
        let options = parse(&["--queue", "3", "--public-host", "c"]);
        assert_eq!((options.queue, options.sandboxes.unwrap().get()), (Some(3), 9));
        assert_eq!((options.public_host.unwrap(), options.key_rate), (vec!["c".to_owned()], None));
        assert_eq!(parse(&[]).queue, Some(7));
    }
}
