//! Resolved configuration of `serve`: its options, and the defaults of those that are not set.

use super::extra_packages::ExtraPackages;
use super::options::{
    Args, HostAddress, KindEnvironment, ListenAddress, McpCommandLine, ServeOptions, WorkspaceLimit,
};
use super::public_url::PublicUrl;
use crate::cli::engine_args::LocalDataArgs;
use crate::cli::{CliError, model_args};
use agent::ModelSettings;
use api::RequestLimits;
use engine::HostResources;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::time::Duration;
use types::{Limit, LimitsRequest, OperatorCaps, WorkKind};

/// Default of `--task-seconds`: a client that waits longer can poll instead.
pub(in crate::cli) const TASK_SECONDS: u64 = 60;
/// Default of `--drain-seconds`: container runtimes kill a process 30 seconds after the signal, or
/// sooner.
const DRAIN: Duration = Duration::from_secs(20);
const MIB: u64 = 1024 * 1024;
/// Maximum retention: two hundred years. Timestamps of records cannot represent much later dates.
const RETENTION_DAYS_MAX: u64 = 73_000;

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
    pub(super) public_url: Option<PublicUrl>,
    pub(super) file_url_lifetime: Duration,
    pub(super) oauth: Option<OAuth>,
    pub(super) request_limits: RequestLimits,
    pub(super) drain: Duration,
    pub(super) task_after: Duration,
    pub(super) log: String,
    pub(super) otlp_endpoint: Option<String>,
    pub(super) models: ModelSettings,
    /// Additional packages of the default environment that are not yet installed.
    pub(super) packages: Option<ExtraPackages>,
    pub(super) service: service::Config,
    pub(super) engine: engine::Config,
}

impl ServeConfig {
    pub(super) fn resolve(args: Args) -> Result<Self, CliError> {
        let mut options = args.merge_with_file()?;
        let paths = LocalDataArgs::new(options.data.take(), options.python.take());
        let engine = engine_config(&mut options, paths.service_config()?)?;
        let records = options.records.take().unwrap_or(paths.data()?);
        let caller_token_service = caller_token_service(&options)?;
        let service = service_config(&mut options, service::Config::new(records))?;
        let service = service::Config { caller_token_service, ..service };
        Ok(Self {
            listen: options.listen.unwrap_or(ListenAddress::DEFAULT).0,
            file_url_lifetime: file_url_lifetime(options.file_url_seconds)?,
            public_hosts: options.public_host.unwrap_or_default(),
            public_url: options.public_url,
            oauth: OAuth::from_options(options.oauth_issuer, options.oauth_audience)?,
            request_limits: RequestLimits {
                rate_per_second: service.key_rate_per_second,
                concurrency: service.key_concurrency,
                mcp_sessions: options
                    .mcp_sessions
                    .map_or(mcp::SESSIONS_PER_PRINCIPAL, NonZeroUsize::get),
            },
            drain: seconds(options.drain_seconds, DRAIN),
            task_after: seconds(options.task_seconds, Duration::from_secs(TASK_SECONDS)),
            log: options.log.unwrap_or_else(|| "info".to_owned()),
            otlp_endpoint: options.otlp_endpoint,
            models: model_args::model_settings(
                options.model,
                options.model_endpoint.unwrap_or_default(),
                options.record,
            )?,
            packages: options.packages,
            service,
            engine,
        })
    }
}

/// Applies the options to the default configuration of the engine.
fn engine_config(
    options: &mut ServeOptions,
    defaults: engine::Config,
) -> Result<engine::Config, CliError> {
    Ok(engine::Config {
        imports: options.imports.take(),
        caps: operator_caps(defaults.caps, limits(options))?,
        pool_ready: options.pool.map_or(defaults.pool_ready, usize::from),
        sandboxes_max: options.sandboxes.map_or(defaults.sandboxes_max, NonZeroU32::get),
        queue_max: options.queue.unwrap_or(defaults.queue_max),
        queue_wait: seconds(options.queue_seconds, defaults.queue_wait),
        expiry: engine::Expiry {
            idle: seconds(options.idle_seconds.map(NonZeroU64::get), defaults.expiry.idle),
            ..defaults.expiry
        },
        ..defaults
    })
}

/// Applies the options to the default configuration of the service.
fn service_config(
    options: &mut ServeOptions,
    defaults: service::Config,
) -> Result<service::Config, CliError> {
    let host_entries = options.resolve.take().unwrap_or_default().into_iter();
    let output_budget = output_budget_bytes(HostResources::detect().memory_bytes);
    Ok(service::Config {
        secrets_key: secrets_key()?,
        audit_key: options.audit_key.take(),
        skills: options.skills.take(),
        environment: options.environment.take().unwrap_or(defaults.environment.clone()),
        environments: kind_environments(options.environment_for.take().unwrap_or_default()),
        document_bytes_max: mib_to_bytes(options.document_mib, defaults.document_bytes_max),
        output_bytes_max: mib_to_bytes(options.output_budget_mib, output_budget),
        workspace_limits: workspace_limits(options.workspace_limit.take().unwrap_or_default()),
        workspace_bytes_max: mib_to_bytes(options.workspace_mib, defaults.workspace_bytes_max),
        tool_bytes_max: options.tool_bytes.map_or(defaults.tool_bytes_max, NonZeroUsize::get),
        retention: days("retention", options.retention_days, defaults.retention)?,
        audit_retention: days("audit", options.audit_days, defaults.audit_retention)?,
        approval_retention: days("approval", options.approval_days, defaults.approval_retention)?,
        approval_timeout: seconds(
            options.approval_seconds.map(NonZeroU64::get),
            defaults.approval_timeout,
        ),
        key_rate_per_second: options.key_rate.map_or(defaults.key_rate_per_second, NonZeroU32::get),
        key_concurrency: options.key_concurrency.map_or(defaults.key_concurrency, NonZeroU32::get),
        fetch_exceptions: options.fetch_from.take().unwrap_or_default(),
        mcp_hosts: options.mcp_server.take().unwrap_or_default(),
        mcp_commands: mcp_commands(options.mcp_command.take().unwrap_or_default())?,
        static_hosts: host_entries.map(|HostAddress(name, address)| (name, address)).collect(),
        ..defaults
    })
}

/// Returns the MCP commands, whose names must differ.
fn mcp_commands(lines: Vec<McpCommandLine>) -> Result<Vec<service::McpCommand>, CliError> {
    let mut commands: Vec<service::McpCommand> = Vec::with_capacity(lines.len());
    for McpCommandLine(command) in lines {
        if commands.iter().any(|other| other.name == command.name) {
            let name = command.name;
            return Err(CliError::usage(format!("--mcp-command {name} is set twice")));
        }
        commands.push(command);
    }
    Ok(commands)
}

/// Returns the maximum limits that the operator has set.
fn limits(options: &ServeOptions) -> LimitsRequest {
    let value = |option: Option<NonZeroU64>| option.map(NonZeroU64::get);
    LimitsRequest {
        wall_ms: value(options.run_milliseconds),
        cpu_ms: value(options.max_cpu_ms),
        cpu_percent: value(options.max_cpu_percent),
        memory_bytes: value(options.max_memory_bytes),
        processes: value(options.max_processes),
        open_files: value(options.max_open_files),
        disk_bytes: value(options.max_disk_bytes),
        disk_inodes: value(options.max_disk_inodes),
        output_bytes: value(options.max_output_bytes),
        result_bytes: value(options.max_result_bytes),
    }
}

/// Returns the environment of each kind of work for which the operator has chosen one.
fn kind_environments(options: Vec<KindEnvironment>) -> HashMap<WorkKind, String> {
    options.into_iter().map(|KindEnvironment(kind, name)| (kind, name)).collect()
}

/// Returns the limits of each workspace that has its own.
fn workspace_limits(options: Vec<WorkspaceLimit>) -> HashMap<String, LimitsRequest> {
    let mut limits: HashMap<String, LimitsRequest> = HashMap::new();
    for WorkspaceLimit { workspace, limit, max } in options {
        limits.entry(workspace).or_default().set(limit, max);
    }
    limits
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
                "--oauth-audience requires --oauth-issuer, the issuer of the access tokens",
            )),
        }
    }

    /// The audience is the address by which clients know this server, which may be that of a proxy.
    pub(super) fn issuer(
        &self,
        address: SocketAddr,
        public_url: Option<&PublicUrl>,
        public_hosts: &[String],
    ) -> Result<service::Issuer, CliError> {
        let audience = match (&self.audience, public_url, public_hosts.first()) {
            (Some(audience), ..) => audience.clone(),
            (None, Some(url), _) => format!("{}/mcp", url.as_str()),
            (None, None, Some(host)) => format!("https://{host}/mcp"),
            (None, None, None) if address.ip().is_unspecified() => {
                return Err(CliError::usage(format!(
                    "access tokens cannot be issued for {address}; set their audience with --oauth-audience"
                )));
            }
            (None, None, None) => format!("http://{address}/mcp"),
        };
        service::Issuer::new(&self.issuer, &audience)
            .map_err(|error| CliError::usage(format!("--oauth-issuer: {error}")))
    }
}

/// The service that gets the access tokens of callers.
fn caller_token_service(
    options: &ServeOptions,
) -> Result<Option<service::CallerTokenService>, CliError> {
    let Some(text) = &options.pass_caller_token else { return Ok(None) };
    if options.oauth_issuer.is_none() {
        return Err(CliError::usage(
            "--pass-caller-token requires --oauth-issuer, the issuer of the access tokens",
        ));
    }
    let parsed = service::CallerTokenService::parse(text);
    parsed.map(Some).map_err(|error| CliError::usage(format!("--pass-caller-token: {error}")))
}

fn seconds(option: Option<u64>, default: Duration) -> Duration {
    option.map_or(default, Duration::from_secs)
}

fn mib_to_bytes(option: Option<NonZeroU64>, default: u64) -> u64 {
    option.map_or(default, |mib| mib.get().saturating_mul(MIB))
}

/// Returns the caps of the machine, with those that the operator has set.
fn operator_caps(defaults: OperatorCaps, limits: LimitsRequest) -> Result<OperatorCaps, CliError> {
    let (OperatorCaps(mut caps), mut highest) = (defaults, OperatorCaps::HIGHEST);
    for (limit, value) in Limit::ALL.into_iter().zip(limits.values()) {
        let Some(value) = value else { continue };
        let option = match limit {
            Limit::WallMs => "run-milliseconds".to_owned(),
            limit => format!("max-{}", limit.name().replace('_', "-")),
        };
        let (min, max) = (limit.min_value(), *limit.value_mut(&mut highest));
        if !(min..=max).contains(&value) {
            return Err(CliError::usage(format!(
                "--{option} {value} is out of range; it must be from {min} to {max}"
            )));
        }
        *limit.value_mut(&mut caps) = value;
    }
    Ok(OperatorCaps(caps))
}

/// Returns the default output budget for this much memory. Including all copies of output, the
/// server then stays below a quarter of the memory.
fn output_budget_bytes(memory_bytes: u64) -> u64 {
    (memory_bytes / 8).clamp(64 * MIB, 4096 * MIB)
}

/// Returns the value of `--file-url-seconds`.
fn file_url_lifetime(option: Option<NonZeroU64>) -> Result<Duration, CliError> {
    let most = service::FILE_URL_LIFETIME_MAX.as_secs();
    match option.map(NonZeroU64::get) {
        Some(seconds) if seconds > most => Err(CliError::usage(format!(
            "--file-url-seconds {seconds} is too long; the maximum is {most}"
        ))),
        seconds => Ok(seconds.map_or(service::FILE_URL_LIFETIME, Duration::from_secs)),
    }
}

/// Returns the value of `--<option>-days`.
fn days(option: &str, value: Option<u64>, default: Duration) -> Result<Duration, CliError> {
    match value {
        None => Ok(default),
        Some(days) if days > RETENTION_DAYS_MAX => Err(CliError::usage(format!(
            "--{option}-days {days} is too long; the maximum is {RETENTION_DAYS_MAX}"
        ))),
        Some(days) => Ok(Duration::from_secs(days * 24 * 60 * 60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn tokens_are_for_the_address_by_which_the_server_is_known() {
        let audience_at = |given: Option<&str>, listen: &str, url: Option<&str>, hosts: &[&str]| {
            let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
            let issuer = Some("https://login.example.org".to_owned());
            let oauth = OAuth::from_options(issuer, given.map(str::to_owned)).unwrap().unwrap();
            let url = url.map(|url| url.parse::<PublicUrl>().unwrap());
            let issuer = oauth.issuer(listen.parse().unwrap(), url.as_ref(), &hosts);
            issuer.map(|it| it.audience().to_owned())
        };
        let audience = |given: Option<&str>, listen: &str, hosts: &[&str]| {
            audience_at(given, listen, None, hosts)
        };
        let public = audience_at(None, "0.0.0.0:80", Some("https://c.example/"), &["a.example"]);
        assert_eq!(public.unwrap(), "https://c.example/mcp");
        let here = "127.0.0.1:7117";
        assert_eq!(audience(None, here, &[]).unwrap(), "http://127.0.0.1:7117/mcp");
        assert_eq!(audience(None, here, &["a.example"]).unwrap(), "https://a.example/mcp");
        let explicit = "https://b.example/tools";
        assert_eq!(audience(Some(explicit), "0.0.0.0:80", &["a.example"]).unwrap(), explicit);
        assert!(audience(None, "0.0.0.0:80", &[]).is_err());
        assert!(OAuth::from_options(None, Some(explicit.to_owned())).is_err());
    }

    #[test]
    fn a_signed_url_is_valid_for_a_week_at_most() {
        let lifetime = |seconds| file_url_lifetime(NonZeroU64::new(seconds));
        assert_eq!(lifetime(60).unwrap(), Duration::from_secs(60));
        assert_eq!(lifetime(604_800).unwrap(), service::FILE_URL_LIFETIME_MAX);
        assert_eq!(file_url_lifetime(None).unwrap(), service::FILE_URL_LIFETIME);
        let refused = lifetime(604_801).unwrap_err().to_string();
        assert!(refused.contains("--file-url-seconds 604801 is too long"), "{refused}");
    }

    #[test]
    fn t77_a_cap_that_is_said_holds_and_one_that_cannot_be_is_refused_by_its_name() {
        let usual = OperatorCaps::for_machine(2, 2048 * MIB);
        let settings = |text: &str| {
            operator_caps(usual, limits(&toml::from_str::<ServeOptions>(text).unwrap()))
        };
        let OperatorCaps(caps) =
            settings("max-memory-bytes = 268435456\nrun-milliseconds = 5000").unwrap();
        assert_eq!((caps.memory_bytes, caps.wall_ms), (256 * MIB, 5000));
        assert_eq!(caps.processes, usual.0.processes);
        for (wrong, name) in [
            ("max-output-bytes = 67108865", "--max-output-bytes"),
            ("max-memory-bytes = 1", "--max-memory-bytes"),
            ("run-milliseconds = 3600001", "--run-milliseconds"),
        ] {
            assert!(settings(wrong).unwrap_err().to_string().contains(name), "{wrong}");
        }
    }

    #[test]
    fn a_command_of_the_operator_is_a_name_a_program_and_its_arguments() {
        let lines =
            |texts: &[&str]| texts.iter().map(|text| text.parse()).collect::<Result<_, _>>();
        let found = mcp_commands(lines(&["a=/bin/a --root /x", "b=b"]).unwrap()).unwrap();
        assert_eq!(found[0].program, PathBuf::from("/bin/a"));
        assert_eq!(found[0].arguments, ["--root", "/x"]);
        assert!(mcp_commands(lines(&["a=a", "a=b"]).unwrap()).is_err());
        for wrong in ["a", "a=", "=a", "a b=c"] {
            assert!(lines(&[wrong]).is_err(), "{wrong}");
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
        let retention = |given| days("retention", Some(given), Duration::ZERO);
        assert_eq!(retention(73_000).unwrap(), Duration::from_secs(73_000 * 86_400));
        for days in [73_001, 200_000, u64::MAX] {
            assert!(retention(days).is_err(), "{days}");
        }
    }
}
