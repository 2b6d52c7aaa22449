//! What can be set, and what holds when it is not.

use crate::cli::Failure;
use crate::cli::setup::Place;
use crate::http::Bounds;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

const MIB: u64 = 1024 * 1024;
/// Two hundred years: a year that records cannot name would be no bound at all.
const RETENTION_DAYS_MAX: u64 = 73_000;

/// Every option of the server. A field is an option, a variable, and a key of the file.
#[derive(Debug, Clone, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Options {
    /// A TOML file with any of these options, named as here [default: none]
    #[arg(long, value_name = "FILE", env = "BELLJAR_CONFIG", hide_env_values = true)]
    #[serde(skip)]
    config: Option<PathBuf>,

    /// The address to listen on [default: 127.0.0.1:7117]
    #[arg(long, value_name = "ADDRESS:PORT", env = "BELLJAR_LISTEN", hide_env_values = true)]
    listen: Option<SocketAddr>,

    /// Where environments are kept, and records [default: the XDG data directory]
    #[arg(long, value_name = "DIR", env = "BELLJAR_DATA", hide_env_values = true)]
    data: Option<PathBuf>,

    /// Where records and files are kept, if not with the environments [default: the same]
    #[arg(long, value_name = "DIR", env = "BELLJAR_RECORDS", hide_env_values = true)]
    records: Option<PathBuf>,

    /// The Python to use instead of the newest one found
    #[arg(long, value_name = "PATH", env = "BELLJAR_PYTHON", hide_env_values = true)]
    python: Option<PathBuf>,

    /// A further host[:port] that this server is called by, such as that of a proxy; may be repeated
    #[arg(
        long = "public-host",
        value_name = "HOST",
        env = "BELLJAR_PUBLIC_HOSTS",
        value_delimiter = ',',
        hide_env_values = true
    )]
    public_hosts: Option<Vec<String>>,

    /// The environment of sessions and executions that name none [default: default]
    #[arg(long, value_name = "NAME", env = "BELLJAR_ENVIRONMENT", hide_env_values = true)]
    environment: Option<String>,

    /// Sandboxes at once [default: 256]
    #[arg(long, value_name = "N", env = "BELLJAR_SANDBOXES", hide_env_values = true)]
    sandboxes: Option<u32>,

    /// Requests that may wait for a sandbox; one more is refused at once [default: 64]
    #[arg(long, value_name = "N", env = "BELLJAR_QUEUE", hide_env_values = true)]
    queue: Option<usize>,

    /// Seconds that a request waits for a sandbox at most [default: 5]
    #[arg(long, value_name = "S", env = "BELLJAR_QUEUE_SECONDS", hide_env_values = true)]
    queue_seconds: Option<u64>,

    /// Seconds without use after which a session is closed, if it asks for nothing else [default: 1800]
    #[arg(long, value_name = "S", env = "BELLJAR_IDLE_SECONDS", hide_env_values = true)]
    idle_seconds: Option<u64>,

    /// Requests a second of one key [default: 2000]
    #[arg(long, value_name = "N", env = "BELLJAR_KEY_RATE", hide_env_values = true)]
    key_rate: Option<u32>,

    /// Requests at once of one key [default: 512]
    #[arg(long, value_name = "N", env = "BELLJAR_KEY_CONCURRENCY", hide_env_values = true)]
    key_concurrency: Option<u32>,

    /// MiB of one document [default: 256]
    #[arg(long, value_name = "MIB", env = "BELLJAR_DOCUMENT_MIB", hide_env_values = true)]
    document_mib: Option<u64>,

    /// MiB of files that a workspace keeps [default: 10240]
    #[arg(long, value_name = "MIB", env = "BELLJAR_WORKSPACE_MIB", hide_env_values = true)]
    workspace_mib: Option<u64>,

    /// Bytes of a tool's source, and of the input of a call [default: 1048576]
    #[arg(long, value_name = "BYTES", env = "BELLJAR_TOOL_BYTES", hide_env_values = true)]
    tool_bytes: Option<usize>,

    /// Days that executions and files are kept, up to 73000 [default: 30]
    #[arg(long, value_name = "DAYS", env = "BELLJAR_RETENTION_DAYS", hide_env_values = true)]
    retention_days: Option<u64>,

    /// Seconds that a question to a person stays open [default: 86400]
    #[arg(long, value_name = "S", env = "BELLJAR_APPROVAL_SECONDS", hide_env_values = true)]
    approval_seconds: Option<u64>,

    /// host:port of a server inside the network that documents may be fetched from; may be repeated
    #[arg(
        long = "fetch-from",
        value_name = "HOST:PORT",
        env = "BELLJAR_FETCH_FROM",
        value_delimiter = ',',
        hide_env_values = true
    )]
    fetch_from: Option<Vec<String>>,

    /// Seconds that what runs may go on after a signal to stop [default: 20]
    #[arg(long, value_name = "S", env = "BELLJAR_DRAIN_SECONDS", hide_env_values = true)]
    drain_seconds: Option<u64>,

    /// What is logged, as `info` or `belljar=debug` [default: info]
    #[arg(long, value_name = "FILTER", env = "BELLJAR_LOG", hide_env_values = true)]
    log: Option<String>,

    /// Send traces to this OTLP endpoint over HTTP, as `http://localhost:4318` [default: nowhere]
    #[arg(long, value_name = "URL", env = "BELLJAR_OTLP_ENDPOINT", hide_env_values = true)]
    otlp_endpoint: Option<String>,
}

/// What holds.
#[derive(Debug, Clone)]
pub(super) struct Resolved {
    pub(super) listen: SocketAddr,
    pub(super) public_hosts: Vec<String>,
    pub(super) bounds: Bounds,
    pub(super) drain: Duration,
    pub(super) log: String,
    pub(super) otlp_endpoint: Option<String>,
    pub(super) service: service::Config,
    pub(super) engine: engine::Config,
}

impl Options {
    pub(super) fn resolve(self) -> Result<Resolved, Failure> {
        let file = self.config.as_deref().map_or(Ok(Self::default()), read)?;
        let options = self.or(file);
        let place = Place::new(options.data, options.python);
        let data = place.data()?;
        let seconds = |given: Option<u64>, usual: u64| Duration::from_secs(given.unwrap_or(usual));
        let engine = place.service()?;
        let usual = service::Config::new(options.records.unwrap_or(data));
        let bounds = Bounds {
            rate_per_second: options.key_rate.unwrap_or(usual.key_rate_per_second),
            concurrency: options.key_concurrency.unwrap_or(usual.key_concurrency),
        };
        Ok(Resolved {
            listen: options.listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 7117))),
            public_hosts: options.public_hosts.unwrap_or_default(),
            bounds,
            drain: seconds(options.drain_seconds, 20),
            log: options.log.unwrap_or_else(|| "info".to_owned()),
            otlp_endpoint: options.otlp_endpoint,
            service: service::Config {
                environment: options.environment.unwrap_or(usual.environment.clone()),
                document_bytes_max: mib(options.document_mib, usual.document_bytes_max),
                workspace_bytes_max: mib(options.workspace_mib, usual.workspace_bytes_max),
                tool_bytes_max: options.tool_bytes.unwrap_or(usual.tool_bytes_max),
                retention: options.retention_days.map_or(Ok(usual.retention), retention)?,
                approval_time: seconds(options.approval_seconds, usual.approval_time.as_secs()),
                key_rate_per_second: bounds.rate_per_second,
                key_concurrency: bounds.concurrency,
                fetch_exceptions: options.fetch_from.unwrap_or_default(),
                ..usual
            },
            engine: engine::Config {
                sandboxes_max: options.sandboxes.unwrap_or(engine.sandboxes_max),
                queue_max: options.queue.unwrap_or(engine.queue_max),
                queue_wait: seconds(options.queue_seconds, engine.queue_wait.as_secs()),
                expiry: engine::Expiry {
                    idle: seconds(options.idle_seconds, engine.expiry.idle.as_secs()),
                    ..engine.expiry
                },
                ..engine
            },
        })
    }

    /// What was said nearer holds.
    fn or(self, file: Self) -> Self {
        Self {
            config: self.config,
            listen: self.listen.or(file.listen),
            data: self.data.or(file.data),
            records: self.records.or(file.records),
            python: self.python.or(file.python),
            public_hosts: self.public_hosts.or(file.public_hosts),
            environment: self.environment.or(file.environment),
            sandboxes: self.sandboxes.or(file.sandboxes),
            queue: self.queue.or(file.queue),
            queue_seconds: self.queue_seconds.or(file.queue_seconds),
            idle_seconds: self.idle_seconds.or(file.idle_seconds),
            key_rate: self.key_rate.or(file.key_rate),
            key_concurrency: self.key_concurrency.or(file.key_concurrency),
            document_mib: self.document_mib.or(file.document_mib),
            workspace_mib: self.workspace_mib.or(file.workspace_mib),
            tool_bytes: self.tool_bytes.or(file.tool_bytes),
            retention_days: self.retention_days.or(file.retention_days),
            approval_seconds: self.approval_seconds.or(file.approval_seconds),
            fetch_from: self.fetch_from.or(file.fetch_from),
            drain_seconds: self.drain_seconds.or(file.drain_seconds),
            log: self.log.or(file.log),
            otlp_endpoint: self.otlp_endpoint.or(file.otlp_endpoint),
        }
    }
}

fn mib(given: Option<u64>, usual: u64) -> u64 {
    given.map_or(usual, |mib| mib.saturating_mul(MIB))
}

fn retention(days: u64) -> Result<Duration, Failure> {
    if days > RETENTION_DAYS_MAX {
        return Err(Failure::usage(format!(
            "--retention-days {days} is too long; give at most {RETENTION_DAYS_MAX}"
        )));
    }
    Ok(Duration::from_secs(days * 24 * 60 * 60))
}

fn read(path: &Path) -> Result<Options, Failure> {
    let failed = |error: String| Failure::usage(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    toml::from_str(&text).map_err(|error| failed(error.message().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retention_longer_than_records_can_name_is_refused() {
        assert_eq!(retention(73_000).unwrap(), Duration::from_secs(73_000 * 86_400));
        for days in [73_001, 200_000, u64::MAX] {
            assert!(retention(days).is_err(), "{days}");
        }
    }
}
